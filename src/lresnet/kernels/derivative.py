"""The derivative of the fused residual: by the kernel, or by differentiable formulas where a second one is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.kernels.factors import Factors, Gradients, is_per_row

__all__ = ["derivative"]


def derivative(
    backward: Callable[[bool], Sequence[Tensor]],
    formula: Callable[..., Tensor],
    g: Tensor,
    tensors: Sequence[Any],
    needed: Sequence[bool],
    dim: int = -1,
) -> list[Tensor | None]:
    """Gradients of x, y and the factors, in this order.

    Args:
        backward: starts the kernel and gives the fields of ``Gradients``; its argument says whether sums are needed.
        formula: (x, y, factors, dim=dim) -> the result, in functions that autograd knows.
        g: the gradient of the result.
        tensors: x, y and the factors.
        needed: which of them want a gradient.
    """
    x, y, *rest = tensors
    factors = Factors(*rest)
    if torch.is_grad_enabled():  # a second derivative is wanted: by the formulas that autograd can differentiate again
        wanted = [tensor for tensor, need in zip(tensors, needed, strict=True) if need]
        z = formula(x, y, factors, dim=dim)
        found = iter(torch.autograd.grad(z, wanted, g, create_graph=True, allow_unused=True))
        return [next(found) if need else None for need in needed]
    needs_sums = any(needed[2:])
    gradients = Gradients(*backward(needs_sums))
    return [gradients.x, gradients.y, *(_of_factors(gradients, factors, x.shape[dim]) if needs_sums else [None] * 7)]


def _of_factors(gradients: Gradients, factors: Factors, n: int) -> list[Tensor | None]:
    """One for each factor, None where there is none."""
    sums = gradients.sums
    weight = gradients.weight if is_per_row(factors.weight) else sums[-3]
    scale = gradients.scale if is_per_row(factors.scale) else sums[-2]
    columns = [sums[start : start + n] for start in range(0, sums.shape[0] - 3, n)]
    a_y, b_y = (columns.pop(0), columns.pop(0)) if factors.a_y is not None else (None, None)
    a_x, b_x = (columns.pop(0), columns.pop(0)) if factors.a_x is not None else (None, None)
    given = [None if factors.weight is None else weight, None if factors.scale is None else scale]
    return [*given, sums[-1], a_x, b_x, a_y, b_y]
