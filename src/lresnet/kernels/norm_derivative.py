"""The derivative of the tail with batch norms, and the tail in functions that autograd can differentiate again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.kernels.derivative import derivative
from lresnet.kernels.factors import Factors
from lresnet.kernels.reference import reference

__all__ = ["norm_derivative", "norm_reference"]


def norm_derivative(
    backward: Callable[[bool], Sequence[Tensor]], g: Tensor, tensors: Sequence[Any], ctx: Any, dim: int = -1
) -> list[Tensor | None]:
    """Gradients of x, y and the factors, in this order; ``ctx`` holds eps, kind, relu and which of them are needed."""
    formula = functools.partial(norm_reference, eps=ctx.eps, kind=ctx.kind, relu=ctx.relu)
    return derivative(backward, formula, g, tensors, ctx.needs_input_grad[:9], dim)


def norm_reference(
    x: Tensor, y: Tensor, factors: Factors, eps: tuple[float, float], kind: str, relu: bool, dim: int = -1
) -> Tensor:
    """The operator ``lresnet::norm_tail``'s first result, for points of any shape with coordinates along ``dim``."""
    a_x, b_x = _affine(x, factors.a_x, factors.b_x, eps[0], dim)
    a_y, b_y = _affine(y, factors.a_y, factors.b_y, eps[1], dim)
    return reference(x, y, Factors(*factors[:3], a_x, b_x, a_y, b_y), kind, relu, dim)


def _affine(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, dim: int
) -> tuple[Tensor | None, Tensor | None]:
    """The batch norm of these points as x a + b."""
    if weight is None or bias is None:
        return None, None
    others = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, others, correction=0)
    a = weight * torch.rsqrt(variance + eps)
    return a, bias - mean * a
