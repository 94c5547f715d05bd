"""Squared Lorentzian distances of pairs of nodes, the scores of link prediction, and their margin loss."""

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
    r"""Return :math:`d_L^2 = |x - y|^2 - (x_t - y_t)^2` for each pair of nodes.

    Coordinates are subtracted before they are squared, so the distances of near points stay accurate.

    Args:
        z: Points, [N, n].
        pairs: Columns (i, j) of node indices, [2, P].
        kappa: -K > 0, a number or a tensor with one curvature, or with one for each node, [N, 1]. None: the squared
            Euclidean distance :math:`|x - y|^2` of the Euclidean baseline.

    Shapes:
        [N, n], [2, P] -> [P]
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
    """Return distances, ambient differences and times by differentiable torch operations."""
    t = time_of(z, kappa, -1)
    ambient = torch.cat([z, t], dim=-1)
    e = ambient.index_select(0, pairs[0]) - ambient.index_select(0, pairs[1])
    squares = e.square()
    return squares.sum(-1) - 2 * squares[:, -1], e, t


class _Distance2(torch.autograd.Function):
    """Backward pass: one scatter for each end of the pairs, then the chain rule through the time of every node."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, pairs: Tensor, tensor: Tensor | None, kappa: Curvature) -> Tensor:
        d2, e, t = _distance2(z, pairs, kappa)
        ctx.kappa = kappa if tensor is None else None
        ctx.save_for_backward(z, pairs, tensor, e, t)
        return d2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, pairs, tensor, e, t = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is needed: autograd computes both, for aliases
            z = z.view_as(z)
            alias = None if tensor is None else tensor.view_as(tensor)
            d2 = _distance2(z, pairs, ctx.kappa if alias is None else alias)[0]
            gz, *rest = torch.autograd.grad(d2, [z] if alias is None else [z, alias], g, create_graph=True)
            return gz, None, rest[0] if rest else None, None
        pull = e * (2 * g).unsqueeze(-1)
        back = pull.new_zeros(z.shape[0], e.shape[1])
        back.index_add_(0, pairs[0], pull).index_add_(0, pairs[1], -pull)  # alpha=-1 would be five times slower
        gt = back[:, -1:] / t  # the time enters with the opposite sign
        gk = None if tensor is None else 0.5 * sum_to(tensor.shape, gt) / tensor.square()
        return torch.addcmul(back[:, :-1], gt, z, value=-1), None, gk, None


def margin_loss(positive: Tensor, negative: Tensor, margin: Tensor | float) -> Tensor:
    """Return the mean of ``relu(margin + positive - negative)`` over the last axis.

    Args:
        positive: Squared distances of edges, [..., P].
        negative: Squared distances of other pairs, matched with the edges by position, [..., P].
        margin: Margin of the squared distances.
    """
    return torch.relu(margin + positive - negative).mean(-1)
