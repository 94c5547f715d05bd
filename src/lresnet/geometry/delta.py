r"""Gromov's delta-hyperbolicity by the four-point condition.

Four points have three sums of opposite distances, :math:`d(a,b) + d(c,e)`, :math:`d(a,c) + d(b,e)` and
:math:`d(a,e) + d(b,c)`. Ordered :math:`S_1 \ge S_2 \ge S_3`, they give

.. math:: \delta(a, b, c, e) = (S_1 - S_2) / 2, \qquad
   \delta = \max_{a,b,c,e} \delta(a, b, c, e) \le \mathrm{diam} / 2, \qquad
   \delta_\mathrm{rel} = 2 \delta / \mathrm{diam} \in [0, 1].

A tree has delta 0; the smaller delta, the better a space fits into hyperbolic space. The maximum over *some* quadruples
is a lower bound of delta, and is named so here: published values are usually such bounds.

Reference: M. Gromov, "Hyperbolic groups", 1987; the relative delta follows V. Khrulkov et al., "Hyperbolic image
embeddings", CVPR 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, isqrt
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lresnet.geometry.four_point import Gaps, every_quadruple, independent_quadruples, pooled_quadruples
from lresnet.geometry.metric_space import as_array, edges_of, metric_of
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

_ENUMERATED_NODES = 300  # all quadruples of so many points take 1 s (hop distances) to 3 s (real distances)
_DEFAULT_SAMPLES = 50_000  # what published figures for graphs rest on
_POOL_NODES = 4096  # searched from, when the distances between all nodes do not fit in memory


@dataclass(frozen=True)
class Delta:
    """What is known of a space's delta-hyperbolicity, see :func:`delta_hyperbolicity`.

    Args:
        lower_bound: the largest delta of the quadruples looked at; delta itself if ``exact``.
        upper_bound: half the diameter, or ``lower_bound`` where every quadruple is accounted for.
        mean: mean delta of the quadruples looked at.
        mean_interval: 95 % confidence interval of the mean over all quadruples; None if it is known.
        diameter: largest distance (an upper bound of it if not ``diameter_is_exact``).
        diameter_is_exact: False only for graphs whose diameter resisted some thousand searches.
        quadruples: how many quadruples the figures rest on.
        nodes: points of the space; for a graph, nodes of its largest connected component.
        dropped_nodes: nodes of the graph outside that component.
        pool_nodes: nodes that the quadruples were drawn from; ``nodes`` except for graphs too large for memory.
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
        """``2 * lower_bound / diameter``, between 0 and 1; a lower bound like ``lower_bound``."""
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
    r"""Gromov's delta of a finite metric space or of a graph: exact, or between bounds that say what they are.

    Args:
        space: one of

            - a **graph** as ``edge_index``: *integers* of shape ``[2, E]``. Directions, self loops and repeated edges
              do not matter; the distance is the number of hops in the largest connected component.
            - a **graph** as a SciPy sparse adjacency matrix ``[n, n]``: non-zeros are edges, weights do not count.
            - a **metric space** as its distances, any other shape ``[n, n]``, integer or floating point. Deviations
              from symmetry, a zero diagonal and the triangle inequality are taken for rounding up to the square
              root of the dtype's epsilon times the diameter.

            ``[2, 2]`` is an edge index if its dtype is an integer, and distances otherwise.
        num_nodes: nodes of the graph, if there are more than ``edge_index`` mentions.
        samples: draw so many uniform quadruples of distinct points. By default all quadruples are looked at up to
            300 points, and 50,000 are drawn beyond. A request for C(n, 4) or more looks at each quadruple once, so it
            is exact at any size; the time grows with n^4.
        seed: of the sampling; the global random states are neither read nor changed.
        memory: bytes for the distances between all nodes of a graph; the default serves 23,000 nodes at one byte each.
            A larger graph keeps the distances within a uniform pool of 4,096 nodes (fewer if ``memory`` asks for it)
            and draws its quadruples there.

    Returns:
        A :class:`Delta`. A graph that is a tree, and a space of fewer than 4 points, have delta 0 without any search.

    Raises:
        ValueError: ``space`` is neither a graph nor a metric, with the place where it fails; or ``samples`` < 1.

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
    edges = edges_of(space, num_nodes)
    if edges is None:
        return _of_matrix(metric_of(*as_array(space), exhaustive_nodes=_ENUMERATED_NODES), samples, rng)
    component = largest_component(*edges)
    n = component.nodes
    if n < 4 or component.is_tree:
        size = float(tree_diameter(component)) if component.is_tree else float(n > 1)
        return _delta(Gaps(comb(n, 4), 0.0, 0.0, None), size, nodes=n, dropped_nodes=component.dropped_nodes)
    if n**2 * component.dtype.itemsize <= memory:
        return _of_matrix(all_pairs(component), samples, rng, component.dropped_nodes)
    return _of_large_graph(component, samples, rng, memory)


def _of_matrix(distances: NDArray[Any], samples: int | None, rng: np.random.Generator, dropped_nodes: int = 0) -> Delta:
    n = len(distances)
    size = float(distances.max(initial=0))
    if n < 4:
        gaps = Gaps(0, 0.0, 0.0, None)
    elif samples >= comb(n, 4) if samples else n <= _ENUMERATED_NODES:
        gaps = every_quadruple(distances)
    else:
        gaps = independent_quadruples(distances, samples or _DEFAULT_SAMPLES, rng)
    return _delta(gaps, size, nodes=n, dropped_nodes=dropped_nodes)


def _of_large_graph(component: Component, samples: int | None, rng: np.random.Generator, memory: int) -> Delta:
    nodes = min(component.nodes, _POOL_NODES, max(4, isqrt(memory // component.dtype.itemsize)))
    pool = rng.choice(component.nodes, size=nodes, replace=False)
    bounds = EccentricityBounds(component.nodes)
    gaps = pooled_quadruples(pool_distances(component, pool, bounds), samples or _DEFAULT_SAMPLES, rng)
    size, is_exact = diameter(component, bounds)
    return _delta(gaps, float(size), is_exact, component.nodes, component.dropped_nodes, nodes)


def _delta(
    gaps: Gaps,
    size: float,
    size_is_exact: bool = True,
    nodes: int = 0,
    dropped_nodes: int = 0,
    pool_nodes: int | None = None,
) -> Delta:
    """Halve the gaps, and turn the error of their mean into an interval within what is possible."""
    lower, mean, upper = gaps.largest / 2, gaps.mean / 2, max(gaps.largest, size) / 2  # rounding may exceed the bound
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
