r"""Distances between every point of one set and every point of another, [N, M], without an [N, M, n] tensor.

With unitless radii :math:`R = \sqrt\kappa |x|`, hyperbolic radii a and b and the angle :math:`\theta` at the origin,
the law of cosines reads

.. math:: S = \cosh(\sqrt\kappa d) - 1 = [\cosh(a - b) - 1] + R_x R_y (1 - \cos\theta), \qquad
    d = \frac{2}{\sqrt\kappa} \operatorname{asinh} \sqrt{S/2} .

All cosines are one matrix product. Both summands are non-negative, so only :math:`1 - \cos\theta` cancels, by
:math:`\epsilon / \theta^2` relative to the distance. Three measures keep the result accurate:

1. The product is computed in float64 (:math:`\epsilon` = 1.1e-16), for float32 points too, in blocks of rows. The
   memory for it does not grow with N.
2. Pairs with a smaller angle than a threshold (``NEAR``: :math:`1 - \cos\theta < 2^{-26}` for float32 points,
   :math:`2^{-13}` for float64 points) are computed again by :func:`lresnet.geometry.distance.dist`, which subtracts the
   points first. These are equal points, very near points and points on one ray.
3. The gradients are computed in float64 from matrix products as well, and are 0 for equal points.

Errors relative to the distance, against 50 digits, over the families and norms of ``tests/families.py``
(``tests/geometry/test_pairwise.py``): at most 1.2e-7 for float32 points, one unit in the last place, and 1e-12 for
float64 points. Measure 2 reads values on the host. It is therefore skipped on CUDA and under torch.compile,
torch.export and vmap. A pair of different float32 points with an angle below 1.7e-4 then has an absolute error of up to
4e-8 |x|, which is less than a unit in the last place of its coordinates. The distance of a point to itself is 0 if
``y`` is omitted. Devices without float64 compute in float32 with a wider threshold.

On CUDA, float32 sets [N, n] and [M, n] with a fixed curvature are computed by one kernel
(:mod:`lresnet.kernels.pairwise_distance`). It subtracts coordinates before it squares them, in float32. Its error in
Triton's interpreter is at most 3e-7 relative, for near points too, and 0 for equal points. For points on nearly one ray
it is :math:`\epsilon T` (8e-6 at norm 1e4).
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import distance
from lresnet.geometry.checks import full_precision, require_points, traced
from lresnet.geometry.curvature import Curvature, constant, kappa_of, root
from lresnet.geometry.smooth import asinhc, safe_sqrt, with_derivatives_of

__all__ = ["NEAR", "NEAR_COORDINATES", "Rows", "pairwise_dist", "row_blocks", "separation", "working_dtype"]

# Numbers in a block: the temporaries of a block fit a CPU's cache, or are few enough launches on a GPU.
_BLOCK = {"cpu": 2**19}
_LARGE_BLOCK = 2**24
# Coordinates of near pairs that are computed again at once.
NEAR_COORDINATES = 2**20
# 1 - cos(angle) below which a pair is computed again, by the dtypes of the points and of the matrix product.
NEAR = {
    (torch.float32, torch.float64): 2.0**-26,
    (torch.float64, torch.float64): 2.0**-13,
    (torch.float32, torch.float32): 2.0**-5,
}
_KERNEL = "lresnet.kernels.pairwise_distance"
_MOST_COLUMNS = 2**21  # of its launch grid


def pairwise_dist(x: Tensor, y: Tensor | None = None, *, K: Curvature | None = -1.0) -> Tensor:
    r"""Return the geodesic distances between all points of x and all points of y.

    See the module's docstring for the formula, its accuracy, and what differs on CUDA and in compiled code. Gradients
    with respect to x, y and the curvature are finite everywhere; they are 0 where two points are equal. Under autocast
    and for half-precision points, distances are computed and returned in float32.

    Args:
        x: N points in space coordinates.
        y: M points. None: the points of x; the diagonal is then exactly 0.
        K: Curvature K < 0, a number or a 0-dimensional tensor. None: Euclidean distances.

    Shapes:
        x [..., N, n], y [..., M, n] -> [..., N, M], float32 or wider.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> pairwise_dist(x, K=None)
        tensor([[0., 5.],
                [5., 0.]])
        >>> pairwise_dist(x, K=-1.0)[0, 1]
        tensor(2.3124)
    """
    require_points(x)
    own = y is None
    other = x if y is None else require_points(y, name="y")
    if x.dim() < 2 or other.dim() < 2 or x.shape[-1] != other.shape[-1]:
        raise ValueError(
            f"x {tuple(x.shape)} and y {tuple(other.shape)} must be sets of points [..., N, n] and [..., M, n] of one "
            "dimension n; one point is x.unsqueeze(0)"
        )
    dtype = torch.promote_types(torch.promote_types(x.dtype, other.dtype), torch.float32)
    sets = torch.broadcast_shapes(x.shape[:-2], other.shape[:-2])
    points, others = (t.to(dtype).expand(*sets, *t.shape[-2:]) for t in (x, other))
    kappa = None if K is None else kappa_of(K, dtype)
    if isinstance(kappa, Tensor) and kappa.numel() != 1:
        raise ValueError(f"K must be one curvature, got shape {tuple(kappa.shape)}; call pairwise_dist once for each")
    if isinstance(kappa, Tensor):
        kappa = kappa.reshape(())
    with full_precision(points):
        if traced():
            return _plain(points, others, kappa, own)
        tensor = kappa if isinstance(kappa, Tensor) else None
        result: Tensor = _PairwiseDist.apply(points, others, tensor, kappa, own)  # type: ignore[no-untyped-call]
        return result


def working_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of the matrix products of points x."""
    return torch.float32 if x.device.type == "mps" else torch.float64  # Apple's GPUs have no float64


