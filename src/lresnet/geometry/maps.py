r"""Metric, exponential, logarithm, parallel transport and boost of the hyperboloid, in space coordinates.

A point is its space part :math:`x \in R^n`; a tangent vector at x is its space part u (its time part is
:math:`x \cdot u / x_t`). The metric pulled back to these coordinates is

.. math:: \langle u, v \rangle_x = u \cdot v - (x \cdot u)(x \cdot v) / x_t^2 .

All functions take kappa = -K and the coordinate axis ``dim``, broadcast, and keep that axis. Values are computed in the
orthonormal frame (radial and perpendicular part), which does not cancel far from the origin. Derivatives are those of
the textbook form, which is smooth at the origin (:func:`~lresnet.geometry.smooth.with_derivatives_of`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.curvature import Curvature, constant, root
from lresnet.geometry.distance import chord2, dot, measure, separation, time_of, unit, unitless_time
from lresnet.geometry.smooth import asinhc, cosh_minus_one, sinhc, with_derivatives_of

__all__ = [
    "boost",
    "egrad2rgrad",
    "expmap",
    "expmap0",
    "expmap_value",
    "inner",
    "logmap",
    "logmap0",
    "transp",
    "transp_value",
]


def inner(x: Tensor, u: Tensor, v: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the inner product at x: :math:`u_\perp \cdot v_\perp + a b / T^2` with a, b the parts along x.

    The two terms of the definition agree to :math:`1/T^2` for radial vectors; this form subtracts nothing. Near the
    origin (T^2 <= 2) they do not cancel, and the definition is used: it is smooth where x has no direction.
    """
    T2 = 1 + kappa * dot(x, x, dim)
    far = T2 > 2
    e, _ = unit(torch.where(far, x, 1.0), dim)
    a, b = dot(e, u, dim), dot(e, v, dim)
    split = dot(u - a * e, v - b * e, dim) + a * b / T2
    return torch.where(far, split, dot(u, v, dim) - kappa * dot(x, u, dim) * dot(x, v, dim) / T2)


