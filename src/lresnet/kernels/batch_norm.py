r"""Batch statistics of rows [R, n] and their part of the gradients: the kernels that norm_tail and norm_relu share.

With u = x a + b, the gradient g of u, and :math:`\hat x = (x - \mu) r` over R rows, channel by channel,

.. math::
    \partial w = r S, \quad \partial \beta = G, \quad
    \partial x = a g - \frac aR G - \frac{a r^2}{R} S\, (x - \mu),
    \qquad S = \sum g\, (x - \mu), \quad G = \sum g .

The backward kernel of an operator writes :math:`a g` and partial sums S and G. :func:`merge` completes the sums, and
:func:`add_gradient` adds the rest of the gradient, :math:`B x + D` with two numbers per channel, in one pass.
"""

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import jit, per_column
from lresnet.kernels.runtime import launch
from lresnet.kernels.tiles import Tile, add_tile, merge_tile, moments_tile

__all__ = ["add_gradient", "batch_statistics", "merge"]


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def merged(count, mean, squares, total):
    """Merge (mean, sum of squared deviations) of several slots per column into one: [SLOTS, n] -> [1, n] each.

    Deviations of the slots' means are squared; no difference of squares is formed. The mean is computed in two steps:
    the second one corrects the rounding of the first. A slot of count 0 changes nothing.
    """
    share = count / total
    about = tl.sum(share * mean, axis=0, keep_dims=True)
    off = mean - about
    rest = tl.sum(share * off, axis=0, keep_dims=True)
    deviation = off - rest
    return about + rest, tl.sum(squares + count * deviation * deviation, axis=0, keep_dims=True)


