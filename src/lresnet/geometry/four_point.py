r"""The four-point condition on a matrix of distances: over all quadruples, or over a uniform sample of them.

For four points the three sums of opposite distances, ordered :math:`S_1 \ge S_2 \ge S_3`, give the gap
:math:`S_1 - S_2 = 2 \delta`. Integer distances stay integers, so their gaps are exact; others are computed in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

__all__ = ["Gaps", "every_quadruple", "independent_quadruples", "pooled_quadruples"]

Array = NDArray[Any]

_CHUNK = 2**17  # quadruples drawn at a time
_GROUPS = 16  # disjoint parts of a pool; their means are independent, so their spread is the error of the mean


@dataclass(frozen=True)
class Gaps:
    """What was seen of :math:`S_1 - S_2`.

    Args:
        count: quadruples looked at.
        largest: the largest gap among them.
        mean: the mean gap.
        error: half the width of a 95 % confidence interval of the mean; None when every quadruple was looked at.
    """

    count: int
    largest: float
    mean: float
    error: float | None


def every_quadruple(distances: Array) -> Gaps:
    """All C(n, 4) quadruples: :math:`n^4 / 12` contiguous steps, the same for every space; memory :math:`O(n^2)`.

    Args:
        distances: ``[n, n]``, symmetric, n >= 4.
    """
    n = len(distances)
    d = _working_copy(distances)
    largest, total = d.dtype.type(0), d.dtype.type(0).item()
    for i in range(n - 3):
        for j in range(i + 1, n - 2):
            gaps = _gaps_with_pair(d, i, j)
            largest = max(largest, gaps.max())
            total += gaps.sum(dtype=np.int64 if d.dtype.kind == "i" else np.float64).item()
    count = comb(n, 4)
    return Gaps(count, float(largest), total / (2 * count), None)  # 2: each pair k, l appears in both orders


def independent_quadruples(distances: Array, samples: int, rng: np.random.Generator) -> Gaps:
    """``samples`` independent uniform quadruples of distinct points.

    The interval is Student's. Where no two draws differ it is the rule of three's: an outcome as large as the diameter
    that was not seen in N draws may still have probability 3/N.
    """
    total, squares, largest = _draw(distances, samples, rng)
    mean = total / samples
    variance = max(0.0, squares / samples - mean**2) / max(1, samples - 1)
    error = stdtrit(max(1, samples - 1), 0.975) * sqrt(variance)
    return Gaps(samples, largest, mean, float(error) or 3 * float(distances.max()) / samples)


def pooled_quadruples(distances: Array, samples: int, rng: np.random.Generator) -> Gaps:
    """``samples`` quadruples from a uniform pool of m nodes of a larger space, each inside one of 16 parts of the pool.

    Quadruples of one pool share nodes, so their number says little about the error of the mean. The parts are disjoint:
    their means are independent, and the interval is Student's over those (m / 4 draws for the rule of three).

    Args:
        distances: ``[m, m]``, the pool in random order.
    """
    groups = max(1, min(_GROUPS, len(distances) // 4, samples))
    means, counts, largest = np.zeros(groups), np.zeros(groups, dtype=np.int64), 0.0
    for g, part in enumerate(np.array_split(np.arange(len(distances)), groups)):
        counts[g] = samples // groups + (g < samples % groups)
        total, _, seen = _draw(distances[np.ix_(part, part)], int(counts[g]), rng)
        means[g], largest = total / counts[g], max(largest, seen)
    error = stdtrit(groups - 1, 0.975) * means.std(ddof=1) / sqrt(groups) if groups > 1 else 0.0
    unseen = 3 * float(distances.max()) / min(samples, len(distances) // 4)
    return Gaps(samples, largest, float(means @ counts) / samples, float(error) or unseen)


def _working_copy(distances: Array) -> Array:
    """The smallest signed integers that hold a sum of two distances, or float64; exactly symmetric."""
    if distances.dtype.kind in "iu":
        return distances.astype(np.min_scalar_type(-2 * int(distances.max()) - 1))
    wide: Array = distances.astype(np.float64)
    return np.asarray((wide + wide.T) / 2)


def _gaps_with_pair(d: Array, i: int, j: int) -> Array:
    """Gaps of the quadruples i < j < k, l as a matrix over (k, l); 0 where k = l."""
    to_i, to_j = d[i, j + 1 :], d[j, j + 1 :]
    opposite = d[j + 1 :, j + 1 :] + d[i, j]
    crossed, parallel = to_i[:, None] + to_j, to_j[:, None] + to_i
    high, low = np.maximum(crossed, parallel), np.minimum(crossed, parallel)
    first: Array = np.maximum(high, opposite)
    second = np.maximum(low, np.minimum(high, opposite, out=high), out=low)
    first -= second
    first.flat[:: len(first) + 1] = 0
    return first


def _draw(distances: Array, samples: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Sum, sum of squares and maximum of the gaps of uniform quadruples, in chunks."""
    total, squares, largest = 0.0, 0.0, 0.0
    for start in range(0, samples, _CHUNK):
        quadruples = _distinct(len(distances), min(_CHUNK, samples - start), rng)
        gaps = _gaps(distances, quadruples).astype(np.float64, copy=False)  # sums of integers stay exact below 2^53
        total += float(gaps.sum())
        squares += float(gaps @ gaps)
        largest = max(largest, float(gaps.max()))
    return total, squares, largest


def _gaps(distances: Array, quadruples: Array) -> Array:
    a, b, c, d = quadruples
    n = len(distances)
    flat = distances.reshape(-1)
    wide = np.int64 if distances.dtype.kind in "iu" else np.float64

    def between(p: Array, q: Array) -> Array:
        return flat.take(p * n + q).astype(wide)

    sums = np.stack([between(a, b) + between(c, d), between(a, c) + between(b, d), between(a, d) + between(b, c)])
    sums.sort(axis=0)
    gaps: Array = sums[2] - sums[1]
    return gaps


def _distinct(n: int, count: int, rng: np.random.Generator) -> Array:
    """``[4, count]``: four distinct numbers below n, every ordered choice equally likely.

    The r-th draw is one of the n - r numbers left: it steps over those already taken, in increasing order.
    """
    chosen = np.empty((4, count), dtype=np.int64)
    for r in range(4):
        draw = rng.integers(n - r, size=count)
        for taken in np.sort(chosen[:r], axis=0):
            draw += draw >= taken
        chosen[r] = draw
    return chosen
