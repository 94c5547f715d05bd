r"""The Lorentz residual of :math:`\exp_o z` and :math:`\exp_o g`, from the vectors straight to the point.

In polar coordinates nothing has to be measured twice: with radii :math:`a = \min(\sqrt\kappa |z|, R)`, b likewise,
directions u, v, and :math:`\omega = \tfrac12 |u - v|^2` (the law of cosines, :mod:`lresnet.geometry.distance`)

.. math:: \cosh d - 1 = D = 2 \sinh^2 \tfrac{a - b}2 + \sinh a \sinh b\, \omega, \qquad
    n^2 = (1 + w)^2 + 2 w D, \qquad \exp_o z \oplus_w \exp_o g = \frac{F_z z + w F_g g}n

with F of :mod:`lresnet.nn.bounded_exp`. Both passes take half the operations of exp, exp and the residual one after the
other, and no difference in them cancels for vectors that are near each other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import traced, weight_rows
from lresnet.geometry.curvature import Curvature, root
from lresnet.geometry.distance import dot
from lresnet.geometry.stack import sum_to
from lresnet.kernels import supports_pair, supports_rows
from lresnet.nn.bounded_exp import bounded_exp, bounded_radius, slope_of_factor
from lresnet.residual.lorentz import lorentz_residual, normaliser

__all__ = ["lorentz_join"]


def lorentz_join(z: Tensor, g: Tensor, weight: Tensor, kappa: Curvature, max_radius: float) -> Tensor:
    r""":math:`\exp_o z \oplus_w \exp_o g` of tangent vectors at the origin, in float32 or wider.

    Args:
        z, g: vectors, [..., n].
        weight: w; its absolute value is taken. One number, or one for each member of a stack.
        max_radius: in radii of curvature; longer vectors are shortened to it.

    Shapes:
        [..., n], [..., n] -> [..., n]

    Example:
        >>> z = torch.tensor([[0.5, 0.0]])
        >>> lorentz_join(z, -z, torch.tensor(1.0), 1.0, max_radius=10.0)
        tensor([[0., 0.]])
    """
    if traced() or z.shape != g.shape:
        return _plain(z, g, weight, kappa, max_radius)
    if supports_rows(z, kappa) and supports_rows(g, kappa) and g.device == z.device and _one_a_member(weight, z):
        from lresnet.kernels.join import fused_join

        return fused_join(z, g, weight, float(kappa), max_radius, _plain)
    if supports_pair(z, g, kappa, dim=-1):
        return _plain(z, g, weight, kappa, max_radius)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    w = weight_rows(weight, z, -1).abs()
    result: Tensor = _LorentzJoin.apply(z, g, w, kappa_tensor, kappa, max_radius)  # type: ignore[no-untyped-call]
    return result


def _plain(z: Tensor, g: Tensor, weight: Tensor, kappa: Curvature, max_radius: float) -> Tensor:
    """One after the other: what compilers, transforms and second derivatives take."""
    return lorentz_residual(bounded_exp(z, kappa, max_radius), bounded_exp(g, kappa, max_radius), weight, K=-kappa)


def _one_a_member(weight: Tensor, z: Tensor) -> bool:
    """Return whether the kernel supports this weight: one number, or one for each member of a stack."""
    members = z.shape[1:2] if z.dim() == 3 else None
    return weight.dtype == torch.float32 and weight.device == z.device and weight.shape in (torch.Size(()), members)


class _LorentzJoin(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, g: Tensor, w: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, max_radius: float
    ) -> Tensor:
        (r_z, a), (r_g, b) = (bounded_radius(v, kappa, max_radius) for v in (z, g))
        R_z, R_g = a.sinh(), b.sinh()
        F_z, F_g, k = R_z / r_z, R_g / r_g, root(kappa)
        apart = torch.div(z, r_z / k).sub_(g / (r_g / k))  # each rounded once, so that equal ones are 0 apart
        omega = 0.5 * dot(apart, apart, -1)
        D = 2 * (0.5 * (a - b)).sinh().square() + R_z * R_g * omega
        n = normaliser(1.0, w, D)
        ctx.kappa, ctx.max_radius = None if kappa_tensor is not None else kappa, max_radius
        ctx.save_for_backward(z, g, w, kappa_tensor, apart, omega, D, n, r_z, r_g, a, b, R_z, R_g, F_z, F_g)
        return torch.addcmul(z * (F_z / n), g, w * F_g / n)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        r"""With :math:`h = \sqrt\kappa\, G \cdot (x + w y)\, w / n^3`, :math:`H = 2 F'` and
        :math:`D_a = \sinh(a - b) + \cosh a \sinh b\, \omega` (0 beyond the bound, as cosh a there in H):

        .. math:: \partial z &= \tfrac{F_z}n G + \tfrac{\kappa H_z}n (G \cdot z)\, z
            + h\, [(F_z \sinh b\, \omega - D_a)\, u - F_z \sinh b\, (u - v)] \\
            \partial w &= -\tfrac1n [G \cdot (x - y)\, (1 + w + w D) + (1 - w) D\, G \cdot x]/n^2

        and for g with the roles changed. kappa enters through the radii, of degree 1/2, and the result's own unit.
        """
        z, g, w, kappa_tensor, apart, omega, D, n, r_z, r_g, a, b, R_z, R_g, F_z, F_g = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():
            return *_second_order(ctx, G, z, g, w, kappa_tensor), None, None
        k, R = root(kappa), ctx.max_radius
        beyond_z, beyond_g, to_u, to_v = r_z > R, r_g > R, k / r_z, k / r_g
        T_z, T_g = a.cosh().masked_fill_(beyond_z, 0.0), b.cosh().masked_fill_(beyond_g, 0.0)
        Gz, Gg = dot(G, z, -1), dot(G, g, -1)
        # Divided by n again and again: n^3 may leave the range of float32 where its factors do not.
        share = k * (F_z * Gz + w * F_g * Gg) / n / n
        h = share * w / n
        sinh = (a - b).sinh()
        D_a = T_z * R_g * omega + sinh.masked_fill(beyond_z, 0.0)
        D_b = T_g * R_z * omega - sinh.masked_fill(beyond_g, 0.0)
        to_z = kappa * slope_of_factor(r_z, F_z, T_z) * Gz / n + h * (F_z * R_g * omega - D_a) * to_u
        to_g = kappa * slope_of_factor(r_g, F_g, T_g) * (w * Gg / n) + h * (F_g * R_z * omega - D_b) * to_v
        gz = torch.mul(G, F_z / n).addcmul_(z, to_z).addcmul_(apart, -h * F_z * R_g)
        gg = torch.mul(G, w * F_g / n).addcmul_(g, to_g).addcmul_(apart, h * F_g * R_z)
        gw = gk = None
        if ctx.needs_input_grad[2]:
            # G (x - y) by the difference of the directions: equal vectors have none.
            along = R_z * Gz * to_u
            e = ((R_z - R_g) * Gz * to_u + R_g * dot(G, apart, -1)) / k
            ratio = D / n / n
            gw = (-(e * ((1 + w) / n / n + w * ratio) + (1 - w) * ratio * along / k) / n).sum_to_size(w.shape)
        if kappa_tensor is not None:
            by_a = (T_z * Gz * to_u / n - h * D_a) * a
            by_b = (T_g * w * Gg * to_v / n - h * D_b) * b
            gk = sum_to(kappa_tensor.shape, (by_a + by_b - share * n) / (2 * k * kappa))
        return gz, gg, gw, gk, None, None


def _second_order(
    ctx: Any, G: Tensor, z: Tensor, g: Tensor, w: Tensor, kappa: Tensor | None
) -> tuple[Tensor | None, ...]:
    """A second derivative is wanted: let autograd do both. Aliases, so that derivatives stop here."""
    inputs = [t if t is None else t.view_as(t) for t in (z, g, w, kappa)]
    own = ctx.kappa if inputs[3] is None else inputs[3]
    y = _plain(inputs[0], inputs[1], inputs[2], own, ctx.max_radius)  # type: ignore[arg-type]
    wanted = [i for i in range(4) if ctx.needs_input_grad[i]]
    found = torch.autograd.grad(y, [inputs[i] for i in wanted], G, create_graph=True)  # type: ignore[arg-type]
    grads = dict(zip(wanted, found, strict=True))
    return tuple(grads.get(i) for i in range(4))
