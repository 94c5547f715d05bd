"""Forward and backward over rows that fit into registers: each tensor is read once and written once.

A tile is ROWS points of at most BLOCK coordinates. Optionally each point first goes through an affine map per
coordinate (a batch norm: ``x a + b``), and the result through a ReLU: the tail of a residual block in one kernel. An
absent tensor is None, which the compiler sees: what it would serve is left out of the code.
"""

import triton
import triton.language as tl

from lresnet.kernels.formulas import (
    gradient_coefficients,
    partners,
    second_vector,
    sign_coefficients,
    value_coefficients,
)

__all__ = ["backward_blocks", "forward_blocks"]


@triton.jit
def single(pointer, PER_ROW: tl.constexpr):
    """One number for all rows; 1 where there is none or there is one per row."""
    if pointer is None or PER_ROW:
        return tl.cast(1.0, tl.float32)
    else:
        return tl.load(pointer)


@triton.jit
def row_value(for_all, pointer, row, mask, PER_ROW: tl.constexpr):
    """One number per row, or the one for all."""
    if PER_ROW:
        return tl.load(pointer + row, mask=mask, other=1.0)
    else:
        return for_all


@triton.jit
def per_column(pointer, columns, n, ROWS: tl.constexpr):
    """One number per coordinate, repeated for every row, and 0 beyond the n-th; 0 where there is none.

    Loaded as a whole tile, so that each thread holds the coordinates it holds of the points: a line of them would be
    dealt out to the threads in another way, and everything it meets moved through shared memory.
    """
    if pointer is None:
        return 0.0
    else:
        return tl.load(pointer + columns + tl.zeros((ROWS, 1), tl.int32), mask=columns < n, other=0.0)


@triton.jit
def affine(raw, a_pointer, a, b):
    """``raw a + b``, or ``raw`` where there is no a."""
    if a_pointer is None:
        return raw
    else:
        return raw * a + b


@triton.jit
def zeros(ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A tile of sums."""
    return tl.zeros((ROWS, BLOCK), tl.float32)


@triton.jit
def write_sums(line, sums, n, BLOCK: tl.constexpr):
    """The sums over the rows of a tile, n numbers from ``line`` on; where the next ones go."""
    column = tl.arange(0, BLOCK)
    tl.store(line + column, tl.sum(sums, axis=0), mask=column < n)
    return line + n


@triton.jit
def dot(u, v):
    """Inner product of each row, [ROWS, 1]."""
    return tl.sum(u * v, axis=1, keep_dims=True)


@triton.jit
def forward_blocks(
    x_pointer,
    y_pointer,
    z_pointer,
    weight_pointer,
    scale_pointer,
    kappa_pointer,
    a_x_pointer,
    b_x_pointer,
    a_y_pointer,
    b_y_pointer,
    rows,
    n,
    x_step,
    y_step,
    KIND: tl.constexpr,
    RELU: tl.constexpr,
    WEIGHT_PER_ROW: tl.constexpr,
    SCALE_PER_ROW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``z = scale * residual(x, y)`` of one tile."""
    # 64-bit rows: a tensor may hold more than 2^31 numbers.
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (columns < n)
    kappa = tl.load(kappa_pointer)
    w = tl.abs(row_value(single(weight_pointer, WEIGHT_PER_ROW), weight_pointer, row, row < rows, WEIGHT_PER_ROW))
    scale = row_value(single(scale_pointer, SCALE_PER_ROW), scale_pointer, row, row < rows, SCALE_PER_ROW)
    x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_pointer + row * y_step + columns, mask=inside, other=0.0).to(tl.float32)
    a_x, b_x = per_column(a_x_pointer, columns, n, ROWS), per_column(b_x_pointer, columns, n, ROWS)
    a_y, b_y = per_column(a_y_pointer, columns, n, ROWS), per_column(b_y_pointer, columns, n, ROWS)
    x, y = affine(x, a_x_pointer, a_x, b_x), affine(y, a_y_pointer, a_y, b_y)

    x2, y2 = dot(x, x), dot(y, y)
    a, b = second_vector(x2, y2, w, kappa, KIND)
    second = a * x + b * y
    alpha, beta = value_coefficients(x2, y2, dot(x, y), dot(second, second), w, scale, kappa, KIND)
    z = alpha * x + beta * y
    if RELU:
        z = tl.where(z < 0.0, 0.0, z)  # and not a maximum: a NaN must stay one
    tl.store(z_pointer + row * n + columns, z.to(z_pointer.dtype.element_ty), mask=inside)


