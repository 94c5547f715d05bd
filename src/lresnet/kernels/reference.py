"""What the kernels compute, in the library's own differentiable functions: for second derivatives and comparison."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.kernels.factors import Factors
from lresnet.kernels.switch import disabled

__all__ = ["reference"]


def reference(x: Tensor, y: Tensor, factors: Factors, kind: str, relu: bool, dim: int = -1) -> Tensor:
    """The operator ``lresnet::residual``, for points of any shape with their coordinates along ``dim``.

    Weight and scale hold one number or one for each point, in any shape of as many.
    """
    # Imported here: these modules offer their work to the kernels first.
    from lresnet.residual.lorentz import lorentz_residual
    from lresnet.residual.parallel_transport import parallel_transport_residual
    from lresnet.residual.tangent import tangent_residual

    dtype = torch.promote_types(x.dtype, y.dtype)
    x, y = _affine(x, factors.a_x, factors.b_x, dim), _affine(y, factors.a_y, factors.b_y, dim)
    weight = 1.0 if factors.weight is None else _per_point(factors.weight, x, dim)
    scale = None if factors.scale is None else _per_point(factors.scale, x, dim)
    K = -factors.kappa
    with disabled():
        if kind == "lorentz":
            z = lorentz_residual(x, y, weight, scale, K=K, dim=dim)
        elif kind == "parallel_transport":
            z = parallel_transport_residual(x, y, K=K, dim=dim)
        elif kind == "tangent":
            z = tangent_residual(x, y, weight, K=K, dim=dim)
        else:
            z = x + y
    if scale is not None and kind != "lorentz":
        z = z * scale
    return (z.relu() if relu else z).to(dtype)


def _per_point(rows: Tensor, points: Tensor, dim: int) -> Tensor:
    """One number, or one per row as a tensor like the points with one coordinate."""
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
