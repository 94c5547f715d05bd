"""Pairs of points that are numerically hard, and exact results for them; used by tests and benchmarks/numerics.py."""

from __future__ import annotations

import mpmath
import torch
from torch import Tensor

FAMILIES = ("random", "near", "equal", "radial", "zero")
NORMS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1e3, 1e4)
CURVATURES = (-0.1, -1.0, -2.0, -10.0)


def pairs(family: str, norm: float, count: int = 256, n: int = 16, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return float64 pairs with space norms near ``norm``, not yet rounded to the dtype under test."""
    g = torch.Generator().manual_seed(seed)
    x = _sphere(count, n, g) * norm
    if family == "random":
        return x, _sphere(count, n, g) * norm
    if family == "near":
        return x, x + 1e-3 * norm * _sphere(count, n, g)
    if family == "equal":
        return x, x.clone()
    if family == "radial":
        return x, 1.5 * x
    if family == "zero":
        return x, torch.zeros_like(x)
    raise ValueError(family)


def _sphere(count: int, n: int, g: torch.Generator) -> Tensor:
    v = torch.randn(count, n, generator=g, dtype=torch.float64)
    return v / v.norm(dim=-1, keepdim=True)


def exact_centroid(points: list[list[float]], weights: list[float], kappa: float, digits: int = 50) -> list[mpmath.mpf]:
    """Return the space part of the weighted Lorentzian centroid with ``digits`` digits, from the definition."""
    with mpmath.workdps(digits):
        kappa_, rows = mpmath.mpf(kappa), [[mpmath.mpf(c) for c in p] for p in points]
        w = [mpmath.mpf(v) for v in weights]
        time = [mpmath.sqrt(sum(c * c for c in row) + 1 / kappa_) for row in rows]
        s = [sum(w[i] * rows[i][j] for i in range(len(rows))) for j in range(len(rows[0]))]
        s_t = sum(w[i] * time[i] for i in range(len(rows)))
        n = mpmath.sqrt(kappa_ * (s_t * s_t - sum(c * c for c in s)))
        return [c / n for c in s]


def exact_distance(x: list[mpmath.mpf] | list[float], y: list[mpmath.mpf] | list[float], kappa: float) -> float:
    """Return the geodesic distance of two space parts, computed with 50 digits from the definition."""
    with mpmath.workdps(50):
        k = mpmath.mpf(kappa)
        a, b = [mpmath.mpf(c) for c in x], [mpmath.mpf(c) for c in y]
        t = [mpmath.sqrt(sum(c * c for c in p) + 1 / k) for p in (a, b)]
        product = t[0] * t[1] - sum(p * q for p, q in zip(a, b, strict=True))
        return float(mpmath.acosh(max(k * product, mpmath.mpf(1))) / mpmath.sqrt(k))