def egrad2rgrad(x: Tensor, g: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the Riemannian gradient: the inverse metric :math:`I + \kappa x x^T` times the Euclidean gradient."""
    return g + kappa * dot(x, g, dim) * x


def expmap0(u: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the exponential at the origin: :math:`\sinh(\sqrt\kappa |u|) / (\sqrt\kappa |u|) \, u`."""
    return sinhc(kappa * dot(u, u, dim)) * u


def logmap0(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the logarithm at the origin: :math:`\operatorname{asinh}(\sqrt\kappa |x|) / (\sqrt\kappa |x|) \, x`."""
    return asinhc(kappa * dot(x, x, dim)) * x


def expmap(x: Tensor, u: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return :math:`\exp_x u = \cosh(\alpha) x + \frac{\sinh\alpha}{\alpha} u`, :math:`\alpha = \sqrt\kappa |u|_x`.

    The two terms cancel if u points inwards. In the frame at x (speeds beta along the radius, pi across it) the part
    along the radius is :math:`\sinh(\rho \pm \alpha)` plus a correction of one sign, which does not cancel.
    """
    value = expmap_value(x.detach(), u.detach(), constant(kappa), dim)
    speed2 = kappa * inner(x, u, u, kappa, dim)
    smooth = x + cosh_minus_one(speed2) * x + sinhc(speed2) * u
    return with_derivatives_of(value, smooth)


def expmap_value(x: Tensor, u: Tensor, kappa: Curvature, dim: int) -> Tensor:
    """Return :func:`expmap` without derivatives, in half the operations."""
    k = root(kappa)
    e, r = unit(x, dim)
    T = unitless_time(x, kappa, dim)
    a = dot(e, u, dim)
    across = u - a * e
    beta, pi2 = k * a / T, kappa * dot(across, across, dim)
    alpha2 = beta.square() + pi2
    alpha = alpha2.sqrt()
    # cosh(alpha) sinh(rho) + cos(theta) sinh(alpha) cosh(rho), with 1 - |cos| = pi^2 / (alpha (alpha + |beta|)).
    outwards = torch.where(beta < 0, -1.0, 1.0)
    slack = sinhc(alpha2) * (pi2 / torch.where(alpha > 0, alpha + beta.abs(), 1.0)) * T
    radial = torch.sinh(torch.asinh(k * r) + outwards * alpha) - outwards * slack
    value = (radial / k) * e + sinhc(alpha2) * across
    return torch.where(alpha == 0, x + u, value)


def logmap(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the logarithm at x: :math:`\frac{d}{\sinh d} (y - \cosh(d) x)`, exactly 0 at y = x.

    :math:`y - \cosh(d) x = (y - x) - (\cosh d - 1) x`, and the factor is an analytic function of ``cosh d - 1``.
    """
    D = 0.5 * kappa * chord2(x, y, kappa, dim)
    return asinhc(D / 2) / (1 + D / 2).sqrt() * ((y - x) - D * x)


def transp(x: Tensor, y: Tensor, u: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the parallel transport of u from x to y along the geodesic.

    .. math:: u + \frac{\langle y, u\rangle}{1/\kappa - \langle x, y\rangle} (x + y)

    It is computed in three well-conditioned steps: to the frame at x, rotation by the angle defect of the triangle
    (origin, x, y), from the frame at y. The formula itself subtracts vectors that are longer than the result by the
    factor x_t.
    """
    value = transp_value(x.detach(), y.detach(), u.detach(), constant(kappa), dim)
    d = y - x
    x_t, y_t = time_of(x, kappa, dim), time_of(y, kappa, dim)
    slope = dot(d, x + y, dim) / (x_t + y_t) / x_t
    product = dot(d - slope * x, u, dim)
    smooth = u + kappa * product / (2 + separation(x, y, kappa, dim)) * (x + y)
    return with_derivatives_of(value, smooth)


def transp_value(x: Tensor, y: Tensor, u: Tensor, kappa: Curvature, dim: int) -> Tensor:
    """Return :func:`transp` without derivatives, in half the operations."""
    e, _ = unit(x, dim)
    f, r_y = unit(y, dim)
    pair = measure(x, y, kappa, dim)
    k = root(kappa)
    # To the frame at x, i.e. transported to the origin: the radial part shrinks by T_x.
    u = u - dot(e, u, dim) * (1 - 1 / pair.T_x) * e
    # Rotation in the plane of x and y: the Cayley transform of Omega / c, Omega = X Y^T - Y X^T = X d^T - d X^T,
    # where d is the part of Y across X, computed from the difference of the directions, without cancellation.
    difference = f - e
    d = (k * r_y) * (difference + (0.5 * dot(difference, difference, dim)) * e)
    X = k * x
    c = 2 + pair.T_x + pair.T_y + pair.separation
    omega2 = dot(X, X, dim) * dot(d, d, dim)
    first = dot(d, u, dim) * X - dot(X, u, dim) * d
    second = dot(d, first, dim) * X - dot(X, first, dim) * d
    u = u + 2 * (c * first + second) / (c.square() + omega2)
    # From the frame at y: the radial part grows by T_y.
    return u + dot(f, u, dim) * (pair.T_y - 1) * f


def boost(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Translate y by the Lorentz boost that maps the origin to x.

    .. math:: x \oplus y = y + w x, \quad
        w = \sqrt\kappa y_t + \frac{\kappa\, x \cdot y}{1 + \sqrt\kappa x_t}

    which equals :math:`\exp_x P_{o \to x} \log_o y` without exp, log or a singular point. For points on opposite
    sides w is a small difference of large numbers; there :func:`boost_weight_opposite` computes it.
    """
    product = dot(x, y, dim)
    smooth = unitless_time(y, kappa, dim) + kappa * product / (1 + unitless_time(x, kappa, dim))
    opposite = boost_weight_opposite(x.detach(), y.detach(), constant(kappa), dim)
    return y + with_derivatives_of(torch.where(product < 0, opposite, smooth), smooth) * x


def boost_weight_opposite(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the weight of x in :func:`boost` without subtraction: :math:`(\cosh d(x, -y) + T_y) / (1 + T_x)`."""
    pair = measure(x, -y, kappa, dim)
    return (1 + pair.separation + pair.T_y) / (1 + pair.T_x)
