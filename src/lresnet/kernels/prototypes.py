"""Logits of class prototypes (:mod:`lresnet.nn.prototype_distance`): one pass over the points, a loop over the classes.

Nothing of the size [N, C, n] is written down. Nor does it lose the digits near a prototype that a matrix product costs
(:func:`lresnet.geometry.distance.cross_separation`): with both at hand, directions are subtracted, then squared.
"""
# mypy: ignore-errors
# (Triton's language has the syntax of Python, not its types.)

import torch
import triton
import triton.language as tl
from torch import Tensor

from lresnet.kernels.formulas import norm_ratio, polar
from lresnet.kernels.layout import Tile, rows_of, tile_for

__all__ = ["logits_backward", "logits_forward"]

# What the sums over all points are shared among: enough to keep a GPU busy, few lines to add up in the end.
_PROGRAMS = 1024


def logits_forward(x: Tensor, y: Tensor, bias: Tensor, *, kappa: float) -> Tensor:
    """[..., n], [C, n], [C] -> [..., C]; for stacks [N, S, n], [S, C, n], [S, C] -> [N, S, C]."""
    logits, rows, tile = x.new_empty(*x.shape[:-1], y.shape[-2]), _rows(x, y), _tile(x.shape[-1])
    bias_steps = bias.stride(0) if bias.dim() == 2 else 0, bias.stride(-1)
    with torch.cuda.device_of(x):
        _forward[(*tile.grid(rows.total // rows.members), rows.members)](
            rows.tensor, y.contiguous(), bias, logits, *_sizes(rows, y), *bias_steps, kappa, 2 / kappa,
            ROWS=tile.rows, BLOCK=tile.block,
        )  # fmt: skip
    return logits


def logits_backward(g: Tensor, x: Tensor, y: Tensor, bias: Tensor, *, kappa: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of points, prototypes and bias; sums over points are added up in a fixed order."""
    g, y, gx, rows, tile = g.contiguous(), y.contiguous(), x.new_empty(x.shape), _rows(x, y), _tile(x.shape[-1])
    nodes, block = rows.total // rows.members, tile.block
    large = Tile(max(1, 2048 // block), block)  # of a point, the sums need little more than its coordinates
    programs = min(*large.grid(nodes), max(1, _PROGRAMS // bias.numel()))
    lines, shape = x.new_empty(programs, y.numel() + bias.numel()), (*_sizes(rows, y), kappa)
    with torch.cuda.device_of(x):
        _points_backward[(*tile.grid(nodes), rows.members)](g, rows.tensor, y, gx, *shape, ROWS=tile.rows, BLOCK=block)
        _sums_backward[(programs, rows.members, y.shape[-2])](
            g, rows.tensor, y, lines, *shape, ROWS=large.rows, BLOCK=block
        )
        sums = lines.sum(0)
    # Parts without gaps in them: autograd keeps them as gradients and copies nothing.
    return gx, sums[: y.numel()].view(y.shape), sums[y.numel() :].view(bias.shape)


def _rows(x, y):
    """Rows of each member; where the prototypes are no stack, of one."""
    return rows_of(x if y.dim() == 3 else x.reshape(-1, x.shape[-1]))


def _tile(n):
    """Two rows a warp: with every class, the formulas of a row take longer than its coordinates."""
    block = tile_for(n).block
    return Tile(max(1, 512 // block), block)


def _sizes(rows, y):
    return y.shape[-1], y.shape[-2], rows.total // rows.members, rows.members, rows.node_step, rows.member_step


@triton.jit
def _points(x_pointer, tile, n, nodes, node_step, member_step, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Numbers of a tile of nodes, their points in this program's member, and the squares of the norms."""
    node = (tile * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = node.to(tl.int64) * node_step + tl.program_id(1).to(tl.int64) * member_step
    x = tl.load(x_pointer + place + column, mask=(node < nodes) & (column < n), other=0.0)
    return node, x, tl.sum(x * x, axis=1, keep_dims=True)


@triton.jit
def _prototype(y_pointer, k, n, classes, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Prototype number k of this program's member, once for each of ROWS rows, and the square of its norm.

    As many rows as points have: the compiler then adds both squares up in the same order, and a point that is equal to
    a prototype has its norm, to the last digit.
    """
    column = tl.zeros((ROWS, 1), dtype=tl.int32) + tl.arange(0, BLOCK)[None, :]
    y = tl.load(y_pointer + (tl.program_id(1) * classes + k) * n + column, mask=column < n, other=0.0)
    return y, tl.sum(y * y, axis=1, keep_dims=True)


@triton.jit
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


@triton.jit
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


@triton.jit
def _sums_backward(
    g_pointer, x_pointer, y_pointer, lines_pointer, n, classes, nodes, members, node_step, member_step, kappa,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What this program's tiles of points add to the gradients of one prototype and its bias: part of a line."""
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
