r"""The squared chord of two points, of which distances and logarithms are made: accurate for near points too.

Let :math:`r_x, r_y` be the norms of x and y, u and v their directions, :math:`d = x - y`, and T the unitless times.
Directions and norms, once rounded, know near points apart only to the last place of their own. The difference vector
is rounded in *its* last place, and these identities give both parts of the polar form (:mod:`lresnet.geometry.pair`)
from it:

.. math:: \delta = r_x - r_y = \frac{d \cdot (x + y)}{r_x + r_y}, \qquad
    p = \frac{r_x + r_y}{2} (u - v) = d - \delta\, \frac{u + v}{2} .

With :math:`h = \delta (r_x + r_y) / (r_x T_y + r_y T_x)`, i.e. :math:`\sinh(a - b) = \sqrt\kappa h`, the chord is

.. math:: C = \langle x - y, x - y\rangle = \frac{2}{\kappa} (\cosh d(x, y) - 1)
    = \frac{2 h^2}{1 + \sqrt{1 + \kappa h^2}} + \frac{4 r_x r_y}{(r_x + r_y)^2} |p|^2 .

Both summands are non-negative, and delta and p are known to a few :math:`\epsilon |d|` (:math:`\epsilon`: half a unit
in the last place), which is a few :math:`\epsilon` of the distance, with one exception. Far out a step along the radius
is T times shorter than it looks, one across it is not: for points on nearly one ray, :math:`|p| \approx |d| / T`, the
distance is known to about :math:`\epsilon T`. More would need the products in p to twice the digits. (The coordinates
themselves, moved by :math:`\epsilon`, change such a distance by :math:`\epsilon T` radii of curvature, which is more.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.checks import traced
from lresnet.geometry.curvature import Curvature, constant, root
from lresnet.geometry.pair import dot, spare, unit
from lresnet.geometry.smooth import with_derivatives_of

__all__ = ["chord2"]


def chord2(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r""":math:`\langle x - y, x - y\rangle = \tfrac2\kappa (\cosh d - 1)`, axis kept, differentiable everywhere.

    Exactly 0 for equal points, and the same to the last bit for (y, x). The value is the form above; the derivatives
    are those of :func:`_smooth`. Chords below the root of the smallest number (1e-19 in float32) have no square.
    """
    d, s = x - y, x + y
    with torch.no_grad():
        value = _value(x.detach(), y.detach(), d.detach(), s.detach(), constant(kappa), dim)
    if torch.is_grad_enabled() or traced():
        return with_derivatives_of(value, _smooth(x, y, d, s, kappa, dim))
    return value


def _value(x: Tensor, y: Tensor, d: Tensor, s: Tensor, kappa: Curvature, dim: int) -> Tensor:
    """The form of the module's docstring, given ``d = x - y`` and ``s = x + y``."""
    (u, r_x), (v, r_y) = unit(x, dim), unit(y, dim)
    T_x, T_y = ((1 + (root(kappa) * r).square()).sqrt() for r in (r_x, r_y))
    total = (r_x + r_y).clamp(min=torch.finfo(r_x.dtype).tiny ** 0.5)  # as in unit: below, squares have no digits
    share_x, share_y = r_x / total, r_y / total
    # Divided before it is multiplied: on one axis the quotient is +-1, delta is d to the bit, and p exactly 0.
    mean = s / total
    delta = dot(d, mean, dim, spare(mean))
    h = delta / (share_x * T_y + share_y * T_x).clamp(min=1.0)  # shares of 1 and times of at least 1; 0 at the origin
    radial = h * (2 * h / (1 + (1 + (root(kappa) * h).square()).sqrt()))
    apart = _length(torch.sub(u, v, out=spare(mean)), dim)
    both = torch.add(u, v, out=spare(u) if u.shape == d.shape else None)
    p = _length(torch.addcmul(d, both, delta, value=-0.5, out=spare(both)), dim)
    # p from d is known to a few eps |d|, from u - v to a few eps (r_x + r_y)/2: about |d| = (r_x + r_y)/2 either does.
    # Half of that is taken, so that y = 2 x, at two thirds, is still told by u = v, which then holds to the bit.
    near = _length(d, dim) < 0.25 * total
    return radial + torch.where(near, 4 * share_x * share_y * p.square(), r_x * r_y * apart.square())


def _smooth(x: Tensor, y: Tensor, d: Tensor, s: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""The squared chord without a norm that could vanish, for its derivatives.

    With :math:`\tau = x_t - y_t = d \cdot (x + y) / (x_t + y_t)`, and multiplied out an identity,

    .. math:: C = |d|^2 - \tau^2 = \frac{T_y}{T_x} |d - \tfrac{\tau}{y_t} y|^2 + \frac{\tau^2}{T_x T_y} .

    The derivatives of :math:`|d|^2 - \tau^2` itself cancel along the radius, to :math:`1/T^2`; these do not, if y is
    the point of the smaller time. Exchanged, the points give the same function, so all derivatives agree at the seam.
    Those in kappa would cancel, and come from :func:`_change`.
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
    return smooth + _change(x2, y2, product, kappa) if isinstance(kappa, Tensor) else smooth


def _change(x2: Tensor, y2: Tensor, product: Tensor, kappa: Tensor) -> Tensor:
    r""":math:`C(\kappa) - C(\kappa_0)` at :math:`\kappa_0 = \kappa`: 0, with every derivative that kappa has a part in.

    .. math:: \tau_0^2 - \tau^2 = \frac{\kappa_0 - \kappa}{\kappa_0} (\tau + \tau_0)\, \tau\,
        \frac{1/(x_t + x_{t0}) + 1/(y_t + y_{t0})}{\kappa (x_{t0} + y_{t0})} .

    The first factor is exactly 0 and multiplies what is differentiated by x and y alone.
    """
    fixed = kappa.detach()
    (x_t, y_t), (x_t0, y_t0) = (((x2 + 1 / k).sqrt(), (y2 + 1 / k).sqrt()) for k in (kappa, fixed))
    tau, tau_0 = product / (x_t + y_t), product / (x_t0 + y_t0)
    slope = (1 / (x_t + x_t0) + 1 / (y_t + y_t0)) / (kappa * (x_t0 + y_t0))
    return (fixed - kappa) / fixed * ((tau + tau_0) * (tau * slope))


def _length(x: Tensor, dim: int) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return length
