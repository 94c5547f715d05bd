"""Join of two branches of a network: any residual connection with a weight between 0 and 1."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import traced, weight_rows
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import dot
from lresnet.geometry.stack import sum_to
from lresnet.geometry.state import is_sharded, number
from lresnet.kernels import supports_pair, supports_rows
from lresnet.nn.input_map import MAX_RADIUS, bounded_exp, bounded_radius, factor_slope
from lresnet.residual import METHODS, LorentzResidual, make_residual
from lresnet.residual.base import FixedNumbers, require_learned, require_positive_number
from lresnet.residual.lorentz import lorentz_residual, normaliser

__all__ = ["WeightedJoin", "lorentz_join"]


class WeightedJoin(ManifoldModule, FixedNumbers):
    r"""Residual connection of two branches with weights :math:`1 - \alpha` and :math:`\alpha` (LResNet, section 5.2).

    .. math:: (1 - \alpha) \exp_o z \oplus \alpha \exp_o g \quad\text{(lorentz, space)}, \qquad
        \exp_o((1 - \alpha) z) \oplus \exp_o(\alpha g) \quad\text{(parallel transport, tangent)}

    :meth:`of_vectors` takes the tangent vectors z and g at the origin, without their time coordinate, which is 0. A
    call of the module takes points, which replace exp z and exp g. For ``"euclidean"`` both give
    :math:`(1 - \alpha) z + \alpha g`. For ``"none"`` both give the second branch alone, without a weight.

    The parameter is the ratio :math:`w = \alpha/(1 - \alpha)`, the weight of the Lorentz residual. Its absolute value
    is used, so that alpha stays between 0 and 1. Weight decay does not touch it.

    Args:
        kind: A name of :data:`lresnet.residual.METHODS`.
        manifold: Owner of the curvature. It is not registered as a submodule.
        weight: alpha, above 0 and below 1.
        learn_weight: Train alpha. Without effect for ``"none"``.
        max_radius: Length to which longer tangent vectors are shortened, in radii of curvature.
        options: Options of the residual. Every kind but ``"none"`` also has ``scale`` and ``initial_scale``, those of
            :class:`~lresnet.LorentzResidual`: a factor of the result. With ``scale="1+w"`` the limit for curvature 0,
            :math:`(1 - \alpha) x + \alpha y`, is divided by :math:`1 - \alpha`, which gives the sum x + w y.

    Shapes:
        [..., n], [..., n] -> [..., n]

    Example:
        >>> join = WeightedJoin("lorentz", Lorentz(-1.0), weight=0.8)
        >>> join.of_vectors(torch.randn(5, 4), torch.randn(5, 4)).shape
        torch.Size([5, 4])
    """

    learned_numbers = ("raw_weight", "log_scale")
    scale_is_sum = False
    """Whether a scale of 1 + w is applied here; the Lorentz residual applies its own."""

    def __init__(
        self,
        kind: str,
        manifold: Lorentz,
        weight: float = 0.5,
        *,
        learn_weight: bool = False,
        max_radius: float = MAX_RADIUS,
        **options: Any,
    ) -> None:
        super().__init__(manifold)
        if not 0 < weight < 1:
            raise ValueError(f"the weight of a branch must be above 0 and below 1, got {weight}")
        self.kind, self.max_radius = kind, max_radius
        ratio = weight / (1 - weight)
        self._branch_weights = METHODS[kind].branch_weights if kind in METHODS else "vectors"
        if self._branch_weights in ("coordinates", "vectors"):
            self._set_scale(options.pop("scale", None), options.pop("initial_scale", 1.0))
        if self._branch_weights == "own":
            options |= {"weight": "learned", "initial_weight": ratio} if learn_weight else {"weight": ratio}
        elif learn_weight and self._branch_weights != "unused":
            self.raw_weight = torch.nn.Parameter(torch.tensor([ratio]))
        else:
            self.fix("raw_weight", ratio)
        self.residual = make_residual(kind, manifold, **options)

    @property
    def weight(self) -> Tensor:
        """alpha; in a stack one for each member."""
        owner = self.residual if self._branch_weights == "own" else self
        ratio = number(owner.raw_weight).abs()  # type: ignore[arg-type]
        return ratio / (1 + ratio)

    def _set_scale(self, scale: str | float | None, initial_scale: float) -> None:
        """Register the scale of a residual that has none of its own."""
        if isinstance(scale, str) and scale.replace(" ", "") == "1+w":
            self.scale_is_sum = True
        elif isinstance(scale, str):
            require_learned("scale", scale, "'1+w'")
            start = math.log(require_positive_number("initial_scale", initial_scale))
            self.log_scale = torch.nn.Parameter(torch.tensor([start]))
        elif scale is not None:
            self.fix("log_scale", math.log(require_positive_number("scale", scale)))

    def _scaled(self, points: Tensor) -> Tensor:
        if self.scale_is_sum:
            gamma = 1 + number(self.raw_weight).abs()
        elif getattr(self, "log_scale", None) is not None:
            gamma = number(self.log_scale).exp()
        else:
            return points
        return points * gamma.to(points.dtype).unsqueeze(-1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Join points, or vectors for ``"euclidean"``."""
        return self._scaled(self._join(x, y))

    def _join(self, x: Tensor, y: Tensor) -> Tensor:
        if self._branch_weights == "vectors":
            z, g = self._weigh(self.manifold.logmap0(x), self.manifold.logmap0(y))
            return self.residual(self.manifold.expmap0(z), self.manifold.expmap0(g))  # type: ignore[no-any-return]
        if self._branch_weights == "coordinates":
            dtype = torch.promote_types(x.dtype, y.dtype)  # they differ under autocast
            x, y = x.to(dtype), y.to(dtype)
            return torch.lerp(x, y, self._alpha(x))  # (1 - alpha) x + alpha y, one tensor instead of three
        return self.residual(x, y)  # type: ignore[no-any-return]

    def of_vectors(self, z: Tensor, g: Tensor) -> Tensor:
        """Join tangent vectors at the origin and return a point."""
        if self._branch_weights == "vectors":
            z, g = self._weigh(z, g)
            return self._scaled(self.residual(self._exp(z), self._exp(g)))
        if isinstance(self.residual, LorentzResidual) and not self.residual.has_scale:
            wide = torch.promote_types(z.dtype, torch.float32)
            kappa = kappa_of(self.manifold.curvature, wide)
            return lorentz_join(z.to(wide), g.to(wide), self.residual.signed_weight, kappa, self.max_radius).to(z.dtype)
        return self(z, g) if self.kind == "euclidean" else self(self._exp(z), self._exp(g))  # type: ignore[no-any-return]

    def _weigh(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        alpha = self._alpha(x)
        return (1 - alpha) * x, alpha * y

    def _alpha(self, x: Tensor) -> Tensor:
        return self.weight.to(x.dtype).unsqueeze(-1)

    def _exp(self, z: Tensor) -> Tensor:
        wide = z.to(torch.promote_types(z.dtype, torch.float32))
        return bounded_exp(wide, kappa_of(self.manifold.curvature, wide.dtype), self.max_radius).to(z.dtype)

    def extra_repr(self) -> str:
        owner = self.residual if self._branch_weights == "own" else self
        if is_sharded(owner.raw_weight):  # type: ignore[arg-type]
            return f"weights=(?, ?), {super().extra_repr()}"
        alpha = float(self.weight.detach())
        return f"weights=({1 - alpha:.3g}, {alpha:.3g}), {super().extra_repr()}"


# --- The Lorentz residual of two exponentials -------------------------------------------------------------------------


def lorentz_join(z: Tensor, g: Tensor, weight: Tensor, kappa: Curvature, max_radius: float) -> Tensor:
    r"""Return :math:`\exp_o z \oplus_w \exp_o g` of tangent vectors at the origin, in float32 or wider.

    With the radii :math:`a = \min(\sqrt\kappa |z|, R)` and b of g, the directions u and v, and
    :math:`\omega = \tfrac12 |u - v|^2` (the law of cosines, :mod:`lresnet.geometry.distance`),

    .. math:: \cosh d - 1 = D = 2 \sinh^2 \tfrac{a - b}2 + \sinh a \sinh b\, \omega, \qquad
        n^2 = (1 + w)^2 + 2 w D, \qquad \exp_o z \oplus_w \exp_o g = \frac{F_z z + w F_g g}n

    where F is that of :mod:`lresnet.nn.input_map`. Both passes take half the operations of two exponentials followed by
    the residual, and no difference in them cancels for vectors that are near each other.

    Args:
        z: Vectors of the first branch, [..., n].
        g: Vectors of the second branch, [..., n].
        weight: w, whose absolute value is used. One number, or one for each member of a stack.
        kappa: -K > 0.
        max_radius: R, the length to which longer vectors are shortened, in radii of curvature.

    Shapes:
        [..., n], [..., n] -> [..., n]

    Example:
        >>> z = torch.tensor([[0.5, 0.0]])
        >>> lorentz_join(z, -z, torch.tensor(1.0), 1.0, max_radius=10.0)
        tensor([[0., 0.]])
    """
    if traced() or z.shape != g.shape:
        return _plain_join(z, g, weight, kappa, max_radius)
    if supports_rows(z, kappa) and supports_rows(g, kappa) and g.device == z.device and _is_per_member(weight, z):
        from lresnet.kernels.join import fused_join

        return fused_join(z, g, weight, float(kappa), max_radius, _plain_join)
    if supports_pair(z, g, kappa, dim=-1):
        return _plain_join(z, g, weight, kappa, max_radius)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    w = weight_rows(weight, z, -1).abs()
    result: Tensor = _LorentzJoin.apply(z, g, w, kappa_tensor, kappa, max_radius)  # type: ignore[no-untyped-call]
    return result


def _plain_join(z: Tensor, g: Tensor, weight: Tensor, kappa: Curvature, max_radius: float) -> Tensor:
    """Return the residual of two exponentials in three steps, for compilers, transforms and second derivatives."""
    return lorentz_residual(bounded_exp(z, kappa, max_radius), bounded_exp(g, kappa, max_radius), weight, K=-kappa)


def _is_per_member(weight: Tensor, z: Tensor) -> bool:
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
        apart = torch.div(z, r_z / k).sub_(g / (r_g / k))  # u - v; each is rounded once, so equal vectors give 0
        omega = 0.5 * dot(apart, apart, -1)
        D = 2 * (0.5 * (a - b)).sinh().square() + R_z * R_g * omega
        n = normaliser(1.0, w, D)
        ctx.kappa, ctx.max_radius = None if kappa_tensor is not None else kappa, max_radius
        ctx.save_for_backward(z, g, w, kappa_tensor, apart, omega, D, n, r_z, r_g, a, b, R_z, R_g, F_z, F_g)
        return torch.addcmul(z * (F_z / n), g, w * F_g / n)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        r"""With :math:`h = \sqrt\kappa\, G \cdot (x + w y)\, w / n^3`, :math:`H = 2 F'` and
        :math:`D_a = \sinh(a - b) + \cosh a \sinh b\, \omega` (beyond the bound D_a is 0, as is cosh a in H):

        .. math:: \partial z &= \tfrac{F_z}n G + \tfrac{\kappa H_z}n (G \cdot z)\, z
            + h\, [(F_z \sinh b\, \omega - D_a)\, u - F_z \sinh b\, (u - v)] \\
            \partial w &= -\tfrac1n [G \cdot (x - y)\, (1 + w + w D) + (1 - w) D\, G \cdot x]/n^2

        The gradient of g is that of z with the roles exchanged. kappa enters through the radii, which have degree 1/2
        in it, and through the unit of the result.
        """
        z, g, w, kappa_tensor, apart, omega, D, n, r_z, r_g, a, b, R_z, R_g, F_z, F_g = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():
            return *_second_order(ctx, G, z, g, w, kappa_tensor), None, None
        k, R = root(kappa), ctx.max_radius
        beyond_z, beyond_g, to_u, to_v = r_z > R, r_g > R, k / r_z, k / r_g
        T_z, T_g = a.cosh().masked_fill_(beyond_z, 0.0), b.cosh().masked_fill_(beyond_g, 0.0)
        Gz, Gg = dot(G, z, -1), dot(G, g, -1)
        # Divide by n repeatedly: n^3 may leave the range of float32 where the factors do not.
        share = k * (F_z * Gz + w * F_g * Gg) / n / n
        h = share * w / n
        sinh = (a - b).sinh()
        D_a = T_z * R_g * omega + sinh.masked_fill(beyond_z, 0.0)
        D_b = T_g * R_z * omega - sinh.masked_fill(beyond_g, 0.0)
        to_z = kappa * factor_slope(r_z, F_z, T_z) * Gz / n + h * (F_z * R_g * omega - D_a) * to_u
        to_g = kappa * factor_slope(r_g, F_g, T_g) * (w * Gg / n) + h * (F_g * R_z * omega - D_b) * to_v
        gz = torch.mul(G, F_z / n).addcmul_(z, to_z).addcmul_(apart, -h * F_z * R_g)
        gg = torch.mul(G, w * F_g / n).addcmul_(g, to_g).addcmul_(apart, h * F_g * R_z)
        gw = gk = None
        if ctx.needs_input_grad[2]:
            # Compute G . (x - y) from the difference of the directions: it is exactly 0 for equal vectors.
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
    """Return differentiable gradients, computed by autograd with respect to aliases, so that they stop here."""
    inputs = [t if t is None else t.view_as(t) for t in (z, g, w, kappa)]
    own = ctx.kappa if inputs[3] is None else inputs[3]
    y = _plain_join(inputs[0], inputs[1], inputs[2], own, ctx.max_radius)  # type: ignore[arg-type]
    wanted = [i for i in range(4) if ctx.needs_input_grad[i]]
    found = torch.autograd.grad(y, [inputs[i] for i in wanted], G, create_graph=True)  # type: ignore[arg-type]
    grads = dict(zip(wanted, found, strict=True))
    return tuple(grads.get(i) for i in range(4))
