r"""The Lorentz residual of a block, its scale and its ReLU on a CPU, in chunks of points that stay in the cache.

.. math:: z = \mathrm{relu}\Big(\gamma\, \frac{x + w y}{n}\Big), \qquad n^2 = (1 + w)^2 + 2 w D, \quad D = \cosh d - 1

The formula of :func:`lresnet.functional.lorentz_residual` makes a dozen passes over images that do not fit in the
cache, and every pass takes as long as the sum of a Euclidean block. Here a chunk is read from memory once. The angular
part of D is :math:`\tfrac\kappa2 \tfrac{|y|}{|x|} |x - \tfrac{|x|}{|y|} y|^2`, as in the GPU's kernels: one vector
instead of two directions and their difference. Equal points return that point (times the scale) exactly.

The gradients are those of ``_gradients`` in residual/lorentz.py, with
:math:`\kappa (x - y) \cdot (x + y) / (T_x + T_y) = T_x - T_y`. Their relative error is a few units in the last place
times :math:`T_x T_y`, where the formula's is a few units. Second derivatives use the formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import require_finite, require_positive
from lresnet.geometry.curvature import Curvature, root
from lresnet.geometry.distance import radial_part
from lresnet.kernels.formulas import tail_formula
from lresnet.kernels.runtime import is_eager, switched_off
from lresnet.kernels.tiles import empty_points, from_rows, to_rows

__all__ = ["cpu_tail", "supports_cpu_tail"]

# Numbers in a chunk. Smaller chunks are closer to the processor, but each takes about 0.1 ms of Python and dispatch.
# One core, 8 images of 56 x 56 with 256 channels, forward and backward: 15 and 21 ms for chunks of 2^17 numbers, 10 and
# 19 ms for 2^19, 12 and 50 ms for one chunk; the formula takes 26 and 57 ms.
_CHUNK = 2**19


def supports_cpu_tail(x: Tensor, y: Tensor, *scalars: object) -> bool:
    """Return whether :func:`cpu_tail` computes on images x and y: eager CPU tensors in channels_last memory.

    Args:
        x, y: Images [B, C, H, W].
        scalars: Weight, scale and curvature, which must be one number each.
    """
    for t in (x, y):
        if not (is_eager(t) and t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64)):
            return False
        if t.dim() != 4 or t.numel() == 0 or not t.is_contiguous(memory_format=torch.channels_last):
            return False
    single = all(not isinstance(scalar, Tensor) or scalar.dim() == 0 for scalar in scalars)
    return single and x.shape == y.shape and x.dtype == y.dtype and not switched_off()


def cpu_tail(
    x: Tensor,
    y: Tensor,
    weight: float | Tensor = 1.0,
    scale: float | Tensor | None = None,
    kappa: Curvature = 1.0,
    *,
    overwrite: bool = False,
) -> Tensor:
    """Return ``relu(scale * residual(x, y))`` of images that :func:`supports_cpu_tail` accepts, coordinates on axis 1.

    Args:
        x, y: Skip branch and layer output, [B, C, H, W].
        weight: Weight of y; its absolute value is used.
        scale: Positive, or None.
        kappa: -K > 0.
        overwrite: Whether the result may take the memory of y, if no gradient is needed.

    Example:
        >>> x, y = torch.tensor([2.0, -2.0]).view(1, 2, 1, 1), torch.tensor([2.0, 2.0]).view(1, 2, 1, 1)
        >>> cpu_tail(x, y).flatten()
        tensor([0.8944, 0.0000])
    """
    require_finite(weight)
    w = torch.as_tensor(weight, dtype=x.dtype).abs()
    gamma = None if scale is None else torch.as_tensor(scale, dtype=x.dtype)
    if gamma is not None:
        require_positive(gamma, "scale")
    k = kappa.to(x.dtype) if isinstance(kappa, Tensor) else kappa
    if overwrite and not torch.is_grad_enabled():
        _forward(to_rows(x, 1), to_rows(y, 1), w, gamma, k, to_rows(y, 1))
        return y
    return _CpuTail.apply(x, y, w, gamma, k)  # type: ignore[no-any-return, no-untyped-call]


class _CpuTail(torch.autograd.Function):
    """(x, y, w, gamma, kappa) -> z."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, w: Tensor, gamma: Tensor | None, kappa: Curvature) -> Tensor:
        z = empty_points(x.shape, 1, x.dtype, x.device)
        scalars = _forward(to_rows(x, 1), to_rows(y, 1), w, gamma, kappa, to_rows(z, 1))
        ctx.kappa = None if isinstance(kappa, Tensor) else kappa
        ctx.save_for_backward(x, y, z, scalars, w, gamma, kappa if isinstance(kappa, Tensor) else None)
        return z

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, z, scalars, w, gamma, kappa = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is needed
            given = [t for t, need in zip((x, y, w, gamma, kappa), ctx.needs_input_grad, strict=True) if need]
            k = torch.as_tensor(ctx.kappa, dtype=x.dtype) if kappa is None else kappa
            value = tail_formula(x, y, w, gamma, k, None, None, None, None, "lorentz", True, dim=1)
            found = iter(torch.autograd.grad(value, given, g, create_graph=True, allow_unused=True))
            return tuple(next(found) if need else None for need in ctx.needs_input_grad)
        kappa = ctx.kappa if kappa is None else kappa
        g_rows, x_rows, y_rows, z_rows = (to_rows(t, 1) for t in (g, x, y, z))
        gx, gy, gw, ggamma, gk = _backward(g_rows, x_rows, y_rows, z_rows, w, gamma, kappa, scalars)
        gradients = from_rows(gx, x.shape, 1), from_rows(gy, y.shape, 1), gw, ggamma, gk
        return tuple(one if need else None for one, need in zip(gradients, ctx.needs_input_grad, strict=True))


