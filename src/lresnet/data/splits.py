"""Splits: which edges and nodes are held out for validation and test.

:func:`lresnet.data.load_task` combines these rules with a graph; :mod:`lresnet.data.split_names` has their names. The
published splits are fixed for all seeds and reproduced bit for bit; HGCN's are drawn with NumPy's legacy generator.
*Disjoint* splits are the recommended ones: they follow the seed, contain no self loops, and no validation or test item
occurs twice or in training.
"""

from __future__ import annotations

import math
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
    "class_random_nodes",
    "disjoint_edges",
    "disjoint_nodes",
    "fresh_nodes",
    "front_of_shuffle",
    "legacy_edges",
    "legacy_nodes",
    "masked_nodes",
    "non_edges",
    "planetoid_nodes",
    "require_shares",
    "stratified",
]


PLANETOID_VALIDATION = 500
"""Number of validation nodes of the public Planetoid split."""

LEGACY_PLANETOID_VALIDATION = 1000
"""Number of validation nodes that the released code of the literature uses on Planetoid graphs."""

# The published split of HGCN: changing a number here changes a split that is promised bit for bit.
_LEGACY_SEED, _LEGACY_EDGES_VAL, _LEGACY_EDGES_TEST = 1234, 0.05, 0.10
_DISJOINT_EDGES_VAL, _DISJOINT_EDGES_TEST = 0.05, 0.10
_DISJOINT_NODES_VAL, _DISJOINT_NODES_TEST = 0.15, 0.15
_CLASS_RANDOM_TRAIN, _CLASS_RANDOM_VAL, _CLASS_RANDOM_TEST = 20, 500, 1000
_FRESH_VAL, _FRESH_TEST = 0.32, 0.20

_DRAWS = 2**16  # random numbers processed together; they fit the cache
_MARKS = 2**20  # size of the table of positions that may be tracked


class EdgeSplit(NamedTuple):
    """Edges and pairs without an edge, each ``[2, m]``, lower node first."""

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
    """Split the edges by the rule of HGCN: 5 % validation, 10 % test, always with seed 1234.

    As in the original, a pair (i, i) counts as a non-edge unless the graph has this self loop. The original lists all
    non-edges, shuffles the list and uses its first entries. These are found here without the list (for PubMed in
    seconds, with a few MB).

    Args:
        edges: ``[2, e]``, sorted, lower node first, with self loops.
        nodes: Number of nodes n.
    """
    rng = np.random.RandomState(_LEGACY_SEED)  # the generator of the published splits
    order = np.arange(edges.shape[1])
    rng.shuffle(order)
    val, test = int(edges.shape[1] * _LEGACY_EDGES_VAL), int(edges.shape[1] * _LEGACY_EDGES_TEST)
    shuffled = edges[:, torch.from_numpy(order)]

    numbering = PairNumbering(nodes, diagonal=True)
    taken = numbering.encode(edges)
    ranks = front_of_shuffle(rng, numbering.total - taken.numel(), val + test)
    negatives = numbering.decode(kth_free(taken, torch.from_numpy(ranks)))
    return _edge_split(shuffled, negatives, val, test)


