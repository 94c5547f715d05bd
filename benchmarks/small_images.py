"""Measure `lresnet train` on small sets of images: with no options, and the effect of clipping and learning rate.

    python benchmarks/small_images.py digits      # about 6 minutes on two cores; needs scikit-learn
    python benchmarks/small_images.py commands    # about 2 minutes; needs CIFAR-10
    python benchmarks/small_images.py mirror      # some seconds; needs scikit-learn, CIFAR-10 and CIFAR-100
    python benchmarks/small_images.py clipping    # some minutes

``digits`` writes scikit-learn's 1,797 handwritten digits (8 x 8) as PNG files of 16 x 16 pixels: once as a folder of
classes, which `lresnet train` splits itself, and once as train/ and test/, stratified 80 : 20. It trains with no
options, on seeds 0 to 2, and the Euclidean baseline beside it. ``commands`` writes the first 2,000 training images of
CIFAR-10 as a folder of classes and times `lresnet train`, `lresnet evaluate` and `lresnet predict` on 200 files, each
from its start to its end. Both append lines to results/small_images.jsonl (or --out). ``mirror`` prints the test that
decides whether training images are mirrored.

``clipping`` trains CIFAR-10's recipe on 540 training and 300 test images of 32 x 32: a disc, a square or stripes, in
random colours with noise. With a batch size of 512 an epoch is one step. The network is ResNet-20, with seeds 0 to 2.
docs/howto/images.md has the results.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lresnet import cli

RESULTS = Path(__file__).parents[1] / "results" / "small_images.jsonl"

SETTINGS = {
    "12 epochs": ["--epochs", "12"],
    "12 epochs, without clipping": ["--epochs", "12", "--clip", "1e9"],
    "40 epochs": ["--epochs", "40"],
    "40 epochs, rate 0.8": ["--epochs", "40", "--lr", "0.8"],
    "40 epochs, Euclidean baseline": ["--epochs", "40", "--method", "euclidean"],
}
FIXED = [
    "--task",
    "images",
    "--recipe",
    "fast",
    "--model",
    "lorentz_resnet20",
    "--holdout",
    "0",
    "--test",
    "--device",
    "cpu",
]


def shape(kind: int, draw: np.random.Generator) -> np.ndarray:
    """Return one image, uint8 [32, 32, 3], of a disc (0), a square (1) or stripes (2)."""
    y, x = np.mgrid[:32, :32]
    (across, down), radius = draw.uniform(10, 22, 2), draw.uniform(5, 9)
    inside = (
        (x - across) ** 2 + (y - down) ** 2 < radius**2,
        (abs(x - across) < radius) & (abs(y - down) < radius),
        (x + int(across)) // 3 % 2 == 0,
    )[kind]
    one, other = draw.uniform(0, 255, (2, 3))
    noisy = np.where(inside[..., None], one, other) + draw.normal(0, 20, (32, 32, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def write_shapes(path: Path) -> None:
    draw, arrays = np.random.default_rng(0), {}
    for part, count in (("train", 540), ("test", 300)):
        arrays[f"{part}_labels"] = np.arange(count) % 3
        arrays[f"{part}_images"] = np.stack([shape(kind, draw) for kind in arrays[f"{part}_labels"]])
    np.savez(path, **arrays)


def clipping() -> None:
    with tempfile.TemporaryDirectory() as place:
        write_shapes(Path(place, "shapes.npz"))
        for number, (name, options) in enumerate(SETTINGS.items()):
            right = [accuracy(Path(place), number, seed, options) for seed in range(3)]
            print(f"{name}: {', '.join(f'{value:.1f}' for value in right)} % of the test images", flush=True)


def accuracy(place: Path, number: int, seed: int, options: list[str]) -> float:
    out = place / f"{number}-{seed}"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        cli.main(["train", str(place / "shapes.npz"), *FIXED, *options, "--seed", str(seed), "--out", str(out)])
    return json.loads((out / "evaluation.json").read_text())["metrics"]["accuracy"]


def write_images(images: np.ndarray, labels: np.ndarray, folder: Path) -> None:
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        file = folder / str(label) / f"{number:05d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)


def digit_images() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits, uint8 [1797, 16, 16], and their labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey = (digits.images * 255 / 16).round().astype(np.uint8)
    return np.stack([np.asarray(Image.fromarray(image).resize((16, 16), Image.BILINEAR)) for image in grey]), (
        digits.target
    )


def write_digits(place: Path) -> None:
    from sklearn.model_selection import train_test_split

    images, labels = digit_images()
    write_images(images, labels, place / "flat")
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    for part, index in (("train", train), ("test", test)):
        write_images(images[index], labels[index], place / "parts" / part)


def digits(seeds: int, layouts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a line for each layout, method and seed."""
    with tempfile.TemporaryDirectory() as place:
        write_digits(Path(place))
        for layout in layouts:
            for method in ("lorentz", "euclidean"):
                for seed in range(seeds):
                    run = Path(place, "runs", f"{layout}-{method}-{seed}")
                    data = str(Path(place, layout))
                    timed("train", data, "--method", method, "--seed", str(seed), "--device", "cpu", "--out", str(run))
                    timed("evaluate", str(run), "--device", "cpu")
                    yield line(run, f"digits, {layout}", method, seed, {}, "digits")


