"""Features to points: the exponential map at the origin, for dense and for sparse features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.geometry.distance import time_of
from lresnet.geometry.smooth import sinhc
from lresnet.nn.block_diagonal import BlockDiagonal
from lresnet.nn.dropout import dropout
from lresnet.nn.sparse import SparseMatrix

__all__ = ["MAX_RADIUS", "Points", "dropout_points", "features_to_points", "model_input"]

MAX_RADIUS = 10.0
"""How far from the origin a map of unbounded vectors puts a point at most, in radii of curvature: HyboNet's."""


class Points(NamedTuple):
    """Points [N, n], dense or sparse, and their time [N, 1]."""

    x: Tensor | SparseMatrix
    time: Tensor


def features_to_points(features: Tensor | SparseMatrix, kappa: Curvature, max_radius: float = MAX_RADIUS) -> Points:
    r"""exp at the origin of each row: :math:`x = \sinh(\sqrt\kappa |f|) f / (\sqrt\kappa |f|)`.

    Rows longer than ``max_radius`` radii of curvature are shortened to it, as in HyboNet: sinh of 89 already leaves
    float32, and raw features (airport's, divided by row sums near 0) reach several hundred.
    """
    if isinstance(features, SparseMatrix):
        length2 = kappa * features.sum_rows(features.values.square())
        factor = _factor(length2, max_radius)
        values = features.values * features.spread_rows(factor)
        return Points(features.with_values(values), (length2 / kappa * factor.square() + 1 / kappa).sqrt())
    wide = features.to(torch.promote_types(features.dtype, torch.float32))
    x = wide * _factor(kappa * wide.square().sum(-1, keepdim=True), max_radius)
    return Points(x.to(features.dtype), time_of(x, kappa, -1))


def model_input(features: Tensor | SparseMatrix, manifold: Lorentz | None, max_radius: float) -> Points:
    """What a graph model starts from: :func:`features_to_points`, or without a manifold the features as they are."""
    if isinstance(features, Tensor) and not features.is_floating_point():
        raise TypeError(f"features must be floating point, got {features.dtype}; convert them, e.g. x.float()")
    if manifold is None:
        return Points(features, torch.empty(0))
    values = features if isinstance(features, Tensor) else features.values
    kappa = kappa_of(manifold.curvature, torch.promote_types(values.dtype, torch.float32))
    return features_to_points(features, kappa, max_radius)


def dropout_points(
    points: Points, rate: float, kappa: Curvature, *, training: bool, generators: Sequence[torch.Generator] = ()
) -> Points:
    """Drop space coordinates (and scale the others by 1/(1 - rate)); the time follows, so they stay points.

    ``generators``: of the members of a stack, whose sparse points are a :class:`BlockDiagonal`; none: torch's own.
    """
    if rate == 0.0 or not training:
        return points
    if isinstance(points.x, SparseMatrix):
        counts = points.x.counts if isinstance(points.x, BlockDiagonal) else None
        values = dropout(points.x.values, rate, generators, counts)
        time = (points.x.sum_rows(values.square()) + 1 / kappa).sqrt()
        return Points(points.x.with_values(values), time)
    x = dropout(points.x, rate, generators)
    return Points(x, time_of(x, kappa, -1))


def _factor(length2: Tensor, max_radius: float) -> Tensor:
    shorten = (max_radius / length2.clamp(min=max_radius**2).sqrt()).clamp(max=1.0)
    return sinhc(length2 * shorten.square()) * shorten
