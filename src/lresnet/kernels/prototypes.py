r"""Logits of class prototypes as one operator: one pass over the points, with a loop over the classes.

.. math:: \beta_k - d_L^2(x, y_k), \qquad d_L^2 = \frac2\kappa (\cosh d - 1)

Nothing of size [N, C, n] is stored. Directions are subtracted before they are squared, so the logits stay accurate near
a prototype, where a matrix product (:func:`lresnet.geometry.distance.cross_separation`) loses digits. The formula is
``prototype_logits`` in :mod:`lresnet.nn.prototypes`.
"""

from collections.abc import Callable

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import jit, norm_ratio, polar
from lresnet.kernels.runtime import apply_kernel
from lresnet.kernels.tiles import StackRows, small_tile, stack_rows

__all__ = ["backward", "forward", "fused_logits"]

# Programs that share the sums over all points: enough to keep a GPU busy, and few lines to add in the end.
_PROGRAMS = 1024


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def _points(x_pointer, tile, n, nodes, node_step, member_step, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Load a tile: indices of its nodes, their points in this program's member, and the squared norms."""
    node = (tile * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = node.to(tl.int64) * node_step + tl.program_id(1).to(tl.int64) * member_step
    x = tl.load(x_pointer + place + column, mask=(node < nodes) & (column < n), other=0.0)
    return node, x, tl.sum(x * x, axis=1, keep_dims=True)


@jit
def _prototype(y_pointer, k, n, classes, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Load prototype k of this program's member, repeated for ROWS rows, and its squared norm.

    The tile has the shape of the points' tile: the compiler then sums both squares in the same order, and a point that
    equals a prototype has exactly its norm.
    """
    column = tl.zeros((ROWS, 1), dtype=tl.int32) + tl.arange(0, BLOCK)[None, :]
    y = tl.load(y_pointer + (tl.program_id(1) * classes + k) * n + column, mask=column < n, other=0.0)
    return y, tl.sum(y * y, axis=1, keep_dims=True)


@jit
def _forward(
    x_pointer, y_pointer, bias_pointer, logits_pointer, n, classes, nodes, members, node_step, member_step,
    bias_member, bias_class, kappa, factor, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    node, x, x2 = _points(x_pointer, tl.program_id(0), n, nodes, node_step, member_step, ROWS, BLOCK)
    line = (node.to(tl.int64) * members + tl.program_id(1)) * classes
    for k in range(classes):
        y, y2 = _prototype(y_pointer, k, n, classes, ROWS, BLOCK)
        across = x - norm_ratio(x2, y2) * y
        D, _growth, _T_x, _T_y = polar(x2, y2, tl.sum(across * across, axis=1, keep_dims=True), kappa)
        bias = tl.load(bias_pointer + tl.program_id(1) * bias_member + k * bias_class)
        tl.store(logits_pointer + line + k, bias - factor * D, mask=node < nodes)


@jit
def _points_backward(
    g_pointer, x_pointer, y_pointer, gx_pointer, n, classes, nodes, members, node_step, member_step, kappa,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    node, x, x2 = _points(x_pointer, tl.program_id(0), n, nodes, node_step, member_step, ROWS, BLOCK)
    row = node.to(tl.int64) * members + tl.program_id(1)
    gx, pull = tl.zeros((ROWS, BLOCK), dtype=tl.float32), tl.zeros((ROWS, 1), dtype=tl.float32)
    for k in range(classes):
        y, y2 = _prototype(y_pointer, k, n, classes, ROWS, BLOCK)
        g = -2.0 * tl.load(g_pointer + row * classes + k, mask=node < nodes, other=0.0)
        gx -= g * y
        pull += g * tl.sqrt_rn(1.0 + kappa * y2)
    gx += (pull / tl.sqrt_rn(1.0 + kappa * x2)) * x
    column = tl.arange(0, BLOCK)[None, :]
    tl.store(gx_pointer + row * n + column, gx, mask=(node < nodes) & (column < n))


@jit
def _sums_backward(
    g_pointer, x_pointer, y_pointer, lines_pointer, n, classes, nodes, members, node_step, member_step, kappa,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write this program's part of the gradients of one prototype and its bias: a part of a line."""
    k, programs = tl.program_id(2), tl.num_programs(0)
    gx, gT, total = (
        tl.zeros((ROWS, BLOCK), dtype=tl.float32),
        tl.zeros((ROWS, 1), dtype=tl.float32),
        tl.zeros((ROWS, 1), dtype=tl.float32),
    )
    for tile in range(tl.program_id(0), (nodes + ROWS - 1) // ROWS, programs):
        node, x, x2 = _points(x_pointer, tile, n, nodes, node_step, member_step, ROWS, BLOCK)
        row = node.to(tl.int64) * members + tl.program_id(1)
        g = tl.load(g_pointer + row * classes + k, mask=node < nodes, other=0.0)
        gx += g * x
        gT += g * tl.sqrt_rn(1.0 + kappa * x2)
        total += g
    y, y2 = _prototype(y_pointer, k, n, classes, 1, BLOCK)
    pull = tl.sum(gT, axis=0, keep_dims=True) / tl.sqrt_rn(1.0 + kappa * y2)
    gy = -2.0 * (pull * y - tl.sum(gx, axis=0, keep_dims=True))
    prototypes = members * classes
    line = lines_pointer + tl.program_id(0).to(tl.int64) * (prototypes * (n + 1))
    place = tl.program_id(1) * classes + k
    column = tl.arange(0, BLOCK)[None, :]
    tl.store(line + place * n + column, gy, mask=column < n)
    tl.store(line + prototypes * n + place, tl.sum(tl.sum(total, axis=1), axis=0))


# --- 2. Launch --------------------------------------------------------------------------------------------------------
# Small tiles, two rows per warp: with every class, the scalars of a row take longer than its coordinates.


def forward(x: Tensor, y: Tensor, bias: Tensor, *, kappa: float) -> Tensor:
    """Return [..., C] for x [..., n], y [C, n], bias [C]; for stacks [N, S, n], [S, C, n], [S, C] -> [N, S, C]."""
    logits, rows, tile = x.new_empty(*x.shape[:-1], y.shape[-2]), _rows(x, y), small_tile(x.shape[-1], 512)
    bias_steps = bias.stride(0) if bias.dim() == 2 else 0, bias.stride(-1)
    with torch.cuda.device_of(x):
        _forward[(*tile.grid(rows.total // rows.members), rows.members)](
            rows.tensor, y.contiguous(), bias, logits, *_sizes(rows, y), *bias_steps, kappa, 2 / kappa,
            ROWS=tile.rows, BLOCK=tile.block,
        )  # fmt: skip
    return logits


def backward(g: Tensor, x: Tensor, y: Tensor, bias: Tensor, *, kappa: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of points, prototypes and bias; sums over points are added in a fixed order."""
    g, y, gx = g.contiguous(), y.contiguous(), x.new_empty(x.shape)
    rows, tile = _rows(x, y), small_tile(x.shape[-1], 512)
    nodes, block = rows.total // rows.members, tile.block
    large = small_tile(x.shape[-1], 2048)  # the sums need little more of a point than its coordinates
    programs = min(*large.grid(nodes), max(1, _PROGRAMS // bias.numel()))
    lines, shape = x.new_empty(programs, y.numel() + bias.numel()), (*_sizes(rows, y), kappa)
    with torch.cuda.device_of(x):
        _points_backward[(*tile.grid(nodes), rows.members)](g, rows.tensor, y, gx, *shape, ROWS=tile.rows, BLOCK=block)
        _sums_backward[(programs, rows.members, y.shape[-2])](
            g, rows.tensor, y, lines, *shape, ROWS=large.rows, BLOCK=block
        )
        sums = lines.sum(0)
    # Both parts are contiguous, so that autograd keeps them as gradients without a copy.
    return gx, sums[: y.numel()].view(y.shape), sums[y.numel() :].view(bias.shape)


def _rows(x: Tensor, y: Tensor) -> StackRows:
    """Return the rows of each member of a stack, or of one member if the prototypes are not a stack."""
    return stack_rows(x if y.dim() == 3 else x.reshape(-1, x.shape[-1]))


def _sizes(rows: StackRows, y: Tensor) -> tuple[int, ...]:
    return y.shape[-1], y.shape[-2], rows.total // rows.members, rows.members, rows.node_step, rows.member_step


# --- 3. The public function -------------------------------------------------------------------------------------------


def fused_logits(x: Tensor, y: Tensor, bias: Tensor, kappa: float, formula: Callable[..., Tensor]) -> Tensor:
    """Return the logits of points x that ``supports_rows`` accepts, differentiable in points, prototypes and bias.

    ``formula(x, y, bias, kappa)`` computes the same in torch operations, for second derivatives.
    """
    return apply_kernel(forward, backward, formula, x, y, bias, kappa=kappa)
