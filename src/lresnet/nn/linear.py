"""Fully hyperbolic linear layer of HyboNet (Chen et al., ACL 2022) for any curvature, in space coordinates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import checked_points, full_precision, require_features, traced
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import dot, time_of, unit
from lresnet.geometry.stack import outer_rows, sum_to, times_rows
from lresnet.geometry.state import number
from lresnet.kernels import supports_rows
from lresnet.nn.lazy import LazyInput
from lresnet.nn.sparse import SparseMatrix

__all__ = ["LorentzLinear", "ambient_product", "on_sphere"]


class LorentzLinear(LazyInput):
    r"""Fully hyperbolic linear layer: a linear map of the ambient vector [t, x], then a map back to the hyperboloid.

    .. math:: z = W x + v t + b \in R^{1 + m}, \qquad y = \sqrt{\tau^2 + 2 \tau/\sqrt\kappa}\; z_s/|z_s|,
        \qquad \tau = \sigma(z_0) e^s + f

    The time of y is :math:`1/\sqrt\kappa + \tau`, where :math:`f < \tau < f + e^s`. W, v, b and s are Euclidean
    parameters.

    Args:
        in_features: Dimension n of the input space; -1 takes it from the first input.
        out_features: Dimension m of the output space.
        manifold: Owner of the curvature. It is not registered as a submodule.
        floor: f > 0, which keeps the results away from the origin, where the direction is undefined. HyboNet uses 0.1,
            LResNet 0.5.
        initial_scale: Initial value of :math:`e^s`. HyboNet uses 10.

    Shapes:
        [..., n] -> [..., m]; the input may be a :class:`~lresnet.nn.SparseMatrix` [N, n]. With the parameters of a
        stack (:mod:`lresnet.geometry.stack`): [N, S, n] -> [N, S, m].

    Example:
        >>> layer = LorentzLinear(8, 4, manifold=Lorentz(-1.0))
        >>> layer(torch.randn(5, 8)).shape
        torch.Size([5, 4])
    """

    learned_numbers = ("log_scale",)

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
        self.make_weight(1 + out_features, **factory)
        self.time_weight = torch.nn.Parameter(torch.empty(1 + out_features, **factory))
        self.bias = torch.nn.Parameter(torch.empty(1 + out_features, **factory))
        self.log_scale = torch.nn.Parameter(torch.empty(1, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as HyboNet does: W uniform within 1/sqrt(1 + m), v and b zero."""
        if self.is_lazy():
            return
        bound = (1 + self.out_features) ** -0.5
        torch.nn.init.uniform_(self.weight, -bound, bound)
        torch.nn.init.zeros_(self.time_weight)
        torch.nn.init.zeros_(self.bias)
        torch.nn.init.constant_(self.log_scale, math.log(self.initial_scale))

    def forward(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """Return the mapped points, [..., m]. A sparse x needs its ``time``, [N, 1]."""
        y = self.with_time(x, time)[..., :-1]
        return y.to(x.dtype) if isinstance(x, Tensor) else y

    def with_time(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """Return [..., m+1] in float32 or wider: the mapped points, then sqrt(kappa) times their time."""
        if self.is_lazy():
            self.materialise(x.shape[-1])
        if isinstance(x, SparseMatrix):
            if time is None:
                raise ValueError(
                    "a sparse x needs its time, [N, 1]; lresnet.nn.input_map.features_to_points returns both"
                )
            z = torch.addcmul(x.product(self.weight.movedim(-1, 0)) + self.bias, time, self.time_weight)
            return on_sphere(z, self._log_scale(), kappa_of(self.manifold.curvature, z.dtype), self.floor)
        (x,), _ = checked_points(x)
        require_features(x, self.in_features, "LorentzLinear")
        with full_precision(x):
            kappa = kappa_of(self.manifold.curvature, x.dtype)
            weight, time_weight, bias = (w.to(x.dtype) for w in (self.weight, self.time_weight, self.bias))
            z = ambient_product(x, weight, time_weight, bias, kappa)
            return on_sphere(z, self._log_scale().to(x.dtype), kappa, self.floor)

    def _log_scale(self) -> Tensor:
        """Return one number for all points, or one for each member of a stack, [S, 1]."""
        log_scale = number(self.log_scale)
        return log_scale.unsqueeze(-1) if log_scale.dim() == 1 else log_scale

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"


# --- The product with the ambient vector [t, x] -----------------------------------------------------------------------


def ambient_product(x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, kappa: Curvature) -> Tensor:
    r"""Return :math:`W x + v t + b` with :math:`t = \sqrt{|x|^2 + 1/\kappa}`: a linear map of the vector [t, x].

    Shapes:
        x [..., n], weight [m, n] -> [..., m]; for stacks [N, S, n] and [S, m, n] -> [N, S, m].
    """
    stack = weight.dim() == 3
    if traced() and stack:
        return times_rows(_matrix(weight, time_weight, bias), _plain_rows(x, kappa, 1))
    if traced():
        matrix = torch.cat([weight, time_weight.unsqueeze(-1)], dim=-1)
        return torch.nn.functional.linear(_plain_rows(x, kappa, 0), matrix, bias)
    tensor = kappa if isinstance(kappa, Tensor) else None
    function = _AmbientStack if stack else _Ambient
    z: Tensor = function.apply(x, weight, time_weight, bias, tensor, kappa)  # type: ignore[no-untyped-call]
    return z


class _Ambient(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, kappa: Tensor | None, fixed: Curvature
    ) -> Tensor:
        ambient = _ambient_rows(x, fixed, ones=0)
        matrix = torch.cat([weight, time_weight.unsqueeze(-1)], dim=-1)
        ctx.save_for_backward(ambient, matrix, x, weight, time_weight, kappa)
        ctx.fixed = fixed if kappa is None else None
        return torch.nn.functional.linear(ambient, matrix, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        ambient, matrix, x, weight, time_weight, kappa = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative both must depend on the inputs
            ambient = _plain_rows(x, ctx.fixed if kappa is None else kappa, 0)
            matrix = torch.cat([weight, time_weight.unsqueeze(-1)], dim=-1)
        gx = gk = None
        if ctx.needs_input_grad[0] or kappa is not None:
            gx, gk = _gradients(g @ matrix, ambient, x, kappa, ctx.fixed)
        rows = g.reshape(-1, g.shape[-1])
        g_matrix = rows.mT @ ambient.reshape(-1, ambient.shape[-1])
        return gx, g_matrix[:, :-1], g_matrix[:, -1], rows.sum(0), gk, None


class _AmbientStack(torch.autograd.Function):
    """The same for a stack: x [N, S, n] and weight [S, m, n] -> [N, S, m].

    The bias is the weight of an additional coordinate that is 1, so it needs no operation of its own in either pass.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, kappa: Tensor | None, fixed: Curvature
    ) -> Tensor:
        ambient, matrix = _ambient_rows(x, fixed, ones=1), _matrix(weight, time_weight, bias)
        ctx.save_for_backward(ambient, matrix, x, weight, time_weight, bias, kappa)
        ctx.fixed = fixed if kappa is None else None
        return times_rows(matrix, ambient)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        ambient, matrix, x, weight, time_weight, bias, kappa = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative both must depend on the inputs
            ambient = _plain_rows(x, ctx.fixed if kappa is None else kappa, 1)
            matrix = _matrix(weight, time_weight, bias)
        gx = gk = None
        if ctx.needs_input_grad[0] or kappa is not None:
            gx, gk = _gradients(times_rows(matrix.mT, g), ambient, x, kappa, ctx.fixed)
        g_matrix = outer_rows(g, ambient)
        return gx, g_matrix[..., :-2], g_matrix[..., -2], g_matrix[..., -1], gk, None


def _ambient_rows(x: Tensor, kappa: Curvature, ones: int) -> Tensor:
    """Return the points, their time and ``ones`` (0 or 1) coordinates that are 1. Not differentiable.

    Shapes:
        [..., n] -> [..., n + 1 + ones]
    """
    if supports_rows(x, kappa):
        from lresnet.kernels.ambient import ambient_forward

        return ambient_forward(x, kappa=float(kappa), ones=ones)
    return _plain_rows(x, kappa, ones)


def _plain_rows(x: Tensor, kappa: Curvature, ones: int) -> Tensor:
    """Return the same by torch operations, differentiable."""
    t = time_of(x, kappa, -1)
    if t.shape[:-1] != x.shape[:-1]:  # points that all members of a stack share, each with its own curvature
        x = x.expand(*t.shape[:-1], -1)
    return torch.cat([x, t, torch.ones_like(t)] if ones else [x, t], dim=-1)


def _matrix(weight: Tensor, time_weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([weight, time_weight.unsqueeze(-1), bias.unsqueeze(-1)], dim=-1)


def _gradients(
    back: Tensor, ambient: Tensor, x: Tensor, kappa: Tensor | None, fixed: Curvature | None
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of x and of a learned kappa, from the gradient ``back`` of the ambient vectors."""
    n = x.shape[-1]
    if (
        fixed is not None
        and supports_rows(x, fixed)
        and back.shape[:-1] == x.shape[:-1]
        and not torch.is_grad_enabled()
    ):
        from lresnet.kernels.ambient import ambient_backward

        return ambient_backward(back, x, kappa=float(fixed)), None
    gt = back[..., n : n + 1] / ambient[..., n : n + 1]
    gx = torch.addcmul(back[..., :n], gt, x)
    gk = None if kappa is None else -0.5 * sum_to(kappa.shape, gt) / kappa.square()
    return gx if gx.shape == x.shape else gx.sum_to_size(x.shape), gk


# --- The map back to the hyperboloid ----------------------------------------------------------------------------------


def on_sphere(z: Tensor, log_scale: Tensor, kappa: Curvature, floor: float) -> Tensor:
    r"""Return the points given by z = [z_0, z_s]: z_0 determines the distance from the origin, z_s the direction.

    .. math:: \tau = \sigma(z_0) e^s + f, \qquad y = \sqrt{\tau^2 + 2 \tau/\sqrt\kappa}\; z_s/|z_s|

    The time of y is :math:`1/\sqrt\kappa + \tau`. If z_s = 0 there is no direction, and y is the origin.

    Args:
        z: [..., n+1].
        log_scale: s, a number or a tensor that broadcasts to [..., 1].
        kappa: -K > 0.
        floor: f.

    Returns:
        [..., n+1]: the n space coordinates, then :math:`\sqrt\kappa` times the time, which costs nothing here.
    """
    if traced():
        return _plain_on_sphere(z, log_scale, kappa, floor)
    if supports_rows(z, kappa):
        from lresnet.kernels.on_sphere import fused_on_sphere

        return fused_on_sphere(z, log_scale, float(kappa), floor, _plain_on_sphere)
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


def _plain_on_sphere(z: Tensor, log_scale: Tensor, kappa: Curvature, floor: float) -> Tensor:
    """Return the same by differentiable operations. The gradient at z_s = 0 is 0, as in the closed form."""
    norm = torch.linalg.vector_norm(z[..., 1:].detach(), dim=-1, keepdim=True)
    return _on_sphere(torch.where(norm > 0, z, z.detach()), log_scale, kappa, floor)[0]


class _OnSphere(torch.autograd.Function):
    """Closed-form backward pass. With autograd's it took a third of an epoch."""

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
        if torch.is_grad_enabled():  # a second derivative is needed: autograd computes both
            # Differentiate with respect to aliases, so that gradients stop here: z itself may depend on kappa.
            z, log_scale = z.view_as(z), log_scale.view_as(log_scale)
            alias = None if kappa_tensor is None else kappa_tensor.view_as(kappa_tensor)
            y = _plain_on_sphere(z, log_scale, kappa if alias is None else alias, ctx.floor)
            wanted = [t for t, need in zip((z, log_scale, alias), ctx.needs_input_grad, strict=False) if need]
            found = iter(torch.autograd.grad(y, wanted, g, create_graph=True))
            return *(next(found) if need else None for need in ctx.needs_input_grad[:3]), None, None
        k = root(kappa)
        # z_s = 0 (all features dropped, bias still 0) has no direction: its gradient is 0.
        has_direction = norm > 0
        g_space, g_time = g[..., :-1], torch.where(has_direction, g[..., -1:], 0.0)
        along = dot(g_space, direction, -1)
        pull = along / radius
        g_gate = (pull * (tau + 1 / k) + k * g_time) * gate
        sigma = gate / log_scale.exp()
        ratio = torch.where(has_direction, radius / norm, 0.0)
        across = torch.addcmul(g_space, along, direction, value=-1) * ratio
        gz = torch.cat([g_gate * (1 - sigma), across], dim=-1)
        gk = None
        if kappa_tensor is not None:
            gk = sum_to(kappa_tensor.shape, 0.5 * tau * (g_time / k - pull * kappa_tensor**-1.5))
        return gz, sum_to(log_scale.shape, g_gate), gk, None, None
