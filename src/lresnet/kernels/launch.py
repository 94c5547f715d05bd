"""Plain functions that start the kernels on rows [R, n]: outputs, grid, tile. The operators wrap them."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.kernels.blocks import backward_blocks, forward_blocks
from lresnet.kernels.factors import Factors, Gradients, is_per_row, row_count, sums_width
from lresnet.kernels.long_rows import backward_long, forward_long
from lresnet.kernels.start import start
from lresnet.kernels.tiles import LONGEST_ROW, Tile, backward_tile, forward_tile, long_tile

__all__ = ["backward", "forward", "partial_backward", "with_unit_step"]


def forward(
    x: Tensor,
    y: Tensor,
    factors: Factors,
    kind: str,
    relu: bool,
    tile: Tile | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``scale * residual(x a_x + b_x, y a_y + b_y)``, contiguous [R, n].

    A ReLU and the affine maps are for rows of up to LONGEST_ROW coordinates.
    """
    rows, n = x.shape
    x, y = with_unit_step(x), with_unit_step(y)
    z = x.new_empty((rows, n), dtype=torch.promote_types(x.dtype, y.dtype)) if out is None else out
    if rows == 0:
        return z
    in_registers = n <= LONGEST_ROW
    tile = tile or (forward_tile(n) if in_registers else long_tile())
    steps = n, x.stride(0), y.stride(0)
    options = _options(factors, kind, tile)
    with torch.cuda.device_of(x):
        if in_registers:
            grid = (-(-rows // tile.rows),)
            start(forward_blocks, grid, x, y, z, *factors, rows, *steps, RELU=relu, ROWS=tile.rows, **options)
        else:
            start(forward_long, (rows,), x, y, z, *factors[:3], *steps, **options)
    return z


def backward(
    g: Tensor, x: Tensor, y: Tensor, factors: Factors, kind: str, relu: bool, needs_sums: bool, tile: Tile | None = None
) -> Gradients:
    """Gradients of :func:`forward` along g. Partial sums are added up in a fixed order: the same bits every time."""
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
    """:func:`backward` with the sums still in lines, one for each program.

    Where there are centres (of x, of y; float32 [n]) the sums for a_x and a_y are those of ``g (x - centre)``.
    """
    rows, n = x.shape
    g, x, y = with_unit_step(g), with_unit_step(x), with_unit_step(y)
    gx, gy = x.new_empty((rows, n)), y.new_empty((rows, n))
    gweight, gscale = (factors.kappa.new_empty(row_count(t)) for t in factors[:2])
    width = sums_width(n, factors) if needs_sums else 0
    if rows == 0:
        return Gradients(gx, gy, gweight, gscale, factors.kappa.new_zeros((1, width)))
    in_registers = n <= LONGEST_ROW
    tile = tile or (backward_tile(n) if in_registers else long_tile())
    programs = min(tile.programs, -(-rows // tile.rows))
    lines = factors.kappa.new_empty((programs, width))
    results = (
        gweight if is_per_row(factors.weight) else None,
        gscale if is_per_row(factors.scale) else None,
        lines if needs_sums else None,
    )
    steps = n, g.stride(0), x.stride(0), y.stride(0)
    options = _options(factors, kind, tile)
    tensors = g, x, y, gx, gy, *(factors + centres if in_registers else factors[:3]), *results
    with torch.cuda.device_of(x):
        if in_registers:
            shape = {"RELU": relu, "ROWS": tile.rows, "STAGES": tile.stages}
            start(backward_blocks, (programs,), *tensors, rows, *steps, **shape, **options)
        else:
            start(backward_long, (programs,), *tensors, *steps, **options)
    return Gradients(gx, gy, gweight, gscale, lines)


def _options(factors: Factors, kind: str, tile: Tile) -> dict[str, object]:
    return {
        "KIND": kind,
        "WEIGHT_PER_ROW": is_per_row(factors.weight),
        "SCALE_PER_ROW": is_per_row(factors.scale),
        "BLOCK": tile.block,
        "num_warps": tile.warps,
    }


def with_unit_step(rows: Tensor) -> Tensor:
    """The rows, coordinates side by side: a copy where they are not."""
    return rows if rows.stride(1) == 1 else rows.contiguous()
