"""A residual connection and the norm after it, whose gradients compiled code computes by one kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import checked_points
from lresnet.geometry.curvature import kappa_of
from lresnet.kernels import supports_pair
from lresnet.nn.gated_mlp import LorentzGatedMLP
from lresnet.nn.plain_modules import is_plain, is_plain_linear
from lresnet.nn.point_norm import LorentzRMSNorm
from lresnet.nn.softmax_attention import LorentzAttention, operator_dtype
from lresnet.residual import LorentzResidual
from lresnet.residual.lorentz import residual_value

__all__ = ["ResidualCall", "autocast_dtype", "residual_and_norm"]


class ResidualCall(NamedTuple):
    """A call ``residual(x, branch)``."""

    residual: torch.nn.Module
    x: Tensor
    branch: Tensor


def residual_and_norm(
    residual: torch.nn.Module,
    norm: torch.nn.Module,
    x: Tensor,
    branch: Tensor,
    dtype: torch.dtype | None = None,
    source: ResidualCall | None = None,
) -> tuple[Tensor, Tensor]:
    """Return ``z = residual(x, branch)`` and ``norm(z)``.

    In compiled code on a GPU both are computed by the formulas, which the compiler joins with the operations around
    them, and their gradients by one kernel.

    Args:
        residual, norm: A residual and a norm, which are called unless the kernel computes their gradients.
        x, branch: The branches of the residual.
        dtype: That of the norm, such as :func:`autocast_dtype` of the layer that reads it: a conversion of the kernel's
            argument would be a pass over memory. None: that of z.
        source: The call whose result is x. The backward pass then computes x from the branches of that call, which
            are stored for its own gradients, so that x need not be stored.
    """
    if not _is_supported(residual, norm, x, branch, source):
        z = residual(x, branch)
        rows = norm(z)
        return z, rows if dtype is None else _converted(rows, dtype)
    assert isinstance(residual, LorentzResidual)
    assert isinstance(norm, LorentzRMSNorm)
    w, gamma = _weight_and_scale(residual)
    kappa = torch.as_tensor(kappa_of(residual.manifold.curvature, torch.float32)).to(x.device)
    if residual.recomputed_by_compiler:
        x = x.expand(x.shape)  # as in LorentzResidual.forward
    dtype = torch.promote_types(x.dtype, branch.dtype) if dtype is None else dtype
    inputs: tuple[Any, ...] = (x, branch, norm.weight, w, gamma, kappa, norm.eps, dtype)
    if source is not None:
        assert isinstance(source.residual, LorentzResidual)
        inputs += (source.x, source.branch, *_weight_and_scale(source.residual))
    z, rows = _ResidualAndNorm.apply(*inputs)  # type: ignore[no-untyped-call]
    return z, rows


def autocast_dtype(layer: torch.nn.Module, x: Tensor) -> torch.dtype | None:
    """Return the dtype to which autocast converts the argument x of this layer; None if it converts nothing.

    It is known for attention and perceptrons of this library whose first operation is a linear map.
    """
    if type(layer) not in (LorentzAttention, LorentzGatedMLP) or not is_plain(layer):
        return None
    assert isinstance(layer, (LorentzAttention, LorentzGatedMLP))
    dtype = operator_dtype(x)
    return dtype if dtype != x.dtype and is_plain_linear(layer.in_proj) else None


def _is_supported(
    residual: torch.nn.Module, norm: torch.nn.Module, x: Tensor, branch: Tensor, source: ResidualCall | None
) -> bool:
    """Return whether the kernel computes the gradients of this residual and this norm."""
    if not torch.compiler.is_compiling() or type(norm) is not LorentzRMSNorm or not is_plain(norm):
        return False
    if x.numel() == 0 or x.shape[-1:] != norm.weight.shape or not _is_computed(residual, x, branch):
        return False
    return source is None or (source.residual.manifold is residual.manifold and _is_computed(*source))


def _is_computed(residual: torch.nn.Module, x: Tensor, branch: Tensor) -> bool:
    """Return whether the kernel computes this residual: a Lorentz residual of rows, with one weight and one scale."""
    if type(residual) is not LorentzResidual or not is_plain(residual) or not residual.joined_by_compiler:
        return False
    if residual.dim not in (-1, x.dim() - 1) or any(t is not None and t.dim() > 0 for t in residual.weight_and_scale()):
        return False
    return supports_pair(x, branch, residual.manifold.curvature, dim=-1)


def _weight_and_scale(residual: LorentzResidual) -> tuple[Tensor, Tensor | None]:
    """Return w >= 0 and the scale in float32."""
    weight, scale = residual.weight_and_scale()
    return weight.to(torch.float32).abs(), None if scale is None else scale.to(torch.float32)


class _ResidualAndNorm(torch.autograd.Function):
    """(x, y, weight of the norm, w, gamma, kappa, eps, dtype) -> (z, norm of z in ``dtype``), in compiled code.

    With four more arguments (branches, weight and scale of a residual whose result is x), these are stored instead of
    x. They get no gradients here: the gradient of x reaches them through that residual.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        norm: Tensor,
        w: Tensor,
        gamma: Tensor | None,
        kappa: Tensor,
        eps: float,
        dtype: torch.dtype,
        *source: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(source[0] if source else x, y, norm, w, gamma, kappa, *source[1:])
        ctx.eps = eps
        (x, y), narrow = checked_points(x, y)  # in float32
        z = _converted(residual_value(x, y, w, gamma, kappa, -1), narrow)
        wide, factor = _converted(z, x.dtype), _converted(norm, x.dtype)
        rows = torch.nn.functional.rms_norm(wide, norm.shape, factor, eps)
        return z, _converted(_converted(rows, narrow), dtype)

    @staticmethod
    def backward(ctx: Any, gz: Tensor, gr: Tensor) -> tuple[Tensor | None, ...]:
        from lresnet.kernels.residual_norm import residual_norm_backward

        x, y, norm, w, gamma, kappa, *source = ctx.saved_tensors
        gx, gy, lines = residual_norm_backward(gz, gr, x, y, norm, w, gamma, kappa, ctx.eps, *source)
        sums, n = lines.sum(0), norm.shape[0]
        gradients = _converted(sums[:n], norm.dtype), sums[n], sums[n + 1], sums[n + 2]
        needed = ctx.needs_input_grad[2:6]
        unused = (None,) * (6 if source else 2)
        return gx, gy, *(g if need else None for g, need in zip(gradients, needed, strict=True)), *unused


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x in this dtype. (torch 2.11 compiles gradients of 0 for a function whose last ``to`` does nothing.)"""
    return x if x.dtype == dtype else x.to(dtype)
