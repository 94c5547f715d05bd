"""Which edges and nodes are held out. Rules only; :func:`lresnet.data.load_task` puts them together with a data set.

Two rules for each task. *Legacy* is what the literature used: fixed for all seeds, made with NumPy's old generator,
and reproduced here to the last bit. *Disjoint* is what one should use: it follows the seed, no node is its own
neighbour, and nothing that is judged by occurs twice or in training.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data.pairs import PairNumbering, kth_free
from lresnet.data.shuffle import front_of_shuffle

__all__ = [
    "EdgeSplit",
    "NodeSplit",
    "balanced_nodes",
    "disjoint_edges",
    "disjoint_nodes",
    "legacy_edges",
    "legacy_nodes",
    "planetoid_nodes",
]

LEGACY_SEED = 1234
_EDGES_VAL, _EDGES_TEST = 0.05, 0.10
_NODES_VAL, _NODES_TEST = 0.15, 0.15


class EdgeSplit(NamedTuple):
    """Edges and pairs that are none, each ``[2, m]``, lower node first."""

    train: Tensor
    val: Tensor
    test: Tensor
    val_negatives: Tensor
    test_negatives: Tensor


class NodeSplit(NamedTuple):
    """Node numbers, each ``[m]``, int64."""

    train: Tensor
    val: Tensor
    test: Tensor


def legacy_edges(edges: Tensor, nodes: int) -> EdgeSplit:
    """HGCN's link split: 5 % validation, 10 % test, always with seed 1234.

    The pairs (i, i) count as non-edges, and one that is an edge as an edge, as in the original. The original lists all
    non-edges and shuffles the list; only the first few are used, and these are found here without the list (PubMed: in
    seconds and a few MB).

    Args:
        edges: ``[2, e]``, sorted, lower node first, self loops included.
        nodes: n.
    """
    rng = np.random.RandomState(LEGACY_SEED)  # the generator the published splits were made with
    order = np.arange(edges.shape[1])
    rng.shuffle(order)
    val, test = _held_out(edges.shape[1])
    shuffled = edges[:, torch.from_numpy(order)]

    numbering = PairNumbering(nodes, diagonal=True)
    taken = numbering.encode(edges)
    places = front_of_shuffle(rng, numbering.total - taken.numel(), val + test)
    negatives = numbering.decode(kth_free(taken, torch.from_numpy(places)))
    return _edge_split(shuffled, negatives, val, test)


def disjoint_edges(edges: Tensor, nodes: int, seed: int) -> EdgeSplit:
    """A random link split: 5 % validation, 10 % test, as many non-edges as edges in each.

    Non-edges are drawn uniformly without replacement from the pairs i < j that are no edge of the whole graph: none is
    an edge, (i, i), or in validation and test both.

    Args:
        edges: ``[2, e]``; self loops are dropped.
        nodes: n.
        seed: decides all of it.

    Raises:
        ValueError: the graph is too small to hold anything out, or too dense for as many non-edges.
    """
    edges = edges[:, edges[0] != edges[1]]
    count = edges.shape[1]
    val, test = _held_out(count)
    if val == 0 or test == 0:
        raise ValueError(f"a graph of {count} edges leaves none for validation; 20 are needed for a 5 % share")
    numbering = PairNumbering(nodes)
    taken = numbering.encode(edges).sort().values
    free = numbering.total - count
    if free < val + test:
        raise ValueError(f"the graph has only {free} pairs without an edge; {val + test} are needed as negatives")
    rng = np.random.Generator(np.random.PCG64(seed))
    shuffled = edges[:, torch.from_numpy(rng.permutation(count))]
    places = torch.from_numpy(rng.choice(free, size=val + test, replace=False))
    return _edge_split(shuffled, numbering.decode(kth_free(taken, places)), val, test)


def legacy_nodes(labels: Tensor, val: float, test: float) -> NodeSplit:
    """HGCN's node split, always with seed 1234: see :func:`balanced_nodes`.

    Its rule is made for two classes: "positive" is a label other than 0, "negative" one other than 1. With more
    classes (airport) the labels 2, 3, ... are both, so nodes occur twice and the three parts overlap. All figures
    published for airport have this split; use it to compare with them, and ``"disjoint"`` to know.
    """
    return balanced_nodes(labels, val, test, np.random.RandomState(LEGACY_SEED))


def balanced_nodes(
    labels: Tensor, val: float, test: float, rng: np.random.RandomState | np.random.Generator
) -> NodeSplit:
    """As many positives as negatives in validation and test: a share of the smaller side each; the rest is training.

    Args:
        labels: ``[n]``.
        val: share of the smaller side that goes to validation, from either side.
        test: likewise for the test.
        rng: shuffles first the positives, then the negatives.
    """
    sides = [np.flatnonzero(labels.numpy() != 0), np.flatnonzero(labels.numpy() != 1)]
    for side in sides:
        rng.shuffle(side)
    smaller = min(side.size for side in sides)
    a, b = round(val * smaller), round(val * smaller) + round(test * smaller)
    return NodeSplit(
        train=_joined([side[b:] for side in sides]),
        val=_joined([side[:a] for side in sides]),
        test=_joined([side[a:b] for side in sides]),
    )


def disjoint_nodes(nodes: int, seed: int) -> NodeSplit:
    """A random node split: 70 % training, 15 % validation, 15 % test."""
    order = torch.from_numpy(np.random.Generator(np.random.PCG64(seed)).permutation(nodes))
    val, test = int(nodes * _NODES_VAL), int(nodes * _NODES_TEST)
    return NodeSplit(train=order[val + test :], val=order[:val], test=order[val : val + test])


def planetoid_nodes(masks: dict[str, Tensor], validation: int) -> NodeSplit:
    """Planetoid's public split with the first ``validation`` nodes after the training ones for validation."""
    train, test = (masks[part].nonzero().squeeze(1) for part in ("train", "test"))
    return NodeSplit(train, torch.arange(train.numel(), train.numel() + validation), test)


def _held_out(count: int) -> tuple[int, int]:
    return int(count * _EDGES_VAL), int(count * _EDGES_TEST)


def _edge_split(edges: Tensor, negatives: Tensor, val: int, test: int) -> EdgeSplit:
    return EdgeSplit(
        train=edges[:, val + test :].contiguous(),
        val=edges[:, :val].contiguous(),
        test=edges[:, val : val + test].contiguous(),
        val_negatives=negatives[:, :val].contiguous(),
        test_negatives=negatives[:, val:].contiguous(),
    )


def _joined(parts: list[NDArray[np.int64]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))
