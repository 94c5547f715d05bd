"""How many rows a program takes, with how many warps: the one table to tune."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = [
    "LONGEST_ROW",
    "Tile",
    "add_tile",
    "backward_tile",
    "forward_tile",
    "long_tile",
    "merge_tile",
    "moments_tile",
    "relu_tile",
    "sums_tile",
]

# Rows of up to this many coordinates are held in registers: three of them, and two results, in the backward pass.
LONGEST_ROW = 8192


class Tile(NamedTuple):
    """Shape of the work of one program."""

    rows: int
    block: int
    """Coordinates, a power of two."""
    warps: int
    programs: int = 2**31 - 1
    """At most so many; those of the backward pass walk over tiles, and each leaves a line of sums."""
    stages: int = 1
    """Tiles in flight on such a walk."""


def forward_tile(n: int) -> Tile:
    """Tile for the forward pass over rows of n coordinates.

    Example:
        >>> forward_tile(60)
        Tile(rows=32, block=64, warps=4, programs=2147483647, stages=1)
    """
    block = _power_of_two(n)
    rows = max(1, 2048 // block)
    return Tile(rows, block, _warps(rows * block, per_thread=16))


def backward_tile(n: int) -> Tile:
    """Tile for the backward pass over rows of n coordinates: small ones, several in flight, beat large ones.

    Example:
        >>> backward_tile(256)
        Tile(rows=2, block=256, warps=2, programs=1056, stages=3)
    """
    block = _power_of_two(n)
    if block <= 512:
        return Tile(512 // block, block, 2, programs=1056, stages=3)
    return Tile(1, block, max(4, block // 1024), programs=2112, stages=2)


def long_tile() -> Tile:
    """Chunks of rows beyond :data:`LONGEST_ROW`."""
    return Tile(1, 4096, 16)


def sums_tile(n: int, rows: int) -> Tile:
    """:func:`backward_tile` where each line holds sums per coordinate: worth writing after four tiles at least.

    Example:
        >>> sums_tile(512, rows=2048)
        Tile(rows=1, block=512, warps=1, programs=512, stages=3)
    """
    tile = backward_tile(n)
    warps = 1 if tile.block == 512 else tile.warps  # longer sums in fewer threads: 26 us instead of 36 at [8192, 512]
    return tile._replace(warps=warps, programs=min(tile.programs, -(-rows // (4 * tile.rows))))


def moments_tile(n: int, rows: int) -> Tile:
    """Tile for the moments of n channels over so many rows.

    A row's 64 channels are whole lines of the cache; wider blocks would leave longer lines of sums, not faster reads.
    With T tiles for P programs, reading takes T / P steps and adding up the lines P: P grows as the root of T. The
    factor 8 is measured (H200); beyond 1,024 programs nothing is gained.

    Example:
        >>> moments_tile(256, rows=8192)
        Tile(rows=16, block=64, warps=2, programs=64, stages=3)
    """
    block = min(64, _power_of_two(n))
    tile_rows, groups = 1024 // block, -(-n // block)
    programs = min(1024, _power_of_two(math.isqrt(64 * groups * -(-rows // tile_rows)) + 1) // 2)
    return Tile(tile_rows, block, 2, programs=max(1, programs // groups), stages=3)


def add_tile(n: int) -> Tile:
    """Tile for adding two lines' worth to n channels, a pass that only moves memory.

    Example:
        >>> add_tile(128)
        Tile(rows=8, block=128, warps=4, programs=2147483647, stages=1)
    """
    block = min(512, _power_of_two(n))
    return Tile(1024 // block, block, 4)


def relu_tile(n: int) -> Tile:
    """Tile for a norm's ReLU, a pass that only moves memory: whole lines of the cache, and one kernel for all widths.

    Example:
        >>> relu_tile(512)
        Tile(rows=16, block=64, warps=4, programs=2147483647, stages=1)
    """
    block = min(64, _power_of_two(n))
    return Tile(1024 // block, block, 4)


def merge_tile(n: int, lines: int) -> Tile:
    """Tile for adding up so many lines of n numbers: few columns a program, so that many programs share the work.

    Example:
        >>> merge_tile(64, lines=500)
        Tile(rows=512, block=8, warps=4, programs=2147483647, stages=1)
    """
    block = min(64, max(8, _power_of_two(n) // 64))
    rows = min(8192 // block, _power_of_two(lines))
    return Tile(rows, block, max(1, min(8, rows * block // 1024)))


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _warps(elements: int, per_thread: int) -> int:
    return min(16, max(1, elements // (32 * per_thread)))
