"""Labelled images, their statistics, and the parts that are held out for validation and test."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from lresnet.data.image_files import ImageFiles
    from lresnet.geometry import ClassTree

__all__ = [
    "ImageData",
    "ImageSet",
    "channel_statistics",
    "hold_out",
    "mean_and_std",
    "mean_colour",
    "stratified_part",
]

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

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.images.shape[1:]
        return height, width, channels

    def read(self, index: Tensor) -> Tensor:
        """Return the images with these numbers, uint8 ``[n, H, W, C]``."""
        return self.images[index.to(self.images.device)]

    def pick(self, index: Tensor) -> ImageSet:
        """Return the part with these numbers."""
        index = index.to(self.labels.device)
        return ImageSet(self.images[index], self.labels[index])

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
        val: Validation images, where they have a folder of their own; None: :class:`~lresnet.data.ImageTask` may hold
            out training images.
        contents: Checksum of each training image's content, by which images are held out, see
            :func:`stratified_part`. None: the checksums of the pixels.
        notes: What was done to read the images, one sentence each.

    The images of a part are in memory (:class:`ImageSet`), or in their files
    (:class:`~lresnet.data.image_files.ImageFiles`).

    Raises:
        ValueError: A part has no images, the images have two shapes, there are fewer than two classes, two classes have
            the same name, a label has no class, ``mean`` or ``std`` does not have one value per channel, or
            ``superclass_of`` does not have one name per class.
    """

    name: str
    train: ImageSet | ImageFiles
    test: ImageSet | ImageFiles
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    skipped: tuple[tuple[Path, str], ...] = ()
    superclass_of: tuple[str, ...] = ()
    val: ImageSet | ImageFiles | None = None
    contents: tuple[bytes, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def tree(self) -> ClassTree | None:
        """The tree of classes and superclasses, which are in alphabetical order; None without superclasses."""
        if not self.superclass_of:
            return None
        from lresnet.geometry import ClassTree  # only here: it imports geoopt

        names = sorted(set(self.superclass_of))
        return ClassTree.from_groups([names.index(name) for name in self.superclass_of])

    def __post_init__(self) -> None:
        parts = {"training": self.train, "test": self.test} | ({} if self.val is None else {"validation": self.val})
        shapes = [part.shape for part in parts.values()]
        for name, shape in zip(parts, shapes, strict=True):
            if shape != shapes[0]:
                raise ValueError(
                    f"{self.name}: training images are {list(shapes[0])}, {name} images {list(shape)}; give them "
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
        for part, images in parts.items():
            if len(images) == 0 or 0 in images.shape:
                raise ValueError(f"{self.name}: no {part} images (shape {[len(images), *images.shape]})")
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
    return mean_and_std(count, total, squares)


def mean_and_std(count: int, total: int, squares: int) -> tuple[float, float]:
    """Return mean and std of ``count`` bytes in [0, 1] from their sum and the sum of their squares.

    Example:
        >>> mean_and_std(2, 255, 255**2)
        (0.5, 0.5)
    """
    spread = count * squares - total**2
    return total / (255 * count), math.sqrt(spread) / (255 * count) if spread else 1.0


def mean_colour(mean: tuple[float, ...], device: torch.device | str | None = None) -> Tensor:
    """Return the pixel nearest to ``mean``, uint8 ``[C]``: the colour of cutout squares.

    Example:
        >>> mean_colour((0.4914, 0.4822, 0.4465))
        tensor([125, 123, 114], dtype=torch.uint8)
    """
    return torch.tensor([round(255 * value) for value in mean], dtype=torch.uint8, device=device)


def hold_out(
    images: ImageSet | ImageFiles, count: int, seed: int
) -> tuple[ImageSet | ImageFiles, ImageSet | ImageFiles]:
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


def stratified_part(labels: Sequence[int], keys: Sequence[bytes], fraction: float, seed: int = 0) -> list[int]:
    """Return the numbers of the images that are held out: the same fraction of every class, chosen by content.

    The images of a class are sorted by sha256 of the seed and their key, and the first ones are held out. The choice
    therefore depends neither on names nor on the order of the images, and an image that is added to a class moves at
    most one other image. Images with the same key, e.g. copies of one file, stay together. A class with two or more
    different images gives at least one and keeps at least one; a single image is kept.

    Args:
        labels: Class of each image.
        keys: Content of each image, e.g. a checksum of its file.
        fraction: Fraction of the images of each class, above 0 and below 1.
        seed: Another seed holds out other images.

    Returns:
        Sorted numbers.

    Example:
        >>> stratified_part([0, 0, 0, 0, 1, 1, 2], [b"a", b"b", b"c", b"d", b"e", b"f", b"g"], fraction=0.25)
        [3, 5]
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the fraction to hold out must be above 0 and below 1, got {fraction}")
    copies, classes = defaultdict[bytes, list[int]](list), defaultdict[int, list[bytes]](list)
    for number, (label, key) in enumerate(zip(labels, keys, strict=True)):
        if key not in copies:  # copies in two classes count for the class of the first
            classes[label].append(key)
        copies[key].append(number)
    salt = f"{seed}:".encode()
    chosen = list[int]()
    for own in classes.values():
        if len(own) == 1:
            continue
        wanted = max(1, round(fraction * sum(len(copies[key]) for key in own)))
        taken = list[int]()
        for key in sorted(own, key=lambda key: hashlib.sha256(salt + key).digest())[:-1]:
            if len(taken) >= wanted:
                break
            taken += copies[key]
        chosen += taken
    return sorted(chosen)


def _pick(images: ImageSet | ImageFiles, index: Tensor) -> ImageSet | ImageFiles:
    return images.pick(index.sort().values)


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
