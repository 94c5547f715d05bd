"""Out-of-distribution (OOD) detection: does the network notice images unlike its training images?

    python examples/out_of_distribution.py --data cifar10 --ood svhn --epochs 30    # one H200, 3 seeds, 75 s
    python examples/out_of_distribution.py --data patterns                          # one CPU core, 3 seeds, 61 s

AUROC of the energy in percent, Lorentz and Euclidean baseline: 91.4 ± 1.9 and 85.0 ± 3.1 on CIFAR-10 against SVHN, 94.2
± 2.9 and 96.2 ± 0.4 on generated images. With Holm's correction over all scores, no difference is shown in either.

A network computes a score for every test image (in-distribution) and for every OOD image; a high score means "like the
training images". AUROC is the probability that a test image scores higher than an OOD image. FPR95 is the share of OOD
images that are accepted at the threshold that accepts 95 % of the test images: less is better. The Euclidean baseline
is the same network in flat space with the same budget. Both methods have the same settings, and nothing is tuned: no
OOD image is used before the table. Without --data the script takes CIFAR-10 and SVHN if both are under LRESNET_DATA;
otherwise it generates images: stripes in three directions, and rings as OOD images. `--runs A B` takes finished runs of
`lresnet train` or of cifar_resnet.py instead of training.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import lresnet
from lresnet.data.files import list_datasets
from lresnet.runs import ImageTaskConfig
from lresnet.runs.detection import available_scores, judge, score_sets
from lresnet.runs.statistics import paired_difference, summarise, verdicts

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", help="training images: cifar10, cifar100, patterns, or your own folder or .npz")
parser.add_argument("--ood", default="svhn", help="OOD images: a name, or your own folder or .npz")
parser.add_argument("--runs", nargs="+", type=Path, help="folders of finished runs, all on the same images")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
parser.add_argument("--out", type=Path, default=Path(), help="where the runs and the picture go")
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)


# 1. The images: in-distribution and OOD.
def draw_pattern(along: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return uint8 [N, 16, 16, 3]: two random colours that alternate along the coordinate [N, 16, 16], with noise."""
    count = len(along)
    phase, period = draw.uniform(0, 16, (count, 1, 1)), draw.uniform(4, 8, (count, 1, 1))
    wave = np.sin(2 * np.pi * (along + phase) / period)[..., None]
    one, other = draw.uniform(0, 255, (2, count, 1, 1, 3))
    return (np.where(wave > 0, one, other) + draw.normal(0, 40, (count, 16, 16, 3))).clip(0, 255).astype(np.uint8)


def write_patterns(stripes: Path, rings: Path) -> None:
    draw, arrays = np.random.default_rng(0), {"classes": np.array(["horizontal", "vertical", "diagonal"])}
    y, x = np.mgrid[:16, :16]
    for part, count in (("train", 600), ("test", 600)):
        labels = np.arange(count) % 3
        arrays |= {f"{part}_images": draw_pattern(np.stack([y, x, x + y])[labels], draw), f"{part}_labels": labels}
    np.savez(stripes, **arrays)
    np.savez(rings, images=draw_pattern(np.hypot(x - 7.5, y - 7.5)[None].repeat(600, 0), draw))


if options.data is None and not options.runs:
    complete = {row.name for row in list_datasets() if row.present == row.files}
    options.data = "cifar10" if {"cifar10", "svhn"} <= complete else "patterns"
if options.data == "patterns":
    options.data, options.ood = str(options.out / "stripes.npz"), str(options.out / "rings.npz")
    write_patterns(Path(options.data), Path(options.ood))
is_own = options.data not in lresnet.data.IMAGE_SETS