@jit
def moments_blocks(
    x_pointer,
    lines_pointer,
    rows,
    n,
    x_step,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    r"""Write line p of ``lines`` [P, 2, n]: mean and squared deviations of ``x - x[0]`` over the rows of program p.

    The first row is subtracted so that the deviations stay accurate if the mean is far from 0. Every element of the
    tile accumulates its own values along the rows (Welford):

    .. math:: \delta = x_k - m, \quad m \leftarrow m + \delta / k, \quad s \leftarrow s + \delta^2 (k - 1) / k .
    """
    columns = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    tiles = tl.cdiv(rows, ROWS)
    first = per_column(x_pointer, columns, n, ROWS).to(tl.float32)
    count = tl.zeros((ROWS, 1), tl.float32)
    mean, squares = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS, BLOCK), tl.float32)
    for step in tl.range(tl.program_id(1), tiles, tl.num_programs(1), num_stages=STAGES):
        # From the end: the last rows written are still in the cache, and the rows read last here are read first later.
        row = ((tiles - 1 - step) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        x = tl.load(x_pointer + row * x_step + columns, mask=(row < rows) & (columns < n), other=0.0).to(tl.float32)
        here = (row < rows).to(tl.float32)
        count += here
        rate = here / tl.maximum(count, 1.0)
        delta = (x - first) - mean
        mean += delta * rate
        squares += delta * (here - rate) * delta
    mean, squares = merged(count, mean, squares, tl.sum(count))
    line = lines_pointer + tl.program_id(1) * 2 * n + columns
    tl.store(line, mean, mask=columns < n)
    tl.store(line + n, squares, mask=columns < n)


@jit
def merge_moments(
    x_pointer,
    lines_pointer,
    weight_pointer,
    bias_pointer,
    statistics_pointer,
    rows,
    n,
    programs,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LINES: tl.constexpr,
):
    r"""Merge the lines of ``moments_blocks`` into mean, unbiased variance, r, a and b.

    .. math:: r = 1/\sqrt{\sigma^2 + \epsilon}, \qquad a = w r, \qquad b = \beta - \mu a,

    with the biased variance :math:`\sigma^2`; the unbiased one is for the running statistics.

    ROWS is that of the tile of ``moments_blocks``: it gives the number of rows that each program has read.
    """
    columns = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    line = tl.arange(0, LINES)[:, None]
    inside = (line < programs) & (columns < n)
    pointers = lines_pointer + line * 2 * n + columns
    mean, squares = tl.load(pointers, mask=inside, other=0.0), tl.load(pointers + n, mask=inside, other=0.0)
    tiles = tl.cdiv(rows, ROWS)
    seen = tl.cdiv(tiles - line, programs) * ROWS - tl.where(line == 0, tiles * ROWS - rows, 0)
    count = tl.where(line < programs, seen, 0).to(tl.float32)
    total = tl.cast(rows, tl.float32)  # rows = 1 is a compile-time constant, which has no methods
    mean, squares = merged(count, mean, squares, total)
    mean += tl.load(x_pointer + columns, mask=columns < n, other=0.0).to(tl.float32)
    variance = tl.div_rn(squares, total)
    inverse = tl.div_rn(1.0, tl.sqrt_rn(variance + eps))
    weight = tl.load(weight_pointer + columns, mask=columns < n, other=0.0)
    bias = tl.load(bias_pointer + columns, mask=columns < n, other=0.0)
    a = weight * inverse
    out = statistics_pointer + columns
    tl.store(out, mean, mask=columns < n)
    tl.store(out + n, tl.div_rn(squares, total - 1.0), mask=columns < n)
    tl.store(out + 2 * n, inverse, mask=columns < n)
    tl.store(out + 3 * n, a, mask=columns < n)
    tl.store(out + 4 * n, bias - mean * a, mask=columns < n)


@jit
def column_sums(pointer, gap, width, programs, mask, BLOCK: tl.constexpr, LINES: tl.constexpr):
    """Sum BLOCK columns, and those ``gap`` further on, over lines ``width`` apart, in a fixed order."""
    first, second = tl.zeros((LINES, BLOCK), tl.float32), tl.zeros((LINES, BLOCK), tl.float32)
    for start in range(0, programs, LINES):
        line = start + tl.arange(0, LINES)[:, None]
        inside = (line < programs) & mask
        first += tl.load(pointer + line * width, mask=inside, other=0.0)
        second += tl.load(pointer + line * width + gap, mask=inside, other=0.0)
    return tl.sum(first, axis=0, keep_dims=True), tl.sum(second, axis=0, keep_dims=True)


@jit
def merge_sums(
    lines_pointer,
    statistics_pointer,
    sums_pointer,
    coefficients_pointer,
    rows,
    n,
    programs,
    NORMS: tl.constexpr,
    EXTRA: tl.constexpr,
    BLOCK: tl.constexpr,
    LINES: tl.constexpr,
):
    """Reduce lines [P, 2 n NORMS + EXTRA] of partial sums to one line ``sums`` and ``coefficients`` [NORMS, 2, n].

    A line holds S and G of each norm, then EXTRA numbers, e.g. the derivatives of weight, scale and kappa. ``sums``
    holds the gradients of each norm's weight and bias in place of S and G. There is one program per block of columns
    of each norm; one more, the last, sums the EXTRA numbers, at most BLOCK.
    """
    blocks = tl.cdiv(n, BLOCK)
    norm, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    width = 2 * n * NORMS + EXTRA
    column = (block * BLOCK + tl.arange(0, BLOCK))[None, :]
    first = norm * 2 * n + column
    if norm == NORMS:
        total, _ = column_sums(lines_pointer + first, 0, width, programs, column < EXTRA, BLOCK, LINES)
        tl.store(sums_pointer + first, total, mask=column < EXTRA)
    else:
        inside = column < n
        S, G = column_sums(lines_pointer + first, n, width, programs, inside, BLOCK, LINES)
        statistics = statistics_pointer + norm * 5 * n + column
        mean = tl.load(statistics, mask=inside, other=0.0)
        inverse = tl.load(statistics + 2 * n, mask=inside, other=0.0)
        share = tl.load(statistics + 3 * n, mask=inside, other=0.0) / tl.cast(rows, tl.float32)
        slope = -share * inverse * (inverse * S)
        coefficients = coefficients_pointer + norm * 2 * n + column
        tl.store(sums_pointer + first, inverse * S, mask=inside)
        tl.store(sums_pointer + first + n, G, mask=inside)
        tl.store(coefficients, slope, mask=inside)
        tl.store(coefficients + n, -share * G - slope * mean, mask=inside)


@jit
def add_norm_gradient(
    g_pointer,
    x_pointer,
    coefficients_pointer,
    rows,
    n,
    x_step,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute ``g += B x + D`` in place; g is contiguous [R, n]."""
    columns = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    # Loaded as whole tiles: see per_column.
    here = coefficients_pointer + columns + tl.zeros((ROWS, 1), tl.int32)
    slope, offset = tl.load(here, mask=columns < n, other=0.0), tl.load(here + n, mask=columns < n, other=0.0)
    tiles = tl.cdiv(rows, ROWS)
    for step in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        # From the end: the rows that the previous kernel read and wrote last are still in the cache.
        row = ((tiles - 1 - step) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (row < rows) & (columns < n)
        x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(g_pointer + row * n + columns, mask=inside, other=0.0).to(tl.float32)
        g += slope * x + offset
        tl.store(g_pointer + row * n + columns, g.to(g_pointer.dtype.element_ty), mask=inside)


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def batch_statistics(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, out: Tensor, tile: Tile | None = None
) -> None:
    """Write the statistics of the rows x into ``out`` [5, n]; see ``MEAN`` in tiles.py. One pass over x."""
    rows, n = x.shape
    tile = tile or moments_tile(n, rows)
    programs = min(tile.programs, -(-rows // tile.rows))
    lines = out.new_empty((programs, 2, n))
    shape = {"ROWS": tile.rows, "BLOCK": tile.block, "STAGES": tile.stages, "num_warps": tile.warps}
    last = merge_tile(n, programs)
    if last.rows < programs:
        raise ValueError(
            f"moments of {programs} programs, but at most {last.rows} can be merged; use a tile with fewer programs"
        )
    with torch.cuda.device_of(x):
        launch(moments_blocks, (-(-n // tile.block), programs), x, lines, rows, n, x.stride(0), **shape)
        shape = {"ROWS": tile.rows, "BLOCK": last.block, "LINES": last.rows, "num_warps": last.warps}
        arguments = x, lines, weight, bias, out, rows, n, programs, eps
        launch(merge_moments, (-(-n // last.block),), *arguments, **shape)


def merge(lines: Tensor, statistics: Tensor, rows: int, extra: int) -> tuple[Tensor, Tensor]:
    """Return the sums of the lines, and the coefficients [norms, 2, n] of the norms' part of the gradients.

    ``extra`` is the number of sums in a line besides those of the norms.
    """
    norms, _, n = statistics.shape
    sums, coefficients = lines.new_empty(lines.shape[1]), lines.new_empty((norms, 2, n))
    tile = merge_tile(n, lines.shape[0])
    grid = (norms * -(-n // tile.block) + (extra > 0),)
    shape = {"NORMS": norms, "EXTRA": extra, "BLOCK": tile.block, "LINES": tile.rows, "num_warps": tile.warps}
    with torch.cuda.device_of(lines):
        launch(merge_sums, grid, lines, statistics, sums, coefficients, rows, n, lines.shape[0], **shape)
    return sums, coefficients


def add_gradient(g: Tensor, x: Tensor, coefficients: Tensor, tile: Tile | None = None) -> None:
    """Compute ``g += B x + D`` in place, with (B, D) = coefficients [2, n]; g must be owned by the caller."""
    rows, n = x.shape
    tile = tile or add_tile(n)
    grid = min(tile.programs, -(-rows // tile.rows)), -(-n // tile.block)
    shape = {"ROWS": tile.rows, "BLOCK": tile.block, "STAGES": tile.stages, "num_warps": tile.warps}
    with torch.cuda.device_of(x):
        launch(add_norm_gradient, grid, g, x, coefficients, rows, n, x.stride(0), **shape)
