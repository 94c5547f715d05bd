"""The Lorentz residual of points in the Poincare ball or in the Klein model."""

from __future__ import annotations

from torch import Tensor

from lresnet.geometry import charts
from lresnet.geometry.checks import checked_points, require_finite, weight_rows
from lresnet.geometry.curvature import Curvature, kappa_among, kappa_of
from lresnet.residual.lorentz import lorentz_residual

__all__ = ["klein_residual", "poincare_residual"]


def poincare_residual(
    p: Tensor, q: Tensor, weight: float | Tensor = 1.0, *, K: Curvature = -1.0, dim: int = -1
) -> Tensor:
    r"""Return the Lorentz residual of points in the Poincare ball of radius :math:`1/\sqrt{-K}`.

    Args:
        p, q: Points of the ball; axis ``dim`` holds the coordinates.
        weight, K, dim: As for :func:`lresnet.functional.lorentz_residual`.

    Example:
        >>> import torch
        >>> poincare_residual(torch.tensor([0.5, 0.0]), torch.tensor([-0.5, 0.0]))
        tensor([0., 0.])
    """
    points, dtype = checked_points(p, q, dim=dim, names=("p", "q"))
    (p, q), kappa = kappa_among(points, K, dim)
    for point in (p, q):
        charts.require_inside(point, kappa, dim, "Poincare ball")
    x, y = charts.from_poincare(p, kappa, dim), charts.from_poincare(q, kappa, dim)
    return charts.to_poincare(lorentz_residual(x, y, weight, K=K, dim=dim), kappa, dim).to(dtype)


def klein_residual(p: Tensor, q: Tensor, weight: float | Tensor = 1.0, *, K: Curvature = -1.0, dim: int = -1) -> Tensor:
    r"""Return the Lorentz residual of points in the Klein model: the Einstein midpoint.

    .. math:: \frac{g_p p + w g_q q}{g_p + w g_q}, \qquad g_p = 1/\sqrt{1 - |p|^2}

    It is a convex combination that does not depend on K: the Klein model is the unit ball for every curvature.

    Args:
        p, q: Points of the unit ball; axis ``dim`` holds the coordinates.
        weight, K, dim: As for :func:`lresnet.functional.lorentz_residual`.

    Example:
        >>> import torch
        >>> klein_residual(torch.tensor([0.5, 0.5]), torch.tensor([0.5, -0.5]))
        tensor([0.5000, 0.0000])
    """
    require_finite(weight)
    (p, q), dtype = checked_points(p, q, dim=dim, names=("p", "q"))
    kappa_of(K, p.dtype)  # raises unless K is a valid curvature
    for point in (p, q):
        charts.require_inside(point, 1.0, dim, "Klein model")
    w_p = charts.boundary_gap(p, 1.0, dim).rsqrt()
    w_q = weight_rows(weight, p, dim).abs() * charts.boundary_gap(q, 1.0, dim).rsqrt()
    return ((w_p * p + w_q * q) / (w_p + w_q)).to(dtype)
