r"""The residual of rows, with affine maps before and a ReLU after it, as one operator: forward and backward.

.. math:: z = \mathrm{relu}(\gamma\, (x a_x + b_x) \oplus (y a_y + b_y))

Bytes moved: forward reads x and y and writes z; backward reads x, y and the gradient and writes two. A launch reads no
value on the host, and a different number of rows, weight, scale or curvature needs no new compilation. Partial sums
are added in a fixed order, so that two runs give the same bits.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from lresnet.geometry.checks import require_positive
from lresnet.geometry.curvature import Curvature
from lresnet.kernels.formulas import tail_formula
from lresnet.kernels.math import dot, jit, per_column
from lresnet.kernels.residual_math import (
    gradient_coefficients,
    partners,
    second_vector,
    sign_coefficients,
    value_coefficients,
)
from lresnet.kernels.runtime import is_eager, launch
from lresnet.kernels.tiles import (
    LONGEST_RESIDUAL_ROW,
    Affine,
    Tile,
    empty_points,
    from_rows,
    one_per_row,
    per_channel,
    residual_backward_tile,
    residual_forward_tile,
    residual_long_tile,
    to_rows,
    with_unit_stride,
)

__all__ = [
    "Factors",
    "Gradients",
    "backward",
    "derivative",
    "forward",
    "fused_residual",
    "norm_count",
    "partial_backward",
    "residual",
    "residual_backward",
    "row_count",
    "scalar_factors",
    "sums_width",
]


# --- 1. Kernels -------------------------------------------------------------------------------------------------------
# A tensor that is absent is None at compile time: the code that would use it is left out. ``forward_short`` and
# ``backward_short`` serve short rows, of at most LONGEST_RESIDUAL_ROW coordinates; ``_long`` serves longer ones.


@jit
def single(pointer, PER_ROW: tl.constexpr):
    """Return the one number for all rows; 1 if there is none or one per row."""
    if pointer is None or PER_ROW:
        return tl.cast(1.0, tl.float32)
    else:
        return tl.load(pointer)


@jit
def row_value(for_all, pointer, row, mask, PER_ROW: tl.constexpr):
    """Return one number per row, or the one for all rows."""
    if PER_ROW:
        return tl.load(pointer + row, mask=mask, other=1.0)
    else:
        return for_all


@jit
def affine(raw, a_pointer, a, b):
    """Return ``raw a + b``, or ``raw`` if there is no a."""
    if a_pointer is None:
        return raw
    else:
        return raw * a + b


@jit
def zeros(ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return a tile of zeros for sums."""
    return tl.zeros((ROWS, BLOCK), tl.float32)


@jit
def write_sums(line, sums, n, BLOCK: tl.constexpr):
    """Write the sums over the rows of a tile, n numbers starting at ``line``; return the end of them."""
    column = tl.arange(0, BLOCK)
    tl.store(line + column, tl.sum(sums, axis=0), mask=column < n)
    return line + n


