"""Graphs, images and tasks by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from lresnet.data import splits
from lresnet.data.files import Root, source_files
from lresnet.data.formats.image_arrays import read_image_arrays
from lresnet.data.formats.image_folder import read_image_folder
from lresnet.data.graph import FeatureKind, Graph, prepare_features
from lresnet.data.image_data import ImageData
from lresnet.data.pairs import both_directions
from lresnet.data.registry import IMAGE_SETS, TASKS, find_source, reader
from lresnet.data.source import GraphSource, ImageSource, TaskSource
from lresnet.data.tasks import GraphTask, LinkTask, NodeTask

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["load_graph", "load_images", "load_task", "read_graph"]


def read_graph(name: str, root: Root = None) -> Graph:
    """Read the graph ``name`` as its files contain it.

    Args:
        name: A name of :data:`lresnet.data.GRAPHS`.
        root: Data roots, see :func:`lresnet.data.files.data_roots`.

    Raises:
        FileNotFoundError: A file is not under any root, and it cannot be downloaded.
        ValueError: There is no such graph, or a file is not the official one.

    Example:
        >>> read_graph("disease_tree").num_nodes
        1000
    """
    source = find_source(name)
    if not isinstance(source, GraphSource):
        function = "load_images" if isinstance(source, ImageSource) else "load_ood_set"
        raise ValueError(f"{name} is a set of images, not a graph; read it with lresnet.data.{function}")
    graph: Graph = reader(source)(source_files(source, root))
    return graph


def load_graph(name: str, root: Root = None) -> Data:
    """Read the graph ``name`` as PyG ``Data``.

    Args:
        name: A name of :data:`lresnet.data.GRAPHS`; ``"disease_tree"`` needs no file.
        root: Data roots: a folder or several. None means ``LRESNET_DATA`` or, if it is not set, the user's cache
            folder.

    Returns:
        ``x`` float32 ``[n, f]`` as published, ``edge_index`` int64 ``[2, 2e]`` in both directions without self loops or
        repetitions, ``y`` int64 ``[n]``, and the official masks if there are any (``[n]``; ``[n, 10]`` for graphs with
        ten official splits).

    Example:
        >>> load_graph("disease_tree")
        Data(x=[1000, 6], edge_index=[2, 1998], num_nodes=1000, y=[1000])
    """
    return read_graph(name, root).to_data()


def load_images(name: str | Path, root: Root = None, size: int | None = None) -> ImageData:
    """Load training and test images into memory.

    Args:
        name: A name of :data:`lresnet.data.IMAGE_SETS`, or a path: a folder with ``train/CLASS/`` and ``test/CLASS/``
            (see :func:`~lresnet.data.formats.image_folder.read_image_folder`), or a ``.npz`` file of arrays (see
            :func:`~lresnet.data.formats.image_arrays.read_image_arrays`).
        root: Data roots of the named sets, see :func:`lresnet.data.files.data_roots`.
        size: Side of the squares to which the images of a folder are resized; for folders with images of several sizes.

    Raises:
        FileNotFoundError: There is no such set, folder or file, and nothing can be downloaded.
        ValueError: A file is damaged or of another form.

    Example:
        >>> data = load_images("cifar10")                                 # doctest: +SKIP
        >>> data.train.images.shape, data.classes[:3]                     # doctest: +SKIP
        (torch.Size([50000, 32, 32, 3]), ('airplane', 'automobile', 'bird'))
    """
    path = Path(name)
    if size is not None and (name in IMAGE_SETS or path.is_file()):
        raise ValueError(f"size={size} is for folders of image files; the images of {name} have a fixed size")
    if isinstance(name, str) and name in IMAGE_SETS:
        source = find_source(name)
        data: ImageData = reader(source)(source_files(source, root))
        return data
    if path.is_dir():
        return read_image_folder(path, size)
    if path.is_file() and ".npz" in (path.suffix, path.resolve().suffix):  # a link may have any name
        return read_image_arrays(path)
    problem = "is neither a folder nor a .npz file" if path.exists() else "does not exist"
    raise FileNotFoundError(
        f"{name} {problem}; give {' or '.join(IMAGE_SETS)}, a folder with train/ and test/, or a .npz file"
    )


def load_task(
    name: str,
    split: str | int | None = None,
    seed: int = 0,
    root: Root = None,
    features: FeatureKind = "published",
    index: int = 0,
    graph: Graph | None = None,
) -> GraphTask:
    """Build a task: a graph, its features, and its split into training, validation and test parts.

    Args:
        name: A name of :data:`lresnet.data.TASKS`; ``/lp`` is link prediction, ``/nc`` is node classification.
        split: ``"legacy"``: the split of the literature, bit for bit, the same for every seed. ``"disjoint"``: follows
            the seed; its parts do not overlap. ``"official"``: the public split of Planetoid. ``"official_splits"``:
            one of the ten published splits, chosen by ``index``; a number selects one of them directly. None means the
            first split of the task.
        seed: Seed of the ``"disjoint"`` split; the others are fixed.
        root: Data roots, see :func:`lresnet.data.files.data_roots`.
        features: ``"published"``, ``"standardised"`` or ``"raw"``, see :func:`lresnet.data.graph.prepare_features`.
        index: Number of the official split, 0 to 9.
        graph: A graph to use in place of the task's own, e.g. ``disease_tree(nodes=500)``.

    Returns:
        A :class:`~lresnet.data.LinkTask` or a :class:`~lresnet.data.NodeTask`.

    Raises:
        ValueError: There is no such task or split, or a file is not the official one.
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
    split = facts.splits[0] if split is None else split
    if split not in facts.splits:
        raise ValueError(f"{name} has no split {split!r}; choose one of {', '.join(facts.splits)}")
    graph = read_graph(facts.dataset, root) if graph is None else graph
    if name.endswith("/lp"):
        return _link_task(facts, graph, split, seed, features)
    return _node_task(facts, graph, split, seed, features, index)


