"""Numerically hard pairs of float32 points, exact results for them in 80-bit floating point, and the documented bounds.

Products of two float32 numbers are exact in the 64-bit mantissa of ``numpy.longdouble`` (x86), and its exponents do not
overflow. The formulas here avoid cancellation by the cross product, which needs O(n^2) operations per pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

Wide = NDArray[np.longdouble]
Floats = NDArray[np.float32]

EPS = 2.0**-23
EXACT = np.finfo(np.longdouble).nmant >= 63
FAMILIES = (
    "any",
    "equal norms",
    "near",
    "equal",
    "one ray",
    "nearly one ray",
    "opposite",
    "zero",
    "nearly one ray far",
)
WEIGHTS = np.float32([1, 0.37, 0.3, 3, 100, 0.01, 1e-6, 1e6, 0])


@dataclass(frozen=True)
class Pairs:
    """N pairs of points [N, n], with one weight each."""

    x: Floats
    y: Floats
    weight: Floats
    family: NDArray[np.int64]


def draw(n: int, count: int, norms: tuple[float, float], seed: int) -> Pairs:
    """Return ``count`` pairs with norms between two powers of ten, log-uniform, over all families."""
    rng = np.random.default_rng([seed, n, count])
    least, largest = norms
    r, s = (10.0 ** rng.uniform(least, largest, (count, 1)) for _ in range(2))
    u, v = _directions(rng, count, n), _directions(rng, count, n)
    step, tilt = 10.0 ** rng.uniform(-8, 0.5, (count, 1)), 10.0 ** rng.uniform(-9, -1, (count, 1))
    x = _rounded(r * u)
    sign = rng.choice([-1.0, 1.0], (count, 1))
    candidates = (
        s * v,
        r * v,
        x + step * r * v,
        x,
        x * (1 + sign * step),
        x * (1 + step) + tilt * r * v,
        -x * rng.choice([1.0, 0.5, 2.0], (count, 1)),
        np.zeros_like(x),
        s * u + tilt * np.minimum(r, s) * v,
    )
    family = rng.integers(0, len(candidates), count)
    y = _rounded(np.choose(family[:, None], candidates))
    swap = rng.random((count, 1)) < 0.5
    x, y = np.where(swap, y, x), np.where(swap, x, y)
    finite = np.maximum(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)) < np.finfo(np.float32).max
    weight = rng.choice(WEIGHTS, count)
    return Pairs(*(a[finite] for a in (x.astype(np.float32), y.astype(np.float32), weight, family)))


def _directions(rng: np.random.Generator, count: int, n: int) -> NDArray[np.float64]:
    """Unit vectors; the coordinates of a third differ by orders of magnitude."""
    v = rng.standard_normal((count, n))
    skewed = rng.random(count) < 1 / 3
    v[skewed] *= 10.0 ** rng.uniform(-8, 0, (int(skewed.sum()), n))
    return v / np.linalg.norm(v, axis=1, keepdims=True)


def _rounded(x: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return x.astype(np.float32).astype(np.float64)


# --- exact results ----------------------------------------------------------------------------------------------------


def dot(a: Wide, b: Wide) -> Wide:
    return (a * b).sum(1)


def radius(x: Floats | Wide, kappa: float) -> Wide:
    """Unitless radius R of each row."""
    wide = x.astype(np.longdouble)
    return np.sqrt(np.longdouble(kappa) * dot(wide, wide))


def time(x: Floats, kappa: float) -> Wide:
    wide = x.astype(np.longdouble)
    return np.sqrt(dot(wide, wide) + 1 / np.longdouble(kappa))


def separation(x: Floats | Wide, y: Floats | Wide, kappa: float) -> Wide:
    """``cosh d - 1`` by the law of cosines; the angle from the cross product, whose terms are exact differences."""
    a, b, k = x.astype(np.longdouble), y.astype(np.longdouble), np.longdouble(kappa)
    a2, b2, product = dot(a, a), dot(b, b), dot(a, b)
    mixed = np.sqrt(a2) * np.sqrt(1 + k * b2) + np.sqrt(b2) * np.sqrt(1 + k * a2)
    sinh = np.sqrt(k) * dot(a - b, a + b) / np.where(mixed > 0, mixed, 1)
    cross2 = np.zeros(len(a), np.longdouble)
    for i in range(1, a.shape[1]):
        cross2 += np.square(a[:, i : i + 1] * b[:, :i] - b[:, i : i + 1] * a[:, :i]).sum(1)
    norms = np.sqrt(a2) * np.sqrt(b2)
    total = norms + product
    angular = np.where(product > 0, cross2 / np.where(total > 0, total, 1), norms - product)
    return np.asarray(sinh * (sinh / (1 + np.sqrt(1 + sinh * sinh))) + k * angular)


def distance(x: Floats | Wide, y: Floats | Wide, kappa: float) -> Wide:
    return np.asarray(2 / np.sqrt(np.longdouble(kappa)) * np.arcsinh(np.sqrt(separation(x, y, kappa) / 2)))


def residual(pairs: Pairs, kappa: float) -> Wide:
    w = pairs.weight.astype(np.longdouble)
    n = np.sqrt((1 + w) ** 2 + 2 * w * separation(pairs.x, pairs.y, kappa))
    return np.asarray((pairs.x.astype(np.longdouble) + w[:, None] * pairs.y.astype(np.longdouble)) / n[:, None])


def logarithm(pairs: Pairs, kappa: float) -> Wide:
    x, y = (p.astype(np.longdouble) for p in (pairs.x, pairs.y))
    D = separation(pairs.x, pairs.y, kappa)
    root = np.sqrt(D / 2)
    factor = np.where(D > 0, np.arcsinh(root) / np.where(D > 0, root, 1), 1) / np.sqrt(1 + D / 2)
    return np.asarray(factor[:, None] * ((y - x) - D[:, None] * x))


def length(x: Floats, u: Wide, kappa: float) -> Wide:
    """Riemannian norm of the tangent vectors u at x, in radii of curvature."""
    wide = x.astype(np.longdouble)
    r2 = dot(wide, wide)
    e = wide / np.where(r2 > 0, np.sqrt(r2), 1)[:, None]
    along = dot(e, u)
    across = u - along[:, None] * e
    return np.asarray(np.sqrt(np.longdouble(kappa) * (dot(across, across) + along**2 / (1 + kappa * r2))))


# --- documented bounds ------------------------------------------------------------------------------------------------


def within(error: Wide, bound: Wide, pairs: Pairs, what: str) -> None:
    """Assert that no error exceeds its bound; the message shows the worst pair."""
    ok = error <= bound  # false for NaN
    if not ok.all():
        i = int(np.argmax(np.where(ok, -1, np.nan_to_num(error / bound, nan=np.inf))))
        family = FAMILIES[pairs.family[i]]
        detail = f"{family}, weight {pairs.weight[i]}, x = {pairs.x[i].tolist()}, y = {pairs.y[i].tolist()}"
        pytest.fail(f"{what}: {int((~ok).sum())} of {len(ok)} pairs, worst {error[i]:.3g} of {bound[i]:.3g}: {detail}")


def larger_radius(pairs: Pairs, kappa: float) -> Wide:
    return np.maximum(radius(pairs.x, kappa), radius(pairs.y, kappa))


def residual_bound(pairs: Pairs, exact: Wide, kappa: float, roundings: float) -> Wide:
    """Some largest rounding errors of the exact result (of the larger point beyond 1e6 radii), and 3e-7 radii."""
    R = larger_radius(pairs, kappa)
    rounded = np.where(R <= 1e6, radius(exact, kappa), R)
    return np.asarray(roundings * EPS / 2 * rounded + 3e-7 + kappa**0.5 * 1e-19)


def check_residual(z: Tensor, pairs: Pairs, kappa: float, what: str, roundings: float = 2) -> None:
    exact = residual(pairs, kappa)
    error = distance(z.detach().cpu().numpy(), exact, kappa) * kappa**0.5
    within(error, residual_bound(pairs, exact, kappa, roundings), pairs, what)


def check_distance(d: Tensor, pairs: Pairs, kappa: float, per_T: float, what: str) -> None:
    """A few units in the last place, and ``per_T`` times T of them; chords below 1e-19 underflow."""
    exact = distance(pairs.x, pairs.y, kappa)
    units = 6 + per_T * (1 + larger_radius(pairs, kappa))
    within(abs(d.numpy() - exact), units * EPS * exact + 2e-19, pairs, what)
