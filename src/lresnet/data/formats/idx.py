"""Grey images in the idx format of MNIST (a magic number, the sizes, then the pixels), plain or gzipped."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lresnet.data.formats.compressed import read_expanded

__all__ = ["read_idx_images"]

_BYTES_IN_THREE_AXES = 0x0803
_HEADER = struct.Struct(">4I")  # magic number, number of images, rows, columns
_PADDED_SIDE = 32  # images of 28 x 28 are padded to this side, as for LeNet-5


def read_idx_images(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Read images as three equal channels, uint8 ``[N, H, W, 3]``.

    Images smaller than 32 x 32 get a black margin up to that size, unless ``size`` is no larger than the images.

    Args:
        path: The file.
        size: Height and width to which the images will be resized.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged or has another format.
    """
    images = _grey_images(path)
    side = max(images.shape[1:])
    margin = max(0, _PADDED_SIDE - side) // 2 if min(size) > side else 0
    images = np.pad(images, ((0, 0), (margin, margin), (margin, margin)))
    return np.repeat(images[..., None], 3, axis=3)


def _grey_images(path: Path) -> NDArray[np.uint8]:
    """Return the images ``[N, H, W]``."""
    content = read_expanded(path)
    if len(content) < _HEADER.size:
        raise ValueError(f"{path} has {len(content)} bytes and no idx header; download it again")
    magic, *shape = _HEADER.unpack_from(content)
    if magic != _BYTES_IN_THREE_AXES:
        raise ValueError(
            f"{path} begins with {magic:#010x}; images in idx format begin with {_BYTES_IN_THREE_AXES:#010x}"
        )
    if len(content) != _HEADER.size + math.prod(shape):
        raise ValueError(
            f"{path} announces {shape[0]:,} images of {shape[1]} x {shape[2]} but has another length; download it again"
        )
    if 0 in shape[1:]:
        raise ValueError(f"{path} holds images of {shape[1]} x {shape[2]}, without any pixel; download it again")
    return np.frombuffer(content, np.uint8, offset=_HEADER.size).reshape(shape)
