"""Squared Lorentzian distances of listed pairs of nodes: the score of a link, and its margin loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import traced
from lresnet.geometry.curvature import Curvature
from lresnet.geometry.distance import time_of
from lresnet.geometry.stack import sum_to
from lresnet.kernels import supports_rows

__all__ = ["lorentz_distance2", "margin_loss"]


def lorentz_distance2(z: Tensor, pairs: Tensor, kappa: Curvature | None) -> Tensor:
    r""":math:`d_L^2 = |x - y|^2 - (x_t - y_t)^2` for each column (i, j) of ``pairs``, [N, n] and [2, P] -> [P].

    Differences first, so near pairs lose nothing. ``kappa=None``: the Euclidean :math:`|x - y|^2` of the twin; a tensor
    holds one curvature, or one for each node, [N, 1].
    """
    if not traced() and supports_rows(z, kappa):
        from lresnet.kernels.pair_distance import fused_distance2

        fixed = None if kappa is None else float(kappa)
        return fused_distance2(z, pairs, fixed, _plain_distance2)
    if kappa is None or traced():
        return _plain_distance2(z, pairs, kappa)
    tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _Distance2.apply(z, pairs, tensor, kappa)  # type: ignore[no-untyped-call]
    return result


def _plain_distance2(z: Tensor, pairs: Tensor, kappa: Curvature | None) -> Tensor:
    if kappa is None:
        e = z.index_select(0, pairs[0]) - z.index_select(0, pairs[1])
        return e.square().sum(-1)
    return _distance2(z, pairs, kappa)[0]


def _distance2(z: Tensor, pairs: Tensor, kappa: Curvature) -> tuple[Tensor, Tensor, Tensor]:
    """(distances, ambient differences, times); plain torch, differentiable."""
    t = time_of(z, kappa, -1)
    ambient = torch.cat([z, t], dim=-1)
    e = ambient.index_select(0, pairs[0]) - ambient.index_select(0, pairs[1])
    squares = e.square()
    return squares.sum(-1) - 2 * squares[:, -1], e, t


class _Distance2(torch.autograd.Function):
    """Backward: one scatter for each end of the pairs, then the chain through the time of every node."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, pairs: Tensor, tensor: Tensor | None, kappa: Curvature) -> Tensor:
        d2, e, t = _distance2(z, pairs, kappa)
        ctx.kappa = kappa if tensor is None else None
        ctx.save_for_backward(z, pairs, tensor, e, t)
        return d2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, pairs, tensor, e, t = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: let autograd do both, on aliases of the inputs
            z = z.view_as(z)
            alias = None if tensor is None else tensor.view_as(tensor)
            d2 = _distance2(z, pairs, ctx.kappa if alias is None else alias)[0]
            gz, *rest = torch.autograd.grad(d2, [z] if alias is None else [z, alias], g, create_graph=True)
            return gz, None, rest[0] if rest else None, None
        pull = e * (2 * g).unsqueeze(-1)
        back = pull.new_zeros(z.shape[0], e.shape[1])
        back.index_add_(0, pairs[0], pull).index_add_(0, pairs[1], -pull)  # alpha=-1 would take five times as long
        gt = back[:, -1:] / t  # the time enters with the other sign
        gk = None if tensor is None else 0.5 * sum_to(tensor.shape, gt) / tensor.square()
        return torch.addcmul(back[:, :-1], gt, z, value=-1), None, gk, None


def margin_loss(positive: Tensor, negative: Tensor, margin: Tensor | float) -> Tensor:
    """Mean of ``relu(margin + d2(positive) - d2(negative))`` over pairs matched by position, along the last axis."""
    return torch.relu(margin + positive - negative).mean(-1)
