"""Hop distances of an undirected graph: largest component, all pairs, a pool of nodes, and the exact diameter.

Many breadth-first searches run at once, one bit per source: a level of 64 searches is one OR over the edges. On sparse
graphs of small diameter this is 10 to 20 times faster than one Dijkstra search per source. On graphs of large diameter
(long cycles, roads) the many levels make it slower, and Dijkstra's algorithm is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

__all__ = [
    "Component",
    "EccentricityBounds",
    "all_pairs",
    "diameter",
    "hop_distances",
    "largest_component",
    "pool_distances",
    "tree_diameter",
]

Array = NDArray[Any]

_FRONTIER_BYTES = 2**25  # memory of one batch of searches: the words gathered along the edges
_MANY_LEVELS = 128  # measured: Dijkstra is faster than one bit per source from about this number of levels on
_DIAMETER_SOURCES = 4096  # maximum number of searches for the exact diameter; then its upper bound is returned


@dataclass(frozen=True)
class Component:
    """The largest connected component of an undirected graph.

    Args:
        adjacency: Symmetric ``[n, n]`` CSR pattern without self loops; every row has an entry if n > 1.
        dropped_nodes: Number of nodes of the graph outside the component.
    """

    adjacency: sparse.csr_array
    dropped_nodes: int

    @property
    def nodes(self) -> int:
        return int(self.adjacency.shape[0])

    @property
    def is_tree(self) -> bool:
        return int(self.adjacency.nnz) == 2 * (self.nodes - 1)

    @cached_property
    def diameter_bound(self) -> int:
        """Twice the eccentricity of node 0, an upper bound of every distance: the path through node 0 is no shorter."""
        return 2 * int(_dijkstra(self, np.zeros(1, dtype=np.int64)).max())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that holds every distance."""
        return np.min_scalar_type(self.diameter_bound)


def largest_component(source: Array, target: Array, num_nodes: int) -> Component:
    """Return the largest component of the graph with edges in both directions; self loops and repeats are ignored."""
    proper = source != target
    rows = np.concatenate([source[proper], target[proper]])
    columns = np.concatenate([target[proper], source[proper]])
    pattern = np.ones(len(rows), dtype=np.int8)
    adjacency = sparse.coo_array((pattern, (rows, columns)), shape=(num_nodes, num_nodes)).tocsr()
    adjacency.data[:] = 1  # repeated edges were summed
    if num_nodes == 0:
        return Component(adjacency, 0)
    labels = csgraph.connected_components(adjacency, directed=False)[1]
    keep = np.flatnonzero(labels == np.bincount(labels).argmax())
    return Component(adjacency[keep][:, keep].tocsr(), num_nodes - len(keep))


