"""The kernels as operators of torch: ``lresnet::residual`` and ``lresnet::residual_backward`` over rows [R, n].

Registered with shapes for tracing and with a derivative, so that compile, export and CUDA graphs take each as one
node. No value is read on the host, and another number of rows, weight, scale or curvature compiles nothing anew.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.kernels import launch
from lresnet.kernels.derivative import derivative
from lresnet.kernels.factors import Factors, Gradients, row_count, sums_width
from lresnet.kernels.reference import reference

__all__ = ["residual", "residual_backward"]


@torch.library.custom_op("lresnet::residual", mutates_args=())
def residual(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    kappa: Tensor,
    a_x: Tensor | None,
    b_x: Tensor | None,
    a_y: Tensor | None,
    b_y: Tensor | None,
    kind: str,
    relu: bool,
) -> Tensor:
    """:func:`lresnet.kernels.launch.forward`, whose factors stand here one by one."""
    return launch.forward(x, y, Factors(weight, scale, kappa, a_x, b_x, a_y, b_y), kind, relu)


@residual.register_fake
def _(x: Tensor, y: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.promote_types(x.dtype, y.dtype))


@torch.library.custom_op("lresnet::residual_backward", mutates_args=())
def residual_backward(
    g: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    kappa: Tensor,
    a_x: Tensor | None,
    b_x: Tensor | None,
    a_y: Tensor | None,
    b_y: Tensor | None,
    kind: str,
    relu: bool,
    needs_sums: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """:func:`lresnet.kernels.launch.backward`. It has no derivative of its own: see ``_backward``."""
    return launch.backward(g, x, y, Factors(weight, scale, kappa, a_x, b_x, a_y, b_y), kind, relu, needs_sums)


@residual_backward.register_fake
def _(g: Tensor, x: Tensor, y: Tensor, *rest: Any) -> Gradients:
    factors, needs_sums = Factors(*rest[:7]), rest[-1]
    new = factors.kappa.new_empty
    return Gradients(
        x.new_empty(x.shape),
        y.new_empty(y.shape),
        new(row_count(factors.weight)),
        new(row_count(factors.scale)),
        new(sums_width(x.shape[1], factors) if needs_sums else 0),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.kind, ctx.relu = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors

    def backward(needs_sums: bool) -> Sequence[Tensor]:
        found: Gradients = residual_backward(g, *tensors, ctx.kind, ctx.relu, needs_sums)
        return found

    formula = functools.partial(reference, kind=ctx.kind, relu=ctx.relu)
    return *derivative(backward, formula, g, tensors, ctx.needs_input_grad[:9]), None, None


residual.register_autograd(_backward, setup_context=_setup_context)