# --- operations that every transform supports -------------------------------------------------------------------------


def _plain(x: Tensor, y: Tensor, kappa: Curvature | None, own: bool) -> Tensor:
    """Return the distances by operations that autograd and torch.func differentiate to any order, in one block."""
    wide = working_dtype(x)
    a, b = x.to(wide), y.to(wide)
    k = kappa.to(wide) if isinstance(kappa, Tensor) else kappa
    with torch.no_grad():
        value = separation(Rows(a.detach(), _fixed(k)), Rows(b.detach(), _fixed(k)))[0]
    cross = a @ b.mT
    a2, b2 = distance.dot(a, a, -1), distance.dot(b, b, -1).mT
    if k is None:
        d2 = 2 * with_derivatives_of(value, 0.5 * (a2 + b2) - cross)
    else:
        S = with_derivatives_of(value, (1 + k * a2).sqrt() * (1 + k * b2).sqrt() - k * cross)
        d2 = 2 * S / k * asinhc(S / 2).square()
    if own:  # before the root, so that the diagonal has gradient 0
        d2 = torch.where(torch.eye(x.shape[-2], dtype=torch.bool, device=x.device), 0.0, d2)
    return safe_sqrt(d2).to(x.dtype)


def _fixed(kappa: Curvature | None) -> Curvature | None:
    return None if kappa is None else constant(kappa)


# --- blocks of rows ---------------------------------------------------------------------------------------------------


class Rows:
    """Points with what every pair needs from them: direction, unitless radius R and unitless time T, axes kept.

    Flat space has R = |x| and T = 1.
    """

    def __init__(self, x: Tensor, kappa: Curvature | None) -> None:
        self.x = x
        self.unit, radius = distance.unit(x, -1)
        self.R = radius if kappa is None else root(kappa) * radius
        self.T = torch.ones_like(self.R) if kappa is None else (1 + self.R.square()).sqrt()
        self.flat = kappa is None

    def part(self, rows: slice) -> Rows:
        part = object.__new__(Rows)
        part.flat = self.flat
        part.x, part.unit, part.R, part.T = (t[..., rows, :] for t in (self.x, self.unit, self.R, self.T))
        return part


