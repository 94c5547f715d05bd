"""Tiles, rows and memory layout: how points are divided among programs, and where their numbers are in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import weight_rows

__all__ = [
    "LONGEST_RESIDUAL_ROW",
    "LONGEST_ROW",
    "MEAN",
    "VARIANCE",
    "A",
    "Affine",
    "B",
    "Heads",
    "StackRows",
    "Tile",
    "add_tile",
    "attention_vectors_backward_tile",
    "attention_vectors_tile",
    "empty_points",
    "from_rows",
    "merge_tile",
    "moments_tile",
    "one_per_row",
    "pairwise_tile",
    "per_channel",
    "relu_tile",
    "residual_backward_tile",
    "residual_forward_tile",
    "residual_long_tile",
    "residual_norm_tile",
    "small_tile",
    "stack_rows",
    "sums_tile",
    "to_rows",
    "with_unit_stride",
]

# Longest "short" rows of a residual: a program holds them in registers, three rows and two results in the backward
# pass. Longer rows have kernels of their own, which read a row in chunks.
LONGEST_RESIDUAL_ROW = 8192
# The same for the other operators, which index rows with 32 bits and memory with 64.
LONGEST_ROW = 2048

# Rows of the batch statistics, float32 [5, n]: mean, unbiased variance, 1/sqrt(biased variance + eps), and the
# factors a and b of the norm as an affine map, x a + b.
MEAN, VARIANCE, A, B = 0, 1, 3, 4

Affine = tuple[Tensor, Tensor]


# --- Tiles: the one table to tune -------------------------------------------------------------------------------------


class Tile(NamedTuple):
    """The shape of one program's work."""

    rows: int
    block: int
    """Coordinates, a power of two."""
    warps: int = 4
    """4 is Triton's default."""
    programs: int = 2**31 - 1
    """Largest number of programs. A program of a backward pass loops over tiles and writes one line of sums."""
    stages: int = 1
    """Tiles in flight in such a loop."""

    def grid(self, count: int) -> tuple[int]:
        """Return the launch grid for ``count`` rows, one program per tile."""
        return (-(-count // self.rows),)


def small_tile(n: int, elements: int = 1024) -> Tile:
    """Tile of about ``elements`` numbers for rows of n coordinates: a few thousand rows then keep a GPU busy.

    Example:
        >>> small_tile(17)
        Tile(rows=32, block=32, warps=4, programs=2147483647, stages=1)
    """
    block = 1 << (n - 1).bit_length()
    return Tile(max(1, elements // block), block)


def residual_forward_tile(n: int) -> Tile:
    """Tile of ``forward_short`` in ``residual.py``: rows of n <= :data:`LONGEST_RESIDUAL_ROW` coordinates.

    Example:
        >>> residual_forward_tile(60)
        Tile(rows=32, block=64, warps=4, programs=2147483647, stages=1)
    """
    block = _power_of_two(n)
    rows = max(1, 2048 // block)
    return Tile(rows, block, _warps(rows * block, per_thread=16))


def residual_backward_tile(n: int) -> Tile:
    """Tile of ``backward_short`` in ``residual.py``: rows of n <= :data:`LONGEST_RESIDUAL_ROW` coordinates.

    Several small tiles in flight are fastest.

    Example:
        >>> residual_backward_tile(256)
        Tile(rows=2, block=256, warps=2, programs=1056, stages=3)
    """
    block = _power_of_two(n)
    if block <= 512:
        return Tile(512 // block, block, 2, programs=1056, stages=3)
    return Tile(1, block, max(4, block // 1024), programs=2112, stages=2)


def residual_long_tile() -> Tile:
    """Tile of ``forward_long`` and ``backward_long``: a chunk of one row, longer than :data:`LONGEST_RESIDUAL_ROW`."""
    return Tile(1, 4096, 16)


def sums_tile(n: int, rows: int) -> Tile:
    """Tile of ``backward_short`` for ``norm_tail.py``, where a program writes a line of sums per coordinate.

    It is :func:`residual_backward_tile` with fewer programs: each loops over four tiles at least.

    Example:
        >>> sums_tile(512, rows=2048)
        Tile(rows=1, block=512, warps=1, programs=512, stages=3)
    """
    tile = residual_backward_tile(n)
    warps = 1 if tile.block == 512 else tile.warps  # longer sums in fewer threads: 26 us instead of 36 at [8192, 512]
    return tile._replace(warps=warps, programs=min(tile.programs, -(-rows // (4 * tile.rows))))


def moments_tile(n: int, rows: int) -> Tile:
    """Tile for the moments of n channels over ``rows`` rows.

    64 channels of a row fill whole cache lines; wider blocks would write longer lines of sums and not read faster.
    With T tiles for P programs, reading takes T / P steps and summing the lines takes P: P grows as the root of T. The
    factor 8 is measured (H200); more than 1,024 programs are not faster.

    Example:
        >>> moments_tile(256, rows=8192)
        Tile(rows=16, block=64, warps=2, programs=64, stages=3)
    """
    block = min(64, _power_of_two(n))
    tile_rows, groups = 1024 // block, -(-n // block)
    programs = min(1024, _power_of_two(math.isqrt(64 * groups * -(-rows // tile_rows)) + 1) // 2)
    return Tile(tile_rows, block, 2, programs=max(1, programs // groups), stages=3)


def add_tile(n: int) -> Tile:
    """Tile for adding a line ``B x + D`` to n channels, a pass limited by memory.

    Example:
        >>> add_tile(128)
        Tile(rows=8, block=128, warps=4, programs=2147483647, stages=1)
    """
    block = min(512, _power_of_two(n))
    return Tile(1024 // block, block, 4)


def relu_tile(n: int) -> Tile:
    """Tile for a norm and its ReLU, a pass limited by memory: whole cache lines, and one kernel for all widths.

    Example:
        >>> relu_tile(512)
        Tile(rows=16, block=64, warps=4, programs=2147483647, stages=1)
    """
    block = min(64, _power_of_two(n))
    return Tile(1024 // block, block, 4)


def merge_tile(n: int, lines: int) -> Tile:
    """Tile for summing ``lines`` lines of n numbers: few columns per program, so that many programs share the work.

    Example:
        >>> merge_tile(64, lines=500)
        Tile(rows=512, block=8, warps=4, programs=2147483647, stages=1)
    """
    block = min(64, max(8, _power_of_two(n) // 64))
    rows = min(8192 // block, _power_of_two(lines))
    return Tile(rows, block, max(1, min(8, rows * block // 1024)))


def pairwise_tile() -> Tile:
    """Tile of ``pairwise_distance.py``: pairs of 64 points with 64 others, six sums for each pair in registers.

    Example:
        >>> pairwise_tile()
        Tile(rows=64, block=64, warps=8, programs=2147483647, stages=1)
    """
    return Tile(64, 64, 8)


def attention_vectors_tile(width: int, half: int) -> Tile:
    """Tile of ``_forward`` in ``attention_vectors.py``; a row is one head of one token.

    A thread loads 8 numbers of each half of the pairs, and one warp shares the sums of its rows without a barrier. A
    program computes its tile for several sequences, as few as give at most ``programs`` programs. Of 10
    variants this one took the least time, 26.5 us for lorentz_gpt on an H200 (24.6 at the copy rate).

    Example:
        >>> attention_vectors_tile(64, 32)
        Tile(rows=32, block=64, warps=4, programs=12672, stages=1)
    """
    return Tile(4 * _rows_of_a_warp(width, half), _power_of_two(width), 4, programs=12672)


def attention_vectors_backward_tile(width: int, half: int) -> Tile:
    """Tile of ``_backward`` in ``attention_vectors.py``, like :func:`attention_vectors_tile`.

    Of 10 variants this one took the least time, 39.5 us for lorentz_gpt (36.8 at the copy rate).
    """
    return Tile(_rows_of_a_warp(width, half), _power_of_two(width), 1, programs=6336, stages=3)


def _rows_of_a_warp(width: int, half: int) -> int:
    part = _power_of_two(half if 0 < 2 * half <= width else width // 2)
    return max(1, 256 // part)


def residual_norm_tile(n: int) -> Tile:
    """Tile of ``residual_norm.py``: 512 numbers for each warp, and eight warps on each of an H200's 132 processors.

    Of 11 variants this one took the least time: 42.4 us for 16,384 rows of 512 numbers (36.8 at the copy rate).

    Example:
        >>> residual_norm_tile(512)
        Tile(rows=1, block=512, warps=1, programs=1056, stages=3)
    """
    block = _power_of_two(n)
    warps = max(1, block // 512)
    return Tile(max(1, min(32, 512 // block)), block, warps, programs=1056 // warps, stages=3)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _warps(elements: int, per_thread: int) -> int:
    return min(16, max(1, elements // (32 * per_thread)))


# --- Points as rows [R, n] --------------------------------------------------------------------------------------------


def to_rows(points: Tensor, dim: int) -> Tensor:
    """Return the points as [R, n]: a view if coordinates are contiguous (channels_last with ``dim=1``), else a copy."""
    if points.dim() == 2 and dim in (1, -1):
        return points
    last = points.movedim(dim, -1)
    return last.reshape(-1, last.shape[-1])


def from_rows(rows: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """Invert :func:`to_rows`: return a view of ``shape`` whose coordinates stay contiguous."""
    if len(shape) == 2 and dim in (1, -1):
        return rows
    others = [size for axis, size in enumerate(shape) if axis != dim % len(shape)]
    return rows.reshape(*others, shape[dim]).movedim(-1, dim)


def empty_points(shape: Sequence[int], dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an uninitialised tensor of points whose rows are contiguous and adjacent.

    It is a tensor of its own and not a view of rows: autograd forbids in-place changes of a view that an
    autograd.Function returns, and users write ``residual(x, y).relu_()``.
    """
    steps, step = [0] * len(shape), 1
    axes = [axis for axis in range(len(shape)) if axis != dim % len(shape)]
    for axis in reversed([*axes, dim % len(shape)]):
        steps[axis] = step
        step *= shape[axis]
    return torch.empty_strided(shape, steps, dtype=dtype, device=device)


def with_unit_stride(rows: Tensor) -> Tensor:
    """Return rows [R, n] whose coordinates are adjacent in memory, copied if they are not."""
    return rows if rows.stride(1) == 1 else rows.contiguous()


def one_per_row(
    weight: float | Tensor | None, points: Tensor, dim: int, name: str, dtype: torch.dtype = torch.float32
) -> Tensor | None:
    """Return None, one number [] or one number per row [R], in ``dtype`` on the device of the points."""
    if weight is None:
        return None
    if isinstance(weight, Tensor) and weight.dim() == 0 and weight.is_floating_point():
        return weight.to(points.device, dtype)
    like = points.new_empty((), dtype=dtype).expand(points.shape)  # the shape of the points in the dtype of the weights
    rows = weight_rows(weight.to(points.device) if isinstance(weight, Tensor) else weight, like, dim, name)
    if rows.dim() == 0:
        return rows
    per_point = list(points.shape)
    per_point[dim] = 1
    # The kernels read adjacent numbers; a reshape alone may leave strides of 0 or 2.
    return rows.expand(per_point).movedim(dim, -1).reshape(-1).contiguous()


def per_channel(affine: Affine | None) -> tuple[Tensor | None, Tensor | None]:
    """Return the two factors of each channel as the kernels read them: float32 and contiguous."""
    if affine is None:
        return None, None
    a, b = (t.to(torch.float32).contiguous() for t in affine)
    return a, b


# --- Heads of attention ---------------------------------------------------------------------------------------------


class Heads(NamedTuple):
    """Numbers of heads and of their coordinates."""

    queries: int
    keys: int
    """Also of values."""
    n: int
    m: int
    width: int
    """Of the vectors, at least that of the coordinates and times."""

    @property
    def slots(self) -> int:
        """Number of heads of the three kinds together."""
        return self.queries + 2 * self.keys

    @property
    def columns(self) -> int:
        """Number of columns of the projection."""
        return self.slots * self.width


# --- Rows of a stack [N, S, n], whose members may be adjacent in memory or apart --------------------------------------


class StackRows(NamedTuple):
    """Row i S + s of a stack starts ``i * node_step + s * member_step`` numbers after the first."""

    tensor: Tensor
    total: int
    members: int
    node_step: int
    member_step: int


def stack_rows(x: Tensor) -> StackRows:
    """Return the rows of [N, n], [N, S, n] or any other shape as [N, n]; copy only if coordinates are not adjacent."""
    if x.dim() not in (2, 3):
        x = x.reshape(-1, x.shape[-1])
    if x.stride(-1) != 1:
        x = x.contiguous()
    members = x.shape[1] if x.dim() == 3 else 1
    return StackRows(x, x.shape[0] * members, members, x.stride(0), x.stride(1) if x.dim() == 3 else 0)
