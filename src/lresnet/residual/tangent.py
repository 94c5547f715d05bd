"""The tangent-space residual: a sum of logarithms at the origin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, maps
from lresnet.geometry.checks import checked_points, in_range, require_finite, weight_rows
from lresnet.geometry.curvature import Curvature, kappa_among, kappa_of
from lresnet.kernels import supports_pair
from lresnet.kernels.formulas import register_formula
from lresnet.residual.base import WeightedResidual

__all__ = ["TangentResidual", "tangent_residual"]


def tangent_residual(
    x: Tensor, y: Tensor, weight: float | Tensor = 1.0, *, K: Curvature = -1.0, dim: int = -1
) -> Tensor:
    r"""Return :math:`\exp_o(\log_o x + |w| \log_o y)`; finite at the origin, where the textbook form is 0/0.

    It is commutative at weight 1, since it is a sum (the paper lists it as non-commutative).

    Args:
        x, y, weight, K, dim: As for :func:`lresnet.functional.lorentz_residual`.

    Example:
        >>> import torch
        >>> tangent_residual(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]))
        tensor([1., 0.])
    """
    require_finite(weight)
    if supports_pair(x, y, K, dim=dim):
        from lresnet.kernels.residual import fused_residual

        return fused_residual("tangent", x, y, weight, None, kappa_of(K, torch.float32), dim)
    points, dtype = checked_points(x, y, dim=dim)
    (x, y), kappa = kappa_among(points, K, dim)
    return in_range(_sum_of_logarithms, x, y, weight_rows(weight, x, dim).abs(), kappa, dim).to(dtype)


def _sum_of_logarithms(x: Tensor, y: Tensor, w: Tensor, kappa: Curvature, dim: int) -> Tensor:
    return maps.expmap0(maps.logmap0(x, kappa, dim) + w * maps.logmap0(y, kappa, dim), kappa, dim)


@register_formula("tangent", weighted=True)
def _formula(x: Tensor, y: Tensor, weight: float | Tensor, scale: Tensor | None, K: Tensor, dim: int) -> Tensor:
    z = tangent_residual(x, y, weight, K=K, dim=dim)
    return z if scale is None else z * scale


class TangentResidual(WeightedResidual):
    """Sum of logarithms at the origin (:func:`lresnet.functional.tangent_residual`).

    Args:
        manifold, weight, dim, options: As for :class:`~lresnet.residual.base.WeightedResidual`; the weight is 1 by
            default.
    """

    def __init__(self, manifold: Lorentz, weight: str | float | Tensor = 1.0, dim: int = -1, **options: Any) -> None:
        super().__init__(manifold, weight, dim, **options)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return tangent_residual(x, y, self.signed_weight, K=self.manifold.curvature, dim=self.dim)

    def kernel(self) -> dict[str, Any] | None:
        return {"kind": "tangent", "weight": self.signed_weight, "kappa": -self.manifold.curvature}