def separation(x: Rows, y: Rows) -> tuple[Tensor, Tensor]:
    """Return S, [..., N, M], which is half the squared distance in flat space, and ``1 - cos(angle)``."""
    apart = (1 - x.unit @ y.unit.mT).clamp(min=0.0)
    R, T = y.R.mT, y.T.mT
    radial = 0.5 * (x.R - R).square() if x.flat else distance.radial_part(x.R, x.T, R, T)[1]
    return torch.addcmul(radial, x.R * R, apart), apart


def _dist_rows(x: Rows, y: Rows, kappa: Curvature | None, own_from: int | None, dtype: torch.dtype) -> Tensor:
    """Return the distances of a block of rows; ``own_from`` is the number of its first row if y is x."""
    S, apart = separation(x, y)
    d = S.mul_(2.0).sqrt_() if kappa is None else S.mul_(0.5).sqrt_().asinh_().mul_(2 / root(kappa))
    if d.device.type == "cuda":  # finding near pairs would wait for the device
        return d
    near = apart < NEAR[dtype, d.dtype]
    # A point at the origin has no direction; its distances have no angular part.
    near &= (x.R > 0) & (y.R.mT > 0)
    if own_from is not None:
        near.diagonal(own_from, dim1=-2, dim2=-1).fill_(False)
    index = near.nonzero()
    for some in index.split(max(1, NEAR_COORDINATES // x.x.shape[-1])):
        *sets, i, j = some.unbind(-1)
        d[(*sets, i, j)] = _dist(x.x[(*sets, i)], y.x[(*sets, j)], kappa)
    return d


def _dist(x: Tensor, y: Tensor, kappa: Curvature | None) -> Tensor:
    if kappa is None:
        return torch.linalg.vector_norm(x - y, dim=-1)  # type: ignore[no-any-return]
    return distance.dist(x, y, kappa, -1).squeeze(-1)


def row_blocks(x: Tensor, columns: int) -> list[slice]:
    """Return blocks of the rows of x [..., N, n] whose [..., rows, columns] temporaries are small."""
    *sets, rows, _ = x.shape
    numbers = _BLOCK.get(x.device.type, _LARGE_BLOCK)
    step = max(1, numbers // max(1, columns * math.prod(sets)))
    return [slice(start, min(rows, start + step)) for start in range(0, rows, step)]


def _kernel(x: Tensor, y: Tensor, kappa: Curvature | None) -> Any:
    """Return the module of the fused kernel if it computes these distances."""
    if x.dim() != 2 or y.dtype != x.dtype or y.device != x.device or not len(x) or not 0 < len(y) <= _MOST_COLUMNS:
        return None
    # Kernels are a package above this one (CONTRIBUTING.md), and imported with the first call that may need one.
    kernels = importlib.import_module("lresnet.kernels")
    return importlib.import_module(_KERNEL) if kernels.supports_rows(x, kappa) else None


class _PairwiseDist(torch.autograd.Function):
    """The distances, and gradients from the distances themselves: nothing of size [N, M] is saved but the result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, tensor: Tensor | None, kappa: Curvature | None, own: bool) -> Tensor:
        ctx.kappa, ctx.own = kappa if tensor is None else None, own
        if kernel := _kernel(x, y, kappa):
            d: Tensor = kernel.forward(x, y, kappa=kappa)
            ctx.save_for_backward(x, y, tensor, d)
            return d
        wide = working_dtype(x)
        k = kappa.to(wide) if isinstance(kappa, Tensor) else kappa
        a, b = Rows(x.to(wide), k), Rows(y.to(wide), k)
        d = x.new_empty(*x.shape[:-1], y.shape[-2])
        for rows in row_blocks(x, y.shape[-2]):
            d[..., rows, :] = _dist_rows(a.part(rows), b, k, rows.start if own else None, x.dtype)
        if own:
            d.diagonal(dim1=-2, dim2=-1).zero_()
        ctx.save_for_backward(x, y, tensor, d)
        return d

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        r"""With :math:`h = \kappa g / (\sqrt\kappa \sinh \sqrt\kappa d)`:

        .. math:: \partial x_i &= \tfrac{x_i}{T_i} \textstyle\sum_j h_{ij} T_j - \sum_j h_{ij} y_j, \qquad
            \partial y_j = \tfrac{y_j}{T_j} \textstyle\sum_i h_{ij} T_i - \sum_i h_{ij} x_i \\
            \partial \kappa &= \textstyle\sum_{ij} \frac{h_{ij}}{\kappa} \big(\tfrac{T_j}{2 T_i} |x_i|^2
                + \tfrac{T_i}{2 T_j} |y_j|^2 - x_i \cdot y_j\big) - g_{ij} \tfrac{d_{ij}}{2 \kappa}

        In flat space h = g / d and T = 1.
        """
        x, y, tensor, d = ctx.saved_tensors
        kappa = tensor if tensor is not None else ctx.kappa
        if torch.is_grad_enabled():
            return *_second_order(ctx, g, x, y, tensor), None, None
        if kernel := _kernel(x, y, kappa):
            return *kernel.backward(g, x, y, d, kappa=kappa, needed=ctx.needs_input_grad[:2]), None, None, None
        wide = working_dtype(x)
        k = kappa.to(wide) if isinstance(kappa, Tensor) else kappa
        a, b = Rows(x.to(wide), k), Rows(y.to(wide), k)
        b2 = distance.dot(b.x, b.x, -1)
        gx, gy, gk = torch.empty_like(a.x), torch.zeros_like(b.x), a.x.new_zeros(())
        pull = torch.zeros_like(b.T)
        for rows in row_blocks(x, y.shape[-2]):
            part, own_g, own_d = a.part(rows), g[..., rows, :].to(wide), d[..., rows, :].to(wide)
            h = torch.where(own_d > 0, own_g * _slope(own_d, k), 0.0)
            times, sums = h @ b.T, h @ b.x
            gx[..., rows, :] = part.x * (times / part.T) - sums
            pull += h.mT @ part.T
            gy -= h.mT @ part.x
            if ctx.needs_input_grad[2]:
                x2 = distance.dot(part.x, part.x, -1)
                spread = 0.5 * (x2 / part.T * times + part.T * (h @ (b2 / b.T))) - distance.dot(part.x, sums, -1)
                gk += (spread.sum() - 0.5 * (own_g * own_d).sum()) / k
        gy += b.x * (pull / b.T)
        wanted = ctx.needs_input_grad
        return (
            gx.to(x.dtype) if wanted[0] else None,
            gy.to(y.dtype) if wanted[1] else None,
            gk.to(tensor.dtype) if wanted[2] else None,
            None,
            None,
        )


def _slope(d: Tensor, kappa: Curvature | None) -> Tensor:
    """Return kappa times the derivative of the distance in S."""
    if kappa is None:
        return d.reciprocal()
    return root(kappa) / torch.sinh(root(kappa) * d)


def _second_order(ctx: Any, g: Tensor, x: Tensor, y: Tensor, kappa: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return differentiable gradients, computed by autograd with respect to aliases, so that they stop here."""
    inputs = [t if t is None else t.view_as(t) for t in (x, y, kappa)]
    value = _plain(inputs[0], inputs[1], ctx.kappa if inputs[2] is None else inputs[2], ctx.own)  # type: ignore[arg-type]
    wanted = [i for i in range(3) if ctx.needs_input_grad[i]]
    found = torch.autograd.grad(value, [inputs[i] for i in wanted], g, create_graph=True)  # type: ignore[arg-type]
    grads = dict(zip(wanted, found, strict=True))
    return tuple(grads.get(i) for i in range(3))
