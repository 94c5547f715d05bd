"""CutMix (Yun et al., ICCV 2019) of a whole epoch of images at once, on the device they lie on.

A rectangle of an image is replaced by that of the image after it, and the label counts by the share of pixels that is
left. An epoch is shuffled, so the image after it is one at random. The authors draw one rectangle for a batch, of sides
rounded to even numbers; here each image has its own, of any side. Nothing waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Boxes", "cutmix", "draw_boxes", "paste"]

# Bytes that may be taken besides the result: the images that are cut from, the mixed ones, and where.
_BUDGET = 2**26

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
