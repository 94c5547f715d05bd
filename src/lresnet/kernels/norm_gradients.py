r"""What a batch norm's statistics add to the gradients of a fused tail.

With u = x a + b, the gradient g of u, and :math:`\hat x = (x - \mu) r` over R rows, channel by channel,

.. math::
    \partial w = r S, \quad \partial \beta = G, \quad
    \partial x = a g - \frac aR G - \frac{a r^2}{R} S\, (x - \mu),
    \qquad S = \sum g\, (x - \mu), \quad G = \sum g .

The tail's backward kernel writes :math:`a g` and partial sums S and G; here the sums are finished, and what is missing
of the gradient, :math:`B x + D` with two numbers per channel, is added in one pass.
"""
# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = ["add_norm_gradient", "merge_sums"]


@triton.jit
def column_sums(pointer, gap, width, programs, mask, BLOCK: tl.constexpr, LINES: tl.constexpr):
    """Sums over lines ``width`` apart of BLOCK columns, and of those ``gap`` further on, in a fixed order."""
    first, second = tl.zeros((LINES, BLOCK), tl.float32), tl.zeros((LINES, BLOCK), tl.float32)
    for start in range(0, programs, LINES):
        line = start + tl.arange(0, LINES)[:, None]
        inside = (line < programs) & mask
        first += tl.load(pointer + line * width, mask=inside, other=0.0)
        second += tl.load(pointer + line * width + gap, mask=inside, other=0.0)
    return tl.sum(first, axis=0, keep_dims=True), tl.sum(second, axis=0, keep_dims=True)


@triton.jit
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
    """Lines [P, 2 n NORMS + EXTRA] of partial sums -> ``sums``, the same once, and ``coefficients`` [NORMS, 2, n].

    A line holds S and G of each norm, then EXTRA numbers, e.g. the derivatives of weight, scale and kappa; ``sums``
    holds the gradients of each norm's weight and bias in their place. Programs are numbered over the norms' blocks of
    columns; one more, the last, adds up the EXTRA numbers, at most BLOCK.
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


@triton.jit
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
    """``g += B x + D`` in place, g contiguous [R, n]."""
    columns = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    # Whole tiles of the two lines: see blocks.per_column.
    here = coefficients_pointer + columns + tl.zeros((ROWS, 1), tl.int32)
    slope, offset = tl.load(here, mask=columns < n, other=0.0), tl.load(here + n, mask=columns < n, other=0.0)
    tiles = tl.cdiv(rows, ROWS)
    for step in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        # From the end: what the tail's kernel wrote and read last is still in the cache.
        row = ((tiles - 1 - step) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (row < rows) & (columns < n)
        x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(g_pointer + row * n + columns, mask=inside, other=0.0).to(tl.float32)
        g += slope * x + offset
        tl.store(g_pointer + row * n + columns, g.to(g_pointer.dtype.element_ty), mask=inside)