def commands() -> Iterator[dict[str, Any]]:
    """Yield a line with the wall-clock time of the three commands on 2,000 images of CIFAR-10."""
    from lresnet.data import load_images

    cifar = load_images("cifar10")
    images, labels = cifar.train.images[:2000].numpy(), np.array(cifar.classes)[cifar.train.labels[:2000]]
    with tempfile.TemporaryDirectory() as place:
        write_images(images, labels, Path(place, "photos"))
        files = [str(file) for file in sorted(Path(place, "photos").glob("*/*.png"))[::10]]
        for method in ("lorentz", "euclidean"):
            run = Path(place, "runs", method)
            data = str(Path(place, "photos"))
            seconds = {
                "train": timed("train", data, "--method", method, "--device", "cpu", "--out", str(run)),
                "evaluate": timed("evaluate", str(run), "--device", "cpu"),
                "predict": timed("predict", str(run), *files, "--device", "cpu"),
            }
            yield line(run, "cifar10, 2,000 images, flat", method, 0, seconds, "commands")


def mirror() -> None:
    """Print the mirror test of the digits and of the first 2,000 training images of CIFAR-10 and CIFAR-100."""
    import torch

    from lresnet.data import ImageSet, load_images
    from lresnet.runs.own_images import mirror_test

    images, labels = digit_images()
    sets = {"digits": ImageSet(torch.from_numpy(images)[..., None], torch.from_numpy(labels))}
    for name in ("cifar10", "cifar100"):
        sets[name] = load_images(name).train.pick(torch.arange(2000))
    for name, part in sets.items():
        print(f"{name}, {len(part):,} images: {mirror_test(part).reason}")


def timed(*words: str) -> float:
    """Run `lresnet` in a process of its own and return its wall-clock seconds."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "lresnet", *words], check=True, stdout=subprocess.DEVNULL)
    return round(time.perf_counter() - started, 1)


def line(run: Path, cell: str, method: str, seed: int, seconds: dict[str, float], what: str) -> dict[str, Any]:
    """Return a line of results: the test accuracy of a run and its settings."""
    record = json.loads((run / "evaluation.json").read_text())
    images = record["images"]
    config = {name: value for part in ("model", "train") for name, value in record[part].items() if name != "seed"}
    return {
        "benchmark": "small_images",
        "cell": cell,
        "method": method,
        "protocol": "no options",
        "seed": seed,
        "split": None,
        "value": record["value"],
        "metrics": record["metrics"] | {f"seconds of {verb}": value for verb, value in seconds.items()},
        "validation": record["validation"],
        "images": {part: images[f"{part}_images"] for part in ("training", "test")},
        "config": config | {"holdout": record["task"]["holdout"]},
        "seconds": record["seconds"],
        "load": round(os.getloadavg()[0], 1),
        "command": f"python benchmarks/small_images.py {what}",
        "versions": record["versions"],
        "hardware": f"{record['hardware']}, {os.cpu_count()} cores",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["digits", "commands", "mirror", "clipping"])
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds of digits")
    parser.add_argument("--layouts", nargs="+", default=["flat", "parts"], help="layouts of digits")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file to append lines to")
    options = parser.parse_args()
    if options.what in ("clipping", "mirror"):
        clipping() if options.what == "clipping" else mirror()
        return
    for found in digits(options.seeds, options.layouts) if options.what == "digits" else commands():
        with options.out.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(f"{found['cell']}, {found['method']}, seed {found['seed']}: {found['metrics']}", flush=True)


if __name__ == "__main__":
    main()
