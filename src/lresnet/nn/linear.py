"""HyboNet's fully hyperbolic linear layer (Chen et al., ACL 2022) at any curvature, in space coordinates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import full_precision, prepare, require_features, traced
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import dot, unit
from lresnet.geometry.stack import sum_to
from lresnet.kernels import supports_rows
from lresnet.nn.ambient import ambient_product
from lresnet.nn.sparse import SparseMatrix

__all__ = ["LorentzLinear", "on_sphere"]


def on_sphere(z: Tensor, log_scale: Tensor, kappa: Curvature, floor: float) -> Tensor:
    r"""Turn ambient outputs z = [z_0, z_s] into points: z_0 says how far from the origin, z_s in which direction.

    .. math:: \tau = \sigma(z_0) e^s + f, \qquad y = \sqrt{\tau^2 + 2 \tau/\sqrt\kappa}\; z_s/|z_s|

    which has time :math:`1/\sqrt\kappa + \tau`. Where z_s = 0 there is no direction: the origin, time and all.

    Args:
        z: [..., n+1]. log_scale: s, a number or what broadcasts to [..., 1]. floor: f.

    Returns:
        [..., n+1]: the n space coordinates, then :math:`\sqrt\kappa` times the time, which is known for free.
    """
    if traced():
        return _turning_on_sphere(z, log_scale, kappa, floor)
    if supports_rows(z, kappa):
        from lresnet.kernels.on_sphere import fused_on_sphere

        return fused_on_sphere(z, log_scale, float(kappa), floor, _turning_on_sphere)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _OnSphere.apply(z, log_scale, kappa_tensor, kappa, floor)  # type: ignore[no-untyped-call]
    return result


def _on_sphere(z: Tensor, log_scale: Tensor, kappa: Curvature, floor: float) -> tuple[Tensor, ...]:
    direction, norm = unit(z[..., 1:], -1)
    gate = z[..., :1].sigmoid() * log_scale.exp()
    tau = gate + floor
    radius = (tau * (tau + 2 / root(kappa))).sqrt()
    T = torch.where(norm > 0, 1 + root(kappa) * tau, 1.0)
    return torch.cat([radius * direction, T], dim=-1), direction, norm, gate, tau, radius


def _turning_on_sphere(z: Tensor, log_scale: Tensor, kappa: Curvature, floor: float) -> Tensor:
    """For autograd, by the convention of the closed form: z_s = 0 has no direction that could be turned."""
    norm = torch.linalg.vector_norm(z[..., 1:].detach(), dim=-1, keepdim=True)
    return _on_sphere(torch.where(norm > 0, z, z.detach()), log_scale, kappa, floor)[0]


class _OnSphere(torch.autograd.Function):
    """Closed-form backward: autograd through this made a third of an epoch."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, log_scale: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, floor: float
    ) -> Tensor:
        y, *saved = _on_sphere(z, log_scale, kappa, floor)
        ctx.floor, ctx.kappa = floor, None if kappa_tensor is not None else kappa
        ctx.save_for_backward(z, log_scale, kappa_tensor, *saved)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, log_scale, kappa_tensor, direction, norm, gate, tau, radius = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():  # a second derivative is wanted: let autograd do both
            # Aliases, so that derivatives stop here: z itself may depend on kappa.
            z, log_scale = z.view_as(z), log_scale.view_as(log_scale)
            alias = None if kappa_tensor is None else kappa_tensor.view_as(kappa_tensor)
            y = _turning_on_sphere(z, log_scale, kappa if alias is None else alias, ctx.floor)
            wanted = [t for t, need in zip((z, log_scale, alias), ctx.needs_input_grad, strict=False) if need]
            found = iter(torch.autograd.grad(y, wanted, g, create_graph=True))
            return *(next(found) if need else None for need in ctx.needs_input_grad[:3]), None, None
        k = root(kappa)
        # z_s = 0 (all features dropped, bias still 0) has no direction that could be turned: its gradient is 0.
        turns = norm > 0
        g_space, g_time = g[..., :-1], torch.where(turns, g[..., -1:], 0.0)
        along = dot(g_space, direction, -1)
        pull = along / radius
        g_gate = (pull * (tau + 1 / k) + k * g_time) * gate
        sigma = gate / log_scale.exp()
        lever = torch.where(turns, radius / norm, 0.0)
        across = torch.addcmul(g_space, along, direction, value=-1) * lever
        gz = torch.cat([g_gate * (1 - sigma), across], dim=-1)
        gk = None
        if kappa_tensor is not None:
            gk = sum_to(kappa_tensor.shape, 0.5 * tau * (g_time / k - pull * kappa_tensor**-1.5))
        return gz, sum_to(log_scale.shape, g_gate), gk, None, None