@jit
def forward_short(
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
    """Compute ``z = scale * residual(x, y)`` for one tile: ROWS points of at most BLOCK coordinates."""
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
        z = tl.where(z < 0.0, 0.0, z)  # not a maximum, which would drop a NaN
    tl.store(z_pointer + row * n + columns, z.to(z_pointer.dtype.element_ty), mask=inside)


@jit
def backward_short(
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
    """Compute the gradients of ``forward_short``: each program loops over tiles and writes one line of partial sums.

    The line holds the gradients of a_y, b_y, a_x, b_x (n numbers each), as far as they exist, and of weight, scale and
    kappa. With a centre c, the sum for a_y is that of ``g (y - c)`` instead of ``g y``: a batch norm needs this one,
    and ``g y`` would cancel if the mean is far from 0.
    """
    columns = tl.arange(0, BLOCK)[None, :]
    kappa = tl.load(kappa_pointer)
    all_weight, all_scale = single(weight_pointer, WEIGHT_PER_ROW), single(scale_pointer, SCALE_PER_ROW)
    a_x, b_x = per_column(a_x_pointer, columns, n, ROWS), per_column(b_x_pointer, columns, n, ROWS)
    a_y, b_y = per_column(a_y_pointer, columns, n, ROWS), per_column(b_y_pointer, columns, n, ROWS)
    c_x, c_y = per_column(centre_x_pointer, columns, n, ROWS), per_column(centre_y_pointer, columns, n, ROWS)
    # Each thread keeps its own sums until the end: a reduction after every tile would make the warps wait.
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


# Long rows, beyond LONGEST_RESIDUAL_ROW, do not fit in registers: one program per row, in chunks, in three loops. The
# first computes the norms, the second the sum that needs them (second_vector), the third the result. The later loops
# find most of the row in the cache.


@jit
def chunk(pointer, start, n, BLOCK: tl.constexpr):
    """Load BLOCK coordinates starting at ``start``, in float32; 0 beyond the n-th."""
    columns = start + tl.arange(0, BLOCK)
    return tl.load(pointer + columns, mask=columns < n, other=0.0).to(tl.float32)


@jit
def write(pointer, start, n, values, BLOCK: tl.constexpr):
    """Store BLOCK coordinates starting at ``start``: the inverse of :func:`chunk`."""
    columns = start + tl.arange(0, BLOCK)
    tl.store(pointer + columns, values.to(pointer.dtype.element_ty), mask=columns < n)


@jit
def second_sum(x_row, y_row, n, a, b, BLOCK: tl.constexpr):
    """Return ``|a x + b y|^2`` of one row."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        second = a * chunk(x_row, start, n, BLOCK) + b * chunk(y_row, start, n, BLOCK)
        total += second * second
    return tl.sum(total)


@jit
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
    """Compute ``z = scale * residual(x, y)`` for one row."""
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


@jit
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
    """Compute the gradients of ``forward_long``; the row's part for weight, scale and kappa is a line of ``sums``."""
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


# --- 2. Launch --------------------------------------------------------------------------------------------------------


class Factors(NamedTuple):
    """Arguments of the residual besides its points, float32."""

    weight: Tensor | None
    """None (meaning 1), one number [] or one per row [R]; the absolute value is used."""
    scale: Tensor | None
    """The same shapes; positive."""
    kappa: Tensor
    """[]"""
    a_x: Tensor | None = None
    """[n], like the next three. a_x and b_x are given together, and so are a_y and b_y."""
    b_x: Tensor | None = None
    a_y: Tensor | None = None
    b_y: Tensor | None = None


class Gradients(NamedTuple):
    """Gradients of x and y; of weight and scale per row (empty if they are not given per row); sums over all rows.

    The sums are the gradients of a_y, b_y, a_x, b_x, as far as given, then of weight, scale and kappa. They are empty
    unless requested.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    scale: Tensor
    sums: Tensor


def norm_count(factors: Factors) -> int:
    """Return how many of x and y have an affine map."""
    return (factors.a_x is not None) + (factors.a_y is not None)


def row_count(values: Tensor | None) -> int:
    """Return the size of a gradient per row: R, or 0 if the values are not given per row."""
    return values.shape[0] if values is not None and values.dim() == 1 else 0


def sums_width(n: int, factors: Factors) -> int:
    """Return the number of sums over rows."""
    return 2 * n * norm_count(factors) + 3


def is_per_row(values: Tensor | None) -> bool:
    """Return whether a weight or a scale has one number per row."""
    return values is not None and values.dim() == 1


def forward(
    x: Tensor,
    y: Tensor,
    factors: Factors,
    kind: str,
    relu: bool,
    tile: Tile | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``scale * residual(x a_x + b_x, y a_y + b_y)``, contiguous [R, n].

    The ReLU and the affine maps require short rows, of at most LONGEST_RESIDUAL_ROW coordinates.
    """
    rows, n = x.shape
    x, y = with_unit_stride(x), with_unit_stride(y)
    z = x.new_empty((rows, n), dtype=torch.promote_types(x.dtype, y.dtype)) if out is None else out
    if rows == 0:
        return z
    short = n <= LONGEST_RESIDUAL_ROW
    tile = tile or (residual_forward_tile(n) if short else residual_long_tile())
    steps = n, x.stride(0), y.stride(0)
    options = _options(factors, kind, tile)
    with torch.cuda.device_of(x):
        if short:
            grid = (-(-rows // tile.rows),)
            launch(forward_short, grid, x, y, z, *factors, rows, *steps, RELU=relu, ROWS=tile.rows, **options)
        else:
            launch(forward_long, (rows,), x, y, z, *factors[:3], *steps, **options)
    return z


def backward(
    g: Tensor, x: Tensor, y: Tensor, factors: Factors, kind: str, relu: bool, needs_sums: bool, tile: Tile | None = None
) -> Gradients:
    """Return the gradients of :func:`forward` along g."""
    found = partial_backward(g, x, y, factors, kind, relu, needs_sums, tile)
    with torch.cuda.device_of(x):
        return found._replace(sums=found.sums.sum(0))


def partial_backward(
    g: Tensor,
    x: Tensor,
    y: Tensor,
    factors: Factors,
    kind: str,
    relu: bool,
    needs_sums: bool,
    tile: Tile | None = None,
    centres: tuple[Tensor | None, Tensor | None] = (None, None),
) -> Gradients:
    """Return the gradients of :func:`backward` with one line of partial sums per program.

    With centres (of x, of y; float32 [n]) the sums for a_x and a_y are those of ``g (x - centre)``.
    """
    rows, n = x.shape
    g, x, y = with_unit_stride(g), with_unit_stride(x), with_unit_stride(y)
    gx, gy = x.new_empty((rows, n)), y.new_empty((rows, n))
    gweight, gscale = (factors.kappa.new_empty(row_count(t)) for t in factors[:2])
    width = sums_width(n, factors) if needs_sums else 0
    if rows == 0:
        return Gradients(gx, gy, gweight, gscale, factors.kappa.new_zeros((1, width)))
    short = n <= LONGEST_RESIDUAL_ROW
    tile = tile or (residual_backward_tile(n) if short else residual_long_tile())
    programs = min(tile.programs, -(-rows // tile.rows))
    lines = factors.kappa.new_empty((programs, width))
    results = (
        gweight if is_per_row(factors.weight) else None,
        gscale if is_per_row(factors.scale) else None,
        lines if needs_sums else None,
    )
    steps = n, g.stride(0), x.stride(0), y.stride(0)
    options = _options(factors, kind, tile)
    tensors = g, x, y, gx, gy, *(factors + centres if short else factors[:3]), *results
    with torch.cuda.device_of(x):
        if short:
            shape = {"RELU": relu, "ROWS": tile.rows, "STAGES": tile.stages}
            launch(backward_short, (programs,), *tensors, rows, *steps, **shape, **options)
        else:
            launch(backward_long, (programs,), *tensors, *steps, **options)
    return Gradients(gx, gy, gweight, gscale, lines)


def _options(factors: Factors, kind: str, tile: Tile) -> dict[str, object]:
    return {
        "KIND": kind,
        "WEIGHT_PER_ROW": is_per_row(factors.weight),
        "SCALE_PER_ROW": is_per_row(factors.scale),
        "BLOCK": tile.block,
        "num_warps": tile.warps,
    }


# --- 3. The torch operators and their derivative ----------------------------------------------------------------------
# torch.compile, torch.export and CUDA graphs see one node per operator.


@torch.library.custom_op("lresnet::residual", mutates_args=())
def residual(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    kappa: Tensor,
    a_x: Tensor | None,
    b_x: Tensor | None,
    a_y: Tensor | None,
    b_y: Tensor | None,
    kind: str,
    relu: bool,
) -> Tensor:
    """Run :func:`forward` with the factors as separate arguments."""
    return forward(x, y, Factors(weight, scale, kappa, a_x, b_x, a_y, b_y), kind, relu)


@residual.register_fake
def _(x: Tensor, y: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.promote_types(x.dtype, y.dtype))


@torch.library.custom_op("lresnet::residual_backward", mutates_args=())
def residual_backward(
    g: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    kappa: Tensor,
    a_x: Tensor | None,
    b_x: Tensor | None,
    a_y: Tensor | None,
    b_y: Tensor | None,
    kind: str,
    relu: bool,
    needs_sums: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run :func:`backward`. This operator has no derivative: second derivatives use the formula."""
    return backward(g, x, y, Factors(weight, scale, kappa, a_x, b_x, a_y, b_y), kind, relu, needs_sums)


@residual_backward.register_fake
def _(g: Tensor, x: Tensor, y: Tensor, *rest: Any) -> Gradients:
    factors, needs_sums = Factors(*rest[:7]), rest[-1]
    new = factors.kappa.new_empty
    return Gradients(
        x.new_empty(x.shape),
        y.new_empty(y.shape),
        new(row_count(factors.weight)),
        new(row_count(factors.scale)),
        new(sums_width(x.shape[1], factors) if needs_sums else 0),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.kind, ctx.relu = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors

    def kernel(needs_sums: bool) -> Sequence[Tensor]:
        found: Gradients = residual_backward(g, *tensors, ctx.kind, ctx.relu, needs_sums)
        return found

    formula = functools.partial(tail_formula, kind=ctx.kind, relu=ctx.relu)
    return *derivative(kernel, formula, g, tensors, ctx.needs_input_grad[:9]), None, None


residual.register_autograd(_backward, setup_context=_setup_context)


def derivative(
    kernel: Callable[[bool], Sequence[Tensor]],
    formula: Callable[..., Tensor],
    g: Tensor,
    tensors: Sequence[Any],
    needed: Sequence[bool],
    dim: int = -1,
) -> list[Tensor | None]:
    """Return the gradients of x, y and the factors, by the kernel or, for a second derivative, by the formula.

    Args:
        kernel: launches the backward kernel and returns the fields of ``Gradients``; its argument requests the sums.
        formula: (x, y, *factors, dim=dim) -> the result, in operations that autograd differentiates.
        g: the gradient of the result.
        tensors: x, y and the factors.
        needed: which of them need a gradient.
    """
    if torch.is_grad_enabled():  # a second derivative is needed
        wanted = [tensor for tensor, need in zip(tensors, needed, strict=True) if need]
        z = formula(*tensors, dim=dim)
        found = iter(torch.autograd.grad(z, wanted, g, create_graph=True, allow_unused=True))
        return [next(found) if need else None for need in needed]
    needs_sums = any(needed[2:])
    gradients = Gradients(*kernel(needs_sums))
    if not needs_sums:
        return [gradients.x, gradients.y, *[None] * 7]
    return [gradients.x, gradients.y, *_factor_gradients(gradients, Factors(*tensors[2:]), tensors[0].shape[dim])]


def _factor_gradients(gradients: Gradients, factors: Factors, n: int) -> list[Tensor | None]:
    """Return one gradient per factor, None for a factor that is not given."""
    sums = gradients.sums
    weight = gradients.weight if is_per_row(factors.weight) else sums[-3]
    scale = gradients.scale if is_per_row(factors.scale) else sums[-2]
    columns = [sums[start : start + n] for start in range(0, sums.shape[0] - 3, n)]
    a_y, b_y = (columns.pop(0), columns.pop(0)) if factors.a_y is not None else (None, None)
    a_x, b_x = (columns.pop(0), columns.pop(0)) if factors.a_x is not None else (None, None)
    given = [None if factors.weight is None else weight, None if factors.scale is None else scale]
    return [*given, sums[-1], a_x, b_x, a_y, b_y]


# --- 4. The public function -------------------------------------------------------------------------------------------


class _EagerResidual(torch.autograd.Function):
    """(x, y, the seven factors, kind, relu, dim) -> z, for points of any shape in eager calls.

    On few points the dispatch of a torch operator takes longer than the kernel.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, ctx.kind, ctx.relu, ctx.dim = inputs
        ctx.save_for_backward(*tensors)
        x, y, *factors = tensors
        z = empty_points(x.shape, ctx.dim, torch.promote_types(x.dtype, y.dtype), x.device)
        x_rows, y_rows, z_rows = (to_rows(t, ctx.dim) for t in (x, y, z))
        forward(x_rows, y_rows, Factors(*factors), ctx.kind, ctx.relu, out=z_rows)
        return z

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors  # read once: under torch.utils.checkpoint a second read is an error
        x, y, *factors = tensors
        dim = ctx.dim

        def kernel(needs_sums: bool) -> Sequence[Tensor]:
            g_rows, x_rows, y_rows = (to_rows(t, dim) for t in (g, x, y))
            found = backward(g_rows, x_rows, y_rows, Factors(*factors), ctx.kind, ctx.relu, needs_sums)
            return from_rows(found.x, x.shape, dim), from_rows(found.y, y.shape, dim), *found[2:]

        formula = functools.partial(tail_formula, kind=ctx.kind, relu=ctx.relu)
        gradients = derivative(kernel, formula, g, tensors, ctx.needs_input_grad[:9], dim)
        return *gradients, None, None, None


def fused_residual(
    kind: str,
    x: Tensor,
    y: Tensor,
    weight: float | Tensor | None,
    scale: float | Tensor | None,
    kappa: Curvature,
    dim: int,
    x_affine: Affine | None = None,
    y_affine: Affine | None = None,
    relu: bool = False,
) -> Tensor:
    """Return the residual ``kind`` of points that :func:`~lresnet.kernels.runtime.supports_pair` accepts.

    If the coordinates are contiguous (``dim=-1``, or ``dim=1`` of channels_last images), nothing is copied. Other
    layouts are copied into rows first. The rows of the result are contiguous, so channels_last images stay so.
    """
    factors = *scalar_factors(x, weight, scale, kappa, dim), *per_channel(x_affine), *per_channel(y_affine)
    z: Tensor
    if is_eager(x):
        z = _EagerResidual.apply(x, y, *factors, kind, relu, dim)  # type: ignore[no-untyped-call]
        return z
    z = residual(to_rows(x, dim), to_rows(y, dim), *factors, kind, relu)
    return from_rows(z, x.shape, dim)


def scalar_factors(
    x: Tensor, weight: float | Tensor | None, scale: float | Tensor | None, kappa: Curvature, dim: int
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Return weight, scale and kappa as the kernels read them: float32, one number or one per row."""
    w, gamma = one_per_row(weight, x, dim, "weight"), one_per_row(scale, x, dim, "scale")
    if gamma is not None:
        require_positive(gamma, "scale")
    if isinstance(kappa, Tensor):
        return w, gamma, kappa.to(x.device, torch.float32).reshape(())
    return w, gamma, torch.full((), kappa, dtype=torch.float32, device=x.device)
