"""Curvature: its sign convention, its checks, and its conversion to kappa.

``K < 0`` is the sectional curvature, as in the paper: points satisfy ``<x, x> = 1/K``.
Formulas use ``kappa = -K > 0``; :func:`kappa_of` checks K and converts it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from lresnet.geometry.checks import checks_values

__all__ = ["Curvature", "constant", "kappa_among", "kappa_of", "parse_curvature", "root"]

Curvature: TypeAlias = float | Tensor

# Allowed values of -K, 1e-30 to 1e30: kappa, 1/kappa and their products with squares of norms are float32 numbers.
# (float32 itself rounds 1e-30 and 1e30 to numbers slightly outside.)
_LEAST, _LARGEST = 0.999e-30, 1.001e30

_CONVENTIONS = (
    "In lresnet the curvature is signed, K < 0, and points satisfy <x, x> = 1/K. To convert from other libraries: "
    "geoopt.Lorentz(k), HyperbolicCV, HyperCore: curvature = -1/k (Lorentz.from_geoopt(k) does it); "
    "geoopt.PoincareBall(c), HGCN, MERU, hyperbolix: curvature = -c."
)


def parse_curvature(value: object) -> float:
    """Return ``value`` as a Python float, or raise an error that shows the conversion or the range, -1e30 to -1e-30.

    Example:
        >>> parse_curvature(-0.5)
        -0.5
    """
    if isinstance(value, (bool, str, bytes)) or value is None:
        raise TypeError(f"curvature must be a negative number, got {value!r}. {_CONVENTIONS}")
    try:
        K = float(value.detach() if isinstance(value, Tensor) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"curvature must be one negative number, got {type(value).__name__}. {_CONVENTIONS}") from error
    _require_valid(K)
    return K


def kappa_of(K: Curvature, dtype: torch.dtype) -> Curvature:
    """Return ``kappa = -K``: a float for a float, a tensor of ``dtype`` (gradients flow) for a tensor.

    A tensor holds one curvature, or several that broadcast against the points with size 1 on the coordinate axis.
    """
    if not isinstance(K, Tensor):
        return -parse_curvature(K)
    if not K.is_floating_point():
        raise TypeError(f"curvature must be a floating point number, got a tensor of {K.dtype}. {_CONVENTIONS}")
    if checks_values(K):
        values = K.detach().double().flatten()
        valid = (values <= -_LEAST) & (values >= -_LARGEST)
        if not bool(valid.all()):
            _require_valid(float(values[~valid][0]))
    return -K.to(dtype)


def kappa_among(points: Sequence[Tensor], K: Curvature, dim: int) -> tuple[list[Tensor], Curvature]:
    """Return the points, all of one shape, broadcast against the curvatures, and :func:`kappa_of` K.

    Raises:
        ValueError: the curvatures do not broadcast against the points, or there is one per coordinate.

    Example:
        >>> (x,), kappa = kappa_among([torch.ones(4, 5)], -torch.ones(3, 1, 1), -1)
        >>> x.shape
        torch.Size([3, 4, 5])
    """
    kappa, shape = kappa_of(K, points[0].dtype), points[0].shape
    if not isinstance(kappa, Tensor) or kappa.dim() == 0:
        return list(points), kappa
    axis = dim if dim < 0 else dim - len(shape)
    fits = all(k in (1, n) for k, n in zip(reversed(kappa.shape), reversed(shape), strict=False))
    if not fits or (kappa.dim() >= -axis and kappa.shape[axis] != 1):
        raise ValueError(
            f"K has shape {tuple(kappa.shape)}, but points of shape {tuple(shape)} need one curvature each: a number, "
            f"or a tensor that broadcasts against them with size 1 on the coordinate axis ({dim})"
        )
    if kappa.dim() > len(shape) and dim >= 0:
        raise ValueError(f"K has more axes than the points: count the coordinate axis from the end, dim={axis}")
    together = torch.broadcast_shapes(shape, kappa.shape)
    return [point.expand(together) for point in points], kappa


def root(kappa: Curvature) -> Curvature:
    """Return ``sqrt(kappa)`` of a float or a tensor."""
    return kappa.sqrt() if isinstance(kappa, Tensor) else math.sqrt(kappa)


def constant(kappa: Curvature) -> Curvature:
    """Return ``kappa`` without its gradient."""
    return kappa.detach() if isinstance(kappa, Tensor) else kappa


def _require_valid(K: float) -> None:
    if _LEAST <= -K <= _LARGEST:
        return
    if math.isnan(K) or math.isinf(K) or K >= 0:
        hint = f" If {K:g} is geoopt's k, you want {-1 / K:g}; if it is c, you want {-K:g}." if 0 < K < math.inf else ""
        raise ValueError(f"curvature must be negative and finite, got {K}.{hint} {_CONVENTIONS}")
    raise ValueError(
        f"curvature must be between -1e30 and -1e-30, got {K:g}: beyond that float32 overflows. Rescale the points: "
        "the space of curvature K is that of curvature -1 with all lengths divided by sqrt(-K)"
    )