def _rows_of_chunk(n: int) -> int:
    return max(1, _CHUNK // n)


def _chunks(rows: int, n: int) -> Iterator[slice]:
    step = _rows_of_chunk(n)
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def _forward(x: Tensor, y: Tensor, w: Tensor, gamma: Tensor | None, kappa: Curvature, z: Tensor) -> Tensor:
    """Write the result for rows [R, n] to ``z``, or y itself; return n, D, growth, T_x and T_y of each, [5, R, 1]."""
    scalars = x.new_empty((5, x.shape[0], 1))
    least = torch.finfo(x.dtype).tiny ** 0.5
    has_weight = float(w) != 1.0
    total = 1 + w
    difference = x.new_empty((min(x.shape[0], _rows_of_chunk(x.shape[1])), x.shape[1]))
    for part in _chunks(*x.shape):
        a, b, out = x[part], y[part], z[part]
        e = difference[: len(a)]
        r = x.new_empty((2, len(a), 1))
        r_x = torch.linalg.vector_norm(a, dim=1, keepdim=True, out=r[0])
        r_y = torch.linalg.vector_norm(b, dim=1, keepdim=True, out=r[1])
        R = root(kappa) * r
        T = (1 + R.square()).sqrt()
        sinh, radial = radial_part(R[0], T[0], R[1], T[1])
        above_0 = r.clamp(min=least)
        torch.addcmul(a, b, r_x / above_0[1], value=-1, out=e)
        apart = root(kappa) * torch.linalg.vector_norm(e, dim=1, keepdim=True)
        angular = apart * (apart * (0.5 * r_y / above_0[0]))
        D = radial + angular
        excess = 2 * w * D
        n = total + excess / (total + (total * total + excess).sqrt())  # `normaliser` of residual/lorentz.py
        length, weight = n, w
        if has_weight:  # equal points give that point; for norms below 1e-12 a difference of 0 may be an underflow
            equal = (apart == 0) & (r_x == r_y) & (r_x > 1e-12) & (n == n)
            length, weight = torch.where(equal, 1.0, n), torch.where(equal, 0.0, w)
        c = 1 / length if gamma is None else gamma / length
        torch.mul(b, c * weight, out=out).addcmul_(a, c).relu_()
        growth = D if not isinstance(kappa, Tensor) else angular + 0.5 * (sinh / T[0]) * (sinh / T[1])
        torch.stack((n, D, growth, T[0], T[1]), out=scalars[:, part])
    return scalars


def _backward(
    g: Tensor, x: Tensor, y: Tensor, z: Tensor, w: Tensor, gamma: Tensor | None, kappa: Curvature, scalars: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of x, y, w, gamma and kappa along g."""
    n, D, growth, T_x, T_y = scalars
    inverse = 1 / n
    c = inverse if gamma is None else gamma * inverse
    gx, gy = torch.empty_like(x), torch.empty_like(y)
    e_chunk, work_chunk = x.new_empty((2, min(x.shape[0], _rows_of_chunk(x.shape[1])), x.shape[1]))
    g_e, g_x, along = torch.empty_like(scalars[:3])
    for part in _chunks(*x.shape):
        a, b, h, out = x[part], y[part], gy[part], gx[part]
        e, work = e_chunk[: len(a)], work_chunk[: len(a)]
        torch.ops.aten.threshold_backward.grad_input(g[part], z[part], 0, grad_input=h)
        torch.sub(a, b, out=e)
        ge = torch.sum(torch.mul(h, e, out=work), 1, keepdim=True, out=g_e[part])
        ga = torch.sum(torch.mul(h, a, out=work), 1, keepdim=True, out=g_x[part])
        c_part, i_part, time_x, time_y = c[part], inverse[part], T_x[part], T_y[part]
        dot = torch.mul((1 + w) * ga - w * ge, i_part, out=along[part])  # g . (x + w y) / n
        pull = c_part * (w * kappa * (dot * i_part))
        step = pull * (time_x - time_y)
        torch.mul(h, c_part, out=out).addcmul_(e, pull, value=-1).addcmul_(a, step / time_x)
        h.mul_(c_part * w).addcmul_(e, pull).addcmul_(b, step / time_y, value=-1)
    ratio = D * inverse * inverse
    gw = c * (-g_e * ((1 + w) * inverse * inverse + w * ratio) - (1 - w) * ratio * g_x)
    gk = -c * along * inverse * w * growth / kappa
    return gx, gy, gw.sum(), along.sum(), gk.sum()
