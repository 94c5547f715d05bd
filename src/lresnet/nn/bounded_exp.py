r"""The exponential map at the origin of vectors of bounded length: :math:`x = F(q)\, v` with :math:`q = \kappa |v|^2`.

.. math:: F(q) = \sinh(\bar r)/\sqrt q, \qquad \bar r = \min(\sqrt q, R)

Vectors longer than R radii of curvature are shortened to it: sinh of 89 already leaves float32. A network calls this
for every node and step, so outside of transforms the backward pass is a closed form: autograd's way through the
series and the cases of F takes three times as long.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import traced
from lresnet.geometry.curvature import Curvature, root
from lresnet.geometry.distance import dot
from lresnet.geometry.stack import sum_to
from lresnet.nn.input_map import features_to_points

__all__ = ["bounded_exp", "bounded_radius", "slope_of_factor"]

# Below this q the slope of F, a difference of two numbers that agree to q/3, is taken from its power series in q; the
# first term that is left out is below 1e-18 there.
_SERIES_BELOW = 1e-2
_SLOPE = (1 / 3, 1 / 30, 1 / 840, 1 / 45360, 1 / 3991680)  # 2 k / (2k + 1)! of q^(k-1)


def bounded_exp(v: Tensor, kappa: Curvature, max_radius: float) -> Tensor:
    """Tangent vectors at the origin to points, [..., n] -> [..., n], in float32 or wider.

    Example:
        >>> bounded_exp(torch.tensor([[0.0, 0.0], [3.0, 4.0], [300.0, 400.0]]), 1.0, max_radius=5.0)
        tensor([[ 0.0000,  0.0000],
                [44.5219, 59.3626],
                [44.5219, 59.3626]])
    """
    if traced():
        return _plain(v, kappa, max_radius)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _BoundedExp.apply(v, kappa_tensor, kappa, max_radius)  # type: ignore[no-untyped-call]
    return result


def bounded_radius(v: Tensor, kappa: Curvature, max_radius: float) -> tuple[Tensor, Tensor]:
    r""":math:`\sqrt q` and :math:`\bar r`, [..., 1] each.

    Never 0, so that both may be divided by: below the root of the smallest normal number sinh r / r and cosh r are 1,
    and the square of a norm has no digits left anyway.
    """
    r = root(kappa) * torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    r = r.clamp(min=torch.finfo(r.dtype).tiny ** 0.5)
    # Not a minimum: a norm that has overflowed becomes NaN here, which is found, and not the origin, which is not.
    return r, r * (max_radius / r).clamp(max=1.0)


def slope_of_factor(r: Tensor, factor: Tensor, grown: Tensor) -> Tensor:
    r"""2 F'(q), from :math:`r = \sqrt q`, F, and cosh r, or 0 beyond the bound: :math:`(\cosh r - F)/q`."""
    q = r.square()
    small = q < _SERIES_BELOW
    series = torch.full_like(q, _SLOPE[-1])
    for coefficient in reversed(_SLOPE[:-1]):
        series = series * q + coefficient
    return torch.where(small, series, (grown - factor) / q)


def _plain(v: Tensor, kappa: Curvature, max_radius: float) -> Tensor:
    """The same by formulas that autograd sees through, to any order."""
    return features_to_points(v, kappa, max_radius).x  # type: ignore[return-value]


class _BoundedExp(torch.autograd.Function):
    r"""With :math:`a = g \cdot v` and :math:`H = 2 F'(q)`: :math:`\partial v = F g + \kappa a H v`,
    :math:`\partial\kappa = \sum a H q / 2\kappa`."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, max_radius: float) -> Tensor:
        r, bounded = bounded_radius(v, kappa, max_radius)
        factor = torch.sinh(bounded) / r
        ctx.kappa, ctx.max_radius = None if kappa_tensor is not None else kappa, max_radius
        ctx.save_for_backward(v, r, factor, kappa_tensor)
        return v * factor

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        v, r, factor, kappa_tensor = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():  # a second derivative is wanted: let autograd do both
            # Aliases, so that derivatives stop here: v itself may depend on kappa.
            v, alias = v.view_as(v), None if kappa_tensor is None else kappa_tensor.view_as(kappa_tensor)
            x = _plain(v, kappa if alias is None else alias, ctx.max_radius)
            inputs = [v] if alias is None else [v, alias]
            gv, *rest = torch.autograd.grad(x, inputs, g, create_graph=True)
            return gv, rest[0] if rest else None, None, None
        grown = torch.cosh(r).masked_fill(r > ctx.max_radius, 0.0)
        pull = dot(g, v, -1) * slope_of_factor(r, factor, grown)
        gk = None if kappa_tensor is None else sum_to(kappa_tensor.shape, pull * r.square() / (2 * kappa))
        return torch.addcmul(g * factor, v, kappa * pull), gk, None, None