class LorentzLinear(ManifoldModule):
    r"""Fully hyperbolic linear layer: a matrix on the ambient vector [t, x], put back on the hyperboloid.

    .. math:: z = W x + v t + b \in R^{1 + m}, \qquad y = \sqrt{\tau^2 + 2 \tau/\sqrt\kappa}\; z_s/|z_s|,
        \qquad \tau = \sigma(z_0) e^s + f

    The result's time is :math:`1/\sqrt\kappa + \tau`, between :math:`f` and :math:`f + e^s` above its least value.
    No manifold parameter: W, v, b and s are Euclidean.

    Args:
        in_features, out_features: dimensions n and m of the spaces.
        manifold: owner of the curvature; referred to, not registered.
        floor: f > 0, keeps results off the origin, where the direction is undefined. HyboNet 0.1, LResNet 0.5.
        initial_scale: :math:`e^s` at the start; HyboNet 10.

    Shapes:
        [..., n] -> [..., m]; the input may be a :class:`~lresnet.nn.sparse.SparseMatrix` [N, n]. With parameters that
        are stacks (:mod:`lresnet.geometry.stack`): [N, S, n] -> [N, S, m].

    Example:
        >>> layer = LorentzLinear(8, 4, manifold=Lorentz(-1.0))
        >>> layer(torch.randn(5, 8)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        manifold: Lorentz,
        floor: float = 0.5,
        initial_scale: float = 10.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        if not floor > 0 or not initial_scale > 0:
            raise ValueError(f"floor and initial_scale must be positive, got {floor} and {initial_scale}")
        self.in_features, self.out_features, self.floor, self.initial_scale = (
            in_features,
            out_features,
            floor,
            initial_scale,
        )
        self.weight = torch.nn.Parameter(torch.empty(1 + out_features, in_features, **factory))
        self.time_weight = torch.nn.Parameter(torch.empty(1 + out_features, **factory))
        self.bias = torch.nn.Parameter(torch.empty(1 + out_features, **factory))
        self.log_scale = torch.nn.Parameter(torch.empty((), **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """HyboNet's start: W uniform in 1/sqrt(ambient out), the time column, the bias and the gate's input 0."""
        bound = (1 + self.out_features) ** -0.5
        torch.nn.init.uniform_(self.weight, -bound, bound)
        torch.nn.init.zeros_(self.time_weight)
        torch.nn.init.zeros_(self.bias)
        torch.nn.init.constant_(self.log_scale, math.log(self.initial_scale))

    def forward(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """``time``: [N, 1], of a sparse x."""
        y = self.with_time(x, time)[..., :-1]
        return y.to(x.dtype) if isinstance(x, Tensor) else y

    def with_time(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """[..., m+1], float32 or wider: the points and, last, sqrt(kappa) times their time."""
        if isinstance(x, SparseMatrix):
            if time is None:
                raise ValueError("a sparse x needs its time, [N, 1] (lresnet.nn.input_map.features_to_points gives it)")
            z = torch.addcmul(x.product(self.weight.movedim(-1, 0)) + self.bias, time, self.time_weight)
            return on_sphere(z, self._log_scale(), kappa_of(self.manifold.curvature, z.dtype), self.floor)
        (x,), _ = prepare(x)
        require_features(x, self.in_features, "LorentzLinear")
        with full_precision(x):
            kappa = kappa_of(self.manifold.curvature, x.dtype)
            weight, time_weight, bias = (w.to(x.dtype) for w in (self.weight, self.time_weight, self.bias))
            z = ambient_product(x, weight, time_weight, bias, kappa)
            return on_sphere(z, self._log_scale().to(x.dtype), kappa, self.floor)

    def _log_scale(self) -> Tensor:
        """One for all points, or one for each member of a stack, [S, 1]."""
        return self.log_scale if self.log_scale.dim() == 0 else self.log_scale.unsqueeze(-1)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"
