"""HyboNet's fully hyperbolic linear layer (Chen et al., ACL 2022) at any curvature, in space coordinates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import prepare
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.pair import time_of, unit
from lresnet.nn.sparse import SparseMatrix

__all__ = ["LorentzLinear", "on_sphere"]


def on_sphere(z: Tensor, log_scale: Tensor, kappa: Curvature, floor: float) -> Tensor:
    r"""Turn ambient outputs z = [z_0, z_s] into points: z_0 says how far from the origin, z_s in which direction.

    .. math:: \tau = \sigma(z_0) e^s + f, \qquad y = \sqrt{\tau^2 + 2 \tau/\sqrt\kappa}\; z_s/|z_s|

    which has time :math:`1/\sqrt\kappa + \tau`. Where z_s = 0 there is no direction: the origin.

    Args:
        z: [N, n+1]. log_scale: s. floor: f.
    """
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _OnSphere.apply(z, log_scale, kappa_tensor, kappa, floor)[0]  # type: ignore[no-untyped-call]
    return result


def _on_sphere(z: Tensor, log_scale: Tensor, kappa: Curvature, floor: float) -> tuple[Tensor, ...]:
    direction, norm = unit(z[..., 1:], -1)
    gate = z[..., :1].sigmoid()
    tau = gate * log_scale.exp() + floor
    radius = (tau * (tau + 2 / root(kappa))).sqrt()
    return radius * direction, direction, norm, gate, tau, radius


class _OnSphere(torch.autograd.Function):
    """Closed-form backward: autograd through this made a third of an epoch."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, log_scale: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, floor: float
    ) -> tuple[Tensor, ...]:
        y, *saved = _on_sphere(z, log_scale, kappa, floor)
        ctx.floor, ctx.kappa = floor, None if kappa_tensor is not None else kappa
        ctx.save_for_backward(z, log_scale, kappa_tensor, *saved)
        return (y,)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, log_scale, kappa_tensor, direction, norm, gate, tau, radius = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():  # a second derivative is wanted: let autograd do both
            inputs = [t for t in (z, log_scale, kappa_tensor) if t is not None]
            y = _on_sphere(z, log_scale, kappa, ctx.floor)[0]
            grads = iter(torch.autograd.grad(y, inputs, g, create_graph=True))
            return (*tuple(None if t is None else next(grads) for t in (z, log_scale, kappa_tensor)), None, None)
        along = (g * direction).sum(-1, keepdim=True)
        g_tau = along * (tau + 1 / root(kappa)) / radius
        scaled_gate = gate * log_scale.exp()
        gz = torch.empty_like(z)
        torch.mul(g_tau, scaled_gate * (1 - gate), out=gz[..., :1])
        torch.mul(
            torch.addcmul(g, along, direction, value=-1), radius / torch.where(norm > 0, norm, 1.0), out=gz[..., 1:]
        )
        g_scale = (g_tau * scaled_gate).sum().reshape(log_scale.shape)
        gk = None
        if kappa_tensor is not None:
            gk = (along * tau / radius).sum().reshape(kappa_tensor.shape) * (-0.5 * kappa_tensor**-1.5)
        return gz, g_scale, gk, None, None


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
        [..., n] -> [..., m]; the input may be a :class:`~lresnet.nn.sparse.SparseMatrix` [N, n].

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
        """``time``: [..., 1], the time of x if it is known already; required with a sparse x."""
        if isinstance(x, SparseMatrix):
            if time is None:
                raise ValueError(
                    "a sparse x needs its time, [N, 1]: time_of a sparse matrix is sqrt(row sums of squares + 1/kappa)"
                )
            kappa = kappa_of(self.manifold.curvature, time.dtype)
            z = torch.addcmul(x @ self.weight.mT + self.bias, time, self.time_weight)
            return on_sphere(z, self.log_scale, kappa, self.floor)
        (x,), dtype = prepare(x)
        with torch.autocast(x.device.type, enabled=False):
            kappa = kappa_of(self.manifold.curvature, x.dtype)
            t = time_of(x, kappa, -1) if time is None else time
            z = torch.nn.functional.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))
            z = torch.addcmul(z, t, self.time_weight.to(x.dtype))
            return on_sphere(z, self.log_scale.to(x.dtype), kappa, self.floor).to(dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"
