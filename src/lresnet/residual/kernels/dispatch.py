"""From points of any shape to the kernels' rows and back."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.geometry.weights import require_positive, weight_rows

__all__ = ["fused_residual"]

Weight = float | Tensor


def fused_residual(
    kind: str,
    x: Tensor,
    y: Tensor,
    weight: Weight | None,
    scale: Weight | None,
    K: Curvature,
    dim: int,
    x_affine: tuple[Tensor, Tensor] | None = None,
    y_affine: tuple[Tensor, Tensor] | None = None,
    relu: bool = False,
) -> Tensor:
    """The residual ``kind`` of points that :func:`~lresnet.residual.kernels.switch.serves` accepts.

    Where the coordinates are contiguous (``dim=-1``, or ``dim=1`` of images in channels_last memory) the rows are
    views; other layouts are copied into rows first. The result lies in memory like the rows: channels_last stays.
    """
    # triton is imported here, on first use: `import lresnet` stays light, and works without it.
    from lresnet.residual.kernels import ops

    a_x, b_x = x_affine or (None, None)
    a_y, b_y = y_affine or (None, None)
    factors = _rows(weight, x, dim, "weight"), _rows(scale, x, dim, "scale")
    if factors[1] is not None:
        require_positive(factors[1], "scale")
    kappa = kappa_of(K, torch.float32)
    if not isinstance(kappa, Tensor):
        kappa = torch.full((), kappa, dtype=torch.float32, device=x.device)
    last = x.movedim(dim, -1).shape
    rows = [t.movedim(dim, -1).reshape(-1, last[-1]) for t in (x, y)]
    kappa = kappa.to(x.device).reshape(())
    z: Tensor = ops.residual(*rows, *factors, kappa, a_x, b_x, a_y, b_y, kind, relu)
    return z.reshape(last).movedim(-1, dim)


def _rows(weight: Weight | None, points: Tensor, dim: int, name: str) -> Tensor | None:
    """None, one number [] or one per row [R], in float32."""
    if weight is None:
        return None
    if isinstance(weight, Tensor):
        weight = weight.to(points.device)
    like = points.new_empty((), dtype=torch.float32).expand(points.shape)  # no memory: weights are made like points
    rows = weight_rows(weight, like, dim, name)
    if rows.dim() == 0:
        return rows
    per_point = list(points.shape)
    per_point[dim] = 1
    return rows.expand(per_point).movedim(dim, -1).reshape(-1)
