"""Which edges and nodes are held out. Rules only; :func:`lresnet.data.load_task` puts them together with a data set.

Two rules for each task. *Legacy* is what the literature used: fixed for all seeds, made with NumPy's old generator,
and reproduced here to the last bit. *Disjoint* is what one should use: it follows the seed, no node is its own
neighbour, and nothing that is judged by occurs twice or in training.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data.pairs import PairNumbering, kth_free

__all__ = [
    "LEGACY_PLANETOID_VALIDATION",
    "PLANETOID_VALIDATION",
    "EdgeSplit",
    "NodeSplit",
    "balanced_nodes",
    "disjoint_edges",
    "disjoint_nodes",
    "front_of_shuffle",
    "legacy_edges",
    "legacy_nodes",
    "masked_nodes",
    "planetoid_nodes",
]


PLANETOID_VALIDATION = 500
"""Number of validation nodes of the public Planetoid split."""

LEGACY_PLANETOID_VALIDATION = 1000
"""Number of validation nodes that the released code of the literature uses on Planetoid graphs."""

_LEGACY_SEED = 1234
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
    rng = np.random.RandomState(_LEGACY_SEED)  # the generator the published splits were made with
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
    return balanced_nodes(labels, val, test, np.random.RandomState(_LEGACY_SEED))


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


def masked_nodes(name: str, masks: dict[str, Tensor], index: int) -> NodeSplit:
    """Return the official split number ``index`` of a graph whose masks are ``[n, splits]``.

    Raises:
        ValueError: There is no split of this number.
    """
    count = masks["train"].shape[1]
    if not 0 <= index < count:
        raise ValueError(f"{name} has the official splits 0 to {count - 1}, not {index}")
    train, val, test = (masks[part][:, index].nonzero().squeeze(1) for part in ("train", "val", "test"))
    return NodeSplit(train, val, test)


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


_DRAWS = 2**16  # random numbers looked at together: they fit the cache
_MARKS = 2**20  # size of the table that says which places are surely not tracked


def front_of_shuffle(rng: np.random.RandomState, n: int, k: int) -> NDArray[np.int64]:
    """The first ``k`` entries of ``np.arange(n)`` after ``rng.shuffle``, bit for bit.

    Args:
        rng: NumPy's old generator; it is left somewhere behind the shuffle.
        n: length of the list, at most 2^32.
        k: at most n.

    Returns:
        ``[k]``. It takes about 30 ns per entry of the list and memory for k.

    Example:
        >>> front_of_shuffle(np.random.RandomState(0), 10, 3)
        array([2, 8, 4])
    """
    if n > 2**32:
        raise ValueError(f"a list of {n:,} entries is beyond the 2^32 this shuffle can be traced through")
    chunks = list(_chunk_starts(rng, n))
    slot_of = {place: place for place in range(k)}  # a tracked place, and which slot of the front its entry reaches
    maybe_tracked = np.zeros(_MARKS, dtype=np.bool_)
    maybe_tracked[:k] = True
    last_swaps: list[tuple[int, int]] = []  # those inside the front, i < k
    for high, state in reversed(chunks):
        rng.set_state(state)
        partners = _partners(rng, high)[::-1]  # backwards in time is upwards in i
        low = high - partners.size + 1
        # Only places that are tracked already, or become so within this chunk, matter.
        for step in np.flatnonzero(maybe_tracked[partners % _MARKS] | (partners >= low)).tolist():
            i, j = low + step, int(partners[step])
            if i < k:
                last_swaps.append((i, j))
            elif j < i and j in slot_of:
                slot_of[i] = slot_of.pop(j)
                maybe_tracked[i % _MARKS] = True
    front = np.empty(k, dtype=np.int64)
    for place, slot in slot_of.items():
        front[slot] = place
    for i, j in reversed(last_swaps):
        front[i], front[j] = front[j], front[i]
    return front


def _chunk_starts(rng: np.random.RandomState, n: int) -> Iterator[tuple[int, Any]]:
    """The place i and the generator's state at the beginning of each chunk of draws."""
    high = n - 1
    while high > 0:
        yield high, rng.get_state()
        high -= _partners(rng, high).size


def _partners(rng: np.random.RandomState, high: int) -> NDArray[np.int64]:
    """The places that i = ``high``, ``high`` - 1, ... are swapped with, as far as one chunk of draws goes.

    A draw is cut to the bits of i and thrown away when it exceeds i, as NumPy does.
    """
    draws = rng.randint(0, 2**32, size=_DRAWS, dtype=np.uint32)
    found: list[NDArray[np.uint32]] = []
    start = 0
    while high > 0 and start < draws.size:
        mask = (1 << high.bit_length()) - 1
        values = draws[start:] & np.uint32(mask)
        same_mask = high - (mask >> 1)  # so many i have this mask
        taken = np.flatnonzero(_taken(values, high))[:same_mask]
        found.append(values[taken])
        start = start + int(taken[-1]) + 1 if taken.size == same_mask else draws.size
        high -= taken.size
    return np.concatenate(found).astype(np.int64)


def _taken(values: NDArray[np.uint32], high: int) -> NDArray[np.bool_]:
    """Which ``values`` do not exceed i, where i is ``high`` less the number of those taken before."""
    taken = values.astype(np.int64) <= high - values.size
    doubtful = np.flatnonzero(~taken & (values <= high))
    if doubtful.size == 0:
        return taken
    room = high - np.cumsum(taken, dtype=np.int32)[doubtful] - values[doubtful].astype(np.int64)
    fits = room >= 0
    # Whether one fits depends on those before it: each round is right at least one further from the front.
    while not np.array_equal(again := room >= np.cumsum(fits) - fits, fits):
        fits = again
    taken[doubtful] = fits
    return taken