def _link_task(facts: TaskSource, graph: Graph, split: str, seed: int, features: FeatureKind) -> LinkTask:
    n = graph.num_nodes
    parts = splits.legacy_edges(graph.edges, n) if split == "legacy" else splits.disjoint_edges(graph.edges, n, seed)
    edge_index = both_directions(parts.train, n)
    return LinkTask(
        name=facts.name,
        x=prepare_features(graph, edge_index, features, facts.columns),
        edge_index=edge_index,
        train_edges=parts.train,
        val_edges=parts.val,
        val_negatives=parts.val_negatives,
        test_edges=parts.test,
        test_negatives=parts.test_negatives,
        num_nodes=n,
    )


def _node_task(facts: TaskSource, graph: Graph, split: str, seed: int, features: FeatureKind, index: int) -> NodeTask:
    if graph.labels is None:
        raise ValueError(f"{facts.name}: the graph has no labels")
    parts = _node_split(facts, graph, graph.labels, split, seed, index)
    edge_index = both_directions(graph.edges, graph.num_nodes)
    return NodeTask(
        name=facts.name,
        x=prepare_features(graph, edge_index, features, facts.columns),
        edge_index=edge_index,
        y=graph.labels,
        train_index=parts.train,
        val_index=parts.val,
        test_index=parts.test,
        num_classes=graph.num_classes,
        metric=facts.metric,
    )


def _node_split(facts: TaskSource, graph: Graph, labels: Tensor, split: str, seed: int, index: int) -> splits.NodeSplit:
    if split == "official_splits":
        return splits.masked_nodes(graph.name, graph.masks, index)
    if split == "official":
        return splits.planetoid_nodes(graph.masks, splits.PLANETOID_VALIDATION)
    if split == "legacy" and facts.balanced is None:
        return splits.planetoid_nodes(graph.masks, splits.LEGACY_PLANETOID_VALIDATION)
    if split == "legacy" and facts.balanced is not None:
        return splits.legacy_nodes(labels, *facts.balanced)
    if facts.balanced is not None and graph.num_classes == 2:
        return splits.balanced_nodes(labels, *facts.balanced, np.random.Generator(np.random.PCG64(seed)))
    return splits.disjoint_nodes(graph.num_nodes, seed)
