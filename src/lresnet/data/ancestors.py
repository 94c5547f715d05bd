"""k-hop ancestor retrieval: a task on rooted trees that a network with fewer than k layers cannot solve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lresnet.data.load import load_tree
from lresnet.data.pairs import both_directions
from lresnet.data.rooted_tree import RootedTree
from lresnet.data.tasks import AncestorTask

__all__ = ["ancestor_task", "choose_anchors"]


def ancestor_task(
    tree: RootedTree | str,
    hops: int,
    *,
    codes: int = 8,
    rounds: int = 2,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    max_anchors: int | None = None,
    max_nodes: int | None = None,
    queries_per_anchor: int | None = 8,
    seed: int = 0,
    name: str | None = None,
) -> AncestorTask:
    """Build the task of naming, from a node, the random code of its ancestor ``hops`` hops up.

    The anchors, which carry the codes, are the nodes of height ``hops``: the deepest node below them is ``hops`` hops
    away. No such node is above another one, so the code of one anchor never reaches the query nodes of another: they
    are at least ``hops`` + 2 hops away. They are also the largest choice of anchors: every other node with descendants
    ``hops`` hops below has an anchor below it. The graph of the task is the forest of the subtrees below the anchors,
    with edges in both directions. A network of ``hops`` layers sees nothing else from a query node; a network of fewer
    layers does not see the code at all.

    Messages that go down the tree only would make the task trivial: every query would see a path of the same form,
    whatever the tree. With both directions the code is mixed with what comes up from the other branches.

    In a network of exactly ``hops`` layers a code needs the message of every layer, so no skip branch carries it. To
    study what skip branches do, train networks with more layers than hops.

    Args:
        tree: A tree, or the name of one for :func:`lresnet.data.load_tree`.
        hops: k, at least 1.
        codes: Number of codes; chance is 1 / ``codes``.
        rounds: How often an anchor carries each code in the fixed draws for validation, and in those for the test.
            Every code counts equally, so an answer that does not depend on the code scores exactly chance.
        split: Shares of the anchors for training, validation and test. A subtree is in one part as a whole.
        max_anchors: Largest number of anchors, taken in random order. None: all.
        max_nodes: Largest number of nodes of the forest: an anchor is taken only if its subtree still fits. None: all.
        queries_per_anchor: Largest number of query nodes of an anchor, chosen at random among the nodes ``hops`` hops
            below it; otherwise a few bushy subtrees would decide the accuracy. None: all.
        seed: Seed of the choice of anchors and queries, of the split, and of the codes of validation and test.
        name: Name of the task. None: "ancestors/k" and the hops.

    Raises:
        ValueError: The tree has fewer than three anchors that fit, or an argument is out of range.

    Example:
        >>> from lresnet.data import random_tree
        >>> task = ancestor_task(random_tree(3, depth=5, parts=20), hops=4)
        >>> task.num_codes, task.anchors.numel(), task.chance
        (8, 20, 12.5)
    """
    if isinstance(tree, str):
        tree = load_tree(tree)
    called = name or f"ancestors/k{hops}"
    if hops < 1 or codes < 2 or rounds < 1 or (queries_per_anchor is not None and queries_per_anchor < 1):
        raise ValueError(
            f"{called}: needs hops >= 1, codes >= 2, rounds >= 1 and queries_per_anchor >= 1, got hops={hops}, "
            f"codes={codes}, rounds={rounds}, queries_per_anchor={queries_per_anchor}"
        )
    if len(split) != 3 or min(split) <= 0:
        raise ValueError(f"{called}: split must be three positive shares, got {tuple(split)}")
    rng = np.random.Generator(np.random.PCG64(seed))
    top = choose_anchors(tree, hops, rng, max_anchors=max_anchors, max_nodes=max_nodes)
    if top.numel() < 3:
        limit = "" if max_nodes is None else f" and at most {max_nodes:,} nodes in all"
        raise ValueError(
            f"{called}: the tree has {top.numel()} subtrees of height {hops}{limit}, but training, validation and test "
            "need one each; use fewer hops or a larger tree"
        )
    nodes = torch.cat([tree.subtree(node) for node in top.tolist()])
    sizes = tree.subtree_size[top]
    forest = tree.induced(nodes)
    anchors = sizes.cumsum(0) - sizes
    anchor = torch.repeat_interleave(torch.arange(top.numel()), sizes)
    parts = _split(top.numel(), split, rng)
    queries = _queries(forest, anchor, hops, queries_per_anchor, rng)
    train, val, test = (queries[torch.isin(anchor[queries], part)] for part in parts)
    val_codes, test_codes = (_balanced_codes(codes, rounds, top.numel(), rng) for _ in ("validation", "test"))
    return AncestorTask(
        called,
        edge_index=both_directions(forest.edge_index, forest.num_nodes),
        anchors=anchors,
        anchor=anchor,
        train_index=train,
        val_index=val,
        test_index=test,
        val_codes=val_codes,
        test_codes=test_codes,
        num_codes=codes,
        hops=hops,
        nodes=nodes,
        notes=(
            f"{top.numel():,} anchors, {nodes.numel():,} nodes, {queries.numel():,} queries {hops} hops below.",
            f"Codes are redrawn at every step; {codes * rounds} fixed draws each for validation and test.",
        ),
    )


def choose_anchors(
    tree: RootedTree,
    hops: int,
    rng: np.random.Generator,
    *,
    max_anchors: int | None = None,
    max_nodes: int | None = None,
) -> Tensor:
    """Return nodes of height ``hops`` in random order; the limits are those of :func:`ancestor_task`.

    Example:
        >>> from lresnet.data import complete_tree
        >>> choose_anchors(complete_tree(2, 3), 2, np.random.default_rng(0)).sort().values
        tensor([1, 2])
    """
    candidates = (tree.height == hops).nonzero().squeeze(1)
    candidates = candidates[torch.from_numpy(rng.permutation(candidates.numel()))]
    chosen, free = [], tree.num_nodes if max_nodes is None else max_nodes
    for node, size in zip(candidates.tolist(), tree.subtree_size[candidates].tolist(), strict=True):
        if size <= free:
            chosen.append(node)
            free -= size
    return torch.tensor(chosen[:max_anchors], dtype=torch.int64)


def _split(count: int, shares: Sequence[float], rng: np.random.Generator) -> list[Tensor]:
    """Return the numbers of the anchors of each part, at least one in each."""
    val, test = (max(1, round(count * share / sum(shares))) for share in shares[1:])
    order = torch.from_numpy(rng.permutation(count))
    train = max(1, count - val - test)
    return list(order.split([train, val, count - train - val]))


def _queries(forest: RootedTree, anchor: Tensor, hops: int, most: int | None, rng: np.random.Generator) -> Tensor:
    """Return the nodes ``hops`` hops below their root, at most ``most`` of each tree, sorted."""
    deep = (forest.depth == hops).nonzero().squeeze(1)
    if most is None:
        return deep
    shuffled = deep[torch.from_numpy(rng.permutation(deep.numel()))]
    own = anchor[shuffled]
    by_anchor = own.argsort(stable=True)
    counts = torch.bincount(own, minlength=int(anchor.max()) + 1)
    place = torch.arange(deep.numel()) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    return shuffled[by_anchor[place < most]].sort().values


def _balanced_codes(codes: int, rounds: int, anchors: int, rng: np.random.Generator) -> Tensor:
    """Return codes ``[codes rounds, anchors]``; each column has every code ``rounds`` times, in random order."""
    each = np.tile(np.arange(codes), rounds)[:, None].repeat(anchors, axis=1)
    return torch.from_numpy(rng.permuted(each, axis=0))