@triton.jit
def backward_blocks(
    g_pointer,
    x_pointer,
    y_pointer,
    gx_pointer,
    gy_pointer,
    weight_pointer,
    scale_pointer,
    kappa_pointer,
    a_x_pointer,
    b_x_pointer,
    a_y_pointer,
    b_y_pointer,
    centre_x_pointer,
    centre_y_pointer,
    gweight_pointer,
    gscale_pointer,
    sums_pointer,
    rows,
    n,
    g_step,
    x_step,
    y_step,
    KIND: tl.constexpr,
    RELU: tl.constexpr,
    WEIGHT_PER_ROW: tl.constexpr,
    SCALE_PER_ROW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradients of ``forward_blocks``: each program walks over tiles and leaves one line of partial sums.

    The line holds, as far as they are asked for, the gradients of a_y, b_y, a_x, b_x (n numbers each) and of weight,
    scale and kappa. Whoever adds the lines up in a fixed order gets the same bits every time. With a centre c the sum
    for a_y is that of ``g (y - c)`` and not of ``g y``: a batch norm's, which would cancel far from 0.
    """
    columns = tl.arange(0, BLOCK)[None, :]
    kappa = tl.load(kappa_pointer)
    all_weight, all_scale = single(weight_pointer, WEIGHT_PER_ROW), single(scale_pointer, SCALE_PER_ROW)
    a_x, b_x = per_column(a_x_pointer, columns, n, ROWS), per_column(b_x_pointer, columns, n, ROWS)
    a_y, b_y = per_column(a_y_pointer, columns, n, ROWS), per_column(b_y_pointer, columns, n, ROWS)
    c_x, c_y = per_column(centre_x_pointer, columns, n, ROWS), per_column(centre_y_pointer, columns, n, ROWS)
    # Sums stay spread over the threads until the end: adding them up tile by tile would make the warps wait.
    sum_w, sum_scale, sum_kappa = zeros(ROWS, 1), zeros(ROWS, 1), zeros(ROWS, 1)
    sum_ax, sum_bx, sum_ay, sum_by = zeros(ROWS, BLOCK), zeros(ROWS, BLOCK), zeros(ROWS, BLOCK), zeros(ROWS, BLOCK)
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (row < rows) & (columns < n)
        signed = row_value(all_weight, weight_pointer, row, row < rows, WEIGHT_PER_ROW)
        w = tl.abs(signed)
        scale = row_value(all_scale, scale_pointer, row, row < rows, SCALE_PER_ROW)
        raw_x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
        raw_y = tl.load(y_pointer + row * y_step + columns, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(g_pointer + row * g_step + columns, mask=inside, other=0.0).to(tl.float32)
        x, y = affine(raw_x, a_x_pointer, a_x, b_x), affine(raw_y, a_y_pointer, a_y, b_y)

        x2, y2 = dot(x, x), dot(y, y)
        a, b = second_vector(x2, y2, w, kappa, KIND)
        second = a * x + b * y
        second2 = dot(second, second)
        if RELU:
            s, t = sign_coefficients(x2, y2, dot(x, y), second2, w, kappa, KIND)
            g = tl.where(s * x + t * y > 0.0, g, 0.0)
        if KIND == "lorentz":
            mixed, gp = dot(x - y, x + y), dot(g, x - y)
        else:
            mixed, gp = dot(x, y), dot(g, y)
        A_x, E_x, X, A_y, E_y, Y, gw, gscale, gkappa = gradient_coefficients(
            x2, y2, mixed, second2, dot(g, x), gp, w, scale, kappa, KIND
        )
        p_x, p_y = partners(x, y, a, b, KIND)
        gx = A_x * g + E_x * p_x + X * x
        gy = A_y * g + E_y * p_y + Y * y
        through_x, through_y = affine(gx, a_x_pointer, a_x, 0.0), affine(gy, a_y_pointer, a_y, 0.0)
        tl.store(gx_pointer + row * n + columns, through_x.to(gx_pointer.dtype.element_ty), mask=inside)
        tl.store(gy_pointer + row * n + columns, through_y.to(gy_pointer.dtype.element_ty), mask=inside)

        gw = tl.where(signed < 0.0, -gw, tl.where(signed > 0.0, gw, 0.0))
        if gweight_pointer is not None:
            tl.store(gweight_pointer + row, gw, mask=row < rows)
        if gscale_pointer is not None:
            tl.store(gscale_pointer + row, gscale, mask=row < rows)
        if sums_pointer is not None:
            sum_w += gw
            sum_scale += gscale
            sum_kappa += gkappa
            if a_y_pointer is not None:
                sum_ay += gy * (raw_y - c_y)
                sum_by += gy
            if a_x_pointer is not None:
                sum_ax += gx * (raw_x - c_x)
                sum_bx += gx

    if sums_pointer is not None:
        width = 3
        if a_y_pointer is not None:
            width += 2 * n
        if a_x_pointer is not None:
            width += 2 * n
        line = sums_pointer + tl.program_id(0) * width
        if a_y_pointer is not None:
            line = write_sums(line, sum_ay, n, BLOCK)
            line = write_sums(line, sum_by, n, BLOCK)
        if a_x_pointer is not None:
            line = write_sums(line, sum_ax, n, BLOCK)
            line = write_sums(line, sum_bx, n, BLOCK)
        tl.store(line, tl.sum(sum_w))
        tl.store(line + 1, tl.sum(sum_scale))
        tl.store(line + 2, tl.sum(sum_kappa))