def hop_distances(component: Component, sources: Array) -> Iterator[tuple[slice, Array]]:
    """Yield ``(where, block)``: block ``[n, b]`` holds the distances from ``sources[where]`` to every node.

    The width of the blocks is limited by a fixed amount of memory; their entries have ``component.dtype``.
    """
    bitwise = component.diameter_bound <= 2 * _MANY_LEVELS
    words = max(1, min(16, _FRONTIER_BYTES // (8 * max(1, int(component.adjacency.nnz)))))
    width = 64 * words if bitwise else 64
    for start in range(0, len(sources), width):
        where = slice(start, min(start + width, len(sources)))
        search = _breadth_first if bitwise else _dijkstra
        yield where, search(component, sources[where]).astype(component.dtype, copy=False)


def all_pairs(component: Component) -> Array:
    """Return the distances between all nodes, ``[n, n]``: n^2 bytes if the diameter is below 256."""
    distances = np.empty((component.nodes, component.nodes), dtype=component.dtype)
    for where, block in hop_distances(component, np.arange(component.nodes)):
        distances[where] = block.T
    return distances


def pool_distances(component: Component, pool: Array, bounds: EccentricityBounds) -> Array:
    """Return the distances between the nodes of a pool, ``[m, m]``; the searches also tighten ``bounds``."""
    distances = np.empty((len(pool), len(pool)), dtype=component.dtype)
    for where, block in hop_distances(component, pool):
        distances[where] = block[pool].T
        bounds.update(block)
    return distances


def tree_diameter(component: Component) -> int:
    """Return the diameter of a tree: go from any node to the farthest, and from there to the farthest again."""
    first = _dijkstra(component, np.zeros(1, dtype=np.int64))
    return int(_dijkstra(component, first.argmax(axis=0)).max())


class EccentricityBounds:
    """Bounds of every node's eccentricity, from the searches so far.

    A search from s with eccentricity e proves, for each node v at distance d: max(d, e - d) <= ecc(v) <= e + d.
    """

    def __init__(self, nodes: int) -> None:
        self.lower = np.zeros(nodes, dtype=np.int64)
        self.upper = np.full(nodes, max(0, nodes - 1), dtype=np.int64)

    def update(self, block: Array) -> None:
        """Tighten the bounds by the distances ``[n, b]`` of b searches."""
        for start in range(0, block.shape[1], 32):  # 32 columns: small compared with the block
            distances = block[:, start : start + 32].astype(np.int32)
            eccentricity = distances.max(axis=0)
            np.minimum(self.upper, (distances + eccentricity).min(axis=1), out=self.upper)
            np.maximum(self.lower, np.maximum(distances, eccentricity - distances).max(axis=1), out=self.lower)

    @property
    def diameter(self) -> tuple[int, int]:
        """Lower and upper bound of the diameter; they are equal if it is known."""
        return int(self.lower.max()), int(self.upper.max())


def diameter(component: Component, bounds: EccentricityBounds) -> tuple[int, bool]:
    """Return the diameter and True, or an upper bound and False if the budget of searches is used up.

    Each round searches from the nodes that may be farthest out, which raises the lower bound, and from the most central
    nodes, which lowers the upper bounds of all others.
    """
    for _ in range(_DIAMETER_SOURCES // 64):
        low, high = bounds.diameter
        if low == high:
            return low, True
        open_nodes = np.flatnonzero((bounds.upper > low) & (bounds.lower < bounds.upper))
        outer = open_nodes[np.argsort(-bounds.upper[open_nodes], kind="stable")[:32]]
        inner = open_nodes[np.argsort(bounds.lower[open_nodes], kind="stable")[:32]]
        for _, block in hop_distances(component, np.union1d(outer, inner)):
            bounds.update(block)
    low, high = bounds.diameter
    return high, low == high


def _dijkstra(component: Component, sources: Array) -> Array:
    found: Array = csgraph.dijkstra(component.adjacency, directed=True, indices=sources, unweighted=True)
    return found.T


def _breadth_first(component: Component, sources: Array) -> Array:
    """Return distances ``[n, b]`` by b parallel searches: bit b of a node's words says whether search b reached it."""
    neighbours, starts = component.adjacency.indices, component.adjacency.indptr[:-1]
    lane = np.arange(len(sources))
    frontier = np.zeros((component.nodes, -(-len(sources) // 64)), dtype=np.uint64)
    np.bitwise_or.at(frontier, (sources, lane // 64), np.uint64(1) << (lane % 64).astype(np.uint64))
    unseen = ~frontier
    digits: list[Array] = []  # the binary digits of the distances, one plane of bits each
    level = 0
    while component.nodes > 1:
        frontier = np.bitwise_or.reduceat(frontier.take(neighbours, axis=0), starts, axis=0)
        frontier &= unseen
        if not frontier.any():
            break
        unseen &= ~frontier
        level += 1
        for position in range(level.bit_length()):
            if position == len(digits):
                digits.append(np.zeros_like(frontier))
            if level >> position & 1:
                digits[position] |= frontier
    distances = np.zeros((component.nodes, len(sources)), dtype=np.min_scalar_type(level))
    for position, plane in enumerate(digits):
        octets = plane.astype("<u8", copy=False).view(np.uint8)
        bits = np.unpackbits(octets, axis=1, count=len(sources), bitorder="little")
        distances |= bits.astype(distances.dtype, copy=False) << position
    return distances
