"""Labelled images in memory, their statistics, and the part that is held out for validation."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from lresnet.geometry import ClassTree

__all__ = ["ImageData", "ImageSet", "channel_statistics", "hold_out", "mean_colour"]

# Number of pixels counted together; their copy fits the cache.
_CHUNK_PIXELS = 2**19


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images and their classes.

    Args:
        images: uint8 ``[N, H, W, C]``. The channels of a pixel are adjacent, so that a crop moves whole pixels and
            ``images.permute(0, 3, 1, 2)`` is in channels_last format without a copy.
        labels: int64 ``[N]``, classes 0, 1, ...

    Raises:
        ValueError: A dtype, shape or device is wrong.

    Example:
        >>> part = ImageSet(torch.zeros(5, 32, 32, 3, dtype=torch.uint8), torch.tensor([0, 1, 1, 0, 2]))
        >>> len(part)
        5
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(f"images must be uint8 [N, H, W, C], got {_form(self.images)}")
        if self.labels.dtype != torch.int64 or self.labels.ndim != 1:
            raise ValueError(f"labels must be int64 [N], got {_form(self.labels)}")
        if len(self.images) != len(self.labels):
            raise ValueError(f"{len(self.images):,} images and {len(self.labels):,} labels; each image needs one label")
        if self.images.device != self.labels.device:
            raise ValueError(f"images are on {self.images.device}, labels on {self.labels.device}; use one device")

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> ImageSet:
        """Return the set on ``device``; the 50,000 images of CIFAR need 154 MB."""
        return ImageSet(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class ImageData:
    """Training and test images for classification.

    Args:
        name: Name of the data.
        train: Training images; :func:`hold_out` takes a validation part from them.
        test: Test images, of the same height, width and channels.
        classes: Class names, by label.
        mean: Mean of each channel over the training images, for pixels in [0, 1].
        std: Standard deviation of each channel, see :func:`channel_statistics`.
        skipped: Files that could not be read as images, with the reason.
        superclass_of: Name of the superclass of each class, by label; empty if there are none.

    Raises:
        ValueError: A part has no images, the images have two shapes, there are fewer than two classes, two classes have
            the same name, a label has no class, ``mean`` or ``std`` does not have one value per channel, or
            ``superclass_of`` does not have one name per class.
    """

    name: str
    train: ImageSet
    test: ImageSet
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    skipped: tuple[tuple[Path, str], ...] = ()
    superclass_of: tuple[str, ...] = ()

    @property
    def tree(self) -> ClassTree | None:
        """The tree of classes and superclasses, which are in alphabetical order; None without superclasses."""
        if not self.superclass_of:
            return None
        from lresnet.geometry import ClassTree  # only here: it imports geoopt

        names = sorted(set(self.superclass_of))
        return ClassTree.from_groups([names.index(name) for name in self.superclass_of])

    def __post_init__(self) -> None:
        shapes = [tuple(part.images.shape[1:]) for part in (self.train, self.test)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{self.name}: training images are {list(shapes[0])}, test images {list(shapes[1])}; give them "
                "one shape (for a folder, with size)"
            )
        if len(self.mean) != shapes[0][-1] or len(self.std) != shapes[0][-1]:
            raise ValueError(
                f"{self.name}: {len(self.mean)} means and {len(self.std)} stds for {shapes[0][-1]} channels"
            )
        if len(self.classes) < 2:
            raise ValueError(f"{self.name}: {len(self.classes)} class; classification needs two or more")
        if repeated := [name for name, count in Counter(self.classes).items() if count > 1]:
            raise ValueError(f"{self.name}: two classes have the name {repeated[0]!r}; give each class its own name")
        if self.superclass_of and len(self.superclass_of) != len(self.classes):
            raise ValueError(
                f"{self.name}: superclass_of has {len(self.superclass_of)} names for {len(self.classes)} classes; "
                "give one for each class"
            )
        for part, images in (("training", self.train), ("test", self.test)):
            if images.images.numel() == 0:
                raise ValueError(f"{self.name}: no {part} images (shape {list(images.images.shape)})")
            low, high = int(images.labels.min()), int(images.labels.max())
            if low < 0 or high >= len(self.classes):
                wrong = low if low < 0 else high
                raise ValueError(
                    f"{self.name}: a {part} label is {wrong}, but the classes are 0 to {len(self.classes) - 1}"
                )


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of each channel, for pixels in [0, 1].

    The sums of pixels and of their squares are exact integers, and so is n sum x^2 - (sum x)^2; only the result is
    rounded. A constant channel has no scale; its std is reported as 1.

    Args:
        images: uint8 ``[N, H, W, C]``, not empty.

    Returns:
        Mean and std, C values each.

    Example:
        >>> channel_statistics(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1))
        ((0.5,), (0.5,))
    """
    mean, std = zip(*(_moments(images[..., channel]) for channel in range(images.shape[-1])), strict=True)
    return mean, std


def _moments(channel: Tensor) -> tuple[float, float]:
    """Return mean and std of ``[N, H, W]`` from the histogram of its 256 values."""
    together = max(1, _CHUNK_PIXELS // channel[0].numel())
    histogram = torch.zeros(256, dtype=torch.int64, device=channel.device)
    for chunk in channel.split(together):
        histogram += torch.bincount(chunk.flatten(), minlength=256)
    count, total, squares = (
        sum(times * value**power for value, times in enumerate(histogram.tolist())) for power in range(3)
    )
    spread = count * squares - total**2
    return total / (255 * count), math.sqrt(spread) / (255 * count) if spread else 1.0


def mean_colour(mean: tuple[float, ...], device: torch.device | str | None = None) -> Tensor:
    """Return the pixel nearest to ``mean``, uint8 ``[C]``: the colour of cutout squares.

    Example:
        >>> mean_colour((0.4914, 0.4822, 0.4465))
        tensor([125, 123, 114], dtype=torch.uint8)
    """
    return torch.tensor([round(255 * value) for value in mean], dtype=torch.uint8, device=device)


def hold_out(images: ImageSet, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """Hold out ``count`` random images, the same ones on every machine.

    NumPy's legacy generator draws them: unlike newer generators and those of torch, its streams never change.

    Args:
        images: N images.
        count: Number of images to hold out, 1 to N - 1.
        seed: Seed of the draw.

    Returns:
        The remaining images and the held-out ones, both in their original order.

    Example:
        >>> part = ImageSet(torch.zeros(50, 8, 8, 1, dtype=torch.uint8), torch.zeros(50, dtype=torch.int64))
        >>> [len(piece) for piece in hold_out(part, 5, seed=0)]
        [45, 5]
    """
    if not 0 < count < len(images):
        raise ValueError(f"cannot hold out {count:,} of {len(images):,} images; choose 1 to {len(images) - 1:,}")
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(images)))
    return _pick(images, order[count:]), _pick(images, order[:count])


def _pick(images: ImageSet, index: Tensor) -> ImageSet:
    index = index.sort().values.to(images.labels.device)
    return ImageSet(images.images[index], images.labels[index])


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
