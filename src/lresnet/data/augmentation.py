"""Augmentation of a whole epoch of images at once, on their device: random crops, flips, cutout and CutMix.

Crops, flips and cutout are one gather: for each pixel of the result, the index of its source pixel is computed. Black
borders and cutout squares have source pixels of their own. Nothing synchronises with the device: no value is read back,
and no shape depends on one.

An image has H W C bytes, and so has its result. While an image is processed, it needs in addition

    H W C                   its copy in the new order
    (H + 1) (W + 1) C       the same with one more row and column in black, the source of all pixels outside the image
    4 H W, cutout: 9 H W    the source indices as int32; with cutout also the mask as bytes and the combined indices

which is 10 KB for a CIFAR image, or 16 KB with cutout. The number of images processed together keeps this below 64 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Augmentation",
    "Boxes",
    "Draws",
    "apply_draws",
    "augment",
    "cutmix",
    "draw",
    "draw_boxes",
    "normalise",
    "paste",
]


# Bytes of memory in addition to the result. A larger budget exceeds the cache of a CPU (1.6 times slower for all of
# CIFAR at once); a smaller one needs more launches on an accelerator.
_BUDGET = 2**26
# Larger than the side of any image, and small enough for indices in int32.
_MAX_SIDE = 2**20

Boxes = tuple[Tensor, Tensor, Tensor, Tensor]
"""Rectangles: first row, row after the last, first column, column after the last; each int64 ``[N]``."""


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of a training image, applied in the order of the arguments.

    Args:
        pad: Number of black pixels added on each side before a random crop to the original size.
        flip: Whether to mirror the image left to right with probability 1/2.
        cutout: Side of a square around a random pixel that is painted over; the square is clipped at the border. 0
            means no cutout.

    Raises:
        ValueError: A number is negative or not an integer.

    Example:
        >>> Augmentation(cutout=16)
        Augmentation(pad=4, flip=True, cutout=16)
    """

    pad: int = 4
    flip: bool = True
    cutout: int = 0

    def __post_init__(self) -> None:
        for name, value in (("pad", self.pad), ("cutout", self.cutout)):
            if type(value) is not int or not 0 <= value < _MAX_SIDE:  # 4.0 or true in a settings file is a mistake
                raise ValueError(
                    f"{name}={value!r}; it must be an integer number of pixels, 0 or more and below {_MAX_SIDE:,}"
                )
        if type(self.flip) is not bool:
            raise ValueError(f"flip={self.flip!r}; it must be True or False")


class Draws(NamedTuple):
    """Random numbers for N images, each int32 ``[N]``.

    Args:
        top: First row of the crop in the padded image, 0 to 2 pad.
        left: First column of the crop.
        mirrored: 1 or 0.
        row: Row of the centre of the cutout square, in the crop.
        column: Column of that centre.
    """

    top: Tensor
    left: Tensor
    mirrored: Tensor
    row: Tensor
    column: Tensor


def draw(count: int, height: int, width: int, augmentation: Augmentation, generator: torch.Generator) -> Draws:
    """Draw random numbers for ``count`` images of ``height`` x ``width``, on the generator's device.

    The number of draws does not depend on the augmentation, so that one setting does not change the draws of the
    others.
    """
    shifts = 2 * augmentation.pad + 1
    below = (shifts, shifts, 1 + augmentation.flip, height, width)
    numbers = (
        torch.randint(high, (count,), generator=generator, device=generator.device, dtype=torch.int32) for high in below
    )
    return Draws(*numbers)


