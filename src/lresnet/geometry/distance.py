r"""Distances and pairwise quantities of points (chord, cosh of the distance), computed without cancellation.

Two forms of :math:`\cosh d - 1`, the *separation* of x and y, are used:

- :func:`measure` and :func:`separation`: the polar form, for the residual. With :math:`R = \sqrt\kappa |x|` and
  :math:`T = \sqrt{1 + R^2}` (unitless radius and time) and the hyperbolic radii :math:`a, b` of x and y, the law of
  cosines reads

  .. math:: \cosh d - 1 = [\cosh(a - b) - 1] + R_x R_y \tfrac12 |x/|x| - y/|y||^2 .

  Both summands are non-negative, and neither is a difference of large numbers, whether the points coincide, lie on one
  ray, at the origin or far from it. Every other known form loses digits in at least one of these cases
  (docs/performance/numerics.md). Radii and directions are rounded before they are subtracted. That error is negligible
  beside the residual's :math:`(1 + w)^2`, but not in the distance of near points.

- :func:`chord2`: the chord, for distances and logarithms. It subtracts the points first, costs more, and is accurate
  for near points too. Let :math:`r_x, r_y` be the norms of x and y, u and v their directions and :math:`d = x - y`,
  which is rounded in *its own* last place. Both parts of the polar form follow from d:

  .. math:: \delta = r_x - r_y = \frac{d \cdot (x + y)}{r_x + r_y}, \qquad
      p = \frac{r_x + r_y}{2} (u - v) = d - \delta\, \frac{u + v}{2} .

  With :math:`h = \delta (r_x + r_y) / (r_x T_y + r_y T_x)`, i.e. :math:`\sinh(a - b) = \sqrt\kappa h`, the chord is

  .. math:: C = \langle x - y, x - y\rangle = \frac{2}{\kappa} (\cosh d(x, y) - 1)
      = \frac{2 h^2}{1 + \sqrt{1 + \kappa h^2}} + \frac{4 r_x r_y}{(r_x + r_y)^2} |p|^2 .

  Both summands are non-negative. The error of delta and p is a few :math:`\epsilon |d|` (:math:`\epsilon`: half a unit
  in the last place), so the error of the distance is a few :math:`\epsilon`, with one exception. Far from the origin, a
  step along the radius is T times shorter than its coordinates, and a step across the radius is not. For points on
  nearly one ray, :math:`|p| \approx |d| / T`, the relative error of the distance is therefore about
  :math:`\epsilon T`. Avoiding it needs twice the digits for the products in p. Eager float32 points on a CPU get them:
  such pairs are few and are computed again in float64. On other devices, in compiled code, in transforms, and for
  float64 points the error stays at :math:`\epsilon T`. (Rounding the coordinates by :math:`\epsilon` changes such a
  distance by :math:`\epsilon T` radii of curvature, which is more.)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import full_precision, on_host, traced
from lresnet.geometry.curvature import Curvature, constant, root
from lresnet.geometry.smooth import asinhc, safe_sqrt, with_derivatives_of
from lresnet.geometry.stack import times_rows

__all__ = [
    "Pair",
    "chord2",
    "cross_separation",
    "cross_separation_value",
    "dist",
    "dist2",
    "dot",
    "measure",
    "radial_part",
    "reusable",
    "separation",
    "time_of",
    "unit",
    "unitless_time",
]


# --- one point --------------------------------------------------------------------------------------------------------


def dot(x: Tensor, y: Tensor, dim: int, out: Tensor | None = None) -> Tensor:
    """Return the Euclidean inner product along ``dim``, axis kept. ``out`` is memory of x's shape for the products."""
    return torch.mul(x, y, out=out).sum(dim, keepdim=True)


def reusable(t: Tensor) -> Tensor | None:
    """Return ``t``, whose values are no longer needed, as an ``out=`` argument; None under autograd or a transform.

    On a CPU, fresh memory costs more than arithmetic: the system maps and clears every page of a large array.
    """
    return None if torch.is_grad_enabled() or traced() else t


