"""Edges as tensors: repeated rows merged, both directions of an edge joined, weights kept."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["MergedEdges", "directed_pairs", "merge_edges"]


class MergedEdges(NamedTuple):
    """Edges that occur once each, and what was merged.

    Args:
        edges: ``[2, e]``, int64, sorted. Undirected: lower node first.
        weights: ``[e]``, float64, or None.
        repeated: Number of rows that repeat an earlier row of the same direction.
        reversed: Number of undirected edges that were given in both directions; 0 for directed edges.
        unequal: Number of those whose two directions had different weights.
    """

    edges: Tensor
    weights: Tensor | None
    repeated: int
    reversed: int
    unequal: int


def merge_edges(edges: Tensor, nodes: int, weights: Tensor | None = None, *, directed: bool = False) -> MergedEdges:
    """Return each edge once.

    The weights of rows that repeat an edge in the same direction are added. If an undirected edge is given in both
    directions, its weight is the mean of the two, so that a symmetric list keeps its weights.

    Args:
        edges: ``[2, m]``, int64, in any order, with or without repetitions and self loops.
        nodes: Number of nodes n.
        weights: ``[m]`` or None.
        directed: Whether (i, j) and (j, i) are two edges.

    Example:
        >>> merged = merge_edges(torch.tensor([[1, 0, 2, 2], [0, 1, 1, 1]]), 3, torch.tensor([2.0, 2.0, 1.0, 4.0]))
        >>> merged.edges.tolist(), merged.weights.tolist(), merged.repeated, merged.reversed
        ([[0, 1], [1, 2]], [2.0, 5.0], 1, 1)
    """
    numbers = edges[0] * nodes + edges[1]
    weights = None if weights is None else weights.to(torch.float64)
    rows = numbers.numel()
    if not bool((numbers[1:] > numbers[:-1]).all()):
        if weights is None:
            numbers = numbers.unique()
        else:
            numbers, position = numbers.unique(return_inverse=True)
            weights = torch.zeros(numbers.numel(), dtype=torch.float64).index_add_(0, position, weights)
    repeated = rows - numbers.numel()
    first, second = numbers.div(nodes, rounding_mode="floor"), numbers % nodes
    if directed or not bool((first > second).any()):
        return MergedEdges(torch.stack([first, second]), weights, repeated, 0, 0)

    low, high = torch.minimum(first, second), torch.maximum(first, second)
    del first, second
    both = low * nodes + high
    unequal = 0
    if weights is None:
        numbers = both.unique()
    else:
        numbers, position, count = both.unique(return_inverse=True, return_counts=True)
        mean = torch.zeros(numbers.numel(), dtype=torch.float64).index_add_(0, position, weights) / count
        unequal = int((mean[position] != weights).sum()) // 2
        weights = mean
    joined = both.numel() - numbers.numel()
    pairs = torch.stack([numbers.div(nodes, rounding_mode="floor"), numbers % nodes])
    return MergedEdges(pairs, weights, repeated, joined, unequal)


def directed_pairs(edges: Tensor, nodes: int, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return undirected, weighted ``edges`` in both directions, sorted, without self loops, and their weights.

    Args:
        edges: ``[2, e]``, each edge once.
        nodes: Number of nodes n.
        weights: ``[e]``.

    Returns:
        ``edge_index`` ``[2, 2e]`` and the weights ``[2e]``.
    """
    proper = edges[0] != edges[1]
    first, second = edges[:, proper]
    numbers, order = torch.cat([first * nodes + second, second * nodes + first]).sort()
    return torch.stack([numbers.div(nodes, rounding_mode="floor"), numbers % nodes]), weights[proper].repeat(2)[order]
