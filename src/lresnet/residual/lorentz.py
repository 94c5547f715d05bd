r"""The Lorentzian residual connection (He, Yang, Ying: KDD 2025), accurate to the last digit.

.. math:: x \oplus y = \gamma \frac{x + w y}{n}, \qquad
   n^2 = \kappa |\langle x + w y, x + w y \rangle| = (1 + w)^2 + 2 w (\cosh d(x, y) - 1)

on space coordinates, with w_x = 1 as in the paper and w = |w_y|. All summands of n^2 are non-negative, so
:math:`n \ge 1 + w` holds in floating point too, with equality for x = y: there is no clamp and no eps.
The backward pass is a closed form in difference vectors (``_gradients``), not autograd through norms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.centroid import centroid
from lresnet.geometry.checks import (
    checked_points,
    checks_values,
    forward_mode,
    on_host,
    overflowed,
    require_finite,
    require_positive,
    stored,
    traced,
    weight_rows,
)
from lresnet.geometry.curvature import Curvature, kappa_among, kappa_of, root
from lresnet.geometry.distance import Pair, dot, measure, reusable, separation, unitless_time
from lresnet.geometry.smooth import with_derivatives_of
from lresnet.geometry.state import number
from lresnet.kernels import supports_pair
from lresnet.kernels.formulas import register_formula
from lresnet.residual.base import WeightedResidual, require_learned, require_positive_number

__all__ = ["LorentzResidual", "lorentz_residual", "lorentz_residual_many", "normaliser", "residual_value"]

Weight = float | Tensor

_SUM = "1+w"
"""The scale with which the residual is a sum in flat space."""


def lorentz_residual(
    x: Tensor,
    y: Tensor,
    weight: Weight = 1.0,
    scale: Weight | None = None,
    *,
    K: Curvature = -1.0,
    dim: int = -1,
) -> Tensor:
    r"""Return the Lorentzian residual of the skip branch x and the layer output y, in space coordinates.

    Args:
        x, y: Points; axis ``dim`` holds the n space coordinates. They broadcast against each other.
        weight: w_y; its absolute value is used, as in the paper. One number, or one weight per point (the shape of the
            points without ``dim``). A weight per coordinate is an error: the result would not be a centroid.
        scale: gamma > 0, moves the result along the geodesic through the origin; one number or one per point.
        K: Curvature, a negative float or tensor (gradients flow into a tensor). Several curvatures broadcast against
            the points, with size 1 on the axis ``dim``.
        dim: The coordinate axis; 1 for images [B, C, H, W].

    Returns:
        The residual in the dtype of the inputs; half precision is computed in float32.

    Example:
        >>> lorentz_residual(torch.tensor([2.0, -2.0]), torch.tensor([2.0, 2.0]))
        tensor([0.8944, 0.0000])
    """
    require_finite(weight)
    if supports_pair(x, y, K, dim=dim):
        from lresnet.kernels.residual import fused_residual

        return fused_residual("lorentz", x, y, weight, scale, kappa_of(K, torch.float32), dim)
    return _by_formula(x, y, weight, scale, K, dim)


def _by_formula(x: Tensor, y: Tensor, weight: Weight, scale: Weight | None, K: Curvature, dim: int) -> Tensor:
    """Return the residual by torch operations."""
    points, dtype = checked_points(x, y, dim=dim)
    (x, y), kappa = kappa_among(points, K, dim)
    w = weight_rows(weight, x, dim).abs()
    gamma = None if scale is None else _scale_rows(scale, x, dim)
    if forward_mode():
        return _plain(x, y, w, gamma, kappa, dim).to(dtype)
    function = _LorentzResidual if traced() else _EagerLorentzResidual
    z, n, *_ = function.apply(x, y, w, gamma, kappa, dim)  # type: ignore[no-untyped-call]
    if overflowed(n):  # norms above 1.8e19, or products of a large weight
        wide = (t.double() if isinstance(t, Tensor) else t for t in (x, y, w, gamma, kappa))
        z = function.apply(*wide, dim)[0]  # type: ignore[no-untyped-call]
    result: Tensor = z.to(dtype)
    return result


@register_formula("lorentz", weighted=True)
def _formula(x: Tensor, y: Tensor, weight: Weight, scale: Tensor | None, K: Tensor, dim: int) -> Tensor:
    return lorentz_residual(x, y, weight, scale, K=K, dim=dim)


def lorentz_residual_many(
    xs: Sequence[Tensor],
    weights: Sequence[Weight],
    scale: Weight | None = None,
    *,
    K: Curvature = -1.0,
    dim: int = -1,
) -> Tensor:
    r"""Return the Lorentzian residual of several branches with one normalisation: :math:`\gamma \sum_i w_i x_i / n`.

    Args:
        xs: The branches, each as ``x`` of :func:`lorentz_residual`.
        weights: One weight (a number or one per point) for each branch; absolute values are used.
        scale, K, dim: As for :func:`lorentz_residual`.

    Example:
        >>> x = torch.tensor([2.0, -2.0])
        >>> lorentz_residual_many([x, x, x], [1.0, 0.5, 0.25])
        tensor([ 2., -2.])
    """
    if len(xs) == 0 or len(xs) != len(weights):
        raise ValueError(
            f"xs needs at least one branch and weights one weight for each branch; got {len(xs)} branches and "
            f"{len(weights)} weights"
        )
    for i, weight in enumerate(weights):
        require_finite(weight, f"weights[{i}]")
    points, dtype = checked_points(*xs, dim=dim, names=[f"xs[{i}]" for i in range(len(xs))])
    points, kappa = kappa_among(points, K, dim)
    rows = [weight_rows(w, points[0], dim, f"weights[{i}]").abs() for i, w in enumerate(weights)]
    last = [point.movedim(dim, -1) for point in points]
    stacked = torch.stack([_last(row, dim).expand(*last[0].shape[:-1], 1) for row in rows], dim=-2)
    if isinstance(kappa, Tensor) and kappa.dim() > 0:  # several curvatures: add the axis of the stacked branches
        kappa = _last(kappa[(None,) * (points[0].dim() - kappa.dim())], dim).unsqueeze(-2)
    z = centroid(torch.stack(last, dim=-2), stacked, kappa).movedim(-1, dim)
    return (z if scale is None else z * _scale_rows(scale, z, dim)).to(dtype)


class LorentzResidual(WeightedResidual):
    r"""Lorentzian residual connection, :math:`\gamma (x + |w| y)/n` (:func:`lresnet.functional.lorentz_residual`).

    Args:
        manifold: Owner of the curvature; it is referenced, not registered as a submodule.
        weight: ``"learned"`` (one parameter), a number, or a tensor with one weight per point; a Parameter is trained.
        scale: gamma: None, a positive number, ``"learned"`` (its logarithm is the parameter, so it stays positive), or
            ``"1+w"``: gamma = 1 + \|w\|, which follows a learned weight. For curvature 0 the residual is then the sum
            x + \|w\| y; without a scale it is the average (x + \|w\| y)/(1 + \|w\|).
        dim: The coordinate axis; 1 for images.
        initial_weight, initial_scale: Initial values of learned weight and scale.
        factory: ``device`` and ``dtype`` of weight and scale.

    Shapes:
        x, y: [..., n] (coordinates along ``dim``) -> the same.

    Example:
        >>> residual = LorentzResidual(Lorentz(-1.0), scale=2.0)
        >>> residual(torch.randn(4, 8), torch.randn(4, 8)).shape
        torch.Size([4, 8])
    """

    learned_numbers = ("raw_weight", "log_scale")
    log_scale: Tensor | None
    fixed_scale: Tensor | None
    follows_weight = False
    """Whether the scale is 1 + w."""
    joined_by_compiler = False
    """Whether compiled code computes the formula, which the compiler joins with the operations around it and need not
    store the result of, instead of calling the kernel. Alone it takes as long as the kernel up to 2,048 coordinates."""
    recomputed_by_compiler = False
    """Whether compiled code computes the result again in the backward pass, from x and y, which the residual stores
    anyway. In a chain of residuals every second one may have it: a chain of results that are all computed again is
    computed from its beginning, and then stored as a whole."""

    def __init__(
        self,
        manifold: Lorentz,
        weight: str | float | Tensor = "learned",
        scale: str | float | None = None,
        dim: int = -1,
        *,
        initial_weight: float = 1.0,
        initial_scale: float = 1.0,
        **factory: Any,
    ) -> None:
        super().__init__(manifold, weight, dim, initial_weight=initial_weight, **factory)
        if isinstance(scale, str) and scale.replace(" ", "") == _SUM:
            self.follows_weight = True
            self.register_buffer("log_scale", None)
        elif isinstance(scale, str):
            require_learned("scale", scale, f"{_SUM!r}")
            start = math.log(require_positive_number("initial_scale", initial_scale))
            self.log_scale = torch.nn.Parameter(torch.tensor([start], **factory))
        elif scale is None:
            self.register_buffer("log_scale", None)
        else:
            # Saved as its logarithm, like a learned scale; exp(log(scale)) would differ from scale by rounding.
            self.fix("log_scale", math.log(require_positive_number("scale", scale)), **factory)
            self.fix("fixed_scale", float(scale), persistent=False, **factory)

    @property
    def scale(self) -> Tensor | None:
        """The effective gamma > 0, or None; with ``"1+w"`` it has the shape of the weight."""
        if self.follows_weight:
            return _sum_scale(self.signed_weight)
        if "fixed_scale" in self._buffers:
            return self.fixed_scale
        return None if self.log_scale is None else number(self.log_scale).exp()

    @property
    def has_scale(self) -> bool:
        """Whether there is a scale."""
        return self.follows_weight or self.log_scale is not None

    def weight_and_scale(self) -> tuple[Tensor, Tensor | None]:
        """Return the signed weight and the scale."""
        weight = self.signed_weight  # read once: reading a sharded parameter communicates
        return weight, _sum_scale(weight) if self.follows_weight else self.scale

    def restore(self) -> None:
        super().restore()
        if "fixed_scale" in self._buffers:
            same = self.holds("log_scale")  # otherwise it was loaded
            log = self.get_buffer("log_scale")
            self.fixed_scale = torch.full_like(log, self._numbers["fixed_scale"]) if same else log.exp()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        weight, scale = self.weight_and_scale()
        if self.joined_by_compiler and torch.compiler.is_compiling():
            if self.recomputed_by_compiler:
                x = x.expand(x.shape)  # the partitioner of torch.compile stores what is computed from x, not from views
            return _by_formula(x, y, weight, scale, self.manifold.curvature, self.dim)
        return lorentz_residual(x, y, weight, scale, K=self.manifold.curvature, dim=self.dim)

    def kernel(self) -> dict[str, Any] | None:
        weight, scale = self.weight_and_scale()
        return {"kind": "lorentz", "weight": weight, "scale": scale, "kappa": -self.manifold.curvature}

    def extra_repr(self) -> str:
        if self.follows_weight:
            kind = _SUM
        elif isinstance(self.log_scale, torch.nn.Parameter):
            kind = "learned"
        else:
            kind = "None" if self.scale is None else f"{float(self.scale):g}"
        return f"{super().extra_repr()}, scale={kind}"


def normaliser(w_x: Weight, w_y: Weight, D: Tensor) -> Tensor:
    """Return ``n = sqrt((w_x + w_y)^2 + 2 w_x w_y (cosh d - 1))``, in floating point never below ``w_x + w_y``.

    It is computed as ``w_x + w_y`` plus a quotient of non-negative numbers. Vectorised square roots are not correctly
    rounded everywhere: the root of the square of a float may be one unit in the last place too small.
    """
    total = w_x + w_y
    excess = 2 * w_x * w_y * D
    return total + excess / (total + (total * total + excess).sqrt())


class _LorentzResidual(torch.autograd.Function):
    """(x, y, w, gamma, kappa, dim) -> (z, n, *pair); all but z are scalars per pair for the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, y: Tensor, w: Tensor, gamma: Tensor | None, kappa: Curvature, dim: int
    ) -> tuple[Tensor, ...]:
        pair = measure(x, y, kappa, dim)
        n = length = normaliser(1.0, w, pair.separation)
        weight = w
        equal = None if _is_one(w) else _equal_points(x, y, pair, dim)
        if equal is not None:
            # For equal points the result is x; (x + w x)/(1 + w) would round it, except at w = 1.
            # w == w: a NaN weight must give NaN.
            equal = equal & (w != 1) & (w == w)
            weight, length = torch.where(equal, 0.0, w), torch.where(equal, 1.0, n)
        s = torch.addcmul(x, y, weight)
        out = reusable(s)
        z = torch.div(s, length, out=out) if gamma is None else torch.mul(s, gamma / length, out=out)
        return z, n, *pair

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, y, w, gamma, kappa, ctx.dim = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.kappa = None if isinstance(kappa, Tensor) else kappa
        ctx.has_scale = gamma is not None
        optional = ([gamma] if ctx.has_scale else []) + ([kappa] if ctx.kappa is None else [])
        ctx.save_for_backward(x, y, w, *output[1:], *optional)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * 6
        x, y, w, n, *rest = ctx.saved_tensors
        pair, optional = Pair(*rest[:4]), list(rest[4:])
        gamma = optional.pop(0) if ctx.has_scale else None
        kappa = optional.pop(0) if ctx.kappa is None else ctx.kappa
        if torch.is_grad_enabled():  # for second derivatives the scalars must depend on the inputs
            pair = _differentiable(x, y, kappa, ctx.dim)
            n = normaliser(1.0, w, pair.separation)
        return *_gradients(g, x, y, w, gamma, kappa, n, pair, ctx.dim, ctx.needs_input_grad), None


