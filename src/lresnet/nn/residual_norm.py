"""A residual connection and the norm after it, whose gradients compiled code computes by one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import checked_points
from lresnet.geometry.curvature import kappa_of
from lresnet.kernels import supports_pair
from lresnet.nn.gated_mlp import LorentzGatedMLP
from lresnet.nn.point_norm import LorentzRMSNorm
from lresnet.residual import LorentzResidual
from lresnet.residual.lorentz import residual_value

__all__ = ["residual_and_norm"]


def residual_and_norm(
    residual: torch.nn.Module, norm: torch.nn.Module, mlp: torch.nn.Module, x: Tensor, branch: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``z = residual(x, branch)`` and ``norm(z)``, which ``mlp`` reads.

    In compiled code on a GPU both are computed by the formulas, which the compiler joins with the operations around
    them, and their gradients by one kernel. Under autocast the norm is then returned in the dtype to which the linear
    map of ``mlp`` would convert it: a conversion of the kernel's argument would be a pass over memory.
    """
    if not _is_supported(residual, norm, mlp, x, branch):
        z = residual(x, branch)
        return z, norm(z)
    assert isinstance(residual, LorentzResidual)
    assert isinstance(norm, LorentzRMSNorm)
    weight, scale = residual.weight_and_scale()
    kappa = torch.as_tensor(kappa_of(residual.manifold.curvature, torch.float32)).to(x.device)
    w, gamma = weight.to(torch.float32).abs(), None if scale is None else scale.to(torch.float32)
    if residual.recomputed_by_compiler:
        x = x.expand(x.shape)  # as in LorentzResidual.forward
    kind, dtype = x.device.type, torch.promote_types(x.dtype, branch.dtype)
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else dtype
    z, rows = _ResidualAndNorm.apply(x, branch, norm.weight, w, gamma, kappa, norm.eps, dtype)  # type: ignore[no-untyped-call]
    return z, rows


def _is_supported(
    residual: torch.nn.Module, norm: torch.nn.Module, mlp: torch.nn.Module, x: Tensor, branch: Tensor
) -> bool:
    """Return whether the kernel computes the gradients of this residual and this norm."""
    if not torch.compiler.is_compiling() or type(residual) is not LorentzResidual or type(norm) is not LorentzRMSNorm:
        return False
    if type(mlp) is not LorentzGatedMLP or type(mlp.in_proj) is not torch.nn.Linear:
        return False
    if not residual.joined_by_compiler or residual.dim not in (-1, x.dim() - 1) or x.shape[-1:] != norm.weight.shape:
        return False
    one_each = all(t is None or t.dim() == 0 for t in residual.weight_and_scale())
    plain = all(map(_is_plain, (residual, norm, mlp, mlp.in_proj)))
    return one_each and plain and x.numel() > 0 and supports_pair(x, branch, residual.manifold.curvature, dim=-1)


def _is_plain(module: torch.nn.Module) -> bool:
    """Return whether a call of the module runs its ``forward`` and nothing else."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return not hooks and "forward" not in module.__dict__


class _ResidualAndNorm(torch.autograd.Function):
    """(x, y, weight of the norm, w, gamma, kappa, eps, dtype) -> (z, norm of z in ``dtype``), in compiled code."""

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
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y, norm, w, gamma, kappa)
        ctx.eps = eps
        (x, y), narrow = checked_points(x, y)  # in float32
        z = _converted(residual_value(x, y, w, gamma, kappa, -1), narrow)
        wide, factor = _converted(z, x.dtype), _converted(norm, x.dtype)
        rows = torch.nn.functional.rms_norm(wide, norm.shape, factor, eps)
        return z, _converted(_converted(rows, narrow), dtype)

    @staticmethod
    def backward(ctx: Any, gz: Tensor, gr: Tensor) -> tuple[Tensor | None, ...]:
        from lresnet.kernels.residual_norm import residual_norm_backward

        x, y, norm, w, gamma, kappa = ctx.saved_tensors
        gx, gy, lines = residual_norm_backward(gz, gr, x, y, norm, w, gamma, kappa, ctx.eps)
        sums, n = lines.sum(0), norm.shape[0]
        gradients = _converted(sums[:n], norm.dtype), sums[n], sums[n + 1], sums[n + 2]
        needed = ctx.needs_input_grad[2:6]
        return gx, gy, *(g if need else None for g, need in zip(gradients, needed, strict=True)), None, None


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x in this dtype. (torch 2.11 compiles gradients of 0 for a function whose last ``to`` does nothing.)"""
    return x if x.dtype == dtype else x.to(dtype)