# 2. The networks: one of each method and seed, or those of the given folders.
def train(method: str, seed: int) -> lresnet.Run:
    task = ImageTaskConfig(options.data if not is_own else str(Path(options.data).absolute()))
    images = lresnet.data.load_images(task.name)
    torch.manual_seed(seed)
    model = lresnet.create_model(
        "lorentz_resnet20", residual=method, num_classes=len(images.classes), in_channels=images.train.images.shape[-1]
    )
    config = lresnet.TrainConfig(
        epochs=options.epochs,
        lr=0.05 if is_own else 0.4,
        optimizer="sgd",
        weight_decay=5e-4,
        lr_schedule="cosine",
        warmup=options.epochs / 5,
        batch_size=50 if is_own else 512,
        clip=1.0,
        keep="last",
        seed=seed,
    )
    return lresnet.fit(task, model, config, out=options.out / f"ood-{method}-{seed}", device=options.device)


if options.runs:
    runs = [lresnet.Run.open(folder, device=options.device) for folder in options.runs]
else:
    runs = [train(method, seed) for seed in range(options.seeds) for method in ("lorentz", "euclidean")]

# 3. The scores: two of the logits, and the distance of the embedding to the origin (its norm for the baseline).
LABELS = ("energy", "softmax", "distance to the origin")
data = runs[0].images
outside = lresnet.data.load_ood_set(options.ood, size=tuple(data.test.images.shape[1:3]))
found, metrics = {}, {}
for run in runs:
    key = (run.record.method, run.record.seed)
    names = [available_scores(run.model)[i] for i in (0, 1, 3)]
    found[key] = score_sets(run.model, data, [outside], scores=names)
    rows = [row for row in judge(found[key]) if row["sampling"] == "full"]
    for label, row in zip(LABELS, rows, strict=True):
        for metric in ("auroc", "fpr95"):
            metrics.setdefault((label, metric), {}).setdefault(key[0], {})[key[1]] = row[metric]
    print(f"{key[0]:9} seed {key[1]}: test accuracy {run.evaluate()['accuracy']:.2f} %, {run.record.seconds:.0f} s")

# 4. The table. "Better" means that the 95 % interval of the paired difference excludes zero, after Holm's correction.
print(f"\n{data.name}, {len(data.test):,} test images, against {outside.name}, {len(outside.images):,} images")
print(f"percent, mean ± deviation over seeds; {runs[0].record.hardware}. {outside.note}")
rows = {key: (of.get("lorentz", {}), of.get("euclidean", {})) for key, of in metrics.items()}
pairs = {key: paired_difference(*row) for key, row in rows.items()}
signed = {key: pair if key[1] == "auroc" else -pair for key, pair in pairs.items() if pair is not None}
decided = dict(zip(signed, verdicts(list(signed.values())), strict=True))
print(f"{'score':24}{'':8}{'Lorentz':>14}{'Euclidean':>14}  Lorentz minus Euclidean")
for (label, metric), row in rows.items():
    cells = [f"{summarise(values.values()):.1f}" if values else "" for values in row]
    pair = pairs[label, metric]
    last = "" if pair is None else f"{pair:+.1f}: {decided[label, metric]}"
    print(f"{label:24}{metric:8}{cells[0]:>14}{cells[1]:>14}  {last}")

# 5. Histograms of the first network of each method.
first = {method: scores for (method, _), scores in reversed(found.items())}
figure = Figure(figsize=(10.5, 2.6 * len(first)), layout="constrained")
for row, (method, scores) in zip(figure.subplots(len(first), 3, squeeze=False), sorted(first.items()), strict=True):
    for axes, label, score in zip(row, LABELS, scores.inside, strict=True):
        inside, other = scores.inside[score].cpu(), scores.outside[0].scores[score].cpu()
        bins = np.linspace(min(inside.min(), other.min()), max(inside.max(), other.max()), 50)
        axes.hist(inside, bins, density=True, color="#0072B2", alpha=0.5, label=f"test images ({data.name})")
        axes.hist(other, bins, density=True, histtype="step", color="#D55E00", lw=1.8, label=f"OOD ({outside.name})")
        auroc = lresnet.metrics.ood_metrics(inside, other)["auroc"]
        axes.set(title=f"{method.capitalize()}: AUROC {auroc:.1f} %", xlabel=label, yticks=[])
figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
figure.savefig(options.out / "out_of_distribution.png", dpi=120)
print(f"the picture is {options.out / 'out_of_distribution.png'}")
