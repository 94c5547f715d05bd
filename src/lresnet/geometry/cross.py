"""``cosh d - 1`` between every point of one set and every point of another, by one matrix product."""

from __future__ import annotations

from torch import Tensor

from lresnet.geometry.checks import full_precision
from lresnet.geometry.curvature import Curvature, constant, root
from lresnet.geometry.pair import dot, radial_part, unit, unitless_time
from lresnet.geometry.smooth import with_derivatives_of
from lresnet.geometry.stack import times_rows

__all__ = ["cross_separation", "separations"]


def cross_separation(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    r"""[..., n] and [C, n] -> [..., C], without forming the [..., C, n] differences; stacks too: [N, S, n], [S, C, n].

    The radial part is exact; the angular part :math:`R_x R_y (1 - \cos)` takes the cosine from a matrix product and
    so is exact up to one rounding of the cosine (6e-8 R_x R_y in float32). For the digits of near points, and exactly 0
    for equal ones, use :meth:`lresnet.Lorentz.dist`.
    """
    with full_precision(x):
        value = separations(x.detach(), y.detach(), constant(kappa))
        T_x, T_y = unitless_time(x, kappa, -1), (1 + kappa * dot(y, y, -1).squeeze(-1)).sqrt()
        smooth = T_x * T_y - kappa * times_rows(y, x)
        return with_derivatives_of(value, smooth)


def separations(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    """The value of :func:`cross_separation`, for those who bring its derivatives along."""
    (u, r_x), (v, r_y) = unit(x, -1), unit(y, -1)
    R_x, R_y = root(kappa) * r_x, root(kappa) * r_y.squeeze(-1)
    T_x, T_y = (1 + R_x.square()).sqrt(), (1 + R_y.square()).sqrt()
    return radial_part(R_x, T_x, R_y, T_y)[1] + R_x * R_y * (1 - times_rows(v, u)).clamp(min=0.0)
