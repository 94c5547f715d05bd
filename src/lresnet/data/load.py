"""Graphs, trees, images and tasks by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from torch import Tensor

from lresnet.data import splits
from lresnet.data.files import Root, source_files
from lresnet.data.formats.graph_arrays import adjacency_graph, read_graph_arrays
from lresnet.data.formats.graph_folder import read_edge_file, read_graph_folder
from lresnet.data.formats.graph_paths import EDGE_LISTS, NETWORKS, graph_suffix
from lresnet.data.formats.image_arrays import read_image_arrays
from lresnet.data.formats.image_folder import read_image_folder
from lresnet.data.formats.networkx_graph import networkx_graph, read_network_file
from lresnet.data.formats.node_files import add_features, add_labels
from lresnet.data.graph import FeatureKind, Graph, prepare_features
from lresnet.data.image_data import ImageData
from lresnet.data.pairs import both_directions
from lresnet.data.registry import GRAPHS, IMAGE_SETS, TASKS, find_source, reader
from lresnet.data.rooted_tree import RootedTree
from lresnet.data.source import GraphSource, ImageSource, TaskSource
from lresnet.data.split_names import canonical_split, require_index
from lresnet.data.tasks import GraphTask, LinkTask, NodeTask

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data

__all__ = ["load_graph", "load_images", "load_task", "load_tree", "read_graph"]


def read_graph(
    source: Any, root: Root = None, *, features: Any = None, labels: Any = None, directed: bool = False
) -> Graph:
    """Read a graph: a shipped one by its name, a user's file or folder, or an object of another library.

    Nodes keep their names in ``graph.names``; nodes named 0 to n - 1 keep these numbers. ``graph.notes`` reports what
    was detected and repaired: separator, header, encoding, weights, repeated edges, self loops.

    Args:
        source: A name of :data:`lresnet.data.GRAPHS`, or else one of

            - an edge list: ``.csv``, ``.tsv``, ``.txt``, ``.edges`` or ``.edgelist``, plain or gzipped, see
              :func:`~lresnet.data.formats.edge_list.read_edge_list`;
            - a folder with ``edges.*`` and optionally ``features.*``, ``labels.*`` and ``splits.*``, see
              :func:`~lresnet.data.formats.graph_folder.read_graph_folder`;
            - a ``.npz`` file, see :func:`~lresnet.data.formats.graph_arrays.read_graph_arrays`;
            - a ``.graphml`` or ``.gml`` file, plain or gzipped;
            - PyG ``Data``, a networkx graph, a SciPy sparse adjacency matrix, ``(edge_index, num_nodes)``, or a
              :class:`~lresnet.data.Graph`.

        root: Data roots of the shipped graphs, see :func:`lresnet.data.files.data_roots`.
        features: Node features that replace those of ``source``: a file or an array, see
            :func:`~lresnet.data.formats.node_files.add_features`; for networkx graphs also names of node attributes.
        labels: Node labels that replace those of ``source``: a file or an array, see
            :func:`~lresnet.data.formats.node_files.add_labels`; for networkx graphs also the name of a node attribute.
        directed: Whether the edges of an edge list or of ``(edge_index, num_nodes)`` have a direction. Other sources
            contain it.

    Raises:
        FileNotFoundError: There is no such file, or a file of a shipped graph cannot be found or downloaded.
        ValueError: There is no such graph, or the content is refused (the message has the file and, for text, the
            line).

    Example:
        >>> read_graph("disease_tree").num_nodes
        1000
        >>> read_graph((np.array([[0, 1], [1, 2]]), 5)).num_nodes
        5
    """
    if isinstance(source, str) and source not in GRAPHS and _is_path(source):
        source = Path(source)
    if directed and not (isinstance(source, tuple) or (isinstance(source, Path) and _has_edge_list(source))):
        raise ValueError(
            "directed=True is for edge lists and (edge_index, num_nodes); other sources contain the direction"
        )
    if isinstance(source, Path):
        graph, features, labels = _from_path(source, directed, features, labels)
    elif isinstance(source, str):
        graph = _shipped(source, root)
    else:
        graph, features, labels = _from_object(source, directed, features, labels)
    if features is not None:
        graph = add_features(graph, features)
    return graph if labels is None else add_labels(graph, labels)


def _is_path(text: str) -> bool:
    """Return whether a text that is not the name of a graph is meant as a path."""
    path = Path(text)
    return path.exists() or bool(path.suffix) or len(path.parts) > 1


def _has_edge_list(path: Path) -> bool:
    return path.is_dir() or graph_suffix(path) in EDGE_LISTS


def _shipped(name: str, root: Root) -> Graph:
    source = find_source(name)
    if not isinstance(source, GraphSource):
        function = "load_images" if isinstance(source, ImageSource) else "load_ood_set"
        raise ValueError(f"{name} is a set of images, not a graph; read it with lresnet.data.{function}")
    graph: Graph = reader(source)(source_files(source, root))
    return graph


def _from_path(path: Path, directed: bool, features: Any, labels: Any) -> tuple[Graph, Any, Any]:
    """Return the graph, and the features and labels that are still to be added."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a graph, or one of {', '.join(GRAPHS)}")
    suffix = graph_suffix(path)
    if path.is_dir():
        replaced = {"features": features is not None, "labels": labels is not None}
        return (
            read_graph_folder(path, directed=directed, skip=[part for part in replaced if replaced[part]]),
            features,
            labels,
        )
    if suffix in EDGE_LISTS:
        return read_edge_file(path, directed=directed), features, labels
    if suffix == ".npz":
        return read_graph_arrays(path), features, labels
    if suffix in NETWORKS:
        network, notes = read_network_file(path)
        try:
            return _from_network(network, path.name, features, labels, notes)
        except ValueError as error:
            raise ValueError(f"{path}: {str(error).removeprefix(f'{path.name}: ')}") from error
    raise ValueError(
        f"{path}: {f'the suffix {suffix}' if suffix else 'a file without a suffix'} is not a graph format; use "
        f"{', '.join((*EDGE_LISTS, '.npz', *NETWORKS))}, or a folder with edges.*"
    )


