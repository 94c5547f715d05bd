"""The tail with batch norms as operators: ``lresnet::norm_tail`` and its backward over rows [R, n], in training.

Like :mod:`lresnet.kernels.ops`: one node each for compile, export and CUDA graphs. The statistics are a
second result, without a derivative; the running ones are updated from them by whoever owns them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.kernels import norm_launch
from lresnet.kernels.factors import Factors, Gradients, norm_count, row_count, sums_width
from lresnet.kernels.norm_derivative import norm_derivative
from lresnet.kernels.start import begin

__all__ = ["norm_tail", "norm_tail_backward"]


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
    """:func:`lresnet.kernels.norm_launch.forward`, whose factors stand here one by one."""
    factors = Factors(weight, scale, kappa, x_weight, x_bias, y_weight, y_bias)
    return norm_launch.forward(x, y, factors, (x_eps, y_eps), kind, relu)


@norm_tail.register_fake
def _(x: Tensor, y: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    factors, (*eps, kind, relu) = Factors(*rest[:7]), rest[7:]
    begin(norm_launch.forward, x, y, factors, tuple(eps), kind, relu)
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
    """:func:`lresnet.kernels.norm_launch.backward`. It has no derivative of its own: see ``_backward``."""
    factors = Factors(weight, scale, kappa, x_weight, x_bias, y_weight, y_bias)
    return norm_launch.backward(g, x, y, factors, statistics, kind, relu)


@norm_tail_backward.register_fake
def _(g: Tensor, x: Tensor, y: Tensor, *rest: Any) -> Gradients:
    factors, (statistics, kind, relu) = Factors(*rest[:7]), rest[7:]
    begin(norm_launch.backward, g, x, y, factors, statistics, kind, relu)
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

    def backward(_: bool) -> Gradients:
        found: Gradients = norm_tail_backward(g, *tensors, statistics, ctx.kind, ctx.relu)
        return found

    return *norm_derivative(backward, g, tensors, ctx), None, None, None, None


norm_tail.register_autograd(_backward, setup_context=_setup_context)
