"""Plain functions that start the kernels of a batch norm with its ReLU in training, on rows [R, n]."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.kernels.launch import with_unit_step
from lresnet.kernels.norm_launch import batch_statistics, merge
from lresnet.kernels.relu_blocks import relu_forward, relu_gradient, relu_sums
from lresnet.kernels.start import start
from lresnet.kernels.tiles import moments_tile, relu_tile

__all__ = ["backward", "forward"]


def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``relu(norm(x))``, contiguous [R, n], into ``out`` where one is given, and the statistics [5, n]."""
    x = with_unit_step(x)
    rows, n = x.shape
    z, statistics = x.new_empty((rows, n)) if out is None else out, weight.new_empty((5, n))
    batch_statistics(x, weight, bias, eps, statistics)
    tile = relu_tile(n)
    grid = (-(-rows // tile.rows) * -(-n // tile.block),)
    shape = {"ROWS": tile.rows, "BLOCK": tile.block, "num_warps": tile.warps}
    with torch.cuda.device_of(x):
        start(relu_forward, grid, x, statistics, z, rows, n, x.stride(0), **shape)
    return z, statistics


def backward(g: Tensor, x: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`forward` along g: of x, and of weight and bias one after the other, [2 n]."""
    g, x = with_unit_step(g), with_unit_step(x)
    rows, n = x.shape
    tile = moments_tile(n, rows)
    programs = min(tile.programs, -(-rows // tile.rows))
    lines, gx = statistics.new_empty((programs, 2 * n)), x.new_empty((rows, n))
    steps = rows, n, g.stride(0), x.stride(0)
    with torch.cuda.device_of(x):
        shape = {"ROWS": tile.rows, "BLOCK": tile.block, "STAGES": tile.stages, "num_warps": tile.warps}
        start(relu_sums, (-(-n // tile.block), programs), g, x, statistics, lines, *steps, **shape)
        sums, coefficients = merge(lines, statistics[None], rows, extra=0)
        tile = relu_tile(n)
        grid = (-(-rows // tile.rows) * -(-n // tile.block),)
        shape = {"ROWS": tile.rows, "BLOCK": tile.block, "num_warps": tile.warps}
        start(relu_gradient, grid, g, x, statistics, coefficients, gx, *steps, **shape)
    return gx, sums