def augment(
    images: Tensor, order: Tensor, augmentation: Augmentation, generator: torch.Generator, fill: Tensor
) -> Tensor:
    """Return the images in a new order, each with a new crop, flip and cutout.

    Args:
        images: uint8 ``[M, H, W, C]``.
        order: Indices of the images, int64 ``[N]``; ``torch.randperm(M)`` for an epoch. Shuffling needs no extra pass.
        augmentation: The augmentation.
        generator: Generator on the device of the images, for all random numbers.
        fill: Colour of cutout squares, uint8 ``[C]``, see :func:`lresnet.data.mean_colour`.

    Returns:
        uint8 ``[N, H, W, C]``.

    Raises:
        ValueError: A dtype, shape or device is wrong.

    Example:
        >>> images = torch.zeros(10, 32, 32, 3, dtype=torch.uint8)
        >>> generator = torch.Generator().manual_seed(0)
        >>> augment(images, torch.randperm(10), Augmentation(), generator, images.new_zeros(3)).shape
        torch.Size([10, 32, 32, 3])
    """
    _require_form(images, order, fill)
    if generator.device.type != images.device.type:
        raise ValueError(f"the generator is on {generator.device}, the images on {images.device}; use one device")
    draws = draw(len(order), images.shape[1], images.shape[2], augmentation, generator)
    return apply_draws(images, order, augmentation, draws, fill)


def apply_draws(images: Tensor, order: Tensor, augmentation: Augmentation, draws: Draws, fill: Tensor) -> Tensor:
    """Apply an augmentation with given random numbers."""
    height, width, channels = images.shape[1:]
    result = images.new_empty(len(order), height, width, channels)
    step = _images_together(images, augmentation)
    for start in range(0, len(order), step):
        part = slice(start, start + step)
        pixels = _pixels(images.index_select(0, order[part]), fill)
        origin = _origin(Draws(*(values[part, None] for values in draws)), height, width, augmentation)
        torch.index_select(pixels, 0, origin.flatten(), out=result[part].view(-1, channels))
    return result