def disjoint_edges(
    edges: Tensor, nodes: int, seed: int, validation: float = _DISJOINT_EDGES_VAL, test: float = _DISJOINT_EDGES_TEST
) -> EdgeSplit:
    """Split the edges at random, with as many non-edges as edges in validation and in test.

    Non-edges are drawn uniformly without replacement from the pairs i < j that have no edge in the whole graph. So no
    negative is an edge or a self loop, and none occurs in both validation and test.

    Args:
        edges: ``[2, e]``; self loops are dropped.
        nodes: Number of nodes n.
        seed: Seed of the split.
        validation: Share of the edges held out for validation.
        test: Share of the edges held out for test.

    Raises:
        ValueError: The graph has too few edges to hold any out, or too few non-edges, or the shares leave no edges for
            training.
    """
    edges = edges[:, edges[0] != edges[1]]
    count = edges.shape[1]
    require_shares(validation, test)
    held_out, tested = int(count * validation), int(count * test)
    if held_out == 0 or tested == 0:
        smallest = min(validation, test)
        raise ValueError(
            f"the graph has {count} edge{'' if count == 1 else 's'}; holding out {100 * smallest:g} % needs at least "
            f"{math.ceil(1 / smallest)}"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    shuffled = edges[:, torch.from_numpy(rng.permutation(count))]
    negatives = non_edges(edges, nodes, held_out + tested, rng)
    return _edge_split(shuffled, negatives, held_out, tested)


def non_edges(edges: Tensor, nodes: int, count: int, rng: np.random.Generator) -> Tensor:
    """Draw ``[2, count]`` pairs i < j without an edge, uniformly and without replacement.

    Args:
        edges: ``[2, e]``, without self loops, each pair once.
        nodes: Number of nodes n.
        count: Number of pairs.
        rng: Random generator.

    Raises:
        ValueError: The graph has fewer pairs without an edge.
    """
    numbering = PairNumbering(nodes)
    taken = numbering.encode(edges).sort().values
    free = numbering.total - edges.shape[1]
    if free < count:
        raise ValueError(f"the graph has only {free} pairs without an edge; {count} negatives are needed")
    ranks = torch.from_numpy(rng.choice(free, size=count, replace=False))
    return numbering.decode(kth_free(taken, ranks))


def require_shares(validation: float, test: float) -> None:
    """Check that two held-out shares are positive and leave something for training.

    Raises:
        ValueError: They do not.
    """
    for name, share in (("validation", validation), ("test", test)):
        if not 0 < share < 1:
            raise ValueError(f"the share held out for {name} must be above 0 and below 1, got {share}")
    if validation + test >= 1:
        raise ValueError(f"validation {validation} and test {test} leave nothing for training; choose smaller shares")


def stratified(labels: Tensor, seed: int, validation: float, test: float) -> NodeSplit:
    """Split the labelled nodes at random, with the same shares in every class.

    A class with one or two nodes has them in training first, then in test. A larger class has at least one node in each
    part.

    Args:
        labels: ``[n]``; negative for a node without a label, which is in no part.
        seed: Seed of the split.
        validation: Share held out for validation.
        test: Share held out for test.

    Example:
        >>> [part.numel() for part in stratified(torch.arange(40) % 2, seed=0, validation=0.2, test=0.2)]
        [24, 8, 8]
    """
    require_shares(validation, test)
    rng = np.random.Generator(np.random.PCG64(seed))
    parts: tuple[list[NDArray[np.int64]], ...] = ([], [], [])
    for label in np.unique(labels.numpy()):
        if label < 0:
            continue
        members = rng.permutation(np.flatnonzero(labels.numpy() == label))
        count = members.size
        tested = max(1, round(test * count)) if count > 1 else 0
        held_out = max(1, round(validation * count)) if count > 2 else 0
        held_out = min(held_out, count - tested - 1) if count > 2 else held_out
        for part, own in zip(parts, np.split(members, [count - held_out - tested, count - tested]), strict=True):
            part.append(own)
    train, val, tested_nodes = (np.sort(np.concatenate(part)) if part else np.empty(0, np.int64) for part in parts)
    return NodeSplit(torch.from_numpy(train), torch.from_numpy(val), torch.from_numpy(tested_nodes))


def legacy_nodes(labels: Tensor, val: float, test: float) -> NodeSplit:
    """Split the nodes by the rule of HGCN, always with seed 1234 (see :func:`balanced_nodes`).

    The rule is made for two classes: "positive" means a label other than 0, "negative" a label other than 1. With more
    classes (airport) the labels 2, 3, ... are both, so that nodes occur twice and the three parts overlap. All figures
    published for airport use this split. Use it to compare with them, and ``"disjoint"`` to measure how well a model
    generalises.
    """
    return balanced_nodes(labels, val, test, np.random.RandomState(_LEGACY_SEED))


def balanced_nodes(
    labels: Tensor, val: float, test: float, rng: np.random.RandomState | np.random.Generator
) -> NodeSplit:
    """Split the nodes with as many positives as negatives in validation and in test; the rest is for training.

    Args:
        labels: ``[n]``.
        val: Number of validation nodes of each sign, as a share of the rarer sign.
        test: Number of test nodes of each sign, as a share of the rarer sign.
        rng: Shuffles first the positives, then the negatives.
    """
    signs = [np.flatnonzero(labels.numpy() != 0), np.flatnonzero(labels.numpy() != 1)]
    for nodes in signs:
        rng.shuffle(nodes)
    rarer = min(nodes.size for nodes in signs)
    a, b = round(val * rarer), round(val * rarer) + round(test * rarer)
    return NodeSplit(
        train=_joined([nodes[b:] for nodes in signs]),
        val=_joined([nodes[:a] for nodes in signs]),
        test=_joined([nodes[a:b] for nodes in signs]),
    )


def disjoint_nodes(nodes: int, seed: int) -> NodeSplit:
    """Split the nodes at random: 70 % training, 15 % validation, 15 % test."""
    order = torch.from_numpy(np.random.Generator(np.random.PCG64(seed)).permutation(nodes))
    val, test = int(nodes * _DISJOINT_NODES_VAL), int(nodes * _DISJOINT_NODES_TEST)
    return NodeSplit(train=order[val + test :], val=order[:val], test=order[val : val + test])


def class_random_nodes(labels: Tensor, number: int) -> NodeSplit:
    """Split the nodes at random: 20 training nodes of every class, 500 validation and 1,000 test nodes.

    The labelled nodes are put in a random order (PCG64). In this order, the first 20 nodes of each class are for
    training. Of the other nodes, the first 500 are for validation and the next 1,000 for test. Nodes after these are in
    no part. Classes are not balanced in validation and test. Training nodes are sorted by class.

    Args:
        labels: ``[n]``; negative for a node without a label, which is in no part.
        number: Number of the split: the seed of the random order.

    Raises:
        ValueError: A class has fewer than 20 nodes, or fewer than 1,500 other nodes are left.
    """
    known = labels.numpy()
    order = np.random.Generator(np.random.PCG64(number)).permutation(np.flatnonzero(known >= 0))
    train = []
    for label in np.unique(known[order]):
        members = order[known[order] == label]
        if members.size < _CLASS_RANDOM_TRAIN:
            raise ValueError(
                f"class {label} has {members.size} nodes; the split class-random needs at least {_CLASS_RANDOM_TRAIN}"
            )
        train.append(members[:_CLASS_RANDOM_TRAIN])
    chosen = np.concatenate(train) if train else order[:0]
    rest = order[~np.isin(order, chosen)]
    if rest.size < (needed := _CLASS_RANDOM_VAL + _CLASS_RANDOM_TEST):
        raise ValueError(f"{rest.size} nodes are left for validation and test; the split class-random needs {needed}")
    val, test = rest[:_CLASS_RANDOM_VAL], rest[_CLASS_RANDOM_VAL:needed]
    return NodeSplit(torch.from_numpy(chosen), torch.from_numpy(val), torch.from_numpy(test))


def fresh_nodes(nodes: int, number: int) -> NodeSplit:
    """Split the nodes at random: 48 % training, 32 % validation, 20 % test, with no regard to the classes.

    The ten published splits of actor have exactly these sizes (3,648 / 2,432 / 1,520), and the shares of its classes
    differ between the parts; so they are not stratified, and neither are these.

    Args:
        nodes: Number of nodes n.
        number: Number of the split: the seed of the random order (PCG64).
    """
    order = torch.from_numpy(np.random.Generator(np.random.PCG64(number)).permutation(nodes))
    val, test = round(nodes * _FRESH_VAL), round(nodes * _FRESH_TEST)
    return NodeSplit(train=order[val + test :], val=order[:val], test=order[val : val + test])


def planetoid_nodes(masks: dict[str, Tensor], validation: int) -> NodeSplit:
    """Return the public split of Planetoid; the ``validation`` nodes after the training nodes are for validation."""
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


# The published link splits shuffle the list of all pairs without an edge (194 million for PubMed) and use the first few
# thousand. The shuffle visits the positions i = n - 1, ..., 1 and swaps i with a random position j <= i. The functions
# below replay these swaps backwards and keep only the positions of the entries that reach the front.


def front_of_shuffle(rng: np.random.RandomState, n: int, k: int) -> NDArray[np.int64]:
    """Return the first ``k`` entries of ``np.arange(n)`` after ``rng.shuffle``, bit for bit, without the list.

    The time is about 30 ns per entry of the list; the memory is proportional to ``k``.

    Args:
        rng: NumPy's legacy generator. Its state afterwards is undefined.
        n: Length of the list, at most 2^32.
        k: Number of entries, at most n.

    Returns:
        ``[k]``.

    Example:
        >>> front_of_shuffle(np.random.RandomState(0), 10, 3)
        array([2, 8, 4])
    """
    if n > 2**32:
        raise ValueError(f"a list of {n:,} entries is too long; the shuffle can be replayed for at most 2^32")
    chunks = list(_chunk_starts(rng, n))
    slot_of = {position: position for position in range(k)}  # tracked position -> its slot in the front
    maybe_tracked = np.zeros(_MARKS, dtype=np.bool_)
    maybe_tracked[:k] = True
    last_swaps: list[tuple[int, int]] = []  # the swaps inside the front, i < k
    for high, state in reversed(chunks):
        rng.set_state(state)
        partners = _partners(rng, high)[::-1]  # backwards in time means upwards in i
        low = high - partners.size + 1
        # Only positions matter that are tracked already or become tracked within this chunk.
        for step in np.flatnonzero(maybe_tracked[partners % _MARKS] | (partners >= low)).tolist():
            i, j = low + step, int(partners[step])
            if i < k:
                last_swaps.append((i, j))
            elif j < i and j in slot_of:
                slot_of[i] = slot_of.pop(j)
                maybe_tracked[i % _MARKS] = True
    front = np.empty(k, dtype=np.int64)
    for position, slot in slot_of.items():
        front[slot] = position
    for i, j in reversed(last_swaps):
        front[i], front[j] = front[j], front[i]
    return front


def _chunk_starts(rng: np.random.RandomState, n: int) -> Iterator[tuple[int, Any]]:
    """Yield the position i and the state of the generator at the beginning of each chunk of draws."""
    high = n - 1
    while high > 0:
        yield high, rng.get_state()
        high -= _partners(rng, high).size


def _partners(rng: np.random.RandomState, high: int) -> NDArray[np.int64]:
    """Return the positions that i = ``high``, ``high`` - 1, ... are swapped with, for one chunk of draws.

    As in NumPy, a draw is masked to the bits of i and rejected if it exceeds i.
    """
    draws = rng.randint(0, 2**32, size=_DRAWS, dtype=np.uint32)
    found: list[NDArray[np.uint32]] = []
    start = 0
    while high > 0 and start < draws.size:
        mask = (1 << high.bit_length()) - 1
        values = draws[start:] & np.uint32(mask)
        same_mask = high - (mask >> 1)  # number of i with this mask
        accepted = np.flatnonzero(_accepted(values, high))[:same_mask]
        found.append(values[accepted])
        start = start + int(accepted[-1]) + 1 if accepted.size == same_mask else draws.size
        high -= accepted.size
    return np.concatenate(found).astype(np.int64)


def _accepted(values: NDArray[np.uint32], high: int) -> NDArray[np.bool_]:
    """Return which ``values`` do not exceed i, where i is ``high`` minus the number of values accepted before."""
    accepted = values.astype(np.int64) <= high - values.size
    undecided = np.flatnonzero(~accepted & (values <= high))
    if undecided.size == 0:
        return accepted
    slack = high - np.cumsum(accepted, dtype=np.int32)[undecided] - values[undecided].astype(np.int64)
    fits = slack >= 0
    # Whether a value fits depends on those before it. Each round settles at least one more value from the front.
    while not np.array_equal(updated := slack >= np.cumsum(fits) - fits, fits):
        fits = updated
    accepted[undecided] = fits
    return accepted
