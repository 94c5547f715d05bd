"""Images that are easy to classify: noise whose channel of the class is brighter by 150."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from lresnet.data import ImageData, ImageSet, ImageTask
from lresnet.data.image_data import channel_statistics

CLASSES = ("red", "green", "blue")


def coloured_set(count: int, seed: int, height: int = 8, width: int = 8) -> ImageSet:
    """Return ``count`` images, whose labels cycle through the three classes."""
    generator = np.random.default_rng(seed)
    images = generator.integers(60, size=(count, height, width, 3), dtype=np.uint8)
    labels = np.arange(count) % 3
    images[np.arange(count), :, :, labels] += 150
    return ImageSet(torch.from_numpy(images), torch.from_numpy(labels))


def coloured_data(train: int = 60, test: int = 30, height: int = 8, width: int = 8) -> ImageData:
    """Return training and test images."""
    first, second = (coloured_set(count, seed, height, width) for seed, count in enumerate((train, test)))
    return ImageData("coloured", first, second, CLASSES, *channel_statistics(first.images))


def coloured_task(holdout: float = 0.0, **sizes: int) -> ImageTask:
    """Return the classification task on :func:`coloured_data`."""
    return ImageTask("coloured", coloured_data(**sizes), holdout)


def write_coloured(path: Path, **arrays: object) -> Path:
    """Write :func:`coloured_data` as a .npz file; ``arrays`` replace or extend its arrays."""
    data = coloured_data()
    own = {
        f"{part}_{kind}": getattr(getattr(data, part), kind).numpy()
        for part in ("train", "test")
        for kind in ("images", "labels")
    }
    np.savez(path, **own | {"classes": np.array(CLASSES)} | arrays)
    return path
