"""A batch norm with its ReLU as operators: ``lresnet::norm_relu`` and its backward over rows [R, n], in training.

Like :mod:`lresnet.kernels.norm_ops`: one node each for compile, export and CUDA graphs, the statistics a
second result without a derivative.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.kernels import relu_launch
from lresnet.kernels.relu_derivative import relu_derivative
from lresnet.kernels.start import begin

__all__ = ["norm_relu", "norm_relu_backward"]


@torch.library.custom_op("lresnet::norm_relu", mutates_args=())
def norm_relu(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """:func:`lresnet.kernels.relu_launch.forward`; weight and bias float32 [n]."""
    return relu_launch.forward(x, weight, bias, eps)


@norm_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    begin(relu_launch.forward, x, weight, bias, eps)
    return x.new_empty(x.shape), weight.new_empty((5, x.shape[1]))


@torch.library.custom_op("lresnet::norm_relu_backward", mutates_args=())
def norm_relu_backward(g: Tensor, x: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`lresnet.kernels.relu_launch.backward`. It has no derivative of its own: see ``_backward``."""
    return relu_launch.backward(g, x, statistics)


@norm_relu_backward.register_fake
def _(g: Tensor, x: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
    begin(relu_launch.backward, g, x, statistics)
    return x.new_empty(x.shape), statistics.new_empty(2 * x.shape[1])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.eps = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, output[1])


def _backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return relu_derivative(norm_relu_backward, g, ctx)


norm_relu.register_autograd(_backward, setup_context=_setup_context)
