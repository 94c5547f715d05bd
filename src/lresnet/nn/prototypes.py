"""Classification head with one prototype per class: a point of the manifold, learned by Riemannian optimisation."""

from __future__ import annotations

import math
from typing import Any

import geoopt
import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import checked_points, full_precision, require_features, traced
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.geometry.distance import cross_separation, cross_separation_value, dot, unitless_time
from lresnet.geometry.stack import outer_rows, sum_to, times_rows
from lresnet.kernels import supports_rows

__all__ = ["Prototypes", "prototype_logits", "prototype_separation"]


class Prototypes(ManifoldModule):
    r"""Classification head with one prototype v_k per class (Law et al. 2019; the decoder of HyboNet).

    .. math:: \text{logit}_k = \beta_k - d_L^2(x, v_k), \qquad
        d_L^2(x, v) = \langle x - v, x - v\rangle = \tfrac2\kappa (\cosh d - 1)

    The prototypes are a :class:`geoopt.ManifoldParameter`: train them with a Riemannian optimiser
    (:func:`lresnet.optim.make_adam` chooses one).

    Args:
        in_features: Dimension n of the space.
        num_classes: Number of classes C.
        manifold: Owner of the curvature. It is not registered as a submodule.
        initial_distance: Typical distance of the initial prototypes from the origin. None: one radius of curvature,
            1/sqrt(-K). With a curvature near 0 that is far from all data: at K = -1e-6 the first loss is about 1e6.

    Shapes:
        [..., n] -> [..., C]

    Example:
        >>> head = Prototypes(16, 7, manifold=Lorentz(-1.0))
        >>> head(torch.randn(4, 16)).shape
        torch.Size([4, 7])
    """

    point_parameters = ("points",)

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        manifold: Lorentz,
        initial_distance: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        if initial_distance is not None and not (math.isfinite(initial_distance) and initial_distance > 0):
            raise ValueError(f"initial_distance must be positive and finite, or None, got {initial_distance}")
        self.in_features, self.num_classes, self.initial_distance = in_features, num_classes, initial_distance
        start = torch.zeros(num_classes, in_features, device=device, dtype=dtype)
        self.points = geoopt.ManifoldParameter(start, manifold=manifold)
        self.bias = torch.nn.Parameter(torch.zeros(num_classes, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise with random directions, about ``initial_distance`` from the origin."""
        kappa, std = self.manifold.kappa.detach(), 1.0
        if self.initial_distance is not None:
            std = self.initial_distance * self.in_features**-0.5
        elif not kappa.is_meta:  # tensors on the meta device have no values
            std = (self.in_features * float(kappa)) ** -0.5
        torch.nn.init.normal_(self.points, std=std)
        self.points.copy_(self.manifold.expmap0(self.points))
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        (points,), dtype = checked_points(x)
        require_features(points, self.in_features, "Prototypes")
        kappa = kappa_of(self.manifold.curvature, points.dtype)
        prototypes, bias = self.points.to(points.dtype), self.bias.to(points.dtype)
        return prototype_logits(points, prototypes, bias, kappa).to(dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.num_classes}, {super().extra_repr()}"


# The kernel's gradient of the prototypes reads the points once per class, from the cache. With more classes than this,
# matrix products are faster.
_MOST_CLASSES = 64


def prototype_logits(x: Tensor, y: Tensor, bias: Tensor, kappa: Curvature) -> Tensor:
    r"""Return :math:`\beta_k - d_L^2(x, y_k)` with :math:`d_L^2 = \frac2\kappa (\cosh d - 1)`; on CUDA by one kernel.

    Shapes:
        x [..., n], y [C, n], bias [C] -> [..., C]; stacks: [N, S, n], [S, C, n], [S, C] -> [N, S, C]

    Example:
        >>> prototype_logits(torch.zeros(2, 3), torch.zeros(4, 3), torch.ones(4), 1.0).shape
        torch.Size([2, 4])
    """
    if not traced() and supports_rows(x, kappa) and _is_supported(x, y, bias):
        from lresnet.kernels.prototypes import fused_logits

        return fused_logits(x, y, bias, float(kappa), _plain_logits)
    return bias - 2 / kappa * prototype_separation(x, y, kappa)


def _is_supported(x: Tensor, y: Tensor, bias: Tensor) -> bool:
    """Return whether the kernel supports these prototypes: of one network or of each member, and not too many."""
    if any(t.dtype != torch.float32 or t.device != x.device for t in (y, bias)) or bias.shape != y.shape[:-1]:
        return False
    shapes_match = y.dim() == 2 or (y.dim() == x.dim() == 3 and y.shape[0] == x.shape[1])
    return shapes_match and x.shape[-1] == y.shape[-1] and 0 < y.shape[-2] <= _MOST_CLASSES


def _plain_logits(x: Tensor, y: Tensor, bias: Tensor, kappa: float) -> Tensor:
    """Return the same by operations that autograd differentiates to any order."""
    return bias - 2 / kappa * cross_separation(x, y, kappa)


def prototype_separation(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    """Return ``cosh d - 1``, as :func:`lresnet.geometry.distance.cross_separation` does, at half its cost in training.

    Shapes:
        x [..., n], y [C, n] -> [..., C]; stacks: [N, S, n], [S, C, n] -> [N, S, C]

    Example:
        >>> prototype_separation(torch.zeros(2, 3), torch.zeros(4, 3), 1.0).shape
        torch.Size([2, 4])
    """
    if traced():
        return cross_separation(x, y, kappa)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    with full_precision(x):
        result: Tensor = _Separation.apply(x, y, kappa_tensor, kappa)  # type: ignore[no-untyped-call]
        return result


class _Separation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, kappa_tensor: Tensor | None, kappa: Curvature) -> Tensor:
        ctx.kappa = None if kappa_tensor is not None else kappa
        ctx.save_for_backward(x, y, kappa_tensor)
        return cross_separation_value(x, y, kappa)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        r"""The derivatives of :math:`T_x T_y - \kappa\, x \cdot y`, with :math:`T = \sqrt{1 + \kappa |x|^2}`:

        .. math:: \partial x_i &= \kappa \sum_k g_{ik} (T_k / T_i\, x_i - y_k), \qquad
            \partial y_k = \kappa \sum_i g_{ik} (T_i / T_k\, y_k - x_i) \\
            \partial \kappa &= \sum_{ik} g_{ik} \big(\tfrac{T_k}{2 T_i} |x_i|^2 + \tfrac{T_i}{2 T_k} |y_k|^2
                - x_i \cdot y_k\big)
        """
        x, y, kappa_tensor = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():
            return *_second_order(ctx, g, x, y, kappa_tensor), None
        T_x, T_y = unitless_time(x, kappa, -1), (1 + kappa * dot(y, y, -1).squeeze(-1)).sqrt()
        h, gx, gy, gk = kappa * g, None, None, None
        if ctx.needs_input_grad[0]:
            pull = (h * T_y).sum(-1, keepdim=True) / T_x
            gx = torch.addcmul(times_rows(y.mT, -h), x, pull).sum_to_size(x.shape)
        if ctx.needs_input_grad[1]:
            pull = (h * T_x).sum_to_size(T_y.shape) / T_y
            sums = outer_rows(h, x) if y.dim() == 3 else h.reshape(-1, y.shape[0]).mT @ x.reshape(-1, y.shape[1])
            gy = pull.unsqueeze(-1) * y - sums
        if ctx.needs_input_grad[2]:
            spread = T_y / T_x * (0.5 * dot(x, x, -1)) + T_x / T_y * (0.5 * dot(y, y, -1).squeeze(-1))
            gk = sum_to(kappa_tensor.shape, (g * (spread - times_rows(y, x))).sum(-1, keepdim=True))
        return gx, gy, gk, None


def _second_order(ctx: Any, g: Tensor, x: Tensor, y: Tensor, kappa: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return differentiable gradients, computed by autograd with respect to aliases, so that they stop here."""
    inputs = [t if t is None else t.view_as(t) for t in (x, y, kappa)]
    own = ctx.kappa if inputs[2] is None else inputs[2]
    value = cross_separation(inputs[0], inputs[1], own)  # type: ignore[arg-type]
    wanted = [i for i in range(3) if ctx.needs_input_grad[i]]
    found = torch.autograd.grad(value, [inputs[i] for i in wanted], g, create_graph=True)  # type: ignore[arg-type]
    grads = dict(zip(wanted, found, strict=True))
    return tuple(grads.get(i) for i in range(3))
