"""A matrix applied to the ambient vectors [t, x] of points x: the first half of the fully hyperbolic linear layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import traced
from lresnet.geometry.curvature import Curvature
from lresnet.geometry.distance import time_of
from lresnet.geometry.stack import outer_rows, sum_to, times_rows
from lresnet.kernels import supports_rows

__all__ = ["ambient_product"]


def ambient_product(x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, kappa: Curvature) -> Tensor:
    """``W x + v t + b``, [..., n] and [m, n] -> [..., m]; of a stack, [N, S, n] and [S, m, n] -> [N, S, m].

    Under a transform by plain operations, which those see through.
    """
    stack = weight.dim() == 3
    if traced() and stack:
        return times_rows(_matrix(weight, time_weight, bias), _plain_rows(x, kappa, 1))
    if traced():
        matrix = torch.cat([weight, time_weight.unsqueeze(-1)], dim=-1)
        return torch.nn.functional.linear(_plain_rows(x, kappa, 0), matrix, bias)
    tensor = kappa if isinstance(kappa, Tensor) else None
    function = _AmbientStack if stack else _Ambient
    z: Tensor = function.apply(x, weight, time_weight, bias, tensor, kappa)  # type: ignore[no-untyped-call]
    return z


class _Ambient(torch.autograd.Function):
    r"""``z = W x + v t + b`` with :math:`t = \sqrt{|x|^2 + 1/\kappa}`: a linear map of the ambient vector [t, x]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, kappa: Tensor | None, fixed: Curvature
    ) -> Tensor:
        ambient = _ambient_rows(x, fixed, ones=0)
        matrix = torch.cat([weight, time_weight.unsqueeze(-1)], dim=-1)
        ctx.save_for_backward(ambient, matrix, x, weight, time_weight, kappa)
        ctx.fixed = fixed if kappa is None else None
        return torch.nn.functional.linear(ambient, matrix, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        ambient, matrix, x, weight, time_weight, kappa = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: both must depend on the inputs
            ambient = _plain_rows(x, ctx.fixed if kappa is None else kappa, 0)
            matrix = torch.cat([weight, time_weight.unsqueeze(-1)], dim=-1)
        gx = gk = None
        if ctx.needs_input_grad[0] or kappa is not None:
            gx, gk = _gradients(g @ matrix, ambient, x, kappa, ctx.fixed)
        rows = g.reshape(-1, g.shape[-1])
        g_matrix = rows.mT @ ambient.reshape(-1, ambient.shape[-1])
        return gx, g_matrix[:, :-1], g_matrix[:, -1], rows.sum(0), gk, None


class _AmbientStack(torch.autograd.Function):
    """The same for a stack: x [N, S, n] and weight [S, m, n] -> [N, S, m].

    The bias is the weight of a coordinate that is 1, so that it takes no operation of its own, forwards or backwards.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, kappa: Tensor | None, fixed: Curvature
    ) -> Tensor:
        ambient, matrix = _ambient_rows(x, fixed, ones=1), _matrix(weight, time_weight, bias)
        ctx.save_for_backward(ambient, matrix, x, weight, time_weight, bias, kappa)
        ctx.fixed = fixed if kappa is None else None
        return times_rows(matrix, ambient)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        ambient, matrix, x, weight, time_weight, bias, kappa = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: both must depend on the inputs
            ambient = _plain_rows(x, ctx.fixed if kappa is None else kappa, 1)
            matrix = _matrix(weight, time_weight, bias)
        gx = gk = None
        if ctx.needs_input_grad[0] or kappa is not None:
            gx, gk = _gradients(times_rows(matrix.mT, g), ambient, x, kappa, ctx.fixed)
        g_matrix = outer_rows(g, ambient)
        return gx, g_matrix[..., :-2], g_matrix[..., -2], g_matrix[..., -1], gk, None


def _ambient_rows(x: Tensor, kappa: Curvature, ones: int) -> Tensor:
    """[..., n] -> [..., n + 1 + ones]: the points, their time, and coordinates that are 1. Not differentiable."""
    if supports_rows(x, kappa):
        from lresnet.kernels.ambient import ambient_forward

        return ambient_forward(x, kappa=float(kappa), ones=ones)
    return _plain_rows(x, kappa, ones)


def _plain_rows(x: Tensor, kappa: Curvature, ones: int) -> Tensor:
    t = time_of(x, kappa, -1)
    if t.shape[:-1] != x.shape[:-1]:  # points that all members of a stack have, each with a curvature of its own
        x = x.expand(*t.shape[:-1], -1)
    return torch.cat([x, t, torch.ones_like(t)] if ones else [x, t], dim=-1)


def _matrix(weight: Tensor, time_weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([weight, time_weight.unsqueeze(-1), bias.unsqueeze(-1)], dim=-1)


def _gradients(
    back: Tensor, ambient: Tensor, x: Tensor, kappa: Tensor | None, fixed: Curvature | None
) -> tuple[Tensor, Tensor | None]:
    """Of x and, where it is learned, of kappa, from the gradient of the ambient vectors."""
    n = x.shape[-1]
    if (
        fixed is not None
        and supports_rows(x, fixed)
        and back.shape[:-1] == x.shape[:-1]
        and not torch.is_grad_enabled()
    ):
        from lresnet.kernels.ambient import ambient_backward

        return ambient_backward(back, x, kappa=float(fixed)), None
    gt = back[..., n : n + 1] / ambient[..., n : n + 1]
    gx = torch.addcmul(back[..., :n], gt, x)
    gk = None if kappa is None else -0.5 * sum_to(kappa.shape, gt) / kappa.square()
    return gx if gx.shape == x.shape else gx.sum_to_size(x.shape), gk
