"""Plain functions that start the kernels of a tail with batch norms in training, on rows [R, n].

The factors hold the norms' weights and biases in the places of a and b; the kernels find a and b. Passes over memory,
x and y counted one each: forward 1 for each norm's moments and 3 for the tail; backward 5 for the tail and 3 for each
norm. Nothing is read on the host, and sums are added up in a fixed order: the same bits every time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.kernels import launch
from lresnet.kernels.factors import MEAN, A, B, Factors, Gradients, norm_count
from lresnet.kernels.moments import merge_moments, moments_blocks
from lresnet.kernels.norm_gradients import add_norm_gradient, merge_sums
from lresnet.kernels.start import start
from lresnet.kernels.tiles import Tile, add_tile, merge_tile, moments_tile, sums_tile

__all__ = ["add_gradient", "backward", "batch_statistics", "forward", "merge"]


def forward(
    x: Tensor, y: Tensor, factors: Factors, eps: tuple[float, float], kind: str, relu: bool, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``scale * residual(norm_x(x), norm_y(y))`` [R, n], and the statistics [norms, 5, n]: of y, then of x."""
    x, y = launch.with_unit_step(x), launch.with_unit_step(y)
    statistics = factors.kappa.new_empty((norm_count(factors), 5, x.shape[1]))
    if factors.a_y is not None and factors.b_y is not None:
        batch_statistics(y, factors.a_y, factors.b_y, eps[1], statistics[0])
    if factors.a_x is not None and factors.b_x is not None:
        batch_statistics(x, factors.a_x, factors.b_x, eps[0], statistics[-1])
    return launch.forward(x, y, _with_affine(factors, statistics), kind, relu, out=out), statistics


def backward(
    g: Tensor,
    x: Tensor,
    y: Tensor,
    factors: Factors,
    statistics: Tensor,
    kind: str,
    relu: bool,
    tile: Tile | None = None,
) -> Gradients:
    """Gradients of :func:`forward` along g, those of the norms' weights and biases in the places of a's and b's."""
    rows, n = x.shape
    x, y = launch.with_unit_step(x), launch.with_unit_step(y)
    centre_x = None if factors.a_x is None else statistics[-1, MEAN]
    centre_y = None if factors.a_y is None else statistics[0, MEAN]
    tile = tile or sums_tile(n, rows)
    affine = _with_affine(factors, statistics)
    found = launch.partial_backward(g, x, y, affine, kind, relu, True, tile, (centre_x, centre_y))
    sums, coefficients = merge(found.sums, statistics, rows, extra=3)
    if centre_y is not None:
        add_gradient(found.y, y, coefficients[0])
    if centre_x is not None:
        add_gradient(found.x, x, coefficients[-1])
    return found._replace(sums=sums)


def batch_statistics(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, out: Tensor, tile: Tile | None = None
) -> None:
    """What :mod:`~lresnet.kernels.factors` lists of the rows x, into ``out`` [5, n]. One pass over x."""
    rows, n = x.shape
    tile = tile or moments_tile(n, rows)
    programs = min(tile.programs, -(-rows // tile.rows))
    lines = out.new_empty((programs, 2, n))
    shape = {"ROWS": tile.rows, "BLOCK": tile.block, "STAGES": tile.stages, "num_warps": tile.warps}
    last = merge_tile(n, programs)
    if last.rows < programs:
        raise ValueError(f"moments of {programs} programs; at most {last.rows} are merged: give the tile fewer")
    with torch.cuda.device_of(x):
        start(moments_blocks, (-(-n // tile.block), programs), x, lines, rows, n, x.stride(0), **shape)
        shape = {"ROWS": tile.rows, "BLOCK": last.block, "LINES": last.rows, "num_warps": last.warps}
        arguments = x, lines, weight, bias, out, rows, n, programs, eps
        start(merge_moments, (-(-n // last.block),), *arguments, **shape)


def merge(lines: Tensor, statistics: Tensor, rows: int, extra: int) -> tuple[Tensor, Tensor]:
    """Sums out of lines of them, and the coefficients [norms, 2, n] of the norms' share in the gradients.

    ``extra``: how many sums a line holds besides those of the norms.
    """
    norms, _, n = statistics.shape
    sums, coefficients = lines.new_empty(lines.shape[1]), lines.new_empty((norms, 2, n))
    tile = merge_tile(n, lines.shape[0])
    grid = (norms * -(-n // tile.block) + (extra > 0),)
    shape = {"NORMS": norms, "EXTRA": extra, "BLOCK": tile.block, "LINES": tile.rows, "num_warps": tile.warps}
    with torch.cuda.device_of(lines):
        start(merge_sums, grid, lines, statistics, sums, coefficients, rows, n, lines.shape[0], **shape)
    return sums, coefficients


def add_gradient(g: Tensor, x: Tensor, coefficients: Tensor, tile: Tile | None = None) -> None:
    """``g += B x + D`` in place, with (B, D) = coefficients [2, n]: g may not be anybody's input."""
    rows, n = x.shape
    tile = tile or add_tile(n)
    grid = min(tile.programs, -(-rows // tile.rows)), -(-n // tile.block)
    shape = {"ROWS": tile.rows, "BLOCK": tile.block, "STAGES": tile.stages, "num_warps": tile.warps}
    with torch.cuda.device_of(x):
        start(add_norm_gradient, grid, g, x, coefficients, rows, n, x.stride(0), **shape)


def _with_affine(factors: Factors, statistics: Tensor) -> Factors:
    """The factors with a and b for weight and bias of the norms."""
    if factors.a_y is not None:
        factors = factors._replace(a_y=statistics[0, A], b_y=statistics[0, B])
    if factors.a_x is not None:
        factors = factors._replace(a_x=statistics[-1, A], b_x=statistics[-1, B])
    return factors
