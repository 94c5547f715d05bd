"""Random crops, flips and cutout of a whole epoch of images at once, on the device they lie on.

One gather does it all: every pixel of the result knows which pixel it comes from, and black borders and cutout squares
come from pixels that are added for them. Nothing waits for the device: no value is read back, no shape depends on one.

An image is H W C bytes, and so much of the result. While an image is worked on, it takes besides

    H W C                   its copy, in the new order
    (H + 1) (W + 1) C       the same with one more row and column, black: what lies outside comes from there
    4 H W, cutout: 9 H W    where its pixels come from, as int32; where the square is, as a byte; both together

which is 10 KB for a CIFAR image, 16 KB with cutout. So many images are worked on together that this stays below 64 MiB.
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


# Bytes that may be taken besides the result. More is slower on a CPU (1.6 times with all of CIFAR at once, which leaves
# its cache); less is more launches on an accelerator.
_BUDGET = 2**26
# More than any image is wide, and far from the ends of int32, in which places are computed.
_SIDES = 2**20


@dataclass(frozen=True)
class Augmentation:
    """What is done to a training image, in this order.

    Args:
        pad: black pixels added on each side, of which a random crop then leaves as many as there were before.
        flip: mirror left and right, with probability 1/2.
        cutout: side of a square around a random pixel that is painted over; the border cuts it off. 0: none.

    Raises:
        ValueError: a number that is negative or no integer.

    Example:
        >>> Augmentation(cutout=16)
        Augmentation(pad=4, flip=True, cutout=16)
    """

    pad: int = 4
    flip: bool = True
    cutout: int = 0

    def __post_init__(self) -> None:
        for name, value in (("pad", self.pad), ("cutout", self.cutout)):
            if type(value) is not int or not 0 <= value < _SIDES:  # a recipe's 4.0 or true is a slip
                raise ValueError(f"{name}={value!r}; it is a number of pixels, 0 or more, below {_SIDES:,}")
        if type(self.flip) is not bool:
            raise ValueError(f"flip={self.flip!r}; it is True or False")


class Draws(NamedTuple):
    """What was drawn for each of N images, each int32 ``[N]``.

    Args:
        top: the first row of the crop in the padded image, 0 to 2 pad.
        left: its first column.
        mirrored: 1 or 0.
        row: the centre of the cutout square, in the crop.
        column: likewise.
    """

    top: Tensor
    left: Tensor
    mirrored: Tensor
    row: Tensor
    column: Tensor


def draw(count: int, height: int, width: int, augmentation: Augmentation, generator: torch.Generator) -> Draws:
    """Draw for ``count`` images of ``height`` x ``width``, on the generator's device.

    As many numbers are drawn whatever the augmentation is, so that one setting does not shift the others' stream.
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
    """The images in a new order, each cropped, flipped and painted over anew.

    Args:
        images: uint8 ``[M, H, W, C]``.
        order: int64 ``[N]``, which images: ``torch.randperm(M)`` for an epoch. Shuffling so takes no pass of its own.
        augmentation: what is done.
        generator: of the images' device; all that is random follows it.
        fill: uint8 ``[C]``, the colour of cutout squares, see :func:`lresnet.data.image_data.mean_colour`.

    Returns:
        uint8 ``[N, H, W, C]``.

    Raises:
        ValueError: a dtype, shape or device that does not fit.

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
    """What :func:`augment` does once the numbers are drawn."""
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
    """(image / 255 - mean) / std, in float32 or wider, rounded to ``dtype`` once.

    Args:
        images: uint8 ``[N, H, W, C]``.
        mean: of each channel, with pixels in [0, 1]. Numbers travel to the device at each call; tensors ``[C]`` that
            are there already do not.
        std: likewise.
        dtype: of the result.

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
    """All pixels ``[N (H + 1) (W + 1) + 1, C]``: of images with one more row and column, black, and last ``fill``."""
    count, height, width, channels = images.shape
    pixels = images.new_zeros(count * (height + 1) * (width + 1) + 1, channels)
    pixels[:-1].view(count, height + 1, width + 1, channels)[:, :height, :width] = images
    pixels[-1] = fill
    return pixels


