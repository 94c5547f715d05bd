r"""Backward pass of a Lorentz residual and the RMS norm of its result, as one operator.

.. math:: z = \gamma\, \frac{x + w y}{n}, \qquad r = \nu \odot \frac{z}{\sqrt{|z|^2 / m + \epsilon}}

for points of m coordinates. The forward pass is left to torch.compile, which computes z again where it is needed. Its
own backward pass shares a row among several warps, which wait for each other in each of eight sums. Here a row of up to
512 coordinates belongs to one warp.

In a transformer block x is itself the result of a residual, :math:`x = \gamma_0 (x_0 + w_0 y_0)/n_0`. The kernel
computes it from :math:`x_0` and :math:`y_0`, which the gradient of that residual needs anyway, so x need not be stored.

Bytes moved: reads x (or its two branches), y and the gradients of z and r, and writes the gradients of x and y. A
program loops over tiles and writes one line of partial sums, which are added in a fixed order, so that two runs give
the same bits.
"""

from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import dot, jit, per_column
from lresnet.kernels.residual import single, write_sums, zeros
from lresnet.kernels.residual_math import lorentz_gradient, second_vector, value_coefficients
from lresnet.kernels.runtime import inlined, launch
from lresnet.kernels.tiles import Tile, residual_norm_tile

__all__ = ["Gradients", "backward", "residual_norm_backward"]


# --- 1. The kernel ----------------------------------------------------------------------------------------------------


@jit
def _load(pointer, place, mask):
    return tl.load(pointer + place, mask=mask, other=0.0).to(tl.float32)


@jit
def _residual(x, y, w, scale, kappa):
    """Return the residual of each row."""
    x2, y2 = dot(x, x), dot(y, y)
    a, b = second_vector(x2, y2, w, kappa, "lorentz")
    second = a * x + b * y
    alpha, beta = value_coefficients(x2, y2, x2, dot(second, second), w, scale, kappa, "lorentz")
    return alpha * x + beta * y


