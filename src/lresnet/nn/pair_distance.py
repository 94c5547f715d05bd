"""Squared Lorentzian distances of listed pairs of nodes: the score of a link, and its margin loss."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.curvature import Curvature
from lresnet.geometry.pair import time_of

__all__ = ["lorentz_distance2", "margin_loss"]


def lorentz_distance2(z: Tensor, pairs: Tensor, kappa: Curvature | None) -> Tensor:
    r""":math:`d_L^2 = |x - y|^2 - (x_t - y_t)^2` for each column (i, j) of ``pairs``, [N, n] and [2, P] -> [P].

    Differences first, so near pairs lose nothing. ``kappa=None``: the Euclidean :math:`|x - y|^2` of the twin.
    """
    if kappa is None:
        e = z.index_select(0, pairs[0]) - z.index_select(0, pairs[1])
        return e.square().sum(-1)
    ambient = torch.cat([z, time_of(z, kappa, -1)], dim=-1)
    e = (ambient.index_select(0, pairs[0]) - ambient.index_select(0, pairs[1])).square()
    return e.sum(-1) - 2 * e[:, -1]


def margin_loss(positive: Tensor, negative: Tensor, margin: Tensor | float) -> Tensor:
    """Mean of ``relu(margin + d2(positive) - d2(negative))`` over pairs matched by position."""
    return torch.relu(margin + positive - negative).mean()
