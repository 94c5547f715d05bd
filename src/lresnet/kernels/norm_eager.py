"""The tail with batch norms in plain eager calls, without the operators' dispatch: see :mod:`.eager`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.kernels import norm_launch
from lresnet.kernels.factors import Factors
from lresnet.kernels.norm_derivative import norm_derivative
from lresnet.kernels.rows import empty_points, from_rows, to_rows

__all__ = ["EagerNormTail"]


class EagerNormTail(torch.autograd.Function):
    """(x, y, the seven factors, eps of x's and of y's norm, kind, relu) -> z, statistics; channels along axis 1."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        *tensors, x_eps, y_eps, ctx.kind, ctx.relu = inputs
        ctx.eps = x_eps, y_eps
        x, y, *factors = tensors
        z = empty_points(x.shape, 1, torch.promote_types(x.dtype, y.dtype), x.device)
        x_rows, y_rows, z_rows = (to_rows(t, 1) for t in (x, y, z))
        _, statistics = norm_launch.forward(x_rows, y_rows, Factors(*factors), ctx.eps, ctx.kind, ctx.relu, out=z_rows)
        ctx.mark_non_differentiable(statistics)
        ctx.save_for_backward(*tensors, statistics)
        return z, statistics

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, statistics = ctx.saved_tensors
        x, y, *factors = tensors

        def backward(_: bool) -> Sequence[Tensor]:
            g_rows, x_rows, y_rows = (to_rows(t, 1) for t in (g, x, y))
            found = norm_launch.backward(g_rows, x_rows, y_rows, Factors(*factors), statistics, ctx.kind, ctx.relu)
            return from_rows(found.x, x.shape, 1), from_rows(found.y, y.shape, 1), *found[2:]

        return *norm_derivative(backward, g, tensors, ctx, dim=1), None, None, None, None
