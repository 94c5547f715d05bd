r"""A batch norm and its ReLU over rows [R, n], z = relu(u) with u = x a + b, and what its gradient needs.

With :math:`h = g\,[u > 0]`, the statistics' share as in :mod:`.norm_gradients`:

.. math:: \partial x = a h + B x + D, \qquad S = \sum h\, (x - \mu), \quad G = \sum h .

The sums come first, the gradient after them: 3 passes over memory forward (one is the moments'), 5 backward.
"""
# mypy: ignore-errors

import triton
import triton.language as tl

from lresnet.kernels.blocks import per_column

__all__ = ["relu_forward", "relu_gradient", "relu_sums"]


@triton.jit
def relu_forward(
    x_pointer, statistics_pointer, z_pointer, rows, n, x_step, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """``z = relu(x a + b)`` of one tile, z contiguous. Programs go along the rows: neighbours share their lines."""
    blocks = tl.cdiv(n, BLOCK)
    columns = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    row = ((tl.program_id(0) // blocks) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    inside = (row < rows) & (columns < n)
    a = per_column(statistics_pointer + 3 * n, columns, n, ROWS)
    b = per_column(statistics_pointer + 4 * n, columns, n, ROWS)
    x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
    u = x * a + b
    z = tl.where(u < 0.0, 0.0, u)  # and not a maximum: a NaN must stay one
    tl.store(z_pointer + row * n + columns, z.to(z_pointer.dtype.element_ty), mask=inside)


@triton.jit
def relu_sums(
    g_pointer,
    x_pointer,
    statistics_pointer,
    lines_pointer,
    rows,
    n,
    g_step,
    x_step,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Line p of ``lines`` [P, 2 n]: S and G over the rows of program p."""
    columns = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mean = per_column(statistics_pointer, columns, n, ROWS)
    a = per_column(statistics_pointer + 3 * n, columns, n, ROWS)
    b = per_column(statistics_pointer + 4 * n, columns, n, ROWS)
    S, G = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in tl.range(tl.program_id(1), tl.cdiv(rows, ROWS), tl.num_programs(1), num_stages=STAGES):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (row < rows) & (columns < n)
        g = tl.load(g_pointer + row * g_step + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
        h = tl.where(x * a + b > 0.0, g, 0.0)
        S += h * (x - mean)
        G += h
    line = lines_pointer + tl.program_id(1) * 2 * n + columns
    tl.store(line, tl.sum(S, axis=0, keep_dims=True), mask=columns < n)
    tl.store(line + n, tl.sum(G, axis=0, keep_dims=True), mask=columns < n)


@triton.jit
def relu_gradient(
    g_pointer,
    x_pointer,
    statistics_pointer,
    coefficients_pointer,
    gx_pointer,
    rows,
    n,
    g_step,
    x_step,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``gx = a h + B x + D`` of one tile, gx contiguous; (B, D) = coefficients [2, n]."""
    # From the end: what the sums read last is still in the cache.
    program, blocks = tl.num_programs(0) - 1 - tl.program_id(0), tl.cdiv(n, BLOCK)
    columns = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    row = ((program // blocks) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    inside = (row < rows) & (columns < n)
    a = per_column(statistics_pointer + 3 * n, columns, n, ROWS)
    b = per_column(statistics_pointer + 4 * n, columns, n, ROWS)
    slope = per_column(coefficients_pointer, columns, n, ROWS)
    offset = per_column(coefficients_pointer + n, columns, n, ROWS)
    g = tl.load(g_pointer + row * g_step + columns, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
    gx = tl.where(x * a + b > 0.0, a * g, 0.0) + (slope * x + offset)
    tl.store(gx_pointer + row * n + columns, gx.to(gx_pointer.dtype.element_ty), mask=inside)
