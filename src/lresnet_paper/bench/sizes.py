"""Sizes of a benchmark, as ``dimension/points``, and memory of that size that no cache can hold."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["PAPER_SIZES", "PointSet", "Size", "free_memory", "parse_size", "point_sets"]

PAPER_SIZES = ("2048/10000", "4096/100000")

_CPU_CACHE = 2**26  # a share of a server's last level; cache sizes of CPUs cannot be asked for in a portable way
_MOST_SETS = 256
_SEED = 0


class Size(NamedTuple):
    """``points`` points of ``dimension`` coordinates in float32."""

    dimension: int
    points: int

    def __str__(self) -> str:
        return f"{self.dimension}/{self.points}"

    @property
    def bytes(self) -> int:
        """Of one tensor: what one pass over memory moves."""
        return 4 * self.dimension * self.points


def parse_size(text: str) -> Size:
    """The size called ``text``.

    Raises:
        ValueError: it is none.

    Example:
        >>> parse_size("2048/10000")
        Size(dimension=2048, points=10000)
    """
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"a size is DIMENSION/POINTS, two positive numbers such as 2048/10000; got {text!r}")
    return Size(*map(int, parts))


class PointSet(NamedTuple):
    """Two tensors of points, [points, dimension], that want gradients, and a gradient of their residual."""

    x: Tensor
    y: Tensor
    g: Tensor


def point_sets(size: Size, device: torch.device) -> list[PointSet]:
    """Random points, as many sets as together exceed four times the cache: going round them, none is still there.
    (At most 256: points so few are in the cache in a network too.)

    Coordinates have deviation 1, as after a batch norm: the points are about sqrt(dimension) from the origin.
    """
    generator = torch.Generator(device).manual_seed(_SEED)
    count = min(_MOST_SETS, max(1, math.ceil(4 * _cache(device) / (2 * size.bytes))))

    def points() -> Tensor:
        return torch.randn(size.points, size.dimension, device=device, generator=generator)

    return [PointSet(points().requires_grad_(), points().requires_grad_(), points()) for _ in range(count)]


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on ``device``."""
    if device.type == "cuda":  # what the driver has, and what torch holds without using it
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cache(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    return _CPU_CACHE
