"""Tasks on any graph: links to predict, nodes or whole graphs to classify, with splits of their own or of the user."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data import splits
from lresnet.data.edges import directed_pairs, merge_edges
from lresnet.data.formats.graph_set import read_graphs
from lresnet.data.formats.split_file import read_link_split, read_node_split
from lresnet.data.graph import FeatureKind, Graph
from lresnet.data.labels import NumberedLabels, number_labels
from lresnet.data.node_features import input_features
from lresnet.data.pairs import PairNumbering, both_directions
from lresnet.data.quoting import quoted
from lresnet.data.source import FeatureSource
from lresnet.data.tasks import GraphLevelTask, LinkTask, NodeTask

__all__ = ["graph_task", "link_task", "node_task"]

PARTS = ("train", "val", "test")
_LINK_SHARES = 0.05, 0.10
_NODE_SHARES = 0.2, 0.2
_GRAPH_SHARES = 0.1, 0.1
# Share of the training nodes that is held out for validation if a split has none.
_HELD_OUT = 0.2


def link_task(
    graph: Any,
    *,
    name: str | None = None,
    split: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    seed: int = 0,
    validation: float = _LINK_SHARES[0],
    test: float = _LINK_SHARES[1],
    metric: str | None = None,
    node_features: FeatureSource | None = None,
    features: FeatureKind = "published",
) -> LinkTask:
    """Return link prediction on a graph: distinguish held-out edges from pairs of nodes without an edge.

    Args:
        graph: A :class:`~lresnet.data.Graph`, or anything that :func:`lresnet.data.read_graph` takes.
        name: Name of the task. None: the graph's name and ``/link``.
        split: None: edges are held out at random. A mapping from ``"train"``, ``"val"`` and ``"test"`` to edges
            ``[2, m]``, or a file with rows ``node, node, part``; edges that it does not list are training edges.
        seed: Seed of a random split and of the pairs without an edge.
        validation: Share of the edges held out for validation by a random split.
        test: Share of the edges held out for test.
        metric: Metric to select by and to report first, see :class:`~lresnet.data.LinkTask`.
        node_features: ``"own"``, ``"learned"`` or ``"structural"``, see :func:`~lresnet.data.node_features.\
input_features`.
        features: How the graph's own features are prepared.

    Raises:
        ValueError: The graph is too small to hold edges out, a split is wrong, or a name is unknown.

    Example:
        >>> ring = torch.stack([torch.arange(100), (torch.arange(100) + 1) % 100])
        >>> task = link_task((ring, 100))
        >>> task.train_edges.shape, task.test_edges.shape
        (torch.Size([2, 85]), torch.Size([2, 10]))
    """
    graph = _as_graph(graph)
    n, notes = graph.num_nodes, list[str]()
    pairs = _undirected(graph)
    if graph.directed:
        notes.append("Links are predicted without a direction: a distance is the same both ways.")
    if split is None:
        parts = splits.disjoint_edges(pairs.edges, n, seed, validation, test)
        notes.append(f"Random split, seed {seed}: {_sizes(parts[:3], 'edges')}.")
    else:
        given = read_link_split(split, graph) if isinstance(split, str | os.PathLike) else split
        parts = _given_link_split(graph.name, given, pairs.edges, n, seed)
        notes.append(f"Given split: {_sizes(parts[:3], 'edges')}.")
    edge_index, weight = _message_graph(parts.train, pairs, n)
    x, note = input_features(graph, edge_index, node_features, features)
    return LinkTask(
        name=name or f"{graph.name}/link",
        x=x,
        edge_index=edge_index,
        train_edges=parts.train,
        val_edges=parts.val,
        val_negatives=parts.val_negatives,
        test_edges=parts.test,
        test_negatives=parts.test_negatives,
        num_nodes=n,
        edge_weight=weight,
        metric=metric,
        graph=graph,
        notes=(*graph.notes, *notes, note),
    )


def node_task(
    graph: Any,
    *,
    name: str | None = None,
    split: Mapping[str, Any] | str | os.PathLike[str] | int | None = None,
    seed: int = 0,
    validation: float = _NODE_SHARES[0],
    test: float = _NODE_SHARES[1],
    metric: str = "accuracy",
    node_features: FeatureSource | None = None,
    features: FeatureKind = "published",
) -> NodeTask:
    """Return node classification on a graph whose nodes have labels, some of them or all.

    Args:
        graph: A :class:`~lresnet.data.Graph`, or anything that :func:`lresnet.data.read_graph` takes.
        name: Name of the task. None: the graph's name and ``/node``.
        split: None: the graph's own masks if it has any, otherwise a random split with equal shares in every class.
            ``"random"``: a random split. A number: the split of this number, if the masks hold several. A mapping from
            ``"train"``, ``"val"`` and ``"test"`` to masks or node numbers, or a file with rows ``node, part``. Without
            validation nodes, a fifth of the training nodes is held out.
        seed: Seed of a random split.
        validation: Share of the labelled nodes held out for validation by a random split.
        test: Share of the labelled nodes held out for test.
        metric: Metric to select by and to report first, one of :data:`lresnet.metrics.NODE_METRICS`.
        node_features: ``"own"``, ``"learned"`` or ``"structural"``, see :func:`~lresnet.data.node_features.\
input_features`.
        features: How the graph's own features are prepared.

    Raises:
        ValueError: The graph has no labels, a split is wrong, or a name is unknown.

    Example:
        >>> from lresnet.data import disease_tree
        >>> task = node_task(disease_tree(nodes=500))
        >>> task.num_classes, task.train_index.numel()
        (2, 300)
    """
    graph = _as_graph(graph)
    if graph.labels is None:
        raise ValueError(f"{graph.name} has no labels, which node classification needs; give labels, or predict links")
    labels = graph.labels
    parts, notes = _node_split(graph, labels, split, seed, validation, test)
    unlabelled, small = int((labels < 0).sum()), _small_classes(graph, labels)
    if unlabelled:
        notes.append(f"Nodes without a label, which only pass messages: {unlabelled:,} of {graph.num_nodes:,}.")
    if small:
        notes.append(small)
    data = graph.to_data() if graph.directed else None
    if data is not None:
        edge_index, weight = data.edge_index, data.get("edge_weight")
        visible = both_directions(_undirected(graph).edges, graph.num_nodes)
    else:
        edge_index, weight = _message_graph(None, _undirected(graph), graph.num_nodes)
        visible = edge_index
    x, note = input_features(graph, visible, node_features, features)
    return NodeTask(
        name=name or f"{graph.name}/node",
        x=x,
        edge_index=edge_index,
        y=labels,
        train_index=parts.train,
        val_index=parts.val,
        test_index=parts.test,
        num_classes=graph.num_classes,
        metric=metric,
        edge_weight=weight,
        graph=graph,
        notes=(*graph.notes, *notes, note),
    )


def graph_task(
    graphs: Sequence[Any] | str | os.PathLike[str],
    labels: Sequence[Any] | Tensor | None = None,
    *,
    name: str = "graphs",
    split: Mapping[str, Any] | None = None,
    seed: int = 0,
    validation: float = _GRAPH_SHARES[0],
    test: float = _GRAPH_SHARES[1],
    metric: str = "accuracy",
    features: FeatureKind = "published",
) -> GraphLevelTask:
    """Return classification of whole graphs.

    Args:
        graphs: Graphs, or anything that :func:`lresnet.data.read_graph` takes. All have equally many features per node,
            or none; then structural features describe the nodes, since learned points would not carry over from one
            graph to another. Or a folder of labelled graphs, as :func:`lresnet.data.read_graphs` reads it.
        labels: One class per graph, numbers (also negative ones) or text. None: ``data.y`` of each PyG ``Data``.
        name: Name of the task.
        split: None: random, with equal shares in every class. A mapping from ``"train"``, ``"val"`` and ``"test"`` to
            masks or numbers of graphs.
        seed: Seed of a random split.
        validation: Share of the graphs held out for validation by a random split.
        test: Share of the graphs held out for test.
        metric: Metric to select by and to report first, one of :data:`lresnet.metrics.NODE_METRICS`.
        features: How the node features are prepared.

    Raises:
        ValueError: There are no graphs or no labels, the numbers of features differ, or a split is wrong.

    Example:
        >>> rings = [(torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]), n) for n in range(3, 43)]
        >>> task = graph_task(rings, [n % 2 for n in range(3, 43)])
        >>> task.num_graphs, task.num_nodes, task.test_index.numel()
        (40, 900, 4)
    """
    if isinstance(graphs, str | os.PathLike):
        if labels is not None:
            raise ValueError(
                f"{os.fspath(graphs)}: the folder has its own labels; leave labels out, or give a list of graphs"
            )
        graphs, labels = read_graphs(Path(graphs))
    if not graphs:
        raise ValueError(f"{name}: there are no graphs; give a list of graphs and their labels")
    given = _labels_of_graphs(name, graphs) if labels is None else labels
    if len(given) != len(graphs):
        raise ValueError(f"{name}: there are {len(given)} labels for {len(graphs)} graphs")
    read = [_as_graph(_without_label(graph)) for graph in graphs]
    numbered = _numbered_labels(name, np.asarray(given), len(read))
    if numbered.numbers is None or (numbered.numbers < 0).any():
        raise ValueError(f"{name}: every graph needs a label; leave out graphs without one")
    y = torch.from_numpy(numbered.numbers)
    if split is None:
        parts = _random_parts(name, y, seed, validation, test, "graphs")
        note = f"Random split, seed {seed}, equal shares in every class: {_sizes(parts, 'graphs')}."
    else:
        parts = _given_node_split(name, split, y, seed)
        note = f"Given split: {_sizes(parts, 'graphs')}."
    joined = _joined_graph(name, read)
    edge_index, weight = _message_graph(None, _undirected(joined), joined.num_nodes)
    x, feature_note = input_features(joined, edge_index, "structural" if joined.features is None else "own", features)
    sizes = torch.tensor([graph.num_nodes for graph in read])
    return GraphLevelTask(
        name=name,
        x=x.to_dense() if x.is_sparse else x,
        edge_index=edge_index,
        batch=torch.arange(len(read)).repeat_interleave(sizes),
        y=y,
        train_index=parts.train,
        val_index=parts.val,
        test_index=parts.test,
        num_classes=int(y.max()) + 1,
        metric=metric,
        edge_weight=weight,
        classes=numbered.classes,
        names=_names_of_graphs(read),
        notes=(
            f"{len(read):,} graphs with {joined.num_nodes:,} nodes.",
            *(["Messages go both ways along directed edges."] if any(graph.directed for graph in read) else []),
            note,
            feature_note,
        ),
    )


def _as_graph(source: Any) -> Graph:
    from lresnet.data.load import read_graph

    return source if isinstance(source, Graph) else read_graph(source)


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """Undirected edges without self loops, lower node first and sorted, and their weights."""

    edges: Tensor
    weights: Tensor | None


def _undirected(graph: Graph) -> _Pairs:
    edges, weights = graph.edges, graph.weights
    if graph.directed:
        merged = merge_edges(edges, graph.num_nodes, weights)
        edges, weights = merged.edges, None if merged.weights is None else merged.weights.float()
    proper = edges[0] != edges[1]
    return _Pairs(edges[:, proper], None if weights is None else weights[proper])


def _message_graph(train: Tensor | None, pairs: _Pairs, nodes: int) -> tuple[Tensor, Tensor | None]:
    """Return ``edge_index`` and weights of training edges, or of all edges, in both directions."""
    edges = pairs.edges if train is None else train
    if pairs.weights is None:
        return both_directions(edges, nodes), None
    weights = pairs.weights
    if train is not None:
        numbering = PairNumbering(nodes)
        weights = weights[torch.searchsorted(numbering.encode(pairs.edges), numbering.encode(train))]
    return directed_pairs(edges, nodes, weights)


def _given_link_split(name: str, given: Mapping[str, Any], edges: Tensor, nodes: int, seed: int) -> splits.EdgeSplit:
    _require_parts(name, given, needed=("val", "test"))
    numbering = PairNumbering(nodes)
    known = numbering.encode(edges)
    found: dict[str, Tensor] = {}
    for part in PARTS:
        if part in given:
            pairs = torch.as_tensor(given[part]).long()
            if pairs.dim() != 2 or pairs.shape[0] != 2:
                raise ValueError(f"{name}: the {part} edges have shape {list(pairs.shape)}; edges are [2, m]")
            found[part] = numbering.encode(pairs).unique()
            place = torch.searchsorted(known, found[part]).clamp_max(known.numel() - 1)
            missing = (known[place] != found[part]).nonzero()
            if missing.numel():
                i, j = numbering.decode(found[part][missing[0]]).squeeze(1).tolist()
                raise ValueError(f"{name}: the {part} edge from {i} to {j} is not an edge of the graph")
    held_out = torch.cat([found["val"], found["test"]])
    if held_out.unique().numel() < held_out.numel():
        raise ValueError(f"{name}: an edge is in both the validation and the test part; list it once")
    train = found.get("train", known)
    train = train[~torch.isin(train, held_out)]
    if train.numel() == 0:
        raise ValueError(f"{name}: the split leaves no edges for training")
    val, test = found["val"], found["test"]
    rng = np.random.Generator(np.random.PCG64(seed))
    negatives = splits.non_edges(edges, nodes, held_out.numel(), rng)
    return splits.EdgeSplit(
        train=numbering.decode(train),
        val=numbering.decode(val),
        test=numbering.decode(test),
        val_negatives=negatives[:, : val.numel()],
        test_negatives=negatives[:, val.numel() :],
    )


def _node_split(
    graph: Graph,
    labels: Tensor,
    split: Mapping[str, Any] | str | os.PathLike[str] | int | None,
    seed: int,
    validation: float,
    test: float,
) -> tuple[splits.NodeSplit, list[str]]:
    if split == "random" or (split is None and not graph.masks):
        parts = _random_parts(graph.name, labels, seed, validation, test, "nodes")
        return parts, [f"Random split, seed {seed}, equal shares in every class: {_sizes(parts, 'nodes')}."]
    if split is None or isinstance(split, int):
        given: Mapping[str, Any] = _masks_of(graph, split or 0)
        words = "Split of the graph's masks"
    else:
        given = read_node_split(Path(split), graph) if isinstance(split, str | os.PathLike) else split
        words = "Given split"
    parts = _given_node_split(graph.name, given, labels, seed, graph.names)
    without = "" if "val" in given else ", a fifth of the training nodes held out for validation"
    return parts, [f"{words}: {_sizes(parts, 'nodes')}{without}."]


def _random_parts(name: str, labels: Tensor, seed: int, validation: float, test: float, what: str) -> splits.NodeSplit:
    parts = splits.stratified(labels, seed, validation, test)
    if parts.val.numel() == 0:  # no class has three
        raise ValueError(
            f"{name}: {int((labels >= 0).sum())} labelled {what} are too few for a random split, since no class has "
            "three; label more, or give a split"
        )
    return parts


def _masks_of(graph: Graph, index: int) -> dict[str, Tensor]:
    if not graph.masks:
        raise ValueError(f"{graph.name} has no split of its own; leave the split out for a random one")
    masks = {}
    for part, mask in graph.masks.items():
        count = 1 if mask.dim() == 1 else mask.shape[1]
        if not 0 <= index < count:
            raise ValueError(f"{graph.name} has the splits 0 to {count - 1}, not {index}")
        masks[part] = mask if mask.dim() == 1 else mask[:, index]
    return masks


def _given_node_split(
    name: str, given: Mapping[str, Any], labels: Tensor, seed: int, names: Sequence[str] = ()
) -> splits.NodeSplit:
    _require_parts(name, given, needed=("train", "test"))
    found = {part: _numbers(name, part, value, labels.numel()) for part, value in given.items()}
    if "val" not in found:
        training = torch.full_like(labels, -1)
        training[found["train"]] = labels[found["train"]]
        halves = _random_parts(name, training, seed, _HELD_OUT / 2, _HELD_OUT / 2, "training items")
        found |= {"train": halves.train, "val": torch.cat([halves.val, halves.test])}
    seen = torch.cat([found[part] for part in PARTS])
    if seen.unique().numel() < seen.numel():
        numbers, counts = seen.unique(return_counts=True)
        twice = int(numbers[counts > 1][0])
        where = " and ".join(part for part in PARTS if bool((found[part] == twice).any()))
        raise ValueError(f"{name}: {_called(twice, names)} is in {where}; list it once, in one part of the split")
    for part in PARTS:
        unknown = found[part][labels[found[part]] < 0]
        if unknown.numel() and part == "train":
            found[part] = found[part][labels[found[part]] >= 0]
        elif unknown.numel():
            raise ValueError(f"{name}: the {part} part lists {_called(int(unknown[0]), names)}, which has no label")
    return splits.NodeSplit(*(found[part] for part in PARTS))


def _called(number: int, names: Sequence[str]) -> str:
    return f"node {quoted(names[number])}" if names else f"number {number}"


def _numbers(name: str, part: str, value: Any, count: int) -> Tensor:
    """Return the numbers of a mask, or the given numbers, sorted."""
    values = torch.as_tensor(value)
    if values.numel() == 0:
        numbers = torch.empty(0, dtype=torch.int64)
    elif values.dtype == torch.bool:
        if values.shape != (count,):
            raise ValueError(f"{name}: the {part} mask has shape {list(values.shape)}; it needs {count} entries")
        numbers = values.nonzero().squeeze(1)
    elif values.is_floating_point() or values.is_complex():
        raise ValueError(f"{name}: the {part} part is {values.dtype}; give a mask of booleans, or whole numbers")
    else:
        numbers = values.long().flatten().unique()
    if numbers.numel() == 0:
        raise ValueError(f"{name}: the {part} part of the split is empty; every part needs at least one item")
    if int(numbers[0]) < 0 or int(numbers[-1]) >= count:
        raise ValueError(f"{name}: the {part} part lists {int(numbers[-1])}; the numbers are 0 to {count - 1}")
    return numbers


def _require_parts(name: str, given: Mapping[str, Any], needed: Sequence[str]) -> None:
    unknown, missing = [part for part in given if part not in PARTS], [part for part in needed if part not in given]
    if unknown or missing:
        problem = f"an unknown part {unknown[0]!r}" if unknown else f"no part {missing[0]!r}"
        raise ValueError(f"{name}: the split has {problem}; its parts are {', '.join(PARTS)}")


def _small_classes(graph: Graph, labels: Tensor) -> str | None:
    """Return a sentence about classes that are too small to be in every part."""
    counts = torch.bincount(labels[labels >= 0], minlength=graph.num_classes)
    small = ((counts > 0) & (counts < 3)).nonzero().squeeze(1).tolist()
    if not small:
        return None
    names = [graph.classes[label] if graph.classes else str(label) for label in small[:3]]
    more = f" and {len(small) - 3} more" if len(small) > 3 else ""
    return f"Classes with fewer than 3 nodes, which are not in every part of the split: {', '.join(names)}{more}."


def _labels_of_graphs(name: str, graphs: Sequence[Any]) -> list[Any]:
    found = []
    for number, graph in enumerate(graphs):
        y = getattr(graph, "y", None)
        if y is None or (y.numel() if isinstance(y, Tensor) else np.size(y)) != 1:
            raise ValueError(f"{name}: graph {number} has no label; give labels, or Data with one number in y")
        found.append(y.item() if isinstance(y, Tensor) else y)
    return found


def _numbered_labels(name: str, labels: NDArray[Any], count: int) -> NumberedLabels:
    """Number the classes of graphs. Every graph has a label, so that -1 is a class, as in MUTAG (1 and -1)."""
    try:
        values = labels.reshape(-1).astype(np.int64) if labels.dtype.kind in "iUO" else np.zeros(1, np.int64)
    except (TypeError, ValueError):  # text, or None
        values = np.zeros(1, np.int64)
    if values.min(initial=0) >= 0:
        return number_labels(name, labels, count)
    return number_labels(name, values.astype(np.str_), count, tuple(map(str, np.unique(values))))


def _names_of_graphs(graphs: Sequence[Graph]) -> tuple[str, ...]:
    """Return the names of the graphs; none if two graphs have the same."""
    names = tuple(graph.name for graph in graphs)
    return names if len(set(names)) == len(names) else ()


def _without_label(graph: Any) -> Any:
    """Return PyG ``Data`` without ``y``, which holds the label of the graph and not of its nodes."""
    if getattr(graph, "y", None) is None or isinstance(graph, Graph):
        return graph
    copy = graph.clone()
    del copy.y
    return copy


def _joined_graph(name: str, graphs: Sequence[Graph]) -> Graph:
    """Return all graphs as one graph of unconnected parts."""
    widths = {None if graph.features is None else graph.features.shape[1] for graph in graphs}
    if len(widths) > 1:
        raise ValueError(f"{name}: the graphs have different numbers of features ({', '.join(map(str, widths))})")
    starts = np.cumsum([0, *(graph.num_nodes for graph in graphs)])
    pairs = [_undirected(graph) for graph in graphs]
    weighted = any(pair.weights is not None for pair in pairs)
    edges = torch.cat([pair.edges + int(start) for pair, start in zip(pairs, starts, strict=False)], dim=1)
    weights = [pair.weights if pair.weights is not None else torch.ones(pair.edges.shape[1]) for pair in pairs]
    features = [graph.features for graph in graphs if graph.features is not None]
    dense = [part if isinstance(part, np.ndarray) else part.toarray() for part in features]
    return Graph(
        name,
        np.concatenate(dense) if dense else None,
        edges,
        weights=torch.cat(weights) if weighted else None,
        num_nodes=int(starts[-1]),
    )


def _sizes(parts: Sequence[Tensor], what: str) -> str:
    train, val, test = (part.shape[-1] for part in parts)
    return f"{train:,} {what} to train on, {val:,} for validation, {test:,} for test"
