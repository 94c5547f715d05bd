"""k-hop ancestor retrieval: a task on rooted trees that a network with fewer than k layers cannot solve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from lresnet.data.pairs import both_directions
from lresnet.data.rooted_tree import RootedTree
from lresnet.data.task_on_graph import TaskOnGraph

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["AncestorTask", "ancestor_task", "choose_anchors"]


@dataclass(frozen=True, eq=False, repr=False)
class AncestorTask(TaskOnGraph):
    """k-hop ancestor retrieval: name the random code of the ancestor k hops up. Build it with :func:`ancestor_task`.

    Every tree of a forest has an anchor as its root. An anchor carries a code, one of ``num_codes``, as its input
    feature; all other features are zero. A training step draws new codes, so nothing but the message of the anchor
    names the answer. With fewer than ``hops`` layers the message does not arrive, and accuracy is :attr:`chance`.

    Args:
        name: Name of the task.
        edge_index: Edges of the forest, ``[2, 2 e]``, in both directions.
        anchors: Root of each tree ``[a]``.
        anchor: Number of the anchor above each node, or of the node itself, ``[n]``: its place in ``anchors``.
        train_index: Query nodes of the training trees ``[b]``.
        val_index: Query nodes of the validation trees. The trees of the three parts differ.
        test_index: Query nodes of the test trees.
        val_codes: Codes of the anchors for validation ``[draws, a]``, int64.
        test_codes: Codes of the anchors for the test ``[draws, a]``.
        num_codes: Number of codes, which are also the classes and the input features.
        hops: k.
        nodes: Number of each node in the tree from which the task was made ``[n]``.
        notes: What was done to the tree to make the task, one sentence each.

    Raises:
        ValueError: An edge joins two trees, a part has no query node, or a tree is in two parts.

    Example:
        >>> from lresnet.data import ancestor_task, random_tree
        >>> task = ancestor_task(random_tree(3, depth=4, parts=10), hops=3, codes=4)
        >>> task.x.shape[1], task.num_classes, task.chance
        (4, 4, 25.0)
        >>> codes = task.test_codes[0]
        >>> torch.equal(task.features(codes)[task.anchors].argmax(1), codes)
        True
    """

    kind: ClassVar[str] = "ancestors"

    name: str
    edge_index: Tensor
    anchors: Tensor
    anchor: Tensor
    train_index: Tensor
    val_index: Tensor
    test_index: Tensor
    val_codes: Tensor
    test_codes: Tensor
    num_codes: int
    hops: int
    nodes: Tensor
    notes: tuple[str, ...] = ()
    graph: Graph | None = field(default=None, init=False)  # its nodes have no features of their own
    edge_weight: Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.edge_index.device.type != "cpu":
            return
        if bool((self.anchor[self.edge_index[0]] != self.anchor[self.edge_index[1]]).any()):
            raise ValueError(f"{self.name}: an edge joins the trees of two anchors, so a code could reach another tree")
        parts = [self.anchor[index].unique() for index in (self.train_index, self.val_index, self.test_index)]
        if min(part.numel() for part in parts) == 0:
            raise ValueError(f"{self.name}: training, validation and test need a query node each")
        if torch.cat(parts).unique().numel() < sum(part.numel() for part in parts):
            raise ValueError(f"{self.name}: a tree has query nodes of two parts of the split")

    @property
    def num_nodes(self) -> int:
        """Number of nodes n."""
        return self.anchor.numel()

    @property
    def num_classes(self) -> int:
        """Number of classes: the codes."""
        return self.num_codes

    @property
    def chance(self) -> float:
        """Accuracy of a guess, in percent."""
        return 100 / self.num_codes

    @property
    def x(self) -> Tensor:
        """Features of the nodes without any codes: zeros ``[n, num_codes]``."""
        return torch.zeros(self.num_nodes, self.num_codes, device=self.anchor.device)

    def features(self, codes: Tensor) -> Tensor:
        """Return the features of all nodes ``[n, num_codes]``, given the codes of the anchors ``[a]``: a one-hot row
        for each anchor, and zeros for all other nodes."""
        x = self.x
        x[self.anchors, codes] = 1.0
        return x

    def answers(self, codes: Tensor, index: Tensor) -> Tensor:
        """Return the right answers of some query nodes ``[b]``, given the codes of the anchors ``[a]``."""
        return codes[self.anchor[index]]


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
        from lresnet.data.load import load_tree  # it imports the tasks, of which this is one

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