class _EagerLorentzResidual(torch.autograd.Function):
    """The same for plain eager calls: functions with a vmap rule cost 80 microseconds more per call."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        output = _LorentzResidual.forward(*inputs)
        _LorentzResidual.setup_context(ctx, inputs, output)
        return output

    backward = _LorentzResidual.backward


def residual_value(x: Tensor, y: Tensor, w: Tensor, gamma: Tensor | None, kappa: Curvature, dim: int) -> Tensor:
    """Return the residual by torch operations, for a caller that computes its gradients itself.

    Args:
        x, y: Points of one shape and dtype, float32 or wider.
        w: w_y >= 0, a number or one per point with axis ``dim`` kept.
        gamma: The scale, in the same shapes, or None.
        kappa: -K.
        dim: The coordinate axis.
    """
    return _LorentzResidual.forward(x, y, w, gamma, kappa, dim)[0]


def _is_one(w: Tensor) -> bool:
    return w.dim() == 0 and checks_values(w) and float(w) == 1.0


def _equal_points(x: Tensor, y: Tensor, pair: Pair, dim: int) -> Tensor | None:
    """Return which points are equal, axis kept; None if no two are."""
    equal, far = pair.separation == 0, pair.T_x > 1
    host = on_host(x)
    if host and not bool(equal.any()):
        return None
    # So near the origin that T rounds to 1, a separation of 0 may be an underflow: there the points are compared.
    if host and bool(far.all()):
        return equal
    return equal & (far | (x == y).all(dim, keepdim=True))


def _gradients(
    g: Tensor,
    x: Tensor,
    y: Tensor,
    w: Tensor,
    gamma: Tensor | None,
    kappa: Curvature,
    n: Tensor,
    pair: Pair,
    dim: int,
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    r"""Return the gradients of x, y, w, gamma and kappa.

    With :math:`D = \cosh d - 1`, :math:`a = g \cdot (x + w y)/n^2`, :math:`p = w \kappa a`, :math:`c = \gamma/n`,
    :math:`e = x - y` and :math:`\tau = x_t - y_t = e \cdot (x + y)/(x_t + y_t)`:

    .. math:: \partial x &= c\, [g - p (e - \tfrac{\tau}{x_t} x)] \\
        \partial y &= c\, [w g + p (e - \tfrac{\tau}{y_t} y)] \\
        \partial w &= c\, [-(g \cdot e)(1 + w + w D) - (1 - w) D (g \cdot x)] / n^2 \\
        \partial \gamma &= a n, \qquad \partial \kappa = -c\, a\, w\, \partial_\kappa D
    """
    D, e = pair.separation, x - y
    work = None if reusable(e) is None else torch.empty_like(e)
    c = 1 / n if gamma is None else gamma / n
    # Divided by n twice: n^2 may overflow in float32 where n does not.
    a = dot(g, torch.addcmul(x, y, w, out=work), dim, work) / n / n
    cp = c * (w * kappa * a)
    # The times are T / sqrt(kappa).
    tau = root(kappa) * dot(e, torch.add(x, y, out=work), dim, work) / (pair.T_x + pair.T_y)
    slope = cp * root(kappa) * tau
    gw = ggamma = gk = None
    if needed[2]:
        ratio = D / n / n
        gw = c * (-dot(g, e, dim, work) * ((1 + w) / n / n + w * ratio) - (1 - w) * ratio * dot(g, x, dim, work))
        gw = gw.sum_to_size(w.shape)
    turn_x, turn_y = slope / pair.T_x, -slope / pair.T_y
    if torch.compiler.is_compiling() and dim in (-1, x.dim() - 1):  # in the pass that computes the products above
        c, cp, turn_x, turn_y = (stored(t) for t in (c, cp, turn_x, turn_y))
        gx = stored(c * g + cp * (y - x) + turn_x * x) if needed[0] else None  # y - x: e would be stored for it
        gy = c * w * g + cp * e + turn_y * y if needed[1] else None
    else:
        pull = torch.mul(e, cp, out=reusable(e))
        gx = _sum(c * g, -1.0, pull, turn_x, x) if needed[0] else None
        gy = _sum(torch.mul(g, c * w, out=work), 1.0, pull, turn_y, y) if needed[1] else None
    if needed[3] and gamma is not None:
        ggamma = (a * n).sum_to_size(gamma.shape)
    if needed[4] and isinstance(kappa, Tensor):
        gk = (-c * a * w * (pair.growth / kappa)).sum_to_size(kappa.shape)
    return gx, gy, gw, ggamma, gk


def _sum(first: Tensor, sign: float, second: Tensor, factor: Tensor, third: Tensor) -> Tensor:
    """Return ``first + sign second + factor third``, in the memory of ``first`` where it may be reused."""
    total = torch.add(first, second, alpha=sign, out=reusable(first))
    return torch.addcmul(total, third, factor, out=reusable(total))


def _plain(x: Tensor, y: Tensor, w: Tensor, gamma: Tensor | None, kappa: Curvature, dim: int) -> Tensor:
    r"""Return the residual by operations that torch differentiates in any order, forward and reverse.

    With the share :math:`t = w/(1 + w)` of y it is :math:`(x - t (x - y)) / \sqrt{1 + 2 t (1 - t)(\cosh d - 1)}`.
    The derivative in t consists of differences of points, so it stays accurate for near points.
    """
    value = _LorentzResidual.forward(x, y, w, gamma, kappa, dim)[0]
    t = w / (1 + w)
    n = (1 + 2 * t / (1 + w) * separation(x, y, kappa, dim)).sqrt()
    return with_derivatives_of(value, (x - t * (x - y)) * (1 / n if gamma is None else gamma / n))


def _differentiable(x: Tensor, y: Tensor, kappa: Curvature, dim: int) -> Pair:
    """Return the scalars of the pair as functions that autograd can differentiate again."""
    D = separation(x, y, kappa, dim)
    T_x, T_y = unitless_time(x, kappa, dim), unitless_time(y, kappa, dim)
    return Pair(D, D - (T_x - T_y).square() / (2 * T_x * T_y), T_x, T_y)


def _sum_scale(weight: Tensor) -> Tensor:
    """Return 1 + |w|, in float32 or wider: 1 + w in float16 would be rounded twice."""
    return 1 + weight.abs().to(torch.promote_types(weight.dtype, torch.float32))


def _scale_rows(scale: Weight, points: Tensor, dim: int) -> Tensor:
    rows = weight_rows(scale, points, dim, "scale")
    require_positive(rows, "scale")
    return rows


def _last(row: Tensor, dim: int) -> Tensor:
    return row if row.dim() == 0 else row.movedim(dim, -1)
