r"""The end of a residual block in training, as one operator: batch norms, residual, scale and ReLU.

.. math:: z = \mathrm{relu}(\gamma\, \mathrm{norm}_x(x) \oplus \mathrm{norm}_y(y))

Passes over memory, x and y counted as one each: forward 1 for the statistics of each norm and 3 for the residual;
backward 5 for the residual and 3 for each norm. A launch reads no value on the host, and sums are added in a fixed
order, so that two runs give the same bits. The kernels are those of :mod:`~lresnet.kernels.batch_norm` and
:mod:`~lresnet.kernels.residual`. The weights and biases of the norms take the places of a and b in ``Factors``.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.curvature import Curvature
from lresnet.kernels import residual
from lresnet.kernels.batch_norm import add_gradient, batch_statistics, merge
from lresnet.kernels.formulas import norm_tail_formula
from lresnet.kernels.residual import Factors, Gradients, derivative, norm_count, row_count, scalar_factors, sums_width
from lresnet.kernels.runtime import compile_ahead, is_eager
from lresnet.kernels.tiles import (
    MEAN,
    A,
    Affine,
    B,
    Tile,
    empty_points,
    from_rows,
    per_channel,
    sums_tile,
    to_rows,
    with_unit_stride,
)

__all__ = ["backward", "forward", "fused_norm_tail", "norm_tail", "norm_tail_backward"]


# --- 1. and 2. Launch of the kernels ----------------------------------------------------------------------------------


def forward(
    x: Tensor, y: Tensor, factors: Factors, eps: tuple[float, float], kind: str, relu: bool, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return ``scale * residual(norm_x(x), norm_y(y))`` [R, n] and the statistics [norms, 5, n] of y, then of x."""
    x, y = with_unit_stride(x), with_unit_stride(y)
    statistics = factors.kappa.new_empty((norm_count(factors), 5, x.shape[1]))
    if factors.a_y is not None and factors.b_y is not None:
        batch_statistics(y, factors.a_y, factors.b_y, eps[1], statistics[0])
    if factors.a_x is not None and factors.b_x is not None:
        batch_statistics(x, factors.a_x, factors.b_x, eps[0], statistics[-1])
    return residual.forward(x, y, _with_affine(factors, statistics), kind, relu, out=out), statistics


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
    """Return the gradients of :func:`forward` along g, with weights and biases of the norms in place of a and b."""
    rows, n = x.shape
    x, y = with_unit_stride(x), with_unit_stride(y)
    centre_x = None if factors.a_x is None else statistics[-1, MEAN]
    centre_y = None if factors.a_y is None else statistics[0, MEAN]
    tile = tile or sums_tile(n, rows)
    affine = _with_affine(factors, statistics)
    found = residual.partial_backward(g, x, y, affine, kind, relu, True, tile, (centre_x, centre_y))
    sums, coefficients = merge(found.sums, statistics, rows, extra=3)
    if centre_y is not None:
        add_gradient(found.y, y, coefficients[0])
    if centre_x is not None:
        add_gradient(found.x, x, coefficients[-1])
    return found._replace(sums=sums)


def _with_affine(factors: Factors, statistics: Tensor) -> Factors:
    """Return the factors with a and b instead of the weights and biases of the norms."""
    if factors.a_y is not None:
        factors = factors._replace(a_y=statistics[0, A], b_y=statistics[0, B])
    if factors.a_x is not None:
        factors = factors._replace(a_x=statistics[-1, A], b_x=statistics[-1, B])
    return factors


# --- 3. The torch operators and their derivative ----------------------------------------------------------------------
# torch.compile, torch.export and CUDA graphs see one node per operator. The statistics are a second result without a
# derivative; the caller updates the running statistics with them.


@torch.library.custom_op("lresnet::norm_tail", mutates_args=())
def norm_tail(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    kappa: Tensor,
    x_weight: Tensor | None,
    x_bias: Tensor | None,
    y_weight: Tensor | None,
    y_bias: Tensor | None,
    x_eps: float,
    y_eps: float,
    kind: str,
    relu: bool,
) -> tuple[Tensor, Tensor]:
    """Run :func:`forward` with the factors as separate arguments."""
    factors = Factors(weight, scale, kappa, x_weight, x_bias, y_weight, y_bias)
    return forward(x, y, factors, (x_eps, y_eps), kind, relu)


