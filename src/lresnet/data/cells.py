"""A task by the name of its cell in the paper's tables, e.g. ``load_task("disease/lp", split="legacy")``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from lresnet.data import splits
from lresnet.data.features import FeatureKind, prepare_features
from lresnet.data.files import Root
from lresnet.data.graph import Graph
from lresnet.data.load import read_graph
from lresnet.data.pairs import both_directions
from lresnet.data.planetoid import VALIDATION_NODES
from lresnet.data.tasks import LinkTask, NodeMetric, NodeTask, Task

__all__ = ["CELLS", "Cell", "load_task"]

_LEGACY_VALIDATION_NODES = 1000  # Planetoid's graphs in the released code: twice the public split's validation


@dataclass(frozen=True)
class Cell:
    """What a name like ``"airport/nc"`` stands for.

    Args:
        dataset: the data set.
        splits: the splits it offers, the default first.
        metric: how node classification is judged.
        columns: how many of the raw features may be used; None: all.
        balanced: validation and test shares of HGCN's balanced rule, where the literature splits nodes by it.
    """

    dataset: str
    splits: tuple[str, ...]
    metric: NodeMetric = "accuracy"
    columns: int | None = None
    balanced: tuple[float, float] | None = None


_PLANETOID_SPLITS = ("official", "legacy", "disjoint")
_TEN_SPLITS = ("official_splits", "disjoint")

CELLS: dict[str, Cell] = {
    "disease/lp": Cell("disease_lp", ("disjoint", "legacy")),
    "disease/nc": Cell("disease_nc", ("disjoint", "legacy"), metric="f1_binary", balanced=(0.10, 0.60)),
    "airport/lp": Cell("airport", ("disjoint", "legacy")),
    # The class is a bin of the fifth feature, so the model must not see it.
    "airport/nc": Cell("airport", ("disjoint", "legacy"), columns=4, balanced=(0.15, 0.15)),
    "cora/lp": Cell("cora", ("disjoint", "legacy")),
    "cora/nc": Cell("cora", _PLANETOID_SPLITS),
    "pubmed/lp": Cell("pubmed", ("disjoint", "legacy")),
    "pubmed/nc": Cell("pubmed", _PLANETOID_SPLITS),
    "chameleon/nc": Cell("chameleon", _TEN_SPLITS),
    "squirrel/nc": Cell("squirrel", _TEN_SPLITS),
    "actor/nc": Cell("actor", _TEN_SPLITS),
    "disease_tree/lp": Cell("disease_tree", ("disjoint",)),
    "disease_tree/nc": Cell("disease_tree", ("disjoint",), metric="f1_binary"),
    "wordnet/lp": Cell("wordnet", ("disjoint",)),
    "wordnet/nc": Cell("wordnet", ("disjoint",)),
}


def load_task(
    cell: str,
    split: str | int | None = None,
    seed: int = 0,
    root: Root = None,
    features: FeatureKind = "published",
    index: int = 0,
    graph: Graph | None = None,
) -> Task:
    """The task of one cell: data set, features, and what is held out.

    Args:
        cell: a name of :data:`CELLS`; ``/lp`` is link prediction, ``/nc`` node classification.
        split: ``"legacy"``: as published, bit for bit, the same for every seed. ``"disjoint"``: follows the seed,
            nothing overlaps. ``"official"``: Planetoid's public split. ``"official_splits"``: the ten published ones,
            see ``index``; a number means that one. None: the first the cell offers.
        seed: for ``"disjoint"``; the others are fixed.
        root: the data roots, see :func:`lresnet.data.files.data_roots`.
        features: ``"published" | "standardised" | "raw"``, see :func:`lresnet.data.features.prepare_features`.
        index: which of the ten official splits, 0 to 9.
        graph: a graph to take in place of the cell's own, e.g. ``disease_tree(nodes=500)``.

    Returns:
        A :class:`~lresnet.data.tasks.LinkTask` or a :class:`~lresnet.data.tasks.NodeTask`.

    Raises:
        ValueError: no such cell or split; or a file is not what it should be.
        FileNotFoundError: a file is neither under a root nor to be downloaded.

    Example:
        >>> task = load_task("disease_tree/lp", seed=1)
        >>> task.train_edges.shape
        torch.Size([2, 851])
    """
    if cell not in CELLS:
        raise ValueError(f"there is no cell {cell!r}; choose one of {', '.join(CELLS)}")
    facts = CELLS[cell]
    if isinstance(split, int):
        index = split
        split = "official_splits"
    split = facts.splits[0] if split is None else split
    if split not in facts.splits:
        raise ValueError(f"{cell} has no split {split!r}; choose one of {', '.join(facts.splits)}")
    graph = read_graph(facts.dataset, root) if graph is None else graph
    if cell.endswith("/lp"):
        return _link_task(cell, facts, graph, split, seed, features)
    return _node_task(cell, facts, graph, split, seed, features, index)


def _link_task(cell: str, facts: Cell, graph: Graph, split: str, seed: int, features: FeatureKind) -> LinkTask:
    n = graph.num_nodes
    parts = splits.legacy_edges(graph.edges, n) if split == "legacy" else splits.disjoint_edges(graph.edges, n, seed)
    edge_index = both_directions(parts.train, n)
    return LinkTask(
        name=cell,
        x=prepare_features(graph, edge_index, features, facts.columns),
        edge_index=edge_index,
        train_edges=parts.train,
        val_edges=parts.val,
        val_negatives=parts.val_negatives,
        test_edges=parts.test,
        test_negatives=parts.test_negatives,
        num_nodes=n,
    )


def _node_task(
    cell: str, facts: Cell, graph: Graph, split: str, seed: int, features: FeatureKind, index: int
) -> NodeTask:
    if graph.labels is None:
        raise ValueError(f"{cell}: the graph has no labels")
    parts = _node_split(facts, graph, graph.labels, split, seed, index)
    edge_index = both_directions(graph.edges, graph.num_nodes)
    return NodeTask(
        name=cell,
        x=prepare_features(graph, edge_index, features, facts.columns),
        edge_index=edge_index,
        y=graph.labels,
        train_index=parts.train,
        val_index=parts.val,
        test_index=parts.test,
        num_classes=graph.num_classes,
        metric=facts.metric,
    )


def _node_split(facts: Cell, graph: Graph, labels: Tensor, split: str, seed: int, index: int) -> splits.NodeSplit:
    if split == "official_splits":
        return _given(graph, index)
    if split == "official":
        return splits.planetoid_nodes(graph.masks, VALIDATION_NODES)
    if split == "legacy" and facts.balanced is None:
        return splits.planetoid_nodes(graph.masks, _LEGACY_VALIDATION_NODES)
    if split == "legacy" and facts.balanced is not None:
        return splits.legacy_nodes(labels, *facts.balanced)
    if facts.balanced is not None and graph.num_classes == 2:
        return splits.balanced_nodes(labels, *facts.balanced, np.random.Generator(np.random.PCG64(seed)))
    return splits.disjoint_nodes(graph.num_nodes, seed)


def _given(graph: Graph, index: int) -> splits.NodeSplit:
    count = graph.masks["train"].shape[1]
    if not 0 <= index < count:
        raise ValueError(f"{graph.name} has the official splits 0 to {count - 1}, not {index}")
    train, val, test = (graph.masks[part][:, index].nonzero().squeeze(1) for part in ("train", "val", "test"))
    return splits.NodeSplit(train, val, test)
