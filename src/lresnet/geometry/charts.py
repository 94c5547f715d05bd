r"""Charts of hyperbolic space: maps between space coordinates, the Poincare ball and the Klein model.

The Poincare ball has radius :math:`1/\sqrt\kappa` (geoopt's ``PoincareBall(c=kappa)``). The Klein model is the unit
ball for every curvature, :math:`x_s / x_t` as in the paper; its geodesics are straight lines.
"""

from __future__ import annotations

from torch import Tensor

from lresnet.geometry.checks import checks_values, require_points
from lresnet.geometry.curvature import Curvature, constant, root
from lresnet.geometry.distance import dot, time_of, unitless_time

__all__ = ["boundary_gap", "from_klein", "from_poincare", "require_inside", "to_klein", "to_poincare"]


def to_poincare(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return :math:`p = x / (1 + \sqrt\kappa x_t)`."""
    return x / (1 + unitless_time(x, kappa, dim))


def from_poincare(p: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return :math:`x = 2 p / (1 - \kappa |p|^2)`, for :math:`\kappa |p|^2 < 1`."""
    return (2 * p / boundary_gap(p, kappa, dim)).to(p.dtype)


def to_klein(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return :math:`q = x / x_t`."""
    return x / time_of(x, kappa, dim)


def from_klein(q: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return :math:`x = q / (\sqrt\kappa \sqrt{1 - |q|^2})`, for :math:`|q| < 1`."""
    return (q / (root(kappa) * boundary_gap(q, 1.0, dim).sqrt())).to(q.dtype)


def boundary_gap(p: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return :math:`1 - \kappa |p|^2` in float64: near the boundary a float32 difference is only rounding error."""
    wide = p.double()
    return 1 - (kappa.double() if isinstance(kappa, Tensor) else kappa) * dot(wide, wide, dim)


def require_inside(p: Tensor, kappa: Curvature, dim: int, chart: str) -> None:
    """Raise ``ValueError`` if a point lies on or outside the ball of radius ``1/sqrt(kappa)``.

    Values are read only where :func:`~lresnet.geometry.checks.checks_values` allows it.
    """
    require_points(p, dim, "p")
    if checks_values(p):
        gap = boundary_gap(p.detach(), constant(kappa), dim).flatten()
        if not bool((gap > 0).all()):
            raise ValueError(
                f"p must lie inside the {chart}: {int((~(gap > 0)).sum())} of {gap.numel()} points do not "
                f"(largest norm is {float((1 - gap).max().sqrt()):.6g} times the radius of the ball)"
            )
