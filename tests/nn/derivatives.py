"""Check of the first and second derivatives of a layer in its input, its parameters and its curvature."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call


class Holder(torch.nn.Module):
    """Owns the curvature of a layer, as a model does."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer, self.manifold = layer, layer.manifold

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.with_time(x)


def assert_derivatives(layer: torch.nn.Module, x: Tensor, *, learnable: bool) -> None:
    """Assert that the derivatives of ``layer.with_time`` at x (float64) agree with finite differences."""
    holder = Holder(layer)
    names, parameters = zip(*holder.named_parameters(), strict=True)
    assert ("manifold.log_kappa" in names) == learnable

    def f(x: Tensor, *values: Tensor) -> Tensor:
        return functional_call(holder, dict(zip(names, values, strict=True)), (x,))

    inputs = tuple(t.detach().clone().requires_grad_() for t in (x, *parameters))
    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)