@norm_tail.register_fake
def _(x: Tensor, y: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    factors, (*eps, kind, relu) = Factors(*rest[:7]), rest[7:]
    compile_ahead(forward, x, y, factors, tuple(eps), kind, relu)
    statistics = factors.kappa.new_empty((norm_count(factors), 5, x.shape[1]))
    return x.new_empty(x.shape, dtype=torch.promote_types(x.dtype, y.dtype)), statistics


@torch.library.custom_op("lresnet::norm_tail_backward", mutates_args=())
def norm_tail_backward(
    g: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    kappa: Tensor,
    x_weight: Tensor | None,
    x_bias: Tensor | None,
    y_weight: Tensor | None,
    y_bias: Tensor | None,
    statistics: Tensor,
    kind: str,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run :func:`backward`. This operator has no derivative: second derivatives use the formula."""
    factors = Factors(weight, scale, kappa, x_weight, x_bias, y_weight, y_bias)
    return backward(g, x, y, factors, statistics, kind, relu)


@norm_tail_backward.register_fake
def _(g: Tensor, x: Tensor, y: Tensor, *rest: Any) -> Gradients:
    factors, (statistics, kind, relu) = Factors(*rest[:7]), rest[7:]
    compile_ahead(backward, g, x, y, factors, statistics, kind, relu)
    new = factors.kappa.new_empty
    return Gradients(
        x.new_empty(x.shape),
        y.new_empty(y.shape),
        new(row_count(factors.weight)),
        new(row_count(factors.scale)),
        new(sums_width(x.shape[1], factors)),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, x_eps, y_eps, ctx.kind, ctx.relu = inputs
    ctx.eps = x_eps, y_eps
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, output[1])


def _backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, statistics = ctx.saved_tensors

    def kernel(_: bool) -> Gradients:
        found: Gradients = norm_tail_backward(g, *tensors, statistics, ctx.kind, ctx.relu)
        return found

    return *_derivative(kernel, g, tensors, ctx), None, None, None, None


norm_tail.register_autograd(_backward, setup_context=_setup_context)


def _derivative(
    kernel: Callable[[bool], Sequence[Tensor]], g: Tensor, tensors: Sequence[Any], ctx: Any, dim: int = -1
) -> list[Tensor | None]:
    """Return the gradients of x, y and the factors; ``ctx`` holds eps, kind, relu and which gradients are needed."""
    formula = functools.partial(norm_tail_formula, eps=ctx.eps, kind=ctx.kind, relu=ctx.relu)
    return derivative(kernel, formula, g, tensors, ctx.needs_input_grad[:9], dim)


# --- 4. The public function -------------------------------------------------------------------------------------------


class _EagerNormTail(torch.autograd.Function):
    """(x, y, the seven factors, eps of x's and of y's norm, kind, relu) -> z, statistics; channels along axis 1.

    Eager calls bypass the operator, whose dispatch takes longer than a kernel on few points.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        *tensors, x_eps, y_eps, ctx.kind, ctx.relu = inputs
        ctx.eps = x_eps, y_eps
        x, y, *factors = tensors
        z = empty_points(x.shape, 1, torch.promote_types(x.dtype, y.dtype), x.device)
        x_rows, y_rows, z_rows = (to_rows(t, 1) for t in (x, y, z))
        _, statistics = forward(x_rows, y_rows, Factors(*factors), ctx.eps, ctx.kind, ctx.relu, out=z_rows)
        ctx.mark_non_differentiable(statistics)
        ctx.save_for_backward(*tensors, statistics)
        return z, statistics

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, statistics = ctx.saved_tensors
        x, y, *factors = tensors

        def kernel(_: bool) -> Sequence[Tensor]:
            g_rows, x_rows, y_rows = (to_rows(t, 1) for t in (g, x, y))
            found = backward(g_rows, x_rows, y_rows, Factors(*factors), statistics, ctx.kind, ctx.relu)
            return from_rows(found.x, x.shape, 1), from_rows(found.y, y.shape, 1), *found[2:]

        return *_derivative(kernel, g, tensors, ctx, dim=1), None, None, None, None


def fused_norm_tail(
    x: Tensor,
    y: Tensor,
    weight: float | Tensor | None,
    scale: float | Tensor | None,
    kappa: Curvature,
    x_norm: Affine | None,
    y_norm: Affine | None,
    eps: tuple[float, float],
    kind: str,
    relu: bool,
) -> tuple[Tensor, Tensor]:
    """Return z and the batch statistics [norms, 5, C] of y, then of x, as far as they have norms.

    Args:
        x, y: images [B, C, H, W] that :func:`~lresnet.kernels.runtime.supports_pair` accepts.
        x_norm, y_norm: weight and bias of the norms of x and y, or None.
        eps: of the norm of x and of the norm of y.
    """
    factors = *scalar_factors(x, weight, scale, kappa, 1), *per_channel(x_norm), *per_channel(y_norm)
    z: Tensor
    statistics: Tensor
    if is_eager(x):
        z, statistics = _EagerNormTail.apply(x, y, *factors, *eps, kind, relu)  # type: ignore[no-untyped-call]
        return z, statistics
    z, statistics = norm_tail(to_rows(x, 1), to_rows(y, 1), *factors, *eps, kind, relu)
    return from_rows(z, x.shape, 1), statistics
