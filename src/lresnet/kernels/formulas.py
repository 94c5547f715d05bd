"""Differentiable formulas of the residual operators: for second derivatives, and where no kernel runs.

The formula of each residual is registered by its file in :mod:`lresnet.residual`. This module adds what the operators
do around it: affine maps or batch norms before, a ReLU after.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lresnet.kernels.runtime import disabled

__all__ = ["norm_tail_formula", "register_formula", "registered_kinds", "require_kind", "tail_formula", "takes_weight"]

Formula = Callable[[Tensor, Tensor, float | Tensor, Tensor | None, Tensor, int], Tensor]


class _Entry(NamedTuple):
    formula: Formula
    weighted: bool


_entries: dict[str, _Entry] = {}


def register_formula(kind: str, *, weighted: bool = False) -> Callable[[Formula], Formula]:
    """Register the decorated function as the formula of the residual ``kind``, a value of ``KIND`` in the kernels.

    The function maps ``(x, y, weight, scale, K, dim)`` to the residual times the scale, by operations that autograd
    differentiates any number of times.

    Args:
        weighted: whether the residual has a weight; others get None for it in the kernels.
    """

    def register(formula: Formula) -> Formula:
        _entries[kind] = _Entry(formula, weighted)
        return formula

    return register


def registered_kinds() -> tuple[str, ...]:
    """Return the residuals whose formulas are registered, in alphabetical order."""
    return tuple(sorted(_entries))


def require_kind(kind: str, kappa: float | Tensor) -> None:
    """Raise ``ValueError`` unless ``kind`` is registered and the number ``kappa`` is positive and finite."""
    if kind not in _entries:
        raise ValueError(f"unknown residual {kind!r}; the kernels know {', '.join(map(repr, registered_kinds()))}")
    if not isinstance(kappa, Tensor) and not 0 < kappa < math.inf:
        raise ValueError(f"kappa must be positive and finite, got {kappa}: it is -K, minus the curvature")


def takes_weight(kind: str) -> bool:
    """Return whether the residual ``kind`` has a weight."""
    return _entries[kind].weighted


def tail_formula(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    kappa: Tensor,
    a_x: Tensor | None,
    b_x: Tensor | None,
    a_y: Tensor | None,
    b_y: Tensor | None,
    kind: str,
    relu: bool,
    dim: int = -1,
) -> Tensor:
    """Compute the operator ``lresnet::residual`` for points of any shape with coordinates along ``dim``.

    Weight and scale hold one number, or one number per point in any shape of that size.
    """
    dtype = torch.promote_types(x.dtype, y.dtype)
    x, y = _affine(x, a_x, b_x, dim), _affine(y, a_y, b_y, dim)
    w = 1.0 if weight is None else _per_point(weight, x, dim)
    gamma = None if scale is None else _per_point(scale, x, dim)
    with disabled():
        z = _entries[kind].formula(x, y, w, gamma, -kappa, dim)
    return (z.relu() if relu else z).to(dtype)


def norm_tail_formula(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    kappa: Tensor,
    x_weight: Tensor | None,
    x_bias: Tensor | None,
    y_weight: Tensor | None,
    y_bias: Tensor | None,
    eps: tuple[float, float],
    kind: str,
    relu: bool,
    dim: int = -1,
) -> Tensor:
    """Compute the first result of ``lresnet::norm_tail`` for points of any shape with coordinates along ``dim``."""
    x_affine = _batch_norm(x, x_weight, x_bias, eps[0], dim)
    y_affine = _batch_norm(y, y_weight, y_bias, eps[1], dim)
    return tail_formula(x, y, weight, scale, kappa, *x_affine, *y_affine, kind, relu, dim)


def _per_point(rows: Tensor, points: Tensor, dim: int) -> Tensor:
    """Return one number, or one number per row in the shape of the points with one coordinate."""
    shape = list(points.shape)
    shape[dim] = 1
    return rows if rows.dim() == 0 else rows.reshape(shape)


def _affine(x: Tensor, a: Tensor | None, b: Tensor | None, dim: int) -> Tensor:
    x = x if x.dtype == torch.float64 else x.float()
    if a is None or b is None:
        return x
    shape = [1] * x.dim()
    shape[dim] = -1
    return x * a.reshape(shape) + b.reshape(shape)


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, dim: int
) -> tuple[Tensor | None, Tensor | None]:
    """Return (a, b) such that ``x a + b`` is the batch norm of x by its own statistics."""
    if weight is None or bias is None:
        return None, None
    others = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, others, correction=0)
    a = weight * torch.rsqrt(variance + eps)
    return a, bias - mean * a