def _origin(draws: Draws, height: int, width: int, augmentation: Augmentation) -> Tensor:
    """Where each pixel of the result stands in :func:`_pixels`, int32 ``[N, H, W]``; the draws are ``[N, 1]``."""
    down, right = (torch.arange(side, dtype=torch.int32, device=draws.top.device) for side in (height, width))
    y = down + draws.top - augmentation.pad
    x = torch.where(draws.mirrored > 0, width - 1 - right, right) + draws.left - augmentation.pad
    y = torch.where((y < 0) | (y >= height), height, y)  # outside is the black row
    x = torch.where((x < 0) | (x >= width), width, x)
    image = torch.arange(len(y), dtype=torch.int32, device=y.device)[:, None]
    origin = ((image * (height + 1) + y) * (width + 1))[:, :, None] + x[:, None, :]
    if not augmentation.cutout:
        return origin
    # The square spans the pixels from centre - cutout // 2 on, as many as it is wide.
    above, before = draws.row - augmentation.cutout // 2, draws.column - augmentation.cutout // 2
    rows = (down >= above) & (down < above + augmentation.cutout)
    columns = (right >= before) & (right < before + augmentation.cutout)
    return torch.where(rows[:, :, None] & columns[:, None, :], len(y) * (height + 1) * (width + 1), origin)


def _require_form(images: Tensor, order: Tensor, fill: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(f"images are {images.dtype} {list(images.shape)}; augmented are uint8 [N, H, W, C]")
    if order.dtype != torch.int64 or order.ndim != 1:
        raise ValueError(f"order is {order.dtype} {list(order.shape)}; it is int64 [N], the numbers of the images")
    if fill.dtype != torch.uint8 or fill.shape != images.shape[-1:]:
        raise ValueError(f"fill is {fill.dtype} {list(fill.shape)}; it is uint8 [{images.shape[-1]}], one a channel")
    for name, tensor in (("order", order), ("fill", fill)):
        if tensor.device != images.device:
            raise ValueError(f"{name} is on {tensor.device}, the images on {images.device}; use one device")


# Bytes that may be taken besides the result: the images that are cut from, the mixed ones, and where.

Boxes = tuple[Tensor, Tensor, Tensor, Tensor]
"""First row, row after the last, first column, column after the last: each int64 ``[N]``."""


def cutmix(images: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    r"""Cut and paste. With probability ``share`` an image loses a rectangle of sides :math:`\sqrt{1 - \lambda}` times
    its own, with :math:`\lambda` uniform, around a random pixel; the border cuts it off.

    Args:
        images: uint8 ``[N, H, W, C]``, in the order of the epoch.
        share: of the images that are cut, 0 to 1.
        generator: of the images' device.

    Returns:
        The images, and the share of pixels that each has kept, float32 ``[N]``. The label of image i is worth that
        much, and the rest belongs to image i + 1 (of the last, to the first).

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
    """The rectangles of ``count`` images, on the generator's device; empty ones for images that are not cut."""
    device = generator.device
    chosen, area = torch.rand(2, count, generator=generator, device=device)
    side = torch.where(chosen < share, area.sqrt(), 0)
    return (*_span(height, side, generator), *_span(width, side, generator))


def paste(images: Tensor, boxes: Boxes) -> Tensor:
    """The images, each with its rectangle taken from the image after it."""
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
    """From the first pixel to behind the last: ``side`` times ``length`` around a random centre, within the image."""
    centre = torch.randint(length, side.shape, generator=generator, device=side.device)
    pixels = (side * length).long()
    first = centre - pixels // 2
    return first.clamp(min=0), (first + pixels).clamp(max=length)
