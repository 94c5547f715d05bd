r"""Features to points: the exponential map at the origin of vectors with bounded norm.

.. math:: x = F(q)\, v, \qquad F(q) = \sinh(\bar r)/\sqrt q, \qquad q = \kappa |v|^2, \qquad \bar r = \min(\sqrt q, R)

Vectors longer than R radii of curvature are shortened to this length: sinh overflows float32 from 89 on, and raw
features (those of airport, divided by row sums near 0) reach several hundred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import traced
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import dot, time_of
from lresnet.geometry.smooth import sinhc
from lresnet.geometry.stack import sum_to
from lresnet.nn.dropout import dropout
from lresnet.nn.sparse import BlockDiagonal, SparseMatrix

__all__ = [
    "MAX_RADIUS",
    "Points",
    "bounded_exp",
    "bounded_radius",
    "checked_features",
    "coordinate_input",
    "dropout_points",
    "dropout_values",
    "factor_slope",
    "features_to_points",
    "model_input",
]

MAX_RADIUS = 10.0
"""Default of R, the largest distance from the origin in radii of curvature, as in HyboNet."""


class Points(NamedTuple):
    """Points [N, n], dense or sparse, and their time [N, 1]."""

    x: Tensor | SparseMatrix
    time: Tensor


def features_to_points(features: Tensor | SparseMatrix, kappa: Curvature, max_radius: float = MAX_RADIUS) -> Points:
    r"""Return the exponential map at the origin of each row, :math:`x = \sinh(\sqrt\kappa |f|) f / (\sqrt\kappa |f|)`.

    Args:
        features: Rows [N, n], dense or sparse.
        kappa: -K > 0.
        max_radius: Length to which longer rows are shortened, in radii of curvature.
    """
    if isinstance(features, SparseMatrix):
        length2 = kappa * features.sum_rows(features.values.square())
        factor = _factor(length2, max_radius)
        values = features.values * features.gather_rows(factor)
        return Points(features.with_values(values), (length2 / kappa * factor.square() + 1 / kappa).sqrt())
    wide = features.to(torch.promote_types(features.dtype, torch.float32))
    x = wide * _factor(kappa * wide.square().sum(-1, keepdim=True), max_radius)
    return Points(x.to(features.dtype), time_of(x, kappa, -1))


def model_input(features: Tensor | SparseMatrix, manifold: Lorentz | None, max_radius: float) -> Points:
    """Return the input of a graph model: :func:`features_to_points`, or without a manifold the features themselves.

    Sparse tensors of torch become a :class:`~lresnet.nn.SparseMatrix`.
    """
    features = checked_features(features)
    if manifold is None:
        return Points(features, torch.empty(0))
    return features_to_points(features, _kappa_for(features, manifold), max_radius)


def coordinate_input(features: Tensor | SparseMatrix, manifold: Lorentz | None, max_radius: float) -> Points:
    r"""Return the features as the space coordinates of points; without a manifold the features themselves.

    :func:`model_input` maps lengths r to sinh r, so raw features of length 10 become points of length 11,013. Here
    lengths are kept, and only points farther from the origin than ``max_radius`` radii of curvature are moved there.

    Example:
        >>> coordinate_input(torch.tensor([[3.0, 4.0]]), Lorentz(-1.0), 10.0)
        Points(x=tensor([[3., 4.]]), time=tensor([[5.0990]]))
    """
    features = checked_features(features)
    if manifold is None:
        return Points(features, torch.empty(0))
    kappa = _kappa_for(features, manifold)
    longest = math.sinh(max_radius)
    if isinstance(features, SparseMatrix):
        length2 = kappa * features.sum_rows(features.values.square())
        factor = longest / length2.clamp(min=longest**2).sqrt()
        values = features.values * features.gather_rows(factor)
        return Points(features.with_values(values), (length2 * factor.square() + 1).sqrt() / root(kappa))
    wide = features.to(torch.promote_types(features.dtype, torch.float32))
    x = wide * (longest / (kappa * wide.square().sum(-1, keepdim=True)).clamp(min=longest**2).sqrt())
    return Points(x.to(features.dtype), time_of(x, kappa, -1))


def checked_features(features: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
    """Return floating-point features, those of a sparse tensor of torch as a :class:`~lresnet.nn.SparseMatrix`."""
    if isinstance(features, Tensor) and not features.is_floating_point():
        raise TypeError(f"features must be floating point, got {features.dtype}; convert them, e.g. x.float()")
    is_torch_sparse = isinstance(features, Tensor) and features.layout != torch.strided
    return SparseMatrix.from_torch(features) if is_torch_sparse else features  # type: ignore[arg-type]


def _kappa_for(features: Tensor | SparseMatrix, manifold: Lorentz) -> Curvature:
    values = features if isinstance(features, Tensor) else features.values
    return kappa_of(manifold.curvature, torch.promote_types(values.dtype, torch.float32))


def dropout_points(
    points: Points, rate: float, kappa: Curvature, *, training: bool, generators: Sequence[torch.Generator] = ()
) -> Points:
    """Apply dropout to the space coordinates; the time follows from them, so the results are points.

    Args:
        points: Dense or sparse points. The sparse points of a stack are a :class:`~lresnet.nn.sparse.BlockDiagonal`.
        rate: Probability of setting a coordinate to 0.
        kappa: -K > 0.
        training: Without it the points are returned unchanged.
        generators: One for each member of a stack. Default: torch's own generator.
    """
    if rate == 0.0 or not training:
        return points
    if isinstance(points.x, SparseMatrix):
        sparse = dropout_values(points.x, rate, generators)
        return Points(sparse, (sparse.sum_rows(sparse.values.square()) + 1 / kappa).sqrt())
    x = dropout(points.x, rate, generators)
    return Points(x, time_of(x, kappa, -1))


def dropout_values(x: SparseMatrix, rate: float, generators: Sequence[torch.Generator] = ()) -> SparseMatrix:
    """Apply dropout to the entries of a sparse matrix; that of a stack is a :class:`~lresnet.nn.sparse.BlockDiagonal`.

    Example:
        >>> dropout_values(SparseMatrix.from_dense(torch.eye(3)), 0.0).values
        tensor([1., 1., 1.])
    """
    counts = x.counts if isinstance(x, BlockDiagonal) else None
    return x.with_values(dropout(x.values, rate, generators, counts))


def _factor(length2: Tensor, max_radius: float) -> Tensor:
    """Return F(q) for q = ``length2``."""
    shorten = (max_radius / length2.clamp(min=max_radius**2).sqrt()).clamp(max=1.0)
    return sinhc(length2 * shorten.square()) * shorten


# --- The same map with a closed-form backward pass --------------------------------------------------------------------
# A network calls it for every node in every step. Autograd through the series and the cases of F takes three times as
# long.


def bounded_exp(v: Tensor, kappa: Curvature, max_radius: float) -> Tensor:
    """Return the exponential map at the origin of tangent vectors, [..., n] -> [..., n], in float32 or wider.

    Example:
        >>> bounded_exp(torch.tensor([[0.0, 0.0], [3.0, 4.0], [300.0, 400.0]]), 1.0, max_radius=5.0)
        tensor([[ 0.0000,  0.0000],
                [44.5219, 59.3626],
                [44.5219, 59.3626]])
    """
    if traced():
        return _plain_exp(v, kappa, max_radius)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _BoundedExp.apply(v, kappa_tensor, kappa, max_radius)  # type: ignore[no-untyped-call]
    return result


def bounded_radius(v: Tensor, kappa: Curvature, max_radius: float) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\sqrt q` and :math:`\bar r`, [..., 1] each.

    Neither is ever 0, so both may be divisors: below the root of the smallest normal number, where squares of norms
    underflow, sinh r / r and cosh r are 1.
    """
    r = root(kappa) * torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    r = r.clamp(min=torch.finfo(r.dtype).tiny ** 0.5)
    # Not a minimum: this way a norm that overflows gives NaN, which is noticed, and not the origin, which is not.
    return r, r * (max_radius / r).clamp(max=1.0)