@jit
def _rows_backward(
    gz_pointer, gr_pointer, x_pointer, y_pointer, norm_pointer, weight_pointer, scale_pointer, kappa_pointer,
    branch_pointer, branch_weight_pointer, branch_scale_pointer, gx_pointer, gy_pointer, lines_pointer, rows, n,
    EPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of x and y, and a line of sums: for the norm's weight (n numbers), w, gamma and kappa.

    With a ``branch``, ``x_pointer`` holds x_0, and x is the residual of both.
    """
    columns = tl.arange(0, BLOCK)[None, :]
    # At most four adjacent numbers per thread, whatever the dtype: float32 and half precision then have one layout.
    columns = tl.max_contiguous(tl.multiple_of(columns, [1, 4]), [1, 4])
    w, scale, kappa = tl.load(weight_pointer), single(scale_pointer, False), tl.load(kappa_pointer)
    if branch_pointer is not None:
        branch_w, branch_scale = tl.load(branch_weight_pointer), single(branch_scale_pointer, False)
    norm = per_column(norm_pointer, columns, n, ROWS).to(tl.float32)
    sum_norm, sum_w, sum_scale, sum_kappa = zeros(ROWS, BLOCK), zeros(ROWS, 1), zeros(ROWS, 1), zeros(ROWS, 1)
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside, place = (row < rows) & (columns < n), row * n + columns
        x = _load(x_pointer, place, inside)
        if branch_pointer is not None:
            x = _residual(x, _load(branch_pointer, place, inside), branch_w, branch_scale, kappa)
            x = x.to(gx_pointer.dtype.element_ty).to(tl.float32)  # as the forward pass rounded it
        y = _load(y_pointer, place, inside)
        gz, gr = _load(gz_pointer, place, inside), _load(gr_pointer, place, inside)

        x2, y2 = dot(x, x), dot(y, y)
        a, b = second_vector(x2, y2, w, kappa, "lorentz")
        second = a * x + b * y
        second2 = dot(second, second)
        alpha, beta = value_coefficients(x2, y2, x2, second2, w, scale, kappa, "lorentz")
        z = alpha * x + beta * y
        inverse = tl.div_rn(1.0, tl.sqrt_rn(dot(z, z) / n + EPS))
        unit, through = inverse * z, norm * gr
        g = gz + inverse * (through - (dot(through, unit) / n) * unit)
        sum_norm += gr * unit

        e = x - y
        A_x, E_x, X, A_y, E_y, Y, gw, gscale, gkappa = lorentz_gradient(
            x2, y2, dot(e, x + y), second2, dot(g, x), dot(g, e), w, scale, kappa
        )
        gx = A_x * g + E_x * e + X * x
        gy = A_y * g + E_y * e + Y * y
        tl.store(gx_pointer + place, gx.to(gx_pointer.dtype.element_ty), mask=inside)
        tl.store(gy_pointer + place, gy.to(gy_pointer.dtype.element_ty), mask=inside)
        sum_w += gw
        sum_scale += gscale
        sum_kappa += gkappa

    # Not the pointer that write_sums returns: to the compiler it would depend on the sums, and so on all inputs.
    line = lines_pointer + tl.program_id(0) * (n + 3)
    write_sums(line, sum_norm, n, BLOCK)
    tl.store(line + n, tl.sum(sum_w))
    tl.store(line + n + 1, tl.sum(sum_scale))
    tl.store(line + n + 2, tl.sum(sum_kappa))


# --- 2. Launch --------------------------------------------------------------------------------------------------------


class Gradients(NamedTuple):
    """Gradients of x and y, in their shapes and dtypes, and lines of partial sums, [P, n + 3], to be added up.

    The sums are the gradients of the norm's weight (n numbers), of w, of gamma and of kappa.
    """

    x: Tensor
    y: Tensor
    lines: Tensor


def backward(
    gz: Tensor,
    gr: Tensor,
    x: Tensor,
    y: Tensor,
    norm: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    kappa: Tensor,
    eps: float,
    branch: Tensor | None = None,
    branch_weight: Tensor | None = None,
    branch_scale: Tensor | None = None,
    tile: Tile | None = None,
) -> Gradients:
    """Return the gradients along gz of z and gr of r.

    Args:
        gz, gr, x, y: [..., n], one shape; float32 or half precision.
        norm: The weight of the norm, [n].
        weight: w >= 0, float32 [].
        scale: gamma, float32 [], or None.
        kappa: -K, float32 [].
        eps: That of the norm.
        branch: y_0, in the shape of the others. The argument x is then x_0, and the gradient that of x, their residual.
        branch_weight, branch_scale: w_0 and gamma_0 of that residual, as ``weight`` and ``scale``.
        tile: Rows, warps, programs and stages. Default: :func:`~lresnet.kernels.tiles.residual_norm_tile`.
    """
    n = x.shape[-1]
    rows, tile = x.numel() // n, tile or residual_norm_tile(n)
    lines = weight.new_empty(_lines_shape(rows, n, tile))
    gx, gy = x.new_empty(x.shape, dtype=_dtype(x, branch)), y.new_empty(y.shape)
    branch = None if branch is None else branch.contiguous()
    launch(
        _rows_backward, (lines.shape[0],), *(t.contiguous() for t in (gz, gr, x, y, norm)), weight, scale, kappa,
        branch, branch_weight, branch_scale, gx, gy, lines, rows, n,
        EPS=eps, ROWS=tile.rows, BLOCK=tile.block, STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    return Gradients(gx, gy, lines)


def _dtype(x: Tensor, branch: Tensor | None) -> torch.dtype:
    """Return the dtype of the point x, which may be the residual of the two."""
    return x.dtype if branch is None else torch.promote_types(x.dtype, branch.dtype)


def _lines_shape(rows: int, n: int, tile: Tile) -> tuple[int, int]:
    return torch.sym_min(tile.programs, -(-rows // tile.rows)), n + 3


# --- 3. The torch operator --------------------------------------------------------------------------------------------


@inlined("lresnet::residual_norm_backward", _rows_backward)
def residual_norm_backward(
    gz: Tensor,
    gr: Tensor,
    x: Tensor,
    y: Tensor,
    norm: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    kappa: Tensor,
    eps: float,
    branch: Tensor | None = None,
    branch_weight: Tensor | None = None,
    branch_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run :func:`backward`. This operator has no derivative."""
    return backward(gz, gr, x, y, norm, weight, scale, kappa, eps, branch, branch_weight, branch_scale)
