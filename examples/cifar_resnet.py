"""CIFAR-10: a Lorentz ResNet-18 and its Euclidean baseline in 15 epochs, from the search to the test set.

    python examples/cifar_resnet.py --out runs/example    # one NVIDIA H200, 3 seeds, 2 min 34 s for all 12 trainings

Test accuracy: Lorentz 92.37 ± 0.18 %, Euclidean baseline 92.29 ± 0.16 %. Difference +0.08 ± 0.30: none shown.

The Euclidean baseline is the same network in flat space: residual x + y, mean pooling, linear head. Both methods get
the same budget. A learning rate is chosen for each of them on a tenth of the training images; the chosen one then
trains on all training images with three seeds, and each of these networks reads the test set once.

CIFAR-10 is searched under LRESNET_DATA and downloaded if it is missing. Your own images are a folder with train/CLASS/*
and test/CLASS/*, or a .npz with train_images, train_labels, test_images and test_labels:

    python examples/cifar_resnet.py --data my_images --size 32
    python examples/cifar_resnet.py --data patterns --model lorentz_resnet20 --batch-size 48  # generated; runs on a CPU
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import lresnet
from lresnet.runs import ImageTaskConfig
from lresnet.runs.statistics import paired_difference, summarise, verdict

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", default="cifar10", help="cifar10, cifar100, patterns, or your own folder or .npz")
parser.add_argument("--size", type=int, help="resize the images of your own folder to squares with this side")
parser.add_argument("--model", default="lorentz_resnet18", help="or lorentz_resnet20, lorentz_resnet32")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--batch-size", type=int, default=512)
parser.add_argument("--seeds", type=int, default=3, help="number of final trainings of each method")
parser.add_argument("--rates", type=float, nargs="+", default=[0.2, 0.4, 0.8], help="learning rates to choose from")
parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
parser.add_argument("--out", type=Path, default=Path(), help="where the folders of the runs go")
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)


# 1. The images. A run records their name or path, so that `lresnet predict` and `lresnet ood` find them.
def write_patterns(path: Path) -> None:
    """Write 480 training and 240 test images of 16 x 16: stripes in three directions, random colours, noise."""
    draw, arrays = np.random.default_rng(0), {"classes": np.array(["horizontal", "vertical", "diagonal"])}
    y, x = np.mgrid[:16, :16]
    for part, count in (("train", 480), ("test", 240)):
        labels = np.arange(count) % 3
        along = np.stack([y, x, x + y])[labels]
        phase, period = draw.uniform(0, 16, (count, 1, 1)), draw.uniform(4, 8, (count, 1, 1))
        wave = np.sin(2 * np.pi * (along + phase) / period)[..., None]
        one, other = draw.uniform(0, 255, (2, count, 1, 1, 3))
        pixels = np.where(wave > 0, one, other) + draw.normal(0, 40, (count, 16, 16, 3))
        arrays |= {f"{part}_images": pixels.clip(0, 255).astype(np.uint8), f"{part}_labels": labels}
    np.savez(path, **arrays)


name = options.data
if name == "patterns":
    name = str(options.out / "patterns.npz")
    write_patterns(Path(name))
is_own = name not in lresnet.data.IMAGE_SETS
if is_own:
    name = str(Path(name).absolute())
data = lresnet.data.load_images(name, size=options.size)
height, width, channels = data.train.images.shape[1:]
print(f"{options.data}: {len(data.train):,} training images, {len(data.test):,} test images, {width} x {height} pixels")


# 2. One training. The test set is not read here.
def train(method: str, rate: float, seed: int, holdout: float, folder: str) -> lresnet.Run:
    task = ImageTaskConfig(name, size=options.size, holdout=holdout)
    torch.manual_seed(seed)
    model = lresnet.create_model(
        options.model, residual=method, num_classes=len(data.classes), in_channels=channels, curvature=-0.02
    )
    config = lresnet.TrainConfig(
        epochs=options.epochs,
        lr=rate,
        optimizer="sgd",
        weight_decay=5e-4,
        decay="all",
        lr_schedule="cosine",
        warmup=options.epochs / 5,
        batch_size=options.batch_size,
        clip=1.0 if is_own else None,  # small sets have few steps, and the first ones are then large
        keep="last",
        eval_every=options.epochs,
        seed=seed,
        augment=lresnet.train.Augment(pad=4, flip=True, cutout=8, label_smoothing=0.1),
    )
    return lresnet.fit(task, model, config, out=options.out / folder, device=options.device)


# 3. Choose a learning rate for each method on held-out training images, then train and test.
methods = ("lorentz", "euclidean")
chosen: dict[str, float] = {}
accuracy: dict[str, dict[int, float]] = {method: {} for method in methods}
for method in methods:
    validation = {}
    for rate in options.rates:
        run = train(method, rate, seed=0, holdout=0.1, folder=f"search-{method}-{rate:g}")
        validation[rate] = run.record.validation
        print(f"{method:9}  lr {rate:<4g}  validation {run.record.validation:6.2f} %  {run.record.seconds:5.1f} s")
    chosen[method] = max(validation, key=validation.get)
for seed in range(options.seeds):
    for method in methods:
        run = train(method, chosen[method], seed, holdout=0.0, folder=f"{method}-{seed}")
        accuracy[method][seed] = run.evaluate()["accuracy"]
        print(f"{method:9}  seed {seed}   test       {accuracy[method][seed]:6.2f} %  {run.record.seconds:5.1f} s")

# 4. The result. "Better" and "worse" mean that the 95 % interval of the paired difference excludes zero.
print(f"\n{options.model}, {options.epochs} epochs, {run.record.hardware}; test accuracy, mean ± deviation over seeds")
for method in methods:
    print(f"{method:9}  {summarise(accuracy[method].values()):.2f} %  (learning rate {chosen[method]:g})")
difference = paired_difference(accuracy["lorentz"], accuracy["euclidean"])
if difference is not None:
    print(f"difference {difference:+.2f} (95 % interval over {difference.n} seeds): {verdict(difference)}")
print(f"the runs are in {options.out}")
