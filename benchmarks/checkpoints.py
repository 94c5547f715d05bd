"""Time epochs on images with a checkpoint after each, against epochs without: python benchmarks/checkpoints.py

`lresnet.fit` trains lorentz_resnet20 on random images of 32 x 32 on one core: with a folder and `checkpoint_every=1`,
and without a folder, in turn. Times are process time, which other programs change less than wall-clock time. Two
figures are printed: the ratio of the medians of the epochs in each pair, and the share of an epoch that
`save_checkpoint` takes.

With --files, checkpoints of a ResNet-18 with the momentum of SGD are written instead: by `save_checkpoint`, with a
checksum and keeping the previous one, and as a file alone (torch.save, fsync, rename), in turn. Times are wall-clock
time, because the disk is part of them.
"""

from __future__ import annotations

import argparse
import io
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import lresnet
from lresnet._files import write_atomically
from lresnet.data import ImageData, ImageSet, ImageTask
from lresnet.train import engine
from lresnet.train.checkpoint import save_checkpoint

_EPOCHS = 4  # of a training; the first one warms up


def task(count: int) -> ImageTask:
    """Return random images in ten classes, a tenth of them for validation."""
    pixels = torch.randint(256, (count, 32, 32, 3), dtype=torch.uint8)
    images = ImageSet(pixels, torch.arange(count) % 10)
    data = ImageData("random", images, images, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3)
    return ImageTask("random", data, holdout=0.1)


def train(images: ImageTask, folder: Path | None) -> tuple[float, float]:
    """Return the median time of an epoch, and the time that checkpoints took in one."""
    ends, inside = list[float](), list[float]()

    def save(*arguments: object) -> None:
        start = time.process_time()
        unpatched(*arguments)  # type: ignore[arg-type]
        inside.append(time.process_time() - start)

    unpatched = engine.save_checkpoint
    config = lresnet.TrainConfig(epochs=_EPOCHS, lr=0.01, batch_size=100, eval_every=1)
    network = lresnet.create_model("lorentz_resnet20", num_classes=10)
    with mock.patch.object(engine, "save_checkpoint", save):
        lresnet.fit(
            images,
            network,
            config,
            out=folder,
            device="cpu",
            checkpoint_every=1,
            on_epoch=lambda *_: ends.append(time.process_time()),
        )
    epochs = [end - start for start, end in itertools.pairwise(ends)]
    return statistics.median(epochs), statistics.median(inside or [0.0])


def compare_files(pairs: int) -> None:
    """Write checkpoints in turn by `save_checkpoint` and as a file alone, and print the ratio of the medians."""
    network = lresnet.create_model("lorentz_resnet18", num_classes=10)
    momentum = {name: torch.randn_like(one) for name, one in network.named_parameters()}
    state = {"model": dict(network.named_parameters()), "momentum": momentum}
    state = {part: {name: one.detach() for name, one in own.items()} for part, own in state.items()}

    def alone(path: Path, state: dict[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(path, buffer.getbuffer())

    seconds: dict[Any, list[float]] = {save_checkpoint: [], alone: []}
    with tempfile.TemporaryDirectory(dir=".") as place:
        for pair in range(-1, pairs):
            for write in list(seconds)[:: 1 if pair % 2 else -1]:
                path = Path(place) / write.__name__
                start = time.perf_counter()
                write(path, state)
                if pair >= 0:  # the first ones warm up
                    seconds[write].append(time.perf_counter() - start)
        size = path.stat().st_size / 1e6
    checked, plain = (statistics.median(seconds[write]) for write in (save_checkpoint, alone))
    print(
        f"{pairs} pairs of {size:.0f} MB: {1000 * checked:.0f} ms with checksum and previous checkpoint, "
        f"{1000 * plain:.0f} ms without: ratio of the medians {checked / plain:.2f}"
    )


def main() -> None:
    """Train in turn with and without checkpoints, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--files", action="store_true", help="write checkpoints of a ResNet-18 instead of training")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.files:
        compare_files(options.pairs)
        return
    images = task(options.images)
    train(images, None)
    ratios, shares, seconds = list[float](), list[float](), list[float]()
    for pair in range(options.pairs):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            found = {each: train(images, each) for each in ((None, folder) if pair % 2 else (folder, None))}
        (plain, _), (saved, inside) = found[None], found[folder]
        ratios.append(saved / plain)
        shares.append(inside / (saved - inside))
        seconds.append(plain)
        print(f"{plain:.2f} s, ratio {ratios[-1]:.3f}, checkpoint {shares[-1]:.2%} of the epoch", flush=True)
    low, *_, high = sorted(ratios)
    print(
        f"{options.pairs} pairs, epoch {statistics.median(seconds):.2f} s: ratio {statistics.median(ratios):.3f} "
        f"({low:.3f} to {high:.3f}); checkpoint {statistics.median(shares):.2%} of an epoch"
    )


if __name__ == "__main__":
    main()
