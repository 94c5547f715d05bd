"""Points of any shape as the kernels' rows, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lresnet.geometry.checks import weight_rows

__all__ = ["empty_points", "from_rows", "one_per_row", "to_rows"]


def to_rows(points: Tensor, dim: int) -> Tensor:
    """[R, n]: a view where the coordinates are contiguous, as in channels_last images with ``dim=1``, else a copy."""
    if points.dim() == 2 and dim in (1, -1):
        return points
    last = points.movedim(dim, -1)
    return last.reshape(-1, last.shape[-1])


def from_rows(rows: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """The counterpart of :func:`to_rows`: a view of ``shape``, whose coordinates stay contiguous."""
    if len(shape) == 2 and dim in (1, -1):
        return rows
    others = [size for axis, size in enumerate(shape) if axis != dim % len(shape)]
    return rows.reshape(*others, shape[dim]).movedim(-1, dim)


def empty_points(shape: Sequence[int], dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for points whose rows are contiguous, one after the other.

    A tensor of its own and not a view of rows: a view that comes out of an autograd.Function must not be changed in
    place, and people write ``residual(x, y).relu_()``.
    """
    steps, step = [0] * len(shape), 1
    axes = [axis for axis in range(len(shape)) if axis != dim % len(shape)]
    for axis in reversed([*axes, dim % len(shape)]):
        steps[axis] = step
        step *= shape[axis]
    return torch.empty_strided(shape, steps, dtype=dtype, device=device)


def one_per_row(
    weight: float | Tensor | None, points: Tensor, dim: int, name: str, dtype: torch.dtype = torch.float32
) -> Tensor | None:
    """None, one number [] or one per row [R], in ``dtype`` on the device of the points."""
    if weight is None:
        return None
    if isinstance(weight, Tensor) and weight.dim() == 0 and weight.is_floating_point():
        return weight.to(points.device, dtype)
    like = points.new_empty((), dtype=dtype).expand(points.shape)  # what weights are made like: points, of this dtype
    rows = weight_rows(weight.to(points.device) if isinstance(weight, Tensor) else weight, like, dim, name)
    if rows.dim() == 0:
        return rows
    per_point = list(points.shape)
    per_point[dim] = 1
    # One after the other in memory, as the kernels read them: a reshape alone may leave steps of 0 or 2 between them.
    return rows.expand(per_point).movedim(dim, -1).reshape(-1).contiguous()
