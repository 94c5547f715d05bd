r"""Gromov's delta-hyperbolicity by the four-point condition.

Four points have three sums of opposite distances, :math:`d(a,b) + d(c,e)`, :math:`d(a,c) + d(b,e)` and
:math:`d(a,e) + d(b,c)`. Ordered :math:`S_1 \ge S_2 \ge S_3`, they give

.. math:: \delta(a, b, c, e) = (S_1 - S_2) / 2, \qquad
   \delta = \max_{a,b,c,e} \delta(a, b, c, e) \le \mathrm{diam} / 2, \qquad
   \delta_\mathrm{rel} = 2 \delta / \mathrm{diam} \in [0, 1].

A tree has delta 0; the smaller delta, the better a space embeds in hyperbolic space. The maximum over *some* quadruples
is a lower bound of delta, and is named so here; published values are usually such bounds.

Reference: M. Gromov, "Hyperbolic groups", 1987; the relative delta follows V. Khrulkov et al., "Hyperbolic image
embeddings", CVPR 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, isqrt, sqrt
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import stdtrit

from lresnet.geometry.shortest_paths import (
    Component,
    EccentricityBounds,
    all_pairs,
    diameter,
    largest_component,
    pool_distances,
    tree_diameter,
)

__all__ = ["Delta", "delta_hyperbolicity"]

Array = NDArray[Any]

_ENUMERATED_NODES = 300  # enumerating all quadruples of 300 points takes 1 s (hop distances) to 3 s (real distances)
_DEFAULT_SAMPLES = 50_000  # as for published values of graphs
_POOL_NODES = 4096  # size of the pool if the distances between all nodes do not fit in memory
_CHUNK = 2**17  # quadruples drawn at a time
_GROUPS = 16  # disjoint parts of a pool; their means are independent, so their spread gives the error of the mean
_ROWS = 256  # rows checked at a time: a copy of all distances would double the memory
_TRIANGLES = 10**6  # triangles drawn to check the triangle inequality of more than _ENUMERATED_NODES points


@dataclass(frozen=True)
class Delta:
    """Bounds of the delta-hyperbolicity of a space, the result of :func:`delta_hyperbolicity`.

    Args:
        lower_bound: Largest delta of the quadruples examined; delta itself if ``exact``.
        upper_bound: Half the diameter, or ``lower_bound`` if every quadruple is accounted for.
        mean: Mean delta of the quadruples examined.
        mean_interval: 95 % confidence interval of the mean over all quadruples; None if the mean is exact.
        diameter: Largest distance, or an upper bound of it if not ``diameter_is_exact``.
        diameter_is_exact: False only for graphs whose diameter is unknown after 4,096 searches.
        quadruples: Number of quadruples examined.
        nodes: Points of the space; for a graph, nodes of its largest connected component.
        dropped_nodes: Nodes of the graph outside that component.
        pool_nodes: Nodes that the quadruples were drawn from; ``nodes`` except for graphs too large for memory.
    """

    lower_bound: float
    upper_bound: float
    mean: float
    mean_interval: tuple[float, float] | None
    diameter: float
    diameter_is_exact: bool
    quadruples: int
    nodes: int
    dropped_nodes: int
    pool_nodes: int

    @property
    def exact(self) -> bool:
        """Whether ``lower_bound`` is delta itself: every quadruple is accounted for, or the bounds meet."""
        return self.lower_bound == self.upper_bound

    @property
    def relative(self) -> float:
        """``2 * lower_bound / diameter``, between 0 and 1; a lower bound of the relative delta."""
        return 2 * self.lower_bound / self.diameter if self.diameter else 0.0

    @property
    def relative_mean(self) -> float:
        """``2 * mean / diameter``."""
        return 2 * self.mean / self.diameter if self.diameter else 0.0

    def __str__(self) -> str:
        kind = "diameter" if self.diameter_is_exact else "diameter at most"
        if self.exact:
            text = f"delta = {self.lower_bound:g} exactly (relative {self.relative:.3g}), {kind} {self.diameter:g}"
        else:
            text = f"delta >= {self.lower_bound:g} (relative {self.relative:.3g}) and <= {self.upper_bound:g}"
            text += f", half the {kind} {self.diameter:g}"
        text += f"; mean {self.mean:.4g}"
        if self.mean_interval is None:
            text += f" over all quadruples of {self.nodes:,} nodes"
        else:
            text += f" [{self.mean_interval[0]:.4g}, {self.mean_interval[1]:.4g}]"
            text += f" from {self.quadruples:,} sampled quadruples of {self.nodes:,} nodes"
        if self.pool_nodes < self.nodes:
            text += f", drawn within a pool of {self.pool_nodes:,}"
        return text + (f"; {self.dropped_nodes:,} nodes outside the largest component" if self.dropped_nodes else "")


def delta_hyperbolicity(
    space: torch.Tensor | ArrayLike | sparse.sparray | sparse.spmatrix,
    *,
    num_nodes: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    memory: int = 2**29,
) -> Delta:
    r"""Return Gromov's delta of a finite metric space or of a graph: the exact value or bounds.

    Args:
        space: One of

            - a **graph** as ``edge_index``: *integers* of shape ``[2, E]``. Directions, self loops and repeated edges
              are ignored; the distance is the number of hops in the largest connected component.
            - a **graph** as a SciPy sparse adjacency matrix ``[n, n]``: non-zeros are edges, weights are ignored.
            - a **metric space** as its distance matrix of any other shape ``[n, n]``, integers or floats. Deviations
              from symmetry, a zero diagonal and the triangle inequality are tolerated as rounding up to the square
              root of the dtype's epsilon times the diameter.

            ``[2, 2]`` is an edge index if its dtype is an integer, and distances otherwise.
        num_nodes: Number of nodes of the graph, if ``edge_index`` does not contain all of them.
        samples: Number of quadruples of distinct points to draw uniformly. By default all quadruples of up to 300
            points are examined, and 50,000 are drawn from more points. With C(n, 4) or more, each quadruple is examined
            once, so the result is exact; the time grows with n^4.
        seed: Seed of the sampling; the global random states are neither read nor changed.
        memory: Bytes for the distances between all nodes of a graph; the default is enough for 23,000 nodes at one
            byte per distance. For a larger graph, quadruples are drawn from a uniform pool of 4,096 nodes (fewer if
            ``memory`` is smaller), and only the distances within the pool are stored.

    Returns:
        A :class:`Delta`. Trees and spaces of fewer than 4 points have delta 0 and need no search.

    Raises:
        ValueError: ``space`` is neither a graph nor a metric (the message shows the first offending entry), or
            ``samples`` < 1.

    Example:
        >>> square = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> print(delta_hyperbolicity(square))
        delta = 1 exactly (relative 1), diameter 2; mean 1 over all quadruples of 4 nodes
        >>> delta_hyperbolicity(torch.cdist(torch.eye(5), torch.eye(5))).lower_bound
        0.0
    """
    if samples is not None and index(samples) < 1:
        raise ValueError(f"samples must be at least 1, got {samples}; leave it out for the default")
    rng = np.random.default_rng(seed)
    edges = _edges_of(space, num_nodes)
    if edges is None:
        return _of_matrix(_metric_of(*_as_array(space), exhaustive_nodes=_ENUMERATED_NODES), samples, rng)
    component = largest_component(*edges)
    n = component.nodes
    if n < 4 or component.is_tree:
        size = float(tree_diameter(component)) if component.is_tree else float(n > 1)
        return _delta(_Gaps(comb(n, 4), 0.0, 0.0, None), size, nodes=n, dropped_nodes=component.dropped_nodes)
    if n**2 * component.dtype.itemsize <= memory:
        return _of_matrix(all_pairs(component), samples, rng, component.dropped_nodes)
    return _of_large_graph(component, samples, rng, memory)


# --- from distances to delta ------------------------------------------------------------------------------------------


def _of_matrix(distances: Array, samples: int | None, rng: np.random.Generator, dropped_nodes: int = 0) -> Delta:
    n = len(distances)
    size = float(distances.max(initial=0))
    if n < 4:
        gaps = _Gaps(0, 0.0, 0.0, None)
    elif samples >= comb(n, 4) if samples else n <= _ENUMERATED_NODES:
        gaps = _every_quadruple(distances)
    else:
        gaps = _independent_quadruples(distances, samples or _DEFAULT_SAMPLES, rng)
    return _delta(gaps, size, nodes=n, dropped_nodes=dropped_nodes)


def _of_large_graph(component: Component, samples: int | None, rng: np.random.Generator, memory: int) -> Delta:
    nodes = min(component.nodes, _POOL_NODES, max(4, isqrt(memory // component.dtype.itemsize)))
    pool = rng.choice(component.nodes, size=nodes, replace=False)
    bounds = EccentricityBounds(component.nodes)
    gaps = _pooled_quadruples(pool_distances(component, pool, bounds), samples or _DEFAULT_SAMPLES, rng)
    size, is_exact = diameter(component, bounds)
    return _delta(gaps, float(size), is_exact, component.nodes, component.dropped_nodes, nodes)


def _delta(
    gaps: _Gaps,
    size: float,
    size_is_exact: bool = True,
    nodes: int = 0,
    dropped_nodes: int = 0,
    pool_nodes: int | None = None,
) -> Delta:
    """Return delta as half the gaps, with the interval of the mean clipped to [0, upper bound]."""
    lower, mean = gaps.largest / 2, gaps.mean / 2
    upper = max(gaps.largest, size) / 2  # gaps may exceed the diameter by rounding
    interval = None
    if gaps.error is not None:
        interval = (max(0.0, mean - gaps.error / 2), min(upper, mean + gaps.error / 2))
    return Delta(
        lower_bound=lower,
        upper_bound=lower if interval is None else upper,
        mean=mean,
        mean_interval=interval,
        diameter=size,
        diameter_is_exact=size_is_exact,
        quadruples=gaps.count,
        nodes=nodes,
        dropped_nodes=dropped_nodes,
        pool_nodes=nodes if pool_nodes is None else pool_nodes,
    )


# --- reading a graph or a metric space --------------------------------------------------------------------------------


def _as_array(space: Any) -> tuple[Array, float]:
    """Return a tensor or array-like as an array, and the epsilon of its dtype (0 for integers)."""
    epsilon = 0.0
    if isinstance(space, torch.Tensor):
        if space.layout != torch.strided:
            raise ValueError(f"sparse tensors ({space.layout}) are not supported; pass its indices() as edge_index")
        epsilon = torch.finfo(space.dtype).eps if space.is_floating_point() else 0.0
        space = space.detach().cpu()
        space = space.float() if space.dtype == torch.bfloat16 else space  # NumPy has no bfloat16
    array = np.asarray(space)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"the space must hold integers or real numbers, got dtype {array.dtype}")
    return array, epsilon or (float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0)


def _edges_of(space: Any, num_nodes: int | None) -> tuple[Array, Array, int] | None:
    """Return sources, targets and the number of nodes if ``space`` is a graph; None if it is a distance matrix."""
    if sparse.issparse(space):
        if space.shape[0] != space.shape[1] or num_nodes not in (None, space.shape[0]):
            wanted = "square" if num_nodes is None else f"of shape [{num_nodes}, {num_nodes}] (num_nodes)"
            raise ValueError(f"a sparse adjacency matrix must be {wanted}, got shape {list(space.shape)}")
        entries = sparse.coo_array(space)
        present = entries.data != 0
        return entries.coords[0][present], entries.coords[1][present], int(space.shape[0])
    array, epsilon = _as_array(space)
    shape = list(array.shape)
    if array.ndim == 2 and shape[0] == 2 and not epsilon:
        return _checked_edges(array, num_nodes)
    if num_nodes is not None or (array.ndim == 2 and shape[0] == 2 != shape[1]):
        raise ValueError(
            f"edge_index must hold integers in shape [2, E], got {array.dtype} {shape}"
            + ("; convert it, e.g. edge_index.long()" if epsilon else "")
            + ("; pass its transpose" if shape[-1:] == [2] else "")
            + ("; num_nodes has no meaning for a distance matrix" if shape[:1] == shape[1:] else "")
        )
    return None


def _checked_edges(edge_index: Array, num_nodes: int | None) -> tuple[Array, Array, int]:
    mentioned = int(edge_index.max(initial=-1)) + 1
    nodes = mentioned if num_nodes is None else index(num_nodes)
    if nodes < 0:
        raise ValueError(f"num_nodes must not be negative, got {num_nodes}")
    if edge_index.min(initial=0) < 0:
        raise ValueError(f"edge_index holds the negative node {edge_index.min()}; nodes are counted from 0")
    if mentioned > nodes:
        raise ValueError(f"edge_index contains node {mentioned - 1}, but num_nodes is {num_nodes}; it must be larger")
    source, target = edge_index.astype(np.int64, copy=False)
    return source, target, nodes


def _metric_of(distances: Array, epsilon: float, exhaustive_nodes: int) -> Array:
    """Return the checked distances of a finite metric space, as integers if all of them are whole numbers.

    Args:
        distances: ``[n, n]``.
        epsilon: Epsilon of the dtype they were computed in. A distance computed from a difference of squares may be off
            by the square root of epsilon times the diameter; deviations from a metric up to there are rounding.
        exhaustive_nodes: Every triangle of up to this number of points is checked, and a million random triangles of
            more points.
    """
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        hint = (
            "; to pass an edge_index, transpose it to [2, E]" if distances.ndim == 2 and distances.shape[1] == 2 else ""
        )
        raise ValueError(f"distances must be a square matrix [n, n], got shape {list(distances.shape)}{hint}")
    if not np.isfinite(distances).all():
        i, j = np.argwhere(~np.isfinite(distances))[0]
        raise ValueError(f"distances[{i}, {j}] is {distances[i, j]}; delta needs finite distances (one component)")
    if distances.min(initial=0) < 0:
        i, j = np.unravel_index(distances.argmin(), distances.shape)
        raise ValueError(f"distances[{i}, {j}] = {distances[i, j]} is negative")
    tolerance = float(distances.max(initial=0)) * float(np.sqrt(epsilon))
    if (np.diagonal(distances) > tolerance).any():
        i = np.diagonal(distances).argmax()
        raise ValueError(f"distances[{i}, {i}] = {distances[i, i]}: a point must be at distance 0 from itself")
    distances = _compact(distances)
    _check_symmetry(distances, tolerance)
    _check_triangles(distances, tolerance, exhaustive_nodes)
    return distances


def _compact(distances: Array) -> Array:
    """Return small integers if every distance is a whole number: exact, and several times faster."""
    largest = distances.max(initial=0)
    if largest < 2**15 and all((rows == np.rint(rows)).all() for rows in _blocks(distances)):
        return distances.astype(np.min_scalar_type(int(largest)))
    return distances if distances.dtype.kind == "f" else distances.astype(np.float64)


def _blocks(distances: Array) -> list[Array]:
    return [distances[start : start + _ROWS] for start in range(0, len(distances), _ROWS)]


def _check_symmetry(distances: Array, tolerance: float) -> None:
    for start, rows in zip(range(0, len(distances), _ROWS), _blocks(distances), strict=True):
        difference = np.abs(rows.astype(np.float64) - distances[:, start : start + _ROWS].T)
        if (difference > tolerance).any():
            i, j = np.unravel_index(difference.argmax(), difference.shape)
            i += start
            raise ValueError(
                f"distances are not symmetric: [{i}, {j}] is {distances[i, j]}, [{j}, {i}] is {distances[j, i]}; "
                "a metric has d(x, y) = d(y, x)"
            )


def _check_triangles(distances: Array, tolerance: float, exhaustive_nodes: int) -> None:
    n = len(distances)
    wide = np.int64 if distances.dtype.kind in "iu" else np.float64
    if n <= exhaustive_nodes:
        d = distances.astype(wide)
        for k in range(n):
            excess = d - (d[:, k, None] + d[k])
            if excess.max() > tolerance:
                i, j = np.unravel_index(excess.argmax(), excess.shape)
                _raise_triangle_error(distances, int(i), k, int(j))
        return
    i, k, j = np.random.default_rng(0).integers(n, size=(3, _TRIANGLES))
    sampled = distances[i, j].astype(wide) - (distances[i, k].astype(wide) + distances[k, j])
    if sampled.max() > tolerance:
        worst = sampled.argmax()
        _raise_triangle_error(distances, int(i[worst]), int(k[worst]), int(j[worst]))


def _raise_triangle_error(distances: Array, i: int, k: int, j: int) -> None:
    adjacency = distances.dtype.kind in "iu" and distances.max() <= 1
    raise ValueError(
        f"the triangle inequality fails: d({i}, {j}) = {distances[i, j]} > d({i}, {k}) + d({k}, {j}) = "
        f"{distances[i, k]} + {distances[k, j]}; "
        + (
            "an adjacency matrix must be passed as scipy.sparse.csr_array(adjacency)"
            if adjacency
            else "delta is defined for metrics (squared distances and similarities are not metrics)"
        )
    )


# --- the four-point condition -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gaps:
    """Gaps :math:`S_1 - S_2 = 2 \\delta` of the quadruples examined.

    Integer distances stay integers, so their gaps are exact; others are computed in float64.

    Args:
        count: Number of quadruples examined.
        largest: Largest gap.
        mean: Mean gap.
        error: Half the width of a 95 % confidence interval of the mean; None if every quadruple was examined.
    """

    count: int
    largest: float
    mean: float
    error: float | None


def _every_quadruple(distances: Array) -> _Gaps:
    """Examine all C(n, 4) quadruples in :math:`n^4 / 12` contiguous steps and :math:`O(n^2)` memory.

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
    return _Gaps(count, float(largest), total / (2 * count), None)  # 2: each pair k, l appears in both orders