def time_of(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the time coordinate :math:`\sqrt{|x|^2 + 1/\kappa}`, axis kept; smooth everywhere."""
    return (dot(x, x, dim) + 1 / kappa).sqrt()


def unitless_time(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return ``sqrt(kappa)`` times the time: :math:`\sqrt{1 + \kappa |x|^2} = \cosh` of the hyperbolic radius."""
    return (1 + kappa * dot(x, x, dim)).sqrt()


def unit(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return direction and norm of ``x``; the direction of 0 is 0.

    If the square of the norm underflows (norms below 1e-19 in float32), the direction is shorter than 1. That is
    accurate enough: every formula multiplies the direction by the norm and adds a term of at least 1.
    """
    r = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return x / r.clamp(min=torch.finfo(r.dtype).tiny ** 0.5), r


# --- pairs of points: the polar form ----------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Quantities of a pair of points, with the coordinate axis kept at size 1."""

    separation: Tensor
    """``cosh d - 1 >= 0``: exactly 0 for equal points."""
    growth: Tensor
    """``kappa * d(separation)/d(kappa) >= 0`` at fixed space coordinates."""
    T_x: Tensor
    """``sqrt(kappa)`` times the time coordinate of x."""
    T_y: Tensor
    """``sqrt(kappa)`` times the time coordinate of y."""


def measure(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Pair:
    """Return the quantities of the polar form. Do not differentiate them: use :func:`separation` instead."""
    u, r_x = unit(x, dim)
    v, r_y = unit(y, dim)
    R_x, R_y = root(kappa) * r_x, root(kappa) * r_y
    T_x, T_y = (1 + R_x.square()).sqrt(), (1 + R_y.square()).sqrt()
    sinh, radial = radial_part(R_x, T_x, R_y, T_y)
    work = reusable(u) if u.shape == v.shape else None
    apart = torch.sub(u, v, out=work)
    angular = R_x * R_y * (0.5 * torch.square(apart, out=work).sum(dim, keepdim=True))
    return Pair(radial + angular, angular + 0.5 * (sinh / T_x) * (sinh / T_y), T_x, T_y)


def radial_part(R_x: Tensor, T_x: Tensor, R_y: Tensor, T_y: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``sinh(a - b)`` and ``cosh(a - b) - 1`` of hyperbolic radii a, b, given sinh (R) and cosh (T) of each."""
    # sinh(a - b) = R_x T_y - T_x R_y, rationalised; both points at the origin give 0 over the smallest number.
    # (Not addcmul: it would leave one of the two products unrounded, and d(x, y) would differ from d(y, x) in the last
    # bit.)
    mixed = (R_x * T_y + T_x * R_y).clamp(min=torch.finfo(R_x.dtype).tiny)
    sinh = (R_x - R_y) * ((R_x + R_y) / mixed)
    return sinh, sinh * (sinh / (1 + (1 + sinh.square()).sqrt()))


def separation(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return ``cosh d(x, y) - 1``, axis kept, differentiable in x, y and kappa, also for equal points.

    The value is the polar form. The derivatives are those of
    :math:`\tfrac\kappa2 (|x - y|^2 - (x_t - y_t)^2)` with :math:`x_t - y_t = (x-y)\cdot(x+y) / (x_t + y_t)`,
    which contains no norm of a vector that could vanish.
    """
    value = measure(x.detach(), y.detach(), constant(kappa), dim).separation
    return with_derivatives_of(value, 0.5 * kappa * _chord2_by_subtraction(x, y, kappa, dim))


def _chord2_by_subtraction(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    d = x - y
    dt = dot(d, x + y, dim) / (time_of(x, kappa, dim) + time_of(y, kappa, dim))
    return dot(d, d, dim) - dt.square()


# --- pairs of points: the chord and the distance ----------------------------------------------------------------------


def dist2(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the squared geodesic distance, axis kept; smooth, also at x = y.

    :math:`d = \frac{2}{\sqrt\kappa} \operatorname{asinh}(\sqrt{\kappa C}/2)` with the squared chord
    :math:`C = \tfrac2\kappa (\cosh d - 1)`, so there is no acosh of a number near 1.
    """
    C = chord2(x, y, kappa, dim)
    return C * asinhc(kappa * C / 4).square()


def dist(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    """Return the geodesic distance, axis kept: exactly 0 at x = y, where its gradient is set to 0."""
    return safe_sqrt(dist2(x, y, kappa, dim))


def chord2(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return :math:`\langle x - y, x - y\rangle = \tfrac2\kappa (\cosh d - 1)`, axis kept, differentiable everywhere.

    It is exactly 0 for equal points, and bit-identical for (y, x). The value is the form of the module's docstring; the
    derivatives are those of :func:`_smooth_chord2`. The square of a chord below 1e-19 (in float32) underflows to 0.
    """
    d, s = x - y, x + y
    with torch.no_grad():
        value = _chord2_value(x.detach(), y.detach(), d.detach(), s.detach(), constant(kappa), dim)
    if torch.is_grad_enabled() or traced():
        return with_derivatives_of(value, _smooth_chord2(x, y, d, s, kappa, dim))
    return value


def _chord2_value(x: Tensor, y: Tensor, d: Tensor, s: Tensor, kappa: Curvature, dim: int) -> Tensor:
    """Return the chord in the form of the module's docstring, given ``d = x - y`` and ``s = x + y``."""
    (u, r_x), (v, r_y) = unit(x, dim), unit(y, dim)
    T_x, T_y = ((1 + (root(kappa) * r).square()).sqrt() for r in (r_x, r_y))
    total = (r_x + r_y).clamp(min=torch.finfo(r_x.dtype).tiny ** 0.5)  # as in unit(): smaller squares underflow
    share_x, share_y = r_x / total, r_y / total
    # Divided before it is multiplied: on one axis the quotient is +-1, delta equals d exactly, and p is exactly 0.
    mean = s / total
    delta = dot(d, mean, dim, reusable(mean))
    h = delta / (share_x * T_y + share_y * T_x).clamp(min=1.0)  # at least 1, except at the origin, where it is 0
    radial = h * (2 * h / (1 + (1 + (root(kappa) * h).square()).sqrt()))
    apart = _length(torch.sub(u, v, out=reusable(mean)), dim)
    both = torch.add(u, v, out=reusable(u) if u.shape == d.shape else None)
    p = _length(torch.addcmul(d, both, delta, value=-0.5, out=reusable(both)), dim)
    # The error of p is a few eps |d| if computed from d, and a few eps (r_x + r_y)/2 if computed from u - v. Both are
    # equal at |d| = (r_x + r_y)/2. The switch is at half of that, so that y = 2 x (where |d| is two thirds of
    # (r_x + r_y)/2) still uses u - v, which is then exactly 0.
    length = _length(d, dim)
    near = length < 0.25 * total
    chord = radial + torch.where(near, 4 * share_x * share_y * p.square(), r_x * r_y * apart.square())
    if chord.dtype != torch.float32 or not on_host(chord):
        return chord
    # The error of the angular part is about eps times the root of `against`: at most 4 eps of the rest.
    against = torch.where(near, length.square(), r_x * r_y)
    lost = against > 16 * chord
    return _again_in_float64(chord, lost, x, y, kappa, dim) if bool(lost.any()) else chord


def _again_in_float64(chord: Tensor, lost: Tensor, x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    """Return ``chord`` with the values of the pairs marked in ``lost`` computed in float64."""
    pairs = lost.movedim(dim, -1).squeeze(-1)
    a, b = (point.movedim(dim, -1)[pairs].double() for point in torch.broadcast_tensors(x, y))
    if isinstance(kappa, Tensor):
        kappa = kappa.double().expand(lost.shape).movedim(dim, -1)[pairs]
    chord.movedim(dim, -1)[pairs] = _chord2_value(a, b, a - b, a + b, kappa, -1).to(chord.dtype)
    return chord


def _smooth_chord2(x: Tensor, y: Tensor, d: Tensor, s: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the squared chord without a norm that could vanish, for its derivatives.

    With :math:`\tau = x_t - y_t = d \cdot (x + y) / (x_t + y_t)`, this identity holds:

    .. math:: C = |d|^2 - \tau^2 = \frac{T_y}{T_x} |d - \tfrac{\tau}{y_t} y|^2 + \frac{\tau^2}{T_x T_y} .

    The derivatives of :math:`|d|^2 - \tau^2` itself cancel along the radius, to :math:`1/T^2`. Those of the right-hand
    side do not, if y is the point with the smaller time. Exchanging the points gives the same function, so all
    derivatives agree where the times are equal. The derivatives in kappa would cancel; :func:`_kappa_change` adds them.
    """
    x2, y2, product = dot(x, x, dim), dot(y, y, dim), dot(d, s, dim)
    fixed = constant(kappa)
    T_x, T_y = (1 + fixed * x2).sqrt(), (1 + fixed * y2).sqrt()
    k_tau = fixed * product / (T_x + T_y)
    lower = T_y <= T_x
    low, T_low, T_high = torch.where(lower, y, x), torch.where(lower, T_y, T_x), torch.where(lower, T_x, T_y)
    across = torch.addcmul(d, low, k_tau / T_low, value=-1)
    tau = k_tau / root(fixed)
    smooth = T_low / T_high * dot(across, across, dim) + (tau / T_x) * (tau / T_y)
    return smooth + _kappa_change(x2, y2, product, kappa) if isinstance(kappa, Tensor) else smooth


def _kappa_change(x2: Tensor, y2: Tensor, product: Tensor, kappa: Tensor) -> Tensor:
    r"""Return :math:`C(\kappa) - C(\kappa_0)` at :math:`\kappa_0 = \kappa`: 0, with all derivatives that involve kappa.

    .. math:: \tau_0^2 - \tau^2 = \frac{\kappa_0 - \kappa}{\kappa_0} (\tau + \tau_0)\, \tau\,
        \frac{1/(x_t + x_{t0}) + 1/(y_t + y_{t0})}{\kappa (x_{t0} + y_{t0})} .

    The first factor is exactly 0, so derivatives in x and y alone vanish.
    """
    fixed = kappa.detach()
    (x_t, y_t), (x_t0, y_t0) = (((x2 + 1 / k).sqrt(), (y2 + 1 / k).sqrt()) for k in (kappa, fixed))
    tau, tau_0 = product / (x_t + y_t), product / (x_t0 + y_t0)
    slope = (1 / (x_t + x_t0) + 1 / (y_t + y_t0)) / (kappa * (x_t0 + y_t0))
    return (fixed - kappa) / fixed * ((tau + tau_0) * (tau * slope))


def _length(x: Tensor, dim: int) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return length


# --- every point of one set with every point of another ---------------------------------------------------------------


def cross_separation(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    r"""Return ``cosh d - 1`` between every point of x and every point of y, by one matrix product.

    The radial part is exact. The angular part :math:`R_x R_y (1 - \cos)` takes the cosine from a matrix product, so its
    error is one rounding of the cosine (6e-8 R_x R_y in float32). For accurate distances of near points, and exactly 0
    for equal points, use :meth:`lresnet.Lorentz.dist`.

    Shapes:
        x [..., n], y [C, n] -> [..., C]; stacks: x [N, S, n], y [S, C, n] -> [N, S, C]. The [..., C, n] differences are
        never formed.
    """
    with full_precision(x):
        value = cross_separation_value(x.detach(), y.detach(), constant(kappa))
        T_x, T_y = unitless_time(x, kappa, -1), (1 + kappa * dot(y, y, -1).squeeze(-1)).sqrt()
        smooth = T_x * T_y - kappa * times_rows(y, x)
        return with_derivatives_of(value, smooth)


def cross_separation_value(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    """Return :func:`cross_separation` for callers that compute its derivatives themselves."""
    (u, r_x), (v, r_y) = unit(x, -1), unit(y, -1)
    R_x, R_y = root(kappa) * r_x, root(kappa) * r_y.squeeze(-1)
    T_x, T_y = (1 + R_x.square()).sqrt(), (1 + R_y.square()).sqrt()
    return radial_part(R_x, T_x, R_y, T_y)[1] + R_x * R_y * (1 - times_rows(v, u)).clamp(min=0.0)
