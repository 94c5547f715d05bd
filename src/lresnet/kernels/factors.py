"""What the kernels take and give besides points: the one list of it, for launching, tracing and the reference."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["MEAN", "VARIANCE", "A", "B", "Factors", "Gradients", "is_per_row", "norm_count", "row_count", "sums_width"]

# What is known of each channel of a normalised tensor, float32 [5, n]: mean, unbiased variance,
# 1/sqrt(biased variance + eps), a and b of the affine map.
MEAN, VARIANCE, A, B = 0, 1, 3, 4


class Factors(NamedTuple):
    """What the residual depends on besides its points, float32."""

    weight: Tensor | None
    """None (1), one number [] or one per row [R]; its absolute value is taken."""
    scale: Tensor | None
    """Likewise; positive."""
    kappa: Tensor
    """[]"""
    a_x: Tensor | None = None
    """[n], like the three that follow; a_x and b_x come together, and so do a_y and b_y."""
    b_x: Tensor | None = None
    a_y: Tensor | None = None
    b_y: Tensor | None = None


class Gradients(NamedTuple):
    """Of x and y; per row of weight and scale (empty where they are no rows); and sums over all rows.

    The sums are those of a_y, b_y, a_x, b_x, as far as given, then of weight, scale and kappa; empty unless asked for.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    scale: Tensor
    sums: Tensor


def norm_count(factors: Factors) -> int:
    """How many of x and y go through an affine map."""
    return (factors.a_x is not None) + (factors.a_y is not None)


def is_per_row(values: Tensor | None) -> bool:
    """Whether a weight or a scale is one number per row."""
    return values is not None and values.dim() == 1


def row_count(values: Tensor | None) -> int:
    """How many numbers its gradient holds as rows."""
    return values.shape[0] if values is not None and values.dim() == 1 else 0


def sums_width(n: int, factors: Factors) -> int:
    """How many sums over rows there are."""
    return 2 * n * norm_count(factors) + 3