def _independent_quadruples(distances: Array, samples: int, rng: np.random.Generator) -> _Gaps:
    """Draw ``samples`` independent uniform quadruples of distinct points.

    The interval is Student's. If all draws are equal, it follows the rule of three: a gap as large as the diameter that
    did not occur in N draws may still have probability 3/N.
    """
    total, squares, largest = _draw_gaps(distances, samples, rng)
    mean = total / samples
    variance = max(0.0, squares / samples - mean**2) / max(1, samples - 1)
    error = stdtrit(max(1, samples - 1), 0.975) * sqrt(variance)
    return _Gaps(samples, largest, mean, float(error) or 3 * float(distances.max()) / samples)


def _pooled_quadruples(distances: Array, samples: int, rng: np.random.Generator) -> _Gaps:
    """Draw ``samples`` quadruples from a uniform pool of m nodes of a larger space, each within one of 16 parts.

    Quadruples of one pool share nodes, so their number does not give the error of the mean. The 16 parts of the pool
    are disjoint and their means are independent: the interval is Student's over the means (the rule of three counts
    m / 4 draws).

    Args:
        distances: ``[m, m]``, the pool in random order.
    """
    groups = max(1, min(_GROUPS, len(distances) // 4, samples))
    means, counts, largest = np.zeros(groups), np.zeros(groups, dtype=np.int64), 0.0
    for g, part in enumerate(np.array_split(np.arange(len(distances)), groups)):
        counts[g] = samples // groups + (g < samples % groups)
        total, _, seen = _draw_gaps(distances[np.ix_(part, part)], int(counts[g]), rng)
        means[g], largest = total / counts[g], max(largest, seen)
    error = stdtrit(groups - 1, 0.975) * means.std(ddof=1) / sqrt(groups) if groups > 1 else 0.0
    unseen = 3 * float(distances.max()) / min(samples, len(distances) // 4)
    return _Gaps(samples, largest, float(means @ counts) / samples, float(error) or unseen)


def _working_copy(distances: Array) -> Array:
    """Return the distances as the smallest integers that hold a sum of two, or as exactly symmetric float64."""
    if distances.dtype.kind in "iu":
        return distances.astype(np.min_scalar_type(-2 * int(distances.max()) - 1))
    wide: Array = distances.astype(np.float64)
    return np.asarray((wide + wide.T) / 2)


def _gaps_with_pair(d: Array, i: int, j: int) -> Array:
    """Return the gaps of the quadruples i < j < k, l as a matrix over (k, l); 0 where k = l."""
    to_i, to_j = d[i, j + 1 :], d[j, j + 1 :]
    opposite = d[j + 1 :, j + 1 :] + d[i, j]
    crossed, parallel = to_i[:, None] + to_j, to_j[:, None] + to_i
    high, low = np.maximum(crossed, parallel), np.minimum(crossed, parallel)
    first: Array = np.maximum(high, opposite)
    second = np.maximum(low, np.minimum(high, opposite, out=high), out=low)
    first -= second
    first.flat[:: len(first) + 1] = 0
    return first


def _draw_gaps(distances: Array, samples: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Return sum, sum of squares and maximum of the gaps of uniform quadruples, drawn in chunks."""
    total, squares, largest = 0.0, 0.0, 0.0
    for start in range(0, samples, _CHUNK):
        quadruples = _draw_distinct(len(distances), min(_CHUNK, samples - start), rng)
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


def _draw_distinct(n: int, count: int, rng: np.random.Generator) -> Array:
    """Return ``[4, count]``: four distinct numbers below n, every ordered choice equally likely.

    The r-th draw is one of the n - r numbers left: it skips the numbers already taken, in increasing order.
    """
    chosen = np.empty((4, count), dtype=np.int64)
    for r in range(4):
        draw = rng.integers(n - r, size=count)
        for taken in np.sort(chosen[:r], axis=0):
            draw += draw >= taken
        chosen[r] = draw
    return chosen
