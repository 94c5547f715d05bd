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
from lresnet.geometry.pair import dot
from lresnet.geometry.smooth import sinhc
from lresnet.geometry.stack import sum_to

__all__ = ["bounded_exp", "exp_factor"]

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
        return v * exp_factor(kappa * dot(v, v, -1), max_radius)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _BoundedExp.apply(v, kappa_tensor, kappa, max_radius)  # type: ignore[no-untyped-call]
    return result


def exp_factor(q: Tensor, max_radius: float) -> Tensor:
    """F of q, with all derivatives."""
    shorten = (max_radius / q.clamp(min=max_radius**2).sqrt()).clamp(max=1.0)
    return sinhc(q * shorten.square()) * shorten


class _BoundedExp(torch.autograd.Function):
    r"""With :math:`a = g \cdot v` and :math:`H = 2 F'(q)`: :math:`\partial v = F g + \kappa a H v`,
    :math:`\partial\kappa = \sum a H q / 2\kappa`."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, max_radius: float) -> Tensor:
        r = root(kappa) * torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        # Not a minimum: a norm that has overflowed becomes NaN here, which is found, and not the origin, which is not.
        bounded = r * (max_radius / r).clamp(max=1.0)
        factor = torch.where(r == 0, 1.0, torch.sinh(bounded) / r)
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
            own = kappa if alias is None else alias
            x, inputs = v * exp_factor(own * dot(v, v, -1), ctx.max_radius), [v] if alias is None else [v, alias]
            gv, *rest = torch.autograd.grad(x, inputs, g, create_graph=True)
            return gv, rest[0] if rest else None, None, None
        q = r.square()
        slope = dot(g, v, -1) * _twice_the_derivative(r, q, factor, ctx.max_radius)
        gk = None if kappa_tensor is None else sum_to(kappa_tensor.shape, slope * q / (2 * kappa))
        return torch.addcmul(g * factor, v, kappa * slope), gk, None, None


def _twice_the_derivative(r: Tensor, q: Tensor, factor: Tensor, max_radius: float) -> Tensor:
    """2 F'(q): (cosh r - F)/q, or beyond the bound -F/q."""
    small = q < _SERIES_BELOW
    grown = torch.where(r <= max_radius, torch.cosh(r), 0.0)
    return torch.where(small, _series(q), (grown - factor) / torch.where(small, 1.0, q))


def _series(q: Tensor) -> Tensor:
    total = torch.full_like(q, _SLOPE[-1])
    for coefficient in reversed(_SLOPE[:-1]):
        total = total * q + coefficient
    return total
