"""The fused residual in plain eager calls: the operators' dispatch takes longer than a kernel on few points."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.kernels import launch
from lresnet.kernels.derivative import derivative
from lresnet.kernels.factors import Factors
from lresnet.kernels.reference import reference
from lresnet.kernels.rows import empty_points, from_rows, to_rows

__all__ = ["EagerResidual"]


class EagerResidual(torch.autograd.Function):
    """(x, y, the seven factors, kind, relu, dim) -> z, like x and y of any shape."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, ctx.kind, ctx.relu, ctx.dim = inputs
        ctx.save_for_backward(*tensors)
        x, y, *factors = tensors
        z = empty_points(x.shape, ctx.dim, torch.promote_types(x.dtype, y.dtype), x.device)
        x_rows, y_rows, z_rows = (to_rows(t, ctx.dim) for t in (x, y, z))
        launch.forward(x_rows, y_rows, Factors(*factors), ctx.kind, ctx.relu, out=z_rows)
        return z

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors  # asked for once: under torch.utils.checkpoint a second time is an error
        x, y, *factors = tensors
        dim = ctx.dim

        def backward(needs_sums: bool) -> Sequence[Tensor]:
            g_rows, x_rows, y_rows = (to_rows(t, dim) for t in (g, x, y))
            found = launch.backward(g_rows, x_rows, y_rows, Factors(*factors), ctx.kind, ctx.relu, needs_sums)
            return from_rows(found.x, x.shape, dim), from_rows(found.y, y.shape, dim), *found[2:]

        formula = functools.partial(reference, kind=ctx.kind, relu=ctx.relu)
        gradients = derivative(backward, formula, g, tensors, ctx.needs_input_grad[:9], dim)
        return *gradients, None, None, None
