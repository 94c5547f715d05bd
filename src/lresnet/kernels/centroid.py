r"""The centroid of neighbours from their sums, as one operator: forward and backward.

.. math:: y = \rho\, \frac{s}{n}, \qquad n^2 = \max(S_T^2 - \kappa |s|^2, \mathrm{least}^2), \qquad
    \rho = 1 \text{ or least}

Bytes moved: forward reads the sums and writes y; backward reads the sums and the gradient and writes one. The formula
is ``centroid_of_sums`` in :mod:`lresnet.nn.graph_conv`.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import jit
from lresnet.kernels.runtime import apply_kernel
from lresnet.kernels.tiles import StackRows, small_tile, stack_rows

__all__ = ["backward", "forward", "fused_centroid"]


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def _parts(
    sums_pointer, least_pointer, n, row, column, rows, members, node_step, member_step, least_node, least_member, kappa
):
    """Return the centroid, its unitless time, 1/n and least. Column n of the sums is the sum of the times."""
    node, member = (row // members).to(tl.int64), (row % members).to(tl.int64)
    inside = (row < rows) & (column <= n)
    sums = tl.load(sums_pointer + node * node_step + member * member_step + column, mask=inside, other=0.0)
    time = tl.sum(tl.where(column == n, sums, 0.0), axis=1, keep_dims=True)
    s = tl.where(column == n, 0.0, sums)
    least = tl.load(least_pointer + node * least_node + member * least_member, mask=row < rows, other=1.0)
    n2 = time * time - kappa * tl.sum(s * s, axis=1, keep_dims=True)
    n2 = tl.maximum(n2, least * least, propagate_nan=tl.PropagateNan.ALL)
    inverse = tl.where(least > 0, tl.rsqrt(tl.where(least > 0, n2, 1.0)), 0.0)
    return s * inverse, time * inverse, inverse, least


@jit
def _forward(
    sums_pointer, least_pointer, n, rows, members, node_step, member_step, least_node, least_member, kappa,
    y_pointer, RESCALED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    y, _T, _inverse, least = _parts(
        sums_pointer, least_pointer, n, row, column, rows, members, node_step, member_step, least_node, least_member,
        kappa,
    )  # fmt: skip
    if RESCALED:
        y = least * y
    tl.store(y_pointer + row.to(tl.int64) * n + column, y, mask=(row < rows) & (column < n))


@jit
def _backward(
    sums_pointer, least_pointer, n, rows, members, node_step, member_step, least_node, least_member, kappa,
    g_pointer, back_pointer, RESCALED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    y, T, inverse, least = _parts(
        sums_pointer, least_pointer, n, row, column, rows, members, node_step, member_step, least_node, least_member,
        kappa,
    )  # fmt: skip
    g = tl.load(g_pointer + row.to(tl.int64) * n + column, mask=(row < rows) & (column < n), other=0.0)
    if RESCALED:
        g = least * g
    a = tl.sum(g * y, axis=1, keep_dims=True)
    back = tl.where(column == n, -a * T, g + kappa * a * y) * inverse
    tl.store(back_pointer + row.to(tl.int64) * (n + 1) + column, back, mask=(row < rows) & (column <= n))


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(sums: Tensor, least: Tensor, *, kappa: float, rescaled: bool) -> Tensor:
    """Return [..., n] for sums [..., n+1] and ``least`` [..., 1]; a row without neighbours (least = 0) gives 0.

    ``rescaled`` multiplies the result by ``least``.
    """
    y = sums.new_empty(*sums.shape[:-1], sums.shape[-1] - 1)
    rows, tile = stack_rows(sums), small_tile(sums.shape[-1])
    with torch.cuda.device_of(sums):
        arguments = *_arguments(rows, least, kappa), y
        _forward[tile.grid(rows.total)](*arguments, RESCALED=rescaled, ROWS=tile.rows, BLOCK=tile.block)
    return y


def backward(g: Tensor, sums: Tensor, least: Tensor, *, kappa: float, rescaled: bool) -> tuple[Tensor, None]:
    """Return the gradient of the sums; ``least`` is a constant."""
    g, back, rows, tile = g.contiguous(), sums.new_empty(sums.shape), stack_rows(sums), small_tile(sums.shape[-1])
    with torch.cuda.device_of(sums):
        arguments = *_arguments(rows, least, kappa), g, back
        _backward[tile.grid(rows.total)](*arguments, RESCALED=rescaled, ROWS=tile.rows, BLOCK=tile.block)
    return back, None


def _arguments(rows: StackRows, least: Tensor, kappa: float) -> tuple[Any, ...]:
    sums, *steps = rows
    least = least.expand(*sums.shape[:-1], 1)
    least_steps = least.stride(0), least.stride(1) if sums.dim() == 3 else 0
    return sums, least, sums.shape[-1] - 1, *steps, *least_steps, kappa


# --- 3. The public function -------------------------------------------------------------------------------------------


def fused_centroid(
    sums: Tensor, least: Tensor, kappa: float, formula: Callable[..., Tensor], *, rescaled: bool = False
) -> Tensor:
    """Return the centroids [..., n] of sums [..., n+1] that ``supports_rows`` accepts, differentiable in the sums.

    ``rescaled`` multiplies them by ``least``. ``formula(sums, least, kappa=..., rescaled=...)`` computes the same in
    torch operations, for second derivatives.
    """
    return apply_kernel(forward, backward, formula, sums, least, kappa=kappa, rescaled=rescaled)
