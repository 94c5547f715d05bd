"""One weight for all points or one per point; never one per coordinate, which would leave the geometry."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from lresnet.geometry.checks import checks_values

__all__ = ["refuse_negative", "require_positive", "weight_rows"]


def weight_rows(weight: float | Tensor, points: Tensor, dim: int, name: str = "weight") -> Tensor:
    """``weight`` as a tensor that broadcasts against ``points`` with the coordinate axis ``dim`` at size 1.

    Accepted: a number, a 0-dimensional tensor, a tensor that broadcasts to the shape of ``points`` without the axis
    ``dim``, or one of as many axes as ``points`` whose axis ``dim`` has size 1.
    """
    if not isinstance(weight, Tensor):
        if not isinstance(weight, Real):
            kind = type(weight).__name__
            raise TypeError(f"{name} must be a number or a torch.Tensor, got {kind}; wrap it in torch.as_tensor(...)")
        # torch.full and not new_tensor: on CUDA that is a kernel, not a copy from the host that would synchronise
        return torch.full((), float(weight), dtype=points.dtype, device=points.device)
    if not weight.is_floating_point():
        raise TypeError(f"{name} must be a floating point tensor, got {weight.dtype}; convert it, e.g. .float()")
    weight = weight.to(points.dtype)
    axis = dim % points.dim()
    if weight.dim() == 0:
        return weight
    if weight.dim() == points.dim() and weight.shape[axis] == 1:
        rows = weight
    elif weight.dim() < points.dim():
        missing = points.dim() - 1 - weight.dim()
        rows = weight.reshape((1,) * missing + tuple(weight.shape)).unsqueeze(axis)
    else:
        rows = weight
    target = list(points.shape)
    target[axis] = 1
    fits = rows.dim() == len(target) and all(r in (1, t) for r, t in zip(rows.shape, target, strict=True))
    if not fits:
        without = tuple(size for i, size in enumerate(points.shape) if i != axis)
        raise ValueError(
            f"{name} has shape {tuple(weight.shape)}, but the points need one weight each: a number or a tensor that "
            f"broadcasts to {without}. A weight per coordinate would not give a point of the hyperboloid"
        )
    return rows


def refuse_negative(weight: Tensor, what: str) -> None:
    """Raise if a weight is negative or not finite, where its values may be read."""
    if checks_values(weight) and not bool((weight >= 0).all() & weight.isfinite().all()):
        bad = weight.detach()[~((weight >= 0) & weight.isfinite())].flatten()[0]
        raise ValueError(
            f"{what} must be finite and not negative, got {float(bad):g}: a negative weight can leave the hyperboloid. "
            "Use weight.abs(), or softplus of a free parameter"
        )


def require_positive(scale: Tensor, what: str) -> None:
    """Raise if a scale is not a positive, finite number, where its values may be read."""
    if checks_values(scale) and not bool(((scale > 0) & scale.isfinite()).all()):
        bad = scale.detach()[~((scale > 0) & scale.isfinite())].flatten()[0]
        raise ValueError(f"{what} must be positive and finite, got {float(bad):g}; exp of a free parameter always is")
