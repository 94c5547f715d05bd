r"""Isometries between the hyperboloid (space coordinates), the Poincare ball and the Klein model.

The Poincare ball has radius :math:`1/\sqrt\kappa` (geoopt's ``PoincareBall(c=kappa)``). The Klein model is the unit
ball, :math:`x_s / x_t` as in the paper, for every curvature; its geodesics are straight lines.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.checks import checks_values, require_points
from lresnet.geometry.curvature import Curvature, root
from lresnet.geometry.pair import dot, time_of, unitless_time

__all__ = ["from_klein", "from_poincare", "refuse_outside", "to_klein", "to_poincare"]


def to_poincare(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r""":math:`p = x / (1 + \sqrt\kappa x_t)`."""
    return x / (1 + unitless_time(x, kappa, dim))


def from_poincare(p: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r""":math:`x = 2 p / (1 - \kappa |p|^2)`, for :math:`\kappa |p|^2 < 1`."""
    return 2 * p / _gap(root(kappa) * p, dim)


def to_klein(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r""":math:`q = x / x_t`."""
    return x / time_of(x, kappa, dim)


def from_klein(q: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r""":math:`x = q / (\sqrt\kappa \sqrt{1 - |q|^2})`, for :math:`|q| < 1`."""
    return q / (root(kappa) * _gap(q, dim).sqrt())


def _gap(q: Tensor, dim: int) -> Tensor:
    return 1 - dot(q, q, dim)


def refuse_outside(p: Tensor, kappa: Curvature, dim: int, model: str) -> None:
    """Raise if a point lies on or outside the ball of radius ``1/sqrt(kappa)``, where values may be read."""
    require_points(p, dim, "p")
    if checks_values(p):
        norm = (root(kappa) * torch.linalg.vector_norm(p.detach(), dim=dim)).flatten()
        if norm.numel() and not bool((norm < 1).all()):
            raise ValueError(
                f"p must lie inside the {model}: {int((~(norm < 1)).sum())} of {norm.numel()} points do not "
                f"(largest norm is {float(norm.max()):.6g} times the radius of the ball)"
            )
