"""Rows in memory: of points [N, n], or of a stack [N, S, n] whose members lie one after the other or side by side."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["Rows", "Tile", "rows_of", "tile_for"]


class Rows(NamedTuple):
    """Row i S + s of a stack starts ``i * node_step + s * member_step`` numbers behind the first."""

    tensor: Tensor
    total: int
    members: int
    node_step: int
    member_step: int


def rows_of(x: Tensor) -> Rows:
    """[N, n], [N, S, n], or any other shape as [N, n]; copied only where coordinates are not next to each other."""
    if x.dim() not in (2, 3):
        x = x.reshape(-1, x.shape[-1])
    if x.stride(-1) != 1:
        x = x.contiguous()
    members = x.shape[1] if x.dim() == 3 else 1
    return Rows(x, x.shape[0] * members, members, x.stride(0), x.stride(1) if x.dim() == 3 else 0)


class Tile(NamedTuple):
    """What one program works on."""

    rows: int
    block: int
    """Coordinates, a power of two."""

    def grid(self, count: int) -> tuple[int]:
        """So many programs for ``count`` rows."""
        return (-(-count // self.rows),)


def tile_for(width: int) -> Tile:
    """Small tiles: a few thousand rows are to keep all of a GPU busy.

    Example:
        >>> tile_for(17)
        Tile(rows=32, block=32)
    """
    block = 1 << (width - 1).bit_length()
    return Tile(max(1, 1024 // block), block)
