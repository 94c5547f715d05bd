r"""Ambient vectors of points: the coordinates, the time and, for a stack, a constant 1; one pass forward and backward.

.. math:: x \mapsto [x, t, 1], \qquad t = \sqrt{|x|^2 + 1/\kappa}, \qquad \partial x = g_x + \frac{g_t}{t} x

Bytes moved: forward reads x and writes one tensor; backward reads x and the gradient and writes one. The two functions
are the halves of an autograd.Function in :mod:`lresnet.nn.linear`, which has a matrix product between them;
:func:`fused_unitless` has a derivative of its own.
"""

import math
from collections.abc import Callable

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import jit
from lresnet.kernels.runtime import apply_kernel
from lresnet.kernels.tiles import small_tile, stack_rows

__all__ = ["ambient_backward", "ambient_forward", "fused_unitless"]


# --- Kernels ----------------------------------------------------------------------------------------------------------


@jit
def _forward(
    x_pointer, ambient_pointer, n, rows, members, node_step, member_step, least, unit,
    ONES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = (row // members).to(tl.int64) * node_step + (row % members).to(tl.int64) * member_step
    x = tl.load(x_pointer + place + column, mask=(row < rows) & (column < n), other=0.0)
    time = unit * tl.sqrt_rn(tl.sum(x * x, axis=1, keep_dims=True) + least)
    ambient = tl.where(column < n, x, tl.where(column == n, time, 1.0))
    width = n + 1 + ONES
    tl.store(ambient_pointer + row.to(tl.int64) * width + column, ambient, mask=(row < rows) & (column < width))


@jit
def _backward(
    back_pointer, x_pointer, gx_pointer, n, rows, members, node_step, member_step, x_node, x_member, least, unit,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    node, member = (row // members).to(tl.int64), (row % members).to(tl.int64)
    inside = (row < rows) & (column < n)
    x = tl.load(x_pointer + node * x_node + member * x_member + column, mask=inside, other=0.0)
    line = back_pointer + node * node_step + member * member_step
    back = tl.load(line + column, mask=inside, other=0.0)
    time = tl.sqrt_rn(tl.sum(x * x, axis=1, keep_dims=True) + least)
    g_time = tl.load(line + n, mask=row < rows, other=0.0)
    tl.store(gx_pointer + row.to(tl.int64) * n + column, back + (unit * g_time / time) * x, mask=inside)


# --- Launch -----------------------------------------------------------------------------------------------------------


def ambient_forward(x: Tensor, *, kappa: float, ones: int = 0, unit: float = 1.0) -> Tensor:
    """Return the ambient vectors [..., n + 1 + ones] of points [..., n].

    Args:
        x: points that :func:`~lresnet.kernels.runtime.supports_rows` accepts.
        ones: number of constants 1 after the time, 0 or 1.
        unit: factor of the time.
    """
    ambient = x.new_empty(*x.shape[:-1], x.shape[-1] + 1 + ones)
    rows, tile = stack_rows(x), small_tile(ambient.shape[-1])
    tensor, *steps = rows
    arguments = tensor, ambient, x.shape[-1], *steps, 1 / kappa, unit
    with torch.cuda.device_of(x):
        _forward[tile.grid(rows.total)](*arguments, ONES=ones, ROWS=tile.rows, BLOCK=tile.block)
    return ambient


def ambient_backward(back: Tensor, x: Tensor, *, kappa: float, unit: float = 1.0) -> Tensor:
    """Return the gradient of x [..., n].

    Args:
        back: gradient of the ambient vectors; a constant 1 at the end is ignored.
    """
    gx, rows, tile = x.new_empty(x.shape), stack_rows(back), small_tile(x.shape[-1])
    tensor, *steps = rows
    x_rows = stack_rows(x)
    arguments = tensor, x_rows.tensor, gx, x.shape[-1], *steps, x_rows.node_step, x_rows.member_step
    with torch.cuda.device_of(x):
        _backward[tile.grid(rows.total)](*arguments, 1 / kappa, unit, ROWS=tile.rows, BLOCK=tile.block)
    return gx


# --- The public function ----------------------------------------------------------------------------------------------


def fused_unitless(x: Tensor, kappa: float, formula: Callable[..., Tensor]) -> Tensor:
    """Return points that ``supports_rows`` accepts and sqrt(kappa) times their time, [..., n] -> [..., n + 1].

    ``formula(x, kappa)`` computes the same in torch operations, for second derivatives.
    """
    return apply_kernel(_unitless, _unitless_backward, formula, x, kappa=kappa)


def _unitless(x: Tensor, *, kappa: float) -> Tensor:
    return ambient_forward(x, kappa=kappa, unit=math.sqrt(kappa))


def _unitless_backward(g: Tensor, x: Tensor, *, kappa: float) -> tuple[Tensor]:
    return (ambient_backward(g.contiguous(), x, kappa=kappa, unit=math.sqrt(kappa)),)