def normalise(
    images: Tensor,
    mean: Sequence[float] | Tensor,
    std: Sequence[float] | Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return (image / 255 - mean) / std, computed in float32 or wider and rounded to ``dtype`` once.

    Args:
        images: uint8 ``[N, H, W, C]``.
        mean: Mean of each channel, for pixels in [0, 1]. Numbers are copied to the device in each call; tensors ``[C]``
            on the device are not.
        std: Standard deviation of each channel.
        dtype: Type of the result.

    Returns:
        ``[N, C, H, W]`` in channels_last memory.

    Example:
        >>> normalise(torch.full((1, 1, 1, 3), 255, dtype=torch.uint8), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)).flatten()
        tensor([1., 1., 1.])
    """
    wide = torch.promote_types(dtype, torch.float32)
    offset, scale = (255 * torch.as_tensor(values, dtype=wide, device=images.device) for values in (mean, std))
    return ((images - offset) / scale).to(dtype).permute(0, 3, 1, 2)


def _images_together(images: Tensor, augmentation: Augmentation) -> int:
    height, width, channels = images.shape[1:]
    origin = (9 if augmentation.cutout else 4) * height * width
    bytes_each = height * width * channels + (height + 1) * (width + 1) * channels + origin
    return max(1, _BUDGET // bytes_each)


def _pixels(images: Tensor, fill: Tensor) -> Tensor:
    """Return the source pixels ``[N (H + 1) (W + 1) + 1, C]``: images with a black row and column, then ``fill``."""
    count, height, width, channels = images.shape
    pixels = images.new_zeros(count * (height + 1) * (width + 1) + 1, channels)
    pixels[:-1].view(count, height + 1, width + 1, channels)[:, :height, :width] = images
    pixels[-1] = fill
    return pixels


def _origin(draws: Draws, height: int, width: int, augmentation: Augmentation) -> Tensor:
    """Return the index in :func:`_pixels` of each pixel of the result, int32 ``[N, H, W]``, for draws ``[N, 1]``."""
    down, right = (torch.arange(side, dtype=torch.int32, device=draws.top.device) for side in (height, width))
    y = down + draws.top - augmentation.pad
    x = torch.where(draws.mirrored > 0, width - 1 - right, right) + draws.left - augmentation.pad
    y = torch.where((y < 0) | (y >= height), height, y)  # pixels outside come from the black row
    x = torch.where((x < 0) | (x >= width), width, x)
    image = torch.arange(len(y), dtype=torch.int32, device=y.device)[:, None]
    origin = ((image * (height + 1) + y) * (width + 1))[:, :, None] + x[:, None, :]
    if not augmentation.cutout:
        return origin
    # The square begins at centre - cutout // 2 and has cutout pixels.
    above, before = draws.row - augmentation.cutout // 2, draws.column - augmentation.cutout // 2
    rows = (down >= above) & (down < above + augmentation.cutout)
    columns = (right >= before) & (right < before + augmentation.cutout)
    return torch.where(rows[:, :, None] & columns[:, None, :], len(y) * (height + 1) * (width + 1), origin)


def _require_form(images: Tensor, order: Tensor, fill: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(f"images are {images.dtype} {list(images.shape)}; they must be uint8 [N, H, W, C]")
    if order.dtype != torch.int64 or order.ndim != 1:
        raise ValueError(f"order is {order.dtype} {list(order.shape)}; it must be int64 [N], the indices of the images")
    if fill.dtype != torch.uint8 or fill.shape != images.shape[-1:]:
        raise ValueError(f"fill is {fill.dtype} {list(fill.shape)}; it must be uint8 [{images.shape[-1]}]")
    for name, tensor in (("order", order), ("fill", fill)):
        if tensor.device != images.device:
            raise ValueError(f"{name} is on {tensor.device}, the images on {images.device}; use one device")


def cutmix(images: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    r"""Apply CutMix (Yun et al., ICCV 2019) to a whole epoch of images.

    With probability ``share`` a rectangle of an image is replaced by the same rectangle of the next image. Its sides
    are :math:`\sqrt{1 - \lambda}` times those of the image, with uniform :math:`\lambda`. It is centred on a random
    pixel and clipped at the border. An epoch is shuffled, so the next image is a random one. The authors draw one
    rectangle per batch and round its sides to even numbers; here each image has its own rectangle with any sides.

    Args:
        images: uint8 ``[N, H, W, C]``, in the order of the epoch.
        share: Share of the images that are mixed, 0 to 1.
        generator: Generator on the device of the images.

    Returns:
        The images, and the share of its own pixels that each image keeps, float32 ``[N]``. This share is the weight of
        the label of image i; the label of image i + 1 (of the first image for the last one) has the rest.

    Example:
        >>> images = torch.arange(4, dtype=torch.uint8).reshape(4, 1, 1, 1).expand(4, 8, 8, 3)
        >>> mixed, kept = cutmix(images, 1.0, torch.Generator().manual_seed(0))
        >>> bool(((mixed[0] == 0).float().mean() == kept[0]))
        True
    """
    count, height, width = images.shape[:3]
    boxes = draw_boxes(count, height, width, share, generator)
    top, bottom, left, right = boxes
    kept = 1 - ((bottom - top) * (right - left)).float() / (height * width)
    return paste(images, boxes), kept


def draw_boxes(count: int, height: int, width: int, share: float, generator: torch.Generator) -> Boxes:
    """Draw the rectangles of ``count`` images on the generator's device; images that are not mixed have empty ones."""
    device = generator.device
    chosen, area = torch.rand(2, count, generator=generator, device=device)
    side = torch.where(chosen < share, area.sqrt(), 0)
    return (*_span(height, side, generator), *_span(width, side, generator))


def paste(images: Tensor, boxes: Boxes) -> Tensor:
    """Return the images, each with its rectangle replaced by that of the next image."""
    count, height, width, channels = images.shape
    down, across = (torch.arange(side, device=images.device) for side in (height, width))
    result = torch.empty_like(images)
    together = max(1, _BUDGET // (height * width * (2 * channels + 1)))
    for start in range(0, count, together):
        part = slice(start, start + together)
        top, bottom, left, right = (values[part, None] for values in boxes)
        rows, columns = (down >= top) & (down < bottom), (across >= left) & (across < right)
        inside = rows[:, :, None, None] & columns[:, None, :, None]
        own = images[part]
        following = torch.arange(start + 1, start + 1 + len(own), device=images.device) % count
        result[part] = torch.where(inside, images.index_select(0, following), own)
    return result


def _span(length: int, side: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the first pixel and the pixel after the last of ``side * length`` pixels around a random centre."""
    centre = torch.randint(length, side.shape, generator=generator, device=side.device)
    pixels = (side * length).long()
    first = centre - pixels // 2
    return first.clamp(min=0), (first + pixels).clamp(max=length)
