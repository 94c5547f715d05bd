r"""A batch norm and its ReLU in training, as one operator over rows [R, n]: forward and backward.

.. math:: z = \mathrm{relu}(u), \qquad u = x a + b

With :math:`h = g\,[u > 0]` and the part of the statistics as in :mod:`~lresnet.kernels.batch_norm`,

.. math:: \partial x = a h + B x + D, \qquad S = \sum h\, (x - \mu), \quad G = \sum h .

The sums are computed first, then the gradient. Passes over memory: 3 forward (1 for the statistics), 5 backward. Two
modules of torch read and write the images once more.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.batch_norm import batch_statistics, merge
from lresnet.kernels.math import jit, per_column
from lresnet.kernels.runtime import compile_ahead, is_eager, launch
from lresnet.kernels.tiles import (
    empty_points,
    from_rows,
    moments_tile,
    per_channel,
    relu_tile,
    to_rows,
    with_unit_stride,
)

__all__ = ["backward", "forward", "fused_norm_relu", "norm_relu", "norm_relu_backward"]


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def relu_forward(
    x_pointer, statistics_pointer, z_pointer, rows, n, x_step, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute ``z = relu(x a + b)`` for one tile, z contiguous. Adjacent programs read adjacent columns."""
    blocks = tl.cdiv(n, BLOCK)
    columns = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    row = ((tl.program_id(0) // blocks) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    inside = (row < rows) & (columns < n)
    a = per_column(statistics_pointer + 3 * n, columns, n, ROWS)
    b = per_column(statistics_pointer + 4 * n, columns, n, ROWS)
    x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
    u = x * a + b
    z = tl.where(u < 0.0, 0.0, u)  # not a maximum, which would drop a NaN
    tl.store(z_pointer + row * n + columns, z.to(z_pointer.dtype.element_ty), mask=inside)


@jit
def relu_sums(
    g_pointer,
    x_pointer,
    statistics_pointer,
    lines_pointer,
    rows,
    n,
    g_step,
    x_step,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write line p of ``lines`` [P, 2 n]: S and G over the rows of program p."""
    columns = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mean = per_column(statistics_pointer, columns, n, ROWS)
    a = per_column(statistics_pointer + 3 * n, columns, n, ROWS)
    b = per_column(statistics_pointer + 4 * n, columns, n, ROWS)
    S, G = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in tl.range(tl.program_id(1), tl.cdiv(rows, ROWS), tl.num_programs(1), num_stages=STAGES):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (row < rows) & (columns < n)
        g = tl.load(g_pointer + row * g_step + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
        h = tl.where(x * a + b > 0.0, g, 0.0)
        S += h * (x - mean)
        G += h
    line = lines_pointer + tl.program_id(1) * 2 * n + columns
    tl.store(line, tl.sum(S, axis=0, keep_dims=True), mask=columns < n)
    tl.store(line + n, tl.sum(G, axis=0, keep_dims=True), mask=columns < n)


@jit
def relu_gradient(
    g_pointer,
    x_pointer,
    statistics_pointer,
    coefficients_pointer,
    gx_pointer,
    rows,
    n,
    g_step,
    x_step,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute ``gx = a h + B x + D`` for one tile, gx contiguous; (B, D) = coefficients [2, n]."""
    # From the end: the rows that the sums read last are still in the cache.
    program, blocks = tl.num_programs(0) - 1 - tl.program_id(0), tl.cdiv(n, BLOCK)
    columns = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    row = ((program // blocks) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    inside = (row < rows) & (columns < n)
    a = per_column(statistics_pointer + 3 * n, columns, n, ROWS)
    b = per_column(statistics_pointer + 4 * n, columns, n, ROWS)
    slope = per_column(coefficients_pointer, columns, n, ROWS)
    offset = per_column(coefficients_pointer + n, columns, n, ROWS)
    g = tl.load(g_pointer + row * g_step + columns, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_pointer + row * x_step + columns, mask=inside, other=0.0).to(tl.float32)
    gx = tl.where(x * a + b > 0.0, a * g, 0.0) + (slope * x + offset)
    tl.store(gx_pointer + row * n + columns, gx.to(gx_pointer.dtype.element_ty), mask=inside)


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return ``relu(norm(x))``, contiguous [R, n], in ``out`` if given, and the statistics [5, n]."""
    x = with_unit_stride(x)
    rows, n = x.shape
    z, statistics = x.new_empty((rows, n)) if out is None else out, weight.new_empty((5, n))
    batch_statistics(x, weight, bias, eps, statistics)
    tile = relu_tile(n)
    grid = (-(-rows // tile.rows) * -(-n // tile.block),)
    shape = {"ROWS": tile.rows, "BLOCK": tile.block, "num_warps": tile.warps}
    with torch.cuda.device_of(x):
        launch(relu_forward, grid, x, statistics, z, rows, n, x.stride(0), **shape)
    return z, statistics


def backward(g: Tensor, x: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`forward` along g: of x, and of weight and bias in one tensor [2 n]."""
    g, x = with_unit_stride(g), with_unit_stride(x)
    rows, n = x.shape
    tile = moments_tile(n, rows)
    programs = min(tile.programs, -(-rows // tile.rows))
    lines, gx = statistics.new_empty((programs, 2 * n)), x.new_empty((rows, n))
    steps = rows, n, g.stride(0), x.stride(0)
    with torch.cuda.device_of(x):
        shape = {"ROWS": tile.rows, "BLOCK": tile.block, "STAGES": tile.stages, "num_warps": tile.warps}
        launch(relu_sums, (-(-n // tile.block), programs), g, x, statistics, lines, *steps, **shape)
        sums, coefficients = merge(lines, statistics[None], rows, extra=0)
        tile = relu_tile(n)
        grid = (-(-rows // tile.rows) * -(-n // tile.block),)
        shape = {"ROWS": tile.rows, "BLOCK": tile.block, "num_warps": tile.warps}
        launch(relu_gradient, grid, g, x, statistics, coefficients, gx, *steps, **shape)
    return gx, sums


# --- 3. The torch operators and their derivative ----------------------------------------------------------------------
# torch.compile, torch.export and CUDA graphs see one node per operator. The statistics are a second result without a
# derivative.


@torch.library.custom_op("lresnet::norm_relu", mutates_args=())
def norm_relu(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Run :func:`forward`; weight and bias are float32 [n]."""
    return forward(x, weight, bias, eps)


@norm_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    compile_ahead(forward, x, weight, bias, eps)
    return x.new_empty(x.shape), weight.new_empty((5, x.shape[1]))


@torch.library.custom_op("lresnet::norm_relu_backward", mutates_args=())
def norm_relu_backward(g: Tensor, x: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
    """Run :func:`backward`. This operator has no derivative: second derivatives use torch's functions."""
    return backward(g, x, statistics)


@norm_relu_backward.register_fake
def _(g: Tensor, x: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
    compile_ahead(backward, g, x, statistics)
    return x.new_empty(x.shape), statistics.new_empty(2 * x.shape[1])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.eps = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, output[1])


def _backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return _derivative(norm_relu_backward, g, ctx)


norm_relu.register_autograd(_backward, setup_context=_setup_context)


def _derivative(
    kernel: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]], g: Tensor, ctx: Any
) -> tuple[Tensor | None, ...]:
    """Return the gradients along g of x (channels along axis 1), weight and bias, and None for eps.

    Args:
        kernel: (g, x, statistics) -> the gradient of x, and those of weight and bias in one tensor.
        ctx: holds eps, which gradients are needed, and x, weight, bias and the statistics.
    """
    x, weight, bias, statistics = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative is needed: autograd differentiates torch's functions
        needed = ctx.needs_input_grad[:3]
        z = torch.nn.functional.batch_norm(x.to(weight.dtype), None, None, weight, bias, True, eps=ctx.eps).relu()
        wanted = [tensor for tensor, need in zip((x, weight, bias), needed, strict=True) if need]
        found = iter(torch.autograd.grad(z, wanted, g.to(z.dtype), create_graph=True))
        return *(next(found) if need else None for need in needed), None
    gx, sums = kernel(g, x, statistics)
    gweight, gbias = sums.chunk(2)
    return gx, gweight, gbias, None


# --- 4. The public function -------------------------------------------------------------------------------------------


class _EagerNormRelu(torch.autograd.Function):
    """(x, weight, bias, eps) -> z, statistics; channels along axis 1.

    Eager calls bypass the operator, whose dispatch takes longer than a kernel on few points.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        z = empty_points(x.shape, 1, x.dtype, x.device)
        _, statistics = forward(to_rows(x, 1), weight, bias, eps, out=to_rows(z, 1))
        ctx.eps = eps
        ctx.mark_non_differentiable(statistics)
        ctx.save_for_backward(x, weight, bias, statistics)
        return z, statistics

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return _derivative(_image_gradients, g, ctx)


def _image_gradients(g: Tensor, x: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
    gx, sums = backward(to_rows(g, 1), to_rows(x, 1), statistics)
    return from_rows(gx, x.shape, 1), sums


def fused_norm_relu(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return ``relu(norm(x))`` of images [B, C, H, W] and the batch statistics [5, C]."""
    w, b = per_channel((weight, bias))
    z: Tensor
    statistics: Tensor
    if is_eager(x):
        z, statistics = _EagerNormRelu.apply(x, w, b, eps)  # type: ignore[no-untyped-call]
        return z, statistics
    z, statistics = norm_relu(to_rows(x, 1), w, b, eps)
    return from_rows(z, x.shape, 1), statistics
