"""Forward and backward over rows too long for registers: one program a row, chunk by chunk, in three walks.

Norms first, then the sum that needs them (:func:`~lresnet.kernels.formulas.second_vector`), then the result.
The second and the third walk find most of the row in the cache.
"""

import triton
import triton.language as tl

from lresnet.kernels.blocks import row_value, single
from lresnet.kernels.formulas import (
    gradient_coefficients,
    partners,
    second_vector,
    value_coefficients,
)

__all__ = ["backward_long", "forward_long"]


@triton.jit
def chunk(pointer, start, n, BLOCK: tl.constexpr):
    """BLOCK coordinates from ``start`` on, in float32; 0 beyond the n-th."""
    columns = start + tl.arange(0, BLOCK)
    return tl.load(pointer + columns, mask=columns < n, other=0.0).to(tl.float32)


@triton.jit
def write(pointer, start, n, values, BLOCK: tl.constexpr):
    """The counterpart of :func:`chunk`."""
    columns = start + tl.arange(0, BLOCK)
    tl.store(pointer + columns, values.to(pointer.dtype.element_ty), mask=columns < n)


@triton.jit
def second_sum(x_row, y_row, n, a, b, BLOCK: tl.constexpr):
    """``|a x + b y|^2`` of one row."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        second = a * chunk(x_row, start, n, BLOCK) + b * chunk(y_row, start, n, BLOCK)
        total += second * second
    return tl.sum(total)


@triton.jit
def forward_long(
    x_pointer,
    y_pointer,
    z_pointer,
    weight_pointer,
    scale_pointer,
    kappa_pointer,
    n,
    x_step,
    y_step,
    KIND: tl.constexpr,
    WEIGHT_PER_ROW: tl.constexpr,
    SCALE_PER_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``z = scale * residual(x, y)`` of one row."""
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = x_pointer + row * x_step, y_pointer + row * y_step
    kappa = tl.load(kappa_pointer)
    w = tl.abs(row_value(single(weight_pointer, WEIGHT_PER_ROW), weight_pointer, row, row >= 0, WEIGHT_PER_ROW))
    scale = row_value(single(scale_pointer, SCALE_PER_ROW), scale_pointer, row, row >= 0, SCALE_PER_ROW)
    sum_xx, sum_yy = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    sum_xy = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        x, y = chunk(x_row, start, n, BLOCK), chunk(y_row, start, n, BLOCK)
        sum_xx += x * x
        sum_yy += y * y
        sum_xy += x * y
    x2, y2, xy = tl.sum(sum_xx), tl.sum(sum_yy), tl.sum(sum_xy)
    a, b = second_vector(x2, y2, w, kappa, KIND)
    second2 = second_sum(x_row, y_row, n, a, b, BLOCK)
    alpha, beta = value_coefficients(x2, y2, xy, second2, w, scale, kappa, KIND)
    for start in range(0, n, BLOCK):
        z = alpha * chunk(x_row, start, n, BLOCK) + beta * chunk(y_row, start, n, BLOCK)
        write(z_pointer + row * n, start, n, z, BLOCK)


@triton.jit
def backward_long(
    g_pointer,
    x_pointer,
    y_pointer,
    gx_pointer,
    gy_pointer,
    weight_pointer,
    scale_pointer,
    kappa_pointer,
    gweight_pointer,
    gscale_pointer,
    sums_pointer,
    n,
    g_step,
    x_step,
    y_step,
    KIND: tl.constexpr,
    WEIGHT_PER_ROW: tl.constexpr,
    SCALE_PER_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradients of ``forward_long``, and the row's share of those of weight, scale and kappa in a line of ``sums``."""
    row = tl.program_id(0).to(tl.int64)
    g_row, x_row, y_row = g_pointer + row * g_step, x_pointer + row * x_step, y_pointer + row * y_step
    kappa = tl.load(kappa_pointer)
    signed = row_value(single(weight_pointer, WEIGHT_PER_ROW), weight_pointer, row, row >= 0, WEIGHT_PER_ROW)
    w = tl.abs(signed)
    scale = row_value(single(scale_pointer, SCALE_PER_ROW), scale_pointer, row, row >= 0, SCALE_PER_ROW)
    sum_xx, sum_yy = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    sum_mixed, sum_gx, sum_gp = tl.zeros_like(sum_xx), tl.zeros_like(sum_xx), tl.zeros_like(sum_xx)
    for start in range(0, n, BLOCK):
        x, y, g = chunk(x_row, start, n, BLOCK), chunk(y_row, start, n, BLOCK), chunk(g_row, start, n, BLOCK)
        sum_xx += x * x
        sum_yy += y * y
        sum_gx += g * x
        if KIND == "lorentz":
            sum_mixed += (x - y) * (x + y)
            sum_gp += g * (x - y)
        else:
            sum_mixed += x * y
            sum_gp += g * y
    x2, y2 = tl.sum(sum_xx), tl.sum(sum_yy)
    a, b = second_vector(x2, y2, w, kappa, KIND)
    second2 = second_sum(x_row, y_row, n, a, b, BLOCK)
    A_x, E_x, X, A_y, E_y, Y, gw, gscale, gkappa = gradient_coefficients(
        x2, y2, tl.sum(sum_mixed), second2, tl.sum(sum_gx), tl.sum(sum_gp), w, scale, kappa, KIND
    )
    for start in range(0, n, BLOCK):
        x, y, g = chunk(x_row, start, n, BLOCK), chunk(y_row, start, n, BLOCK), chunk(g_row, start, n, BLOCK)
        p_x, p_y = partners(x, y, a, b, KIND)
        write(gx_pointer + row * n, start, n, A_x * g + E_x * p_x + X * x, BLOCK)
        write(gy_pointer + row * n, start, n, A_y * g + E_y * p_y + Y * y, BLOCK)
    gw = tl.where(signed < 0.0, -gw, tl.where(signed > 0.0, gw, 0.0))
    if gweight_pointer is not None:
        tl.store(gweight_pointer + row, gw)
    if gscale_pointer is not None:
        tl.store(gscale_pointer + row, gscale)
    if sums_pointer is not None:
        tl.store(sums_pointer + row * 3, gw)
        tl.store(sums_pointer + row * 3 + 1, gscale)
        tl.store(sums_pointer + row * 3 + 2, gkappa)
