"""Helpers of the kernel tests: residuals by name on the available device, gradients of all arguments, launches."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from lresnet.functional import lorentz_residual, parallel_transport_residual, tangent_residual

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = ("lorentz", "parallel_transport", "tangent")

Value = float | Tensor | None


def residual(kind: str, x: Tensor, y: Tensor, weight: Value = 1.0, scale: Value = None, K: Value = -1.0, dim: int = -1):
    if kind == "lorentz":
        return lorentz_residual(x, y, weight, scale, K=K, dim=dim)
    if kind == "tangent":
        return tangent_residual(x, y, weight, K=K, dim=dim)
    return parallel_transport_residual(x, y, K=K, dim=dim)


def on_device(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(DEVICE) for tensor in tensors]


def gradients(kind: str, g: Tensor, *arguments: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the result, and the gradients along g of x, y, weight, scale and K."""
    leaves = [a.detach().clone().requires_grad_() for a in arguments]
    z = residual(kind, *leaves)
    found = torch.autograd.grad(z, leaves, g.to(z.dtype), allow_unused=True, materialize_grads=True)
    return z.detach(), list(found)


def row_errors(got: Tensor, exact: Tensor) -> Tensor:
    """Return the relative error of each row."""
    return (got.double() - exact).norm(dim=-1) / exact.norm(dim=-1)


def record_launches(monkeypatch: pytest.MonkeyPatch, launcher: ModuleType) -> list[str]:
    """Record every launch of ``launcher`` from now on as "forward" or "backward", except those of a trace."""
    seen: list[str] = []
    for name in ("forward", "backward"):
        original = getattr(launcher, name)

        def spy(*args, name=name, original=original, **options):
            if type(args[0]) is not FakeTensor:
                seen.append(name)
            return original(*args, **options)

        monkeypatch.setattr(launcher, name, spy)
    return seen
