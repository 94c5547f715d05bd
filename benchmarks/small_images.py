"""Measure the effect of gradient clipping and learning rate on a small image set.

    python benchmarks/small_images.py      # some minutes on a CPU

The set has 540 training and 300 test images of 32 x 32: a disc, a square or stripes, in random colours with noise. With
a batch size of 512 an epoch is one step. The network is ResNet-20, with seeds 0 to 2. docs/howto/images.md has the
results.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path

import numpy as np

from lresnet import cli

SETTINGS = {
    "12 epochs": ["--epochs", "12"],
    "12 epochs, without clipping": ["--epochs", "12", "--clip", "1e9"],
    "40 epochs": ["--epochs", "40"],
    "40 epochs, rate 0.8": ["--epochs", "40", "--lr", "0.8"],
    "40 epochs, Euclidean baseline": ["--epochs", "40", "--method", "euclidean"],
}
FIXED = ["--task", "images", "--model", "lorentz_resnet20", "--holdout", "0", "--test", "--device", "cpu"]


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


def main() -> None:
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


if __name__ == "__main__":
    main()
