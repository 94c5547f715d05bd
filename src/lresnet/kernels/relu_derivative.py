"""The derivative of a batch norm with its ReLU, also where autograd is to differentiate it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["relu_derivative"]


def relu_derivative(
    backward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]], g: Tensor, ctx: Any
) -> tuple[Tensor | None, ...]:
    """Gradients along g of x (channels along axis 1), weight and bias, and None for eps.

    Args:
        backward: (g, x, statistics) -> the gradient of x, and those of weight and bias one after the other.
        ctx: holds eps, which gradients are needed, and x, weight, bias and the statistics.
    """
    x, weight, bias, statistics = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative is wanted: by functions that autograd can differentiate again
        needed = ctx.needs_input_grad[:3]
        z = torch.nn.functional.batch_norm(x.to(weight.dtype), None, None, weight, bias, True, eps=ctx.eps).relu()
        wanted = [tensor for tensor, need in zip((x, weight, bias), needed, strict=True) if need]
        found = iter(torch.autograd.grad(z, wanted, g.to(z.dtype), create_graph=True))
        return *(next(found) if need else None for need in needed), None
    gx, sums = backward(g, x, statistics)
    gweight, gbias = sums.chunk(2)
    return gx, gweight, gbias, None
