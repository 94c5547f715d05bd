"""Splits for completing a hierarchy: leaves without their edges, and held-out pairs of the transitive closure.

A hierarchy is a list of edges (node, parent) without cycles. A node may have several parents, and there may be several
roots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from lresnet.data.splits import require_shares

__all__ = ["HeldOutPairs", "held_out_closure", "held_out_leaves", "subtree", "transitive_closure"]


class HeldOutPairs(NamedTuple):
    """Pairs (node, ancestor) of a hierarchy, each ``[2, m]``, int64. No pair is in two of the parts to learn from."""

    edges: Tensor
    """Edges (node, parent) that may be used: those that messages of a graph network pass along."""
    train: Tensor
    """Pairs to train on."""
    val: Tensor
    """Pairs to rank for validation."""
    test: Tensor
    """Pairs to rank for test."""
    known: Tensor
    """All true pairs. The ranking of one of them leaves out the others."""


def transitive_closure(edges: Tensor, nodes: int) -> Tensor:
    """Return all pairs (node, ancestor) of a hierarchy, ``[2, p]``, sorted.

    Args:
        edges: Edges (node, parent) ``[2, e]``.
        nodes: Number of nodes.

    Raises:
        ValueError: There is a cycle.

    Example:
        >>> transitive_closure(torch.tensor([[1, 2], [0, 1]]), 3)
        tensor([[1, 2, 2],
                [0, 0, 1]])
    """
    row, column = edges.numpy()
    step = sparse.csr_array((np.ones(row.size, dtype=np.int64), (row, column)), shape=(nodes, nodes))
    step.data[:] = 1  # an edge may be listed twice
    closure = step.copy()
    while True:
        reached = closure + closure @ step
        reached.data[:] = 1
        if reached.diagonal().any():
            node = int(reached.diagonal().argmax())
            raise ValueError(f"node {node} is its own ancestor; a hierarchy has no cycles")
        if reached.nnz == closure.nnz:
            closure.sort_indices()
            pairs = closure.tocoo()
            return torch.from_numpy(np.stack([pairs.coords[0], pairs.coords[1]]).astype(np.int64))
        closure = reached


def subtree(edges: Tensor, nodes: int, root: int) -> tuple[Tensor, Tensor]:
    """Return the hierarchy of a node and all of its descendants.

    Args:
        edges: Edges (node, parent) ``[2, e]``.
        nodes: Number of nodes.
        root: The node.

    Returns:
        The numbers of the kept nodes ``[k]``, sorted, and the edges between them, which count the kept nodes from 0.

    Example:
        >>> subtree(torch.tensor([[1, 2, 3], [0, 1, 0]]), 4, 1)
        (tensor([1, 2]), tensor([[1],
                [0]]))
    """
    closure = transitive_closure(edges, nodes)
    inside = torch.zeros(nodes, dtype=torch.bool)
    inside[closure[0, closure[1] == root]] = True
    inside[root] = True
    kept = inside.nonzero().squeeze(1)
    within = edges[:, inside[edges].all(dim=0)]
    return kept, torch.searchsorted(kept, within)


def held_out_leaves(edges: Tensor, nodes: int, seed: int, validation: float = 0.05, test: float = 0.1) -> HeldOutPairs:
    """Hold out leaves with all of their edges: a new term is to be placed under its parents.

    A leaf has a parent and no child. The held-out leaves stay nodes of the hierarchy, without any edge.

    Args:
        edges: Edges (node, parent) ``[2, e]``.
        nodes: Number of nodes.
        seed: Seed of the draw.
        validation: Share of the leaves held out for validation.
        test: Share of the leaves held out for test.

    Raises:
        ValueError: The shares are out of range, or too few leaves for one in each part.

    Example:
        >>> edges = torch.tensor([[1, 2, 3, 4], [0, 0, 1, 1]])
        >>> split = held_out_leaves(edges, 5, seed=0, validation=0.34, test=0.34)
        >>> split.val.shape[1], split.test.shape[1], split.train.shape[1]
        (1, 1, 2)
    """
    require_shares(validation, test)
    has_parent, has_child = torch.zeros(nodes, dtype=torch.bool), torch.zeros(nodes, dtype=torch.bool)
    has_parent[edges[0]], has_child[edges[1]] = True, True
    leaves = (has_parent & ~has_child).nonzero().squeeze(1)
    val, test_leaves = _drawn(leaves.numel(), seed, validation, test, "leaves")
    part = torch.zeros(nodes, dtype=torch.int8)
    part[leaves[val]], part[leaves[test_leaves]] = 1, 2
    of_edge = part[edges[0]]
    train = edges[:, of_edge == 0]
    return HeldOutPairs(train, train, edges[:, of_edge == 1], edges[:, of_edge == 2], edges)


def held_out_closure(
    edges: Tensor, nodes: int, seed: int, validation: float = 0.05, test: float = 0.05
) -> HeldOutPairs:
    """Hold out pairs of the transitive closure that are no edges; all edges stay, as Ganea et al. (2018) do.

    Because the edges stay, following them answers every held-out pair. The task measures what an embedding of a given
    dimension can represent, and not what can be inferred.

    Args:
        edges: Edges (node, parent) ``[2, e]``.
        nodes: Number of nodes.
        seed: Seed of the draw.
        validation: Share of the other pairs held out for validation.
        test: Share of the other pairs held out for test.

    Raises:
        ValueError: The shares are out of range, there is a cycle, or too few pairs for one in each part.

    Example:
        >>> chain = torch.stack([torch.arange(1, 9), torch.arange(8)])
        >>> split = held_out_closure(chain, 9, seed=0, validation=0.1, test=0.1)
        >>> split.train.shape[1], split.val.shape[1], split.test.shape[1], split.known.shape[1]
        (32, 2, 2, 36)
    """
    require_shares(validation, test)
    closure = transitive_closure(edges, nodes)
    is_edge = torch.isin(closure[0] * nodes + closure[1], edges[0] * nodes + edges[1])
    other = closure[:, ~is_edge]
    val, test_pairs = _drawn(other.shape[1], seed, validation, test, "pairs that are no edges")
    kept = torch.ones(other.shape[1], dtype=torch.bool)
    kept[val] = kept[test_pairs] = False
    direct = closure[:, is_edge]
    train = torch.cat([direct, other[:, kept]], dim=1)
    return HeldOutPairs(direct, train, other[:, val], other[:, test_pairs], closure)


def _drawn(count: int, seed: int, validation: float, test: float, what: str) -> tuple[Tensor, Tensor]:
    """Return sorted places of validation and test items among ``count``."""
    val, held_out = int(count * validation), int(count * test)
    if min(val, held_out) < 1:
        raise ValueError(
            f"{count} {what} are too few for validation {validation:g} and test {test:g}; use larger shares"
        )
    order = torch.from_numpy(np.random.Generator(np.random.PCG64(seed)).permutation(count))
    return order[:val].sort().values, order[val : val + held_out].sort().values
