r"""Weighted Lorentzian centroid of N points: :math:`S / (\sqrt\kappa |S|)`, :math:`S = \sum_i w_i x_i`.

Two passes, O(N n), no cancellation. With :math:`u = s/|s|` the direction of the space part of the sum,
:math:`p_i = x_i \cdot u` and :math:`q_i = |x_i - p_i u|^2`,

.. math:: n^2 = \kappa |\langle S, S\rangle| = \kappa \Big(\sum_i w_i (t_i - p_i)\Big)\Big(\sum_i w_i (t_i + p_i)\Big),
   \qquad t_i - p_i = \frac{q_i + 1/\kappa}{t_i + p_i} \text{ for } p_i > 0 .

The gradient is a closed form in differences to the centroid c (``_gradients``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import forward_mode
from lresnet.geometry.curvature import Curvature
from lresnet.geometry.distance import dot, time_of, unit
from lresnet.geometry.smooth import with_derivatives_of

__all__ = ["centroid"]


def centroid(x: Tensor, weight: Tensor, kappa: Curvature) -> Tensor:
    """Return the centroid over axis -2.

    Args:
        x: Points, [..., N, n], float32 or float64.
        weight: Non-negative weights, [..., N, 1]. If all N weights are 0, or N is 0, the result is the origin.
        kappa: A float or a tensor that broadcasts to [..., 1, 1].
    """
    if x.shape[-2] == 0:
        return x.sum(-2)
    if forward_mode():
        return _plain(x, weight, kappa).squeeze(-2)
    result: Tensor = _Centroid.apply(x, weight, kappa)[0]  # type: ignore[no-untyped-call]
    return result.squeeze(-2)


class _Centroid(torch.autograd.Function):
    """(x, weight, kappa) -> (c, c in float64, norm n of the sum); the last two are for the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, kappa: Curvature) -> tuple[Tensor, Tensor, Tensor]:
        dtype = x.dtype
        x, weight, kappa = _wide(x, weight, kappa)
        # Only the ratios of the weights matter: with the largest at 1 no square overflows or underflows.
        largest, index = weight.max(-2, keepdim=True)
        share = weight / torch.where(largest > 0, largest, 1.0)
        s = (share * x).sum(-2, keepdim=True)
        n = _normaliser(x, share, kappa, s)
        # If all points of positive weight are equal, the centroid is exactly that point.
        heaviest = x.gather(-2, index.expand_as(s))
        single = ((x == heaviest) | (weight == 0)).all(-1, keepdim=True).all(-2, keepdim=True) & (n > 0)
        c = torch.where(single, heaviest, s / torch.where(n > 0, n, 1.0))
        return c.to(dtype, copy=True), c, largest * n

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, weight, kappa = inputs
        _, c, n = output
        ctx.mark_non_differentiable(c, n)
        ctx.set_materialize_grads(False)
        ctx.kappa = None if isinstance(kappa, Tensor) else kappa
        ctx.save_for_backward(x, weight, c, n, *([kappa] if ctx.kappa is None else []))

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None
        narrow_x, narrow_weight, c, n, *rest = ctx.saved_tensors
        narrow_kappa = rest[0] if ctx.kappa is None else ctx.kappa
        x, weight, kappa = _wide(narrow_x, narrow_weight, narrow_kappa)
        if torch.is_grad_enabled():  # for second derivatives n and c must depend on the inputs
            c, n = _differentiable(x, weight, kappa, n)
        gx, gw, gk = _gradients(g.double(), x, weight, kappa, c, n)
        return (
            gx.to(narrow_x.dtype),
            gw.sum_to_size(weight.shape).to(narrow_weight.dtype),
            gk.sum_to_size(kappa.shape).to(narrow_kappa.dtype) if isinstance(kappa, Tensor) else None,
        )


def _wide(x: Tensor, weight: Tensor, kappa: Curvature) -> tuple[Tensor, Tensor, Curvature]:
    """Return the arguments in float64, in which sums over N points are computed.

    In float32 the centroid of points of mixed norms would be inaccurate. The gradients of the weights and of the
    curvature, which are differences of nearly equal numbers for near points, would have no correct digit.
    """
    return x.double(), weight.double(), kappa.double() if isinstance(kappa, Tensor) else kappa


def _normaliser(x: Tensor, weight: Tensor, kappa: Curvature, s: Tensor) -> Tensor:
    """Return ``sqrt(kappa) |S|``, the root of a product of two sums of non-negative terms."""
    u, _ = unit(s, -1)
    p = dot(x, u, -1)
    t = time_of(x, kappa, -1)
    far = t + p.abs()
    near = ((x - p * u).square().sum(-1, keepdim=True) + 1 / kappa) / far
    minus = (weight * torch.where(p > 0, near, far)).sum(-2, keepdim=True)
    plus = (weight * torch.where(p > 0, far, near)).sum(-2, keepdim=True)
    return (kappa * minus * plus).sqrt()


def _plain(x: Tensor, weight: Tensor, kappa: Curvature) -> Tensor:
    """Return the centroid, axis -2 kept, by operations that torch differentiates in any order, forward and reverse."""
    value, _, n = _Centroid.forward(x, weight, kappa)
    c, _ = _differentiable(*_wide(x, weight, kappa), n.detach())
    return with_derivatives_of(value, torch.where(n > 0, c, 0.0).to(x.dtype))


def _differentiable(x: Tensor, weight: Tensor, kappa: Curvature, n: Tensor) -> tuple[Tensor, Tensor]:
    """Return c and n as functions that autograd can differentiate again: ``n`` times the root of a ratio that is 1."""
    share = weight / torch.where(n > 0, n, 1.0)
    s = (share * x).sum(-2, keepdim=True)
    s_t = (share * time_of(x, kappa, -1)).sum(-2, keepdim=True)
    ratio = with_derivatives_of(torch.ones_like(n), kappa * (s_t.square() - dot(s, s, -1))).sqrt()
    return s / ratio, n * ratio


def _gradients(
    g: Tensor, x: Tensor, weight: Tensor, kappa: Curvature, c: Tensor, n: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the gradients of x, weight and kappa.

    With :math:`d_i = x_i - c`, :math:`\tau_i = t_i - c_t`, :math:`D_i = \cosh d(x_i, c) - 1`:

    .. math:: \partial x_i &= \tfrac{w_i}{n} [g - \kappa (g \cdot c) (d_i - \tfrac{\tau_i}{t_i} x_i)] \\
        \partial w_i &= \tfrac1n [g \cdot d_i - (g \cdot c) D_i] \\
        \partial \kappa &= -\tfrac{g \cdot c}{2 \kappa n} \sum_i w_i (D_i + \tau_i / t_i)
    """
    inverse = torch.where(n > 0, 1.0, 0.0) / torch.where(n > 0, n, 1.0)
    t, c_t = time_of(x, kappa, -1), time_of(c, kappa, -1)
    d = x - c
    tau = dot(d, x + c, -1) / (t + c_t)
    D = 0.5 * kappa * (dot(d, d, -1) - tau.square()).clamp(min=0.0)
    along = dot(g, c, -1)
    gx = weight * inverse * (g - kappa * along * (d - tau / t * x))
    gw = inverse * (dot(g, d, -1) - along * D)
    gk = -0.5 * along * inverse / kappa * (weight * (D + tau / t)).sum(-2, keepdim=True)
    return gx, gw, gk