# For q below _SERIES_BELOW the slope of F, a difference of two numbers that agree to q/3, is computed from its power
# series in q. The first omitted term is below 1e-18 there.
_SERIES_BELOW = 1e-2
_SLOPE = (1 / 3, 1 / 30, 1 / 840, 1 / 45360, 1 / 3991680)  # 2 k / (2k + 1)! of q^(k-1)


def factor_slope(r: Tensor, factor: Tensor, cosh: Tensor) -> Tensor:
    r"""Return 2 F'(q) :math:`= (\cosh r - F)/q`, given :math:`r = \sqrt q`, F and cosh r (0 beyond the bound)."""
    q = r.square()
    small = q < _SERIES_BELOW
    series = torch.full_like(q, _SLOPE[-1])
    for coefficient in reversed(_SLOPE[:-1]):
        series = series * q + coefficient
    return torch.where(small, series, (cosh - factor) / q)


def _plain_exp(v: Tensor, kappa: Curvature, max_radius: float) -> Tensor:
    """Return the same by operations that autograd differentiates to any order."""
    return features_to_points(v, kappa, max_radius).x  # type: ignore[return-value]


class _BoundedExp(torch.autograd.Function):
    r"""With :math:`a = g \cdot v` and :math:`H = 2 F'(q)`: :math:`\partial v = F g + \kappa a H v`,
    :math:`\partial\kappa = \sum a H q / 2\kappa`."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, max_radius: float) -> Tensor:
        r, bounded = bounded_radius(v, kappa, max_radius)
        factor = torch.sinh(bounded) / r
        ctx.kappa, ctx.max_radius = None if kappa_tensor is not None else kappa, max_radius
        ctx.save_for_backward(v, r, factor, kappa_tensor)
        return v * factor

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        v, r, factor, kappa_tensor = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():  # a second derivative is needed: autograd computes both
            # Differentiate with respect to aliases, so that gradients stop here: v itself may depend on kappa.
            v, alias = v.view_as(v), None if kappa_tensor is None else kappa_tensor.view_as(kappa_tensor)
            x = _plain_exp(v, kappa if alias is None else alias, ctx.max_radius)
            inputs = [v] if alias is None else [v, alias]
            gv, *rest = torch.autograd.grad(x, inputs, g, create_graph=True)
            return gv, rest[0] if rest else None, None, None
        cosh = torch.cosh(r).masked_fill(r > ctx.max_radius, 0.0)
        pull = dot(g, v, -1) * factor_slope(r, factor, cosh)
        gk = None if kappa_tensor is None else sum_to(kappa_tensor.shape, pull * r.square() / (2 * kappa))
        return torch.addcmul(g * factor, v, kappa * pull), gk, None, None