def _from_object(source: Any, directed: bool, features: Any, labels: Any) -> tuple[Graph, Any, Any]:
    if isinstance(source, Graph):
        return source, features, labels
    if isinstance(source, tuple) and len(source) == 2 and not hasattr(source[1], "shape"):
        edges, nodes = source
        return Graph.checked("graph", None, edges, num_nodes=nodes, directed=directed), features, labels
    if sparse.issparse(source):
        return adjacency_graph(source), features, labels

    import networkx as nx
    from torch_geometric.data.data import BaseData

    if isinstance(source, nx.Graph):
        return _from_network(source, source.name or "graph", features, labels, ())
    if isinstance(source, BaseData):
        return Graph.from_data(source), features, labels
    raise ValueError(
        f"a graph cannot be read from {type(source).__name__}; give a name, a path, PyG Data, a networkx graph, a "
        "SciPy sparse matrix, or (edge_index, num_nodes)"
    )


def _from_network(
    network: nx.Graph, name: str, features: Any, labels: Any, notes: Sequence[str]
) -> tuple[Graph, Any, Any]:
    """Return the graph, and the features and labels that are not attributes of its nodes."""
    attributes = {key for _, data in network.nodes(data=True) for key in data}
    chosen = [features] if isinstance(features, str) else features
    if not (isinstance(chosen, list | tuple) and chosen and all(isinstance(each, str) for each in chosen)):
        chosen = ()
    if unknown := [each for each in chosen if each not in attributes]:
        if not isinstance(features, str) or not Path(features).exists():
            listed = ", ".join(sorted(map(str, attributes))) or "none"
            raise ValueError(f"{name}: the nodes have no attribute {unknown[0]!r}; their attributes are: {listed}")
        chosen = ()
    label = labels if isinstance(labels, str) and not (labels not in attributes and Path(labels).exists()) else None
    if label is not None and label not in attributes:
        listed = ", ".join(sorted(map(str, attributes))) or "none"
        raise ValueError(f"{name}: the nodes have no attribute {label!r}; their attributes are: {listed}")
    unread = sorted(map(str, attributes - {*chosen, label}))
    if unread:
        shown = ", ".join(unread[:5]) + (", ..." if unread[5:] else "")
        notes = (*notes, f"Node attributes that are not read: {shown}; labels=NAME reads one.")
    graph = networkx_graph(network, name, chosen, label, notes)
    return graph, None if chosen else features, None if label is not None else labels


def load_graph(source: Any, root: Root = None) -> Data:
    """Read a graph as PyG ``Data``.

    Args:
        source: A name of :data:`lresnet.data.GRAPHS` (``"disease_tree"`` needs no file), or any other source of
            :func:`read_graph`.
        root: Data roots: a folder or several. None means ``LRESNET_DATA`` or, if it is not set, the user's cache
            folder.

    Returns:
        ``x`` float32 ``[n, f]`` as published, ``edge_index`` int64 ``[2, 2e]`` in both directions without self loops or
        repetitions, ``y`` int64 ``[n]``, and the official masks if there are any (``[n]``; ``[n, 10]`` for graphs with
        ten official splits); see :meth:`lresnet.data.Graph.to_data`.

    Example:
        >>> load_graph("disease_tree")
        Data(x=[1000, 6], edge_index=[2, 1998], num_nodes=1000, y=[1000])
    """
    return read_graph(source, root).to_data()


