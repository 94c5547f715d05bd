"""A batch norm with its ReLU in plain eager calls, without the operators' dispatch: see :mod:`.eager`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.kernels import relu_launch
from lresnet.kernels.relu_derivative import relu_derivative
from lresnet.kernels.rows import empty_points, from_rows, to_rows

__all__ = ["EagerNormRelu"]


class EagerNormRelu(torch.autograd.Function):
    """(x, weight, bias, eps) -> z, statistics; channels along axis 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        z = empty_points(x.shape, 1, x.dtype, x.device)
        _, statistics = relu_launch.forward(to_rows(x, 1), weight, bias, eps, out=to_rows(z, 1))
        ctx.eps = eps
        ctx.mark_non_differentiable(statistics)
        ctx.save_for_backward(x, weight, bias, statistics)
        return z, statistics

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return relu_derivative(_backward, g, ctx)


def _backward(g: Tensor, x: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
    gx, sums = relu_launch.backward(to_rows(g, 1), to_rows(x, 1), statistics)
    return from_rows(gx, x.shape, 1), sums
