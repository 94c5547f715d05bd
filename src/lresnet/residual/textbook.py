"""The published exp/log forms on time-first vectors, for comparison only.

They follow the papers (with misprints corrected, see docs/reproduction/fidelity.md) and have no guards, so that their
accuracy, NaNs and run time can be measured. Arguments and results are space coordinates. No model uses these functions
by default.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import checked_points, weight_rows
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.residual.base import Residual
from lresnet.residual.tangent import TangentResidual

__all__ = [
    "TextbookParallelTransportResidual",
    "TextbookTangentResidual",
    "lorentz_textbook",
    "parallel_transport_textbook",
    "tangent_textbook",
]


def lorentz_textbook(x: Tensor, y: Tensor, weight: float = 1.0, *, K: Curvature = -1.0, dim: int = -1) -> Tensor:
    """Return the Lorentz residual with the norm of the sum by subtraction, clamped at 1e-8 as in released code."""
    (p, q), kappa, dtype = _lifted(x, y, K, dim)
    s = p + weight * q
    n = (kappa * _product(s, s).abs().clamp(min=1e-8)).sqrt()
    return _dropped(s / n, dim, dtype)


def parallel_transport_textbook(x: Tensor, y: Tensor, *, K: Curvature = -1.0, dim: int = -1) -> Tensor:
    r"""Return :math:`\exp_x P_{o \to x} \log_o y`, step by step. NaN at y = 0."""
    (p, q), kappa, dtype = _lifted(x, y, K, dim)
    o = _origin(p, kappa)
    v = _log0(q, kappa)
    v = v + _product(p, v) / (1 / kappa - _product(o, p)) * (o + p)
    alpha = (kappa * _product(v, v)).sqrt()
    return _dropped(torch.cosh(alpha) * p + torch.sinh(alpha) / alpha * v, dim, dtype)


def tangent_textbook(
    x: Tensor, y: Tensor, weight: float | Tensor = 1.0, *, K: Curvature = -1.0, dim: int = -1
) -> Tensor:
    r"""Return :math:`\exp_o(\log_o x + w \log_o y)` with acosh. NaN where x = 0 or y = 0."""
    (p, q), kappa, dtype = _lifted(x, y, K, dim)
    w = weight_rows(weight, p, -1).abs()
    v = _log0(p, kappa) + w * _log0(q, kappa)
    alpha = (kappa * _product(v, v)).sqrt()
    return _dropped(torch.cosh(alpha) * _origin(p, kappa) + torch.sinh(alpha) / alpha * v, dim, dtype)


class TextbookParallelTransportResidual(Residual):
    """The published exp/log form of parallel transport, for comparison: NaN at y = 0."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return parallel_transport_textbook(x, y, K=self.manifold.curvature, dim=self.dim)


class TextbookTangentResidual(TangentResidual):
    """The published exp/log form of the tangent residual, for comparison: NaN at the origin."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return tangent_textbook(x, y, self.signed_weight, K=self.manifold.curvature, dim=self.dim)

    def kernel(self) -> dict[str, Any] | None:
        return None


def _lifted(x: Tensor, y: Tensor, K: Curvature, dim: int) -> tuple[list[Tensor], Curvature, torch.dtype]:
    points, dtype = checked_points(x, y, dim=dim)
    kappa = kappa_of(K, points[0].dtype)
    lifted = []
    for point in points:
        space = point.movedim(dim, -1)
        lifted.append(torch.cat([(space.square().sum(-1, keepdim=True) + 1 / kappa).sqrt(), space], dim=-1))
    return lifted, kappa, dtype


def _dropped(p: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return p[..., 1:].movedim(-1, dim).to(dtype)


def _product(p: Tensor, q: Tensor) -> Tensor:
    return (p * q).sum(-1, keepdim=True) - 2 * p[..., :1] * q[..., :1]


def _origin(p: Tensor, kappa: Curvature) -> Tensor:
    first = (torch.arange(p.shape[-1], device=p.device) == 0).to(p.dtype)
    return (first / root(kappa)).expand_as(p)


def _log0(p: Tensor, kappa: Curvature) -> Tensor:
    beta = root(kappa) * p[..., :1]
    return torch.acosh(beta) / (beta.square() - 1).sqrt() * (p - beta * _origin(p, kappa))
