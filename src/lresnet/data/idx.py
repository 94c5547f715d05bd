"""Images in the idx form that MNIST introduced: a magic number, the sizes, then the pixels; plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_idx_images"]

_BYTES_IN_THREE_AXES = 0x0803
_HEADER = struct.Struct(">4I")  # the magic number, how many images, rows, columns
_GZIP = b"\x1f\x8b"


def read_idx_images(path: Path) -> NDArray[np.uint8]:
    """The grey images of ``path``, uint8 ``[N, H, W]``.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or holds something else.
    """
    content = path.read_bytes()
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is damaged: {error}; fetch it again") from error
    if len(content) < _HEADER.size:
        raise ValueError(f"{path} has {len(content)} bytes and no idx header; fetch it again")
    magic, *shape = _HEADER.unpack_from(content)
    if magic != _BYTES_IN_THREE_AXES:
        raise ValueError(
            f"{path} begins with {magic:#010x}; images in idx form begin with {_BYTES_IN_THREE_AXES:#010x}"
        )
    if len(content) != _HEADER.size + math.prod(shape):
        raise ValueError(f"{path} says {shape[0]:,} images of {shape[1]} x {shape[2]} but is of another length")
    if 0 in shape[1:]:
        raise ValueError(f"{path} holds images of {shape[1]} x {shape[2]}: without a pixel; fetch it again")
    return np.frombuffer(content, np.uint8, offset=_HEADER.size).reshape(shape)
