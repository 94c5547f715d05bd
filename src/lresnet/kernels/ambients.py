"""Points with their time and, for a stack, a coordinate that is 1 (:mod:`lresnet.nn.ambient`): one pass each way."""
# mypy: ignore-errors
# (Triton's language has the syntax of Python, not its types.)

import torch
import triton
import triton.language as tl
from torch import Tensor

from lresnet.kernels.layout import rows_of, tile_for

__all__ = ["ambient_backward", "ambient_forward"]


def ambient_forward(x: Tensor, *, kappa: float, ones: int) -> Tensor:
    """[..., n] -> [..., n + 1 + ones]: the coordinates, the time, and ``ones`` (0 or 1) coordinates that are 1."""
    ambient = x.new_empty(*x.shape[:-1], x.shape[-1] + 1 + ones)
    rows, tile = rows_of(x), tile_for(ambient.shape[-1])
    tensor, *steps = rows
    arguments = tensor, ambient, x.shape[-1], *steps, 1 / kappa
    with torch.cuda.device_of(x):
        _forward[tile.grid(rows.total)](*arguments, ONES=ones, ROWS=tile.rows, BLOCK=tile.block)
    return ambient


def ambient_backward(back: Tensor, x: Tensor, *, kappa: float) -> Tensor:
    """The gradient of x, of the shape of x, from that of its ambient vectors."""
    gx, rows, tile = x.new_empty(x.shape), rows_of(back), tile_for(x.shape[-1])
    tensor, *steps = rows
    x_rows = rows_of(x)
    arguments = tensor, x_rows.tensor, gx, x.shape[-1], *steps, x_rows.node_step, x_rows.member_step, 1 / kappa
    with torch.cuda.device_of(x):
        _backward[tile.grid(rows.total)](*arguments, ROWS=tile.rows, BLOCK=tile.block)
    return gx


@triton.jit
def _forward(
    x_pointer, ambient_pointer, n, rows, members, node_step, member_step, least,
    ONES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = (row // members).to(tl.int64) * node_step + (row % members).to(tl.int64) * member_step
    x = tl.load(x_pointer + place + column, mask=(row < rows) & (column < n), other=0.0)
    time = tl.sqrt_rn(tl.sum(x * x, axis=1, keep_dims=True) + least)
    ambient = tl.where(column < n, x, tl.where(column == n, time, 1.0))
    width = n + 1 + ONES
    tl.store(ambient_pointer + row.to(tl.int64) * width + column, ambient, mask=(row < rows) & (column < width))


@triton.jit
def _backward(
    back_pointer, x_pointer, gx_pointer, n, rows, members, node_step, member_step, x_node, x_member, least,
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
    tl.store(gx_pointer + row.to(tl.int64) * n + column, back + (g_time / time) * x, mask=inside)
