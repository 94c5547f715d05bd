r"""``on_sphere`` of the linear layer as one operator: outputs of a matrix product to points, forward and backward.

.. math:: y = \sqrt{\tau^2 + 2 \tau/\sqrt\kappa}\; z_s/|z_s|, \qquad \tau = \sigma(z_0) e^s + f

Bytes moved: forward reads z and writes y; backward reads z and the gradient and writes one. The formula is
``on_sphere`` in :mod:`lresnet.nn.linear`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from lresnet.geometry.stack import sum_to
from lresnet.kernels.math import SHORTEST, jit
from lresnet.kernels.runtime import apply_kernel
from lresnet.kernels.tiles import StackRows, small_tile, stack_rows

__all__ = ["backward", "forward", "fused_on_sphere"]


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def _parts(
    z_pointer, scale_pointer, scales, scale_step, row, column, inside, members, node_step, member_step, root, floor
):
    """Return direction, norm, gate, sigmoid, tau and radius of each row; column 0 is the input of the gate."""
    place = (row // members).to(tl.int64) * node_step + (row % members).to(tl.int64) * member_step
    z = tl.load(z_pointer + place + column, mask=inside, other=0.0)
    gate_input = tl.sum(tl.where(column == 0, z, 0.0), axis=1, keep_dims=True)
    space = tl.where(column == 0, 0.0, z)
    norm = tl.sqrt(tl.sum(space * space, axis=1, keep_dims=True))
    direction = space / tl.maximum(norm, SHORTEST, propagate_nan=tl.PropagateNan.ALL)
    sigma = tl.sigmoid(gate_input)
    gate = sigma * tl.exp(tl.load(scale_pointer + (row % scales) * scale_step))
    tau = gate + floor
    return direction, norm, gate, sigma, tau, tl.sqrt(tau * (tau + 2.0 / root))


@jit
def _forward(
    z_pointer, y_pointer, scale_pointer, scales, scale_step, n, rows, members, node_step, member_step, root, floor,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column <= n)
    direction, norm, _gate, _sigma, tau, radius = _parts(
        z_pointer, scale_pointer, scales, scale_step, row, column, inside, members, node_step, member_step, root, floor
    )
    T = tl.where(norm > 0, 1.0 + root * tau, 1.0)
    # The time is stored after the coordinates, which move up by one.
    place = row.to(tl.int64) * (n + 1) + tl.where(column == 0, n, column - 1)
    tl.store(y_pointer + place, tl.where(column == 0, T, radius * direction), mask=inside)


@jit
def _backward(
    z_pointer, g_pointer, scale_pointer, scales, scale_step, n, rows, members, node_step, member_step, root, floor,
    gz_pointer, g_gate_pointer, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column <= n)
    direction, norm, gate, sigma, tau, radius = _parts(
        z_pointer, scale_pointer, scales, scale_step, row, column, inside, members, node_step, member_step, root, floor
    )
    line = row.to(tl.int64) * (n + 1)
    g = tl.load(g_pointer + line + tl.where(column == 0, n, column - 1), mask=inside, other=0.0)
    g_time = tl.sum(tl.where(column == 0, g, 0.0), axis=1, keep_dims=True)
    g_space = tl.where(column == 0, 0.0, g)
    # z_s = 0 has no direction: its gradient is 0.
    turns = norm > 0
    along = tl.sum(g_space * direction, axis=1, keep_dims=True)
    pull = along / radius
    g_gate = (pull * (tau + 1.0 / root) + root * tl.where(turns, g_time, 0.0)) * gate
    lever = tl.where(turns, radius / tl.where(turns, norm, 1.0), 0.0)
    across = (g_space - along * direction) * lever
    gz = tl.where(column == 0, g_gate * (1.0 - sigma), across)
    tl.store(gz_pointer + line + column, gz, mask=inside)
    tl.store(g_gate_pointer + row, g_gate, mask=row < rows)


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(z: Tensor, log_scale: Tensor, *, kappa: float, floor: float) -> Tensor:
    """Return [..., n+1] for z [..., n+1]: the n space coordinates, then sqrt(kappa) times the time."""
    y, rows, tile = z.new_empty(z.shape), stack_rows(z), small_tile(z.shape[-1])
    with torch.cuda.device_of(z):
        _forward[tile.grid(rows.total)](*_arguments(rows, y, log_scale, kappa, floor), ROWS=tile.rows, BLOCK=tile.block)
    return y


def backward(g: Tensor, z: Tensor, log_scale: Tensor, *, kappa: float, floor: float) -> tuple[Tensor, Tensor]:
    """Return the gradients of z and of log_scale."""
    g, gz, rows, tile = g.contiguous(), z.new_empty(z.shape), stack_rows(z), small_tile(z.shape[-1])
    g_gate = z.new_empty(*z.shape[:-1], 1)
    arguments = _arguments(rows, g, log_scale, kappa, floor)
    with torch.cuda.device_of(z):
        _backward[tile.grid(rows.total)](*arguments, gz, g_gate, ROWS=tile.rows, BLOCK=tile.block)
    return gz, sum_to(log_scale.shape, g_gate)


def _arguments(rows: StackRows, other: Tensor, log_scale: Tensor, kappa: float, floor: float) -> tuple[Any, ...]:
    z, *steps = rows
    scales = log_scale.numel()
    scale_step = log_scale.stride(0) if scales > 1 else 0
    return z, other, log_scale, scales, scale_step, z.shape[-1] - 1, *steps, math.sqrt(kappa), floor


# --- 3. The public function -------------------------------------------------------------------------------------------


def fused_on_sphere(z: Tensor, log_scale: Tensor, kappa: float, floor: float, formula: Callable[..., Tensor]) -> Tensor:
    """Return points and times for rows z that ``supports_rows`` accepts, differentiable in z and log_scale.

    ``formula(z, log_scale, kappa, floor)`` computes the same in torch operations, for second derivatives.
    """
    return apply_kernel(forward, backward, formula, z, log_scale, kappa=kappa, floor=floor)