def load_tree(name: str, root: Root = None) -> RootedTree:
    """Load a rooted tree: ``"wordnet"``, the hypernyms of WordNet's nouns.

    Args:
        name: Name of a data set that is a hierarchy.
        root: Data roots, see :func:`lresnet.data.files.data_roots`.

    Raises:
        ValueError: The data set is no hierarchy.
        FileNotFoundError: The file is under no root.

    Example:
        >>> tree = load_tree("wordnet")                                   # doctest: +SKIP
        >>> tree.names[int(tree.roots[0])], int(tree.height.max())        # doctest: +SKIP
        ('entity', 19)
    """
    source = find_source(name)
    read = getattr(sys.modules[reader(source).__module__], "read_tree", None)
    if read is None:
        raise ValueError(f"{name} is no hierarchy; choose wordnet, or build a lresnet.data.RootedTree")
    tree: RootedTree = read(source_files(source, root))
    return tree


def load_images(
    name: str | Path,
    root: Root = None,
    size: int | None = None,
    *,
    test_fraction: float | None = None,
    split_seed: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
) -> ImageData:
    """Load training and test images: into memory, or only their file names if a folder holds too many.

    Args:
        name: A name of :data:`lresnet.data.IMAGE_SETS`, or a path: a folder with a folder for each class, or with
            ``train/CLASS/`` and ``test/CLASS/`` (see
            :func:`~lresnet.data.formats.image_folder.read_image_folder`), or a ``.npz`` file of arrays (see
            :func:`~lresnet.data.formats.image_arrays.read_image_arrays`).
        root: Data roots of the named sets, see :func:`lresnet.data.files.data_roots`.
        size: Side of the squares to which the images of a folder are resized; for folders with images of several sizes.
        test_fraction: Fraction of the images of each class that become the test set of a folder without ``test``;
            default 0.2.
        split_seed: Seed that chooses them, by content; default 0.
        memory: Gigabytes of decoded images of a folder that are kept in memory; default 2. A larger set is decoded
            batch by batch when it is used.
        workers: Number of processes that decode the images of a folder; default: one per core, at most 8.

    Raises:
        FileNotFoundError: There is no such set, folder or file, and nothing can be downloaded.
        ValueError: A file is damaged or of another form.

    Example:
        >>> data = load_images("cifar10")                                 # doctest: +SKIP
        >>> data.train.images.shape, data.classes[:3]                     # doctest: +SKIP
        (torch.Size([50000, 32, 32, 3]), ('airplane', 'automobile', 'bird'))
    """
    path = Path(name)
    options = {"test_fraction": test_fraction, "split_seed": split_seed, "memory": memory, "workers": workers}
    if name in IMAGE_SETS or path.is_file():
        if size is not None:
            raise ValueError(f"size={size} is for folders of image files; the images of {name} have a fixed size")
        for option, value in options.items():
            if value is not None:
                raise ValueError(f"{option}={value} is for folders of image files, and {name} is none; leave it out")
    if isinstance(name, str) and name in IMAGE_SETS:
        source = find_source(name)
        data: ImageData = reader(source)(source_files(source, root))
        return data
    if path.is_dir():
        return read_image_folder(
            path,
            size,
            test_fraction=test_fraction,
            split_seed=split_seed or 0,
            memory=memory,
            workers=workers,
        )
    if path.is_file() and ".npz" in (path.suffix, path.resolve().suffix):  # a link may have any name
        return read_image_arrays(path)
    problem = "is neither a folder nor a .npz file" if path.exists() else "does not exist"
    raise FileNotFoundError(
        f"{name} {problem}; give {' or '.join(IMAGE_SETS)}, a folder with a folder for each class, or a .npz file"
    )


