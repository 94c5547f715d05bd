r"""What two points know of each other: the stable core of the residual.

With :math:`R = \sqrt\kappa |x|` and :math:`T = \sqrt{1 + R^2}` (radius and time without units) and hyperbolic radii
:math:`a, b` of x and y, the law of cosines reads

.. math:: \cosh d - 1 = [\cosh(a - b) - 1] + R_x R_y \tfrac12 |x/|x| - y/|y||^2 .

Both summands are non-negative and neither is found by subtracting large numbers, whether the points coincide, lie on
one ray, sit at the origin or far from it. This is the "polar" form; every other known form loses digits in at least one
of these cases (docs/numerics.md). Radii and directions are rounded before they are subtracted: beside the residual's
:math:`(1 + w)^2` that is nothing, but of the distance of near points it takes digits. Distances and logarithms use
:mod:`lresnet.geometry.chord`, which subtracts first and costs more.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import traced
from lresnet.geometry.curvature import Curvature, constant, root
from lresnet.geometry.smooth import with_derivatives_of

__all__ = [
    "Pair",
    "dot",
    "measure",
    "radial_part",
    "separation",
    "spare",
    "time_of",
    "unit",
    "unitless_time",
]


class Pair(NamedTuple):
    """Per pair of points, with the coordinate axis kept at size 1."""

    separation: Tensor
    """``cosh d - 1 >= 0``: exactly 0 for equal points."""
    growth: Tensor
    """``kappa * d(separation)/d(kappa) >= 0`` at fixed space coordinates."""
    T_x: Tensor
    """``sqrt(kappa)`` times the time coordinate of x."""
    T_y: Tensor


def dot(x: Tensor, y: Tensor, dim: int, out: Tensor | None = None) -> Tensor:
    """Euclidean inner product along ``dim``, axis kept. ``out`` is memory of x's shape for the products."""
    return torch.mul(x, y, out=out).sum(dim, keepdim=True)


def spare(t: Tensor) -> Tensor | None:
    """``t``, whose values are needed no more, as an ``out=`` argument; None where autograd or a transform looks on.

    On a CPU fresh memory costs more than arithmetic: the system maps and clears every page of a large array.
    """
    return None if torch.is_grad_enabled() or traced() else t


def time_of(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""Time coordinate :math:`\sqrt{|x|^2 + 1/\kappa}`, axis kept; smooth everywhere."""
    return (dot(x, x, dim) + 1 / kappa).sqrt()


def unitless_time(x: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""``sqrt(kappa)`` times the time: :math:`\sqrt{1 + \kappa |x|^2} = \cosh` of the hyperbolic radius."""
    return (1 + kappa * dot(x, x, dim)).sqrt()


def unit(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Direction and norm of ``x``; the direction of 0 is 0.

    Where the square of a norm has lost its digits (below 1e-19 in float32) the direction is shorter than 1. That is
    exact enough: it enters every formula multiplied by the norm, next to a term that is at least 1.
    """
    r = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return x / r.clamp(min=torch.finfo(r.dtype).tiny ** 0.5), r


def measure(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Pair:
    """The polar form's values. Not meant to be differentiated: see :func:`separation`."""
    u, r_x = unit(x, dim)
    v, r_y = unit(y, dim)
    R_x, R_y = root(kappa) * r_x, root(kappa) * r_y
    T_x, T_y = (1 + R_x.square()).sqrt(), (1 + R_y.square()).sqrt()
    sinh, radial = radial_part(R_x, T_x, R_y, T_y)
    work = spare(u) if u.shape == v.shape else None
    apart = torch.sub(u, v, out=work)
    angular = R_x * R_y * (0.5 * torch.square(apart, out=work).sum(dim, keepdim=True))
    return Pair(radial + angular, angular + 0.5 * (sinh / T_x) * (sinh / T_y), T_x, T_y)


def radial_part(R_x: Tensor, T_x: Tensor, R_y: Tensor, T_y: Tensor) -> tuple[Tensor, Tensor]:
    """``sinh(a - b)`` and ``cosh(a - b) - 1`` of hyperbolic radii a, b, given sinh (R) and cosh (T) of each."""
    # sinh(a - b) = R_x T_y - T_x R_y, rationalised; both points at the origin give 0 over the smallest number.
    # (Not addcmul: one product of the two would go unrounded, and d(x, y) would differ from d(y, x) in the last bit.)
    mixed = (R_x * T_y + T_x * R_y).clamp(min=torch.finfo(R_x.dtype).tiny)
    sinh = (R_x - R_y) * ((R_x + R_y) / mixed)
    return sinh, sinh * (sinh / (1 + (1 + sinh.square()).sqrt()))


def separation(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    r"""``cosh d(x, y) - 1``, axis kept, differentiable in x, y and kappa everywhere, coincident points included.

    The value is the polar form; the derivatives are those of
    :math:`\tfrac\kappa2 (|x - y|^2 - (x_t - y_t)^2)` with :math:`x_t - y_t = (x-y)\cdot(x+y) / (x_t + y_t)`,
    which has no norm of a vector in it that could vanish.
    """
    value = measure(x.detach(), y.detach(), constant(kappa), dim).separation
    return with_derivatives_of(value, 0.5 * kappa * _smooth_chord2(x, y, kappa, dim))


def _smooth_chord2(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Tensor:
    d = x - y
    dt = dot(d, x + y, dim) / (time_of(x, kappa, dim) + time_of(y, kappa, dim))
    return dot(d, d, dim) - dt.square()