def load_task(
    name: str,
    split: str | int | None = None,
    seed: int = 0,
    root: Root = None,
    features: FeatureKind = "published",
    index: int | None = None,
    graph: Graph | None = None,
    drop_columns: Sequence[int] = (),
) -> GraphTask:
    """Build a task: a graph, its features, and its split into training, validation and test parts.

    Args:
        name: A name of :data:`lresnet.data.TASKS`; ``/lp`` is link prediction, ``/nc`` is node classification.
        split: A name of :data:`lresnet.data.split_names.SPLITS` that the task has. Fixed, bit for bit: ``"public"``,
            ``"legacy"``, ``"hgcn"``. One of ten published splits, chosen by ``index``: ``"official_splits"``; a number
            in place of the name selects one of them directly. Drawn by ``index``, or else by the seed:
            ``"class-random"``, ``"fresh_splits"``. Drawn by the seed: ``"disjoint"``. Older names are accepted:
            ``"official"`` for ``"public"``, and ``"legacy"`` for ``"hgcn"``. None means the first split of the task;
            ``lresnet train`` takes the first split of the task's preset instead, which may differ (``"hgcn"`` for
            airport/lp).
        seed: Seed of a split that is drawn at random.
        root: Data roots, see :func:`lresnet.data.files.data_roots`.
        features: ``"published"``, ``"standardised"`` or ``"raw"``, see :func:`lresnet.data.graph.prepare_features`.
        index: Number of the split: 0 to 9 for ``"official_splits"`` (None: 0); any number of at least 0 for
            ``"class-random"`` and ``"fresh_splits"``, whose seed it is (None: ``seed``).
        graph: Another version of the task's graph, of the same name, e.g. ``disease_tree(nodes=500)``. For other graphs
            use :func:`lresnet.data.link_task` or :func:`lresnet.data.node_task`.
        drop_columns: Raw feature columns to leave out, numbered from 0: ``(10,)`` for disease/lp without the column
            that nearly solves it.

    Returns:
        A :class:`~lresnet.data.LinkTask` or a :class:`~lresnet.data.NodeTask`.

    Raises:
        ValueError: There is no such task, split or feature column, or a file is not the official one.
        FileNotFoundError: A file is not under any root, and it cannot be downloaded.

    Example:
        >>> task = load_task("disease_tree/lp", seed=1)
        >>> task.train_edges.shape
        torch.Size([2, 851])
    """
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}; choose one of {', '.join(TASKS)}")
    facts = TASKS[name]
    if isinstance(split, int):
        index = split
        split = "official_splits"
    split = facts.splits[0] if split is None else canonical_split(split, facts.splits)
    if split not in facts.splits:
        raise ValueError(f"{name} has no split {split!r}; choose one of {', '.join(facts.splits)}")
    require_index(split, index)
    if graph is not None and graph.name != facts.dataset:
        function = "link_task" if name.endswith("/lp") else "node_task"
        raise ValueError(
            f"{name} prepares the features and splits of {facts.dataset}, which do not suit the graph {graph.name}; "
            f"use lresnet.data.{function}(graph)"
        )
    graph = read_graph(facts.dataset, root) if graph is None else graph
    if name.endswith("/lp"):
        return _link_task(facts, graph, split, seed, features, drop_columns)
    return _node_task(facts, graph, split, seed, features, drop_columns, index)


def _link_task(
    facts: TaskSource, graph: Graph, split: str, seed: int, features: FeatureKind, drop_columns: Sequence[int]
) -> LinkTask:
    n = graph.num_nodes
    parts = splits.legacy_edges(graph.edges, n) if split == "hgcn" else splits.disjoint_edges(graph.edges, n, seed)
    edge_index = both_directions(parts.train, n)
    return LinkTask(
        name=facts.name,
        x=prepare_features(graph, edge_index, features, facts.columns, drop_columns=drop_columns),
        edge_index=edge_index,
        train_edges=parts.train,
        val_edges=parts.val,
        val_negatives=parts.val_negatives,
        test_edges=parts.test,
        test_negatives=parts.test_negatives,
        num_nodes=n,
    )


def _node_task(
    facts: TaskSource,
    graph: Graph,
    split: str,
    seed: int,
    features: FeatureKind,
    drop_columns: Sequence[int],
    index: int | None,
) -> NodeTask:
    if graph.labels is None:
        raise ValueError(f"{facts.name}: the graph has no labels")
    parts = _node_split(facts, graph, graph.labels, split, seed, index)
    edge_index = both_directions(graph.edges, graph.num_nodes)
    return NodeTask(
        name=facts.name,
        x=prepare_features(graph, edge_index, features, facts.columns, drop_columns=drop_columns),
        edge_index=edge_index,
        y=graph.labels,
        train_index=parts.train,
        val_index=parts.val,
        test_index=parts.test,
        num_classes=graph.num_classes,
        metric=facts.metric,
    )


def _node_split(
    facts: TaskSource, graph: Graph, labels: Tensor, split: str, seed: int, index: int | None
) -> splits.NodeSplit:
    if split == "official_splits":
        return splits.masked_nodes(graph.name, graph.masks, index or 0)
    if split == "class-random":
        return splits.class_random_nodes(labels, seed if index is None else index)
    if split == "fresh_splits":
        return splits.fresh_nodes(graph.num_nodes, seed if index is None else index)
    if split == "public":
        return splits.planetoid_nodes(graph.masks, splits.PLANETOID_VALIDATION)
    if split == "legacy":
        return splits.planetoid_nodes(graph.masks, splits.LEGACY_PLANETOID_VALIDATION)
    if split == "hgcn" and facts.balanced is not None:
        return splits.legacy_nodes(labels, *facts.balanced)
    if facts.balanced is not None and graph.num_classes == 2:
        return splits.balanced_nodes(labels, *facts.balanced, np.random.Generator(np.random.PCG64(seed)))
    return splits.disjoint_nodes(graph.num_nodes, seed)
