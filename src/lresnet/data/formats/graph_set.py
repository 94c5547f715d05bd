"""Sets of labelled graphs: a folder with one file per graph and a file of labels, or a folder in the TU format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lresnet._files import read_file
from lresnet._limits import largest_expansion
from lresnet.data.formats.graph_paths import EDGE_LISTS, NETWORKS, find_part, graph_suffix
from lresnet.data.formats.text_rows import Table
from lresnet.data.graph import Graph
from lresnet.data.quoting import quoted

__all__ = ["GraphSet", "read_graphs"]


class GraphSet(NamedTuple):
    """Graphs and one label for each."""

    graphs: list[Graph]
    labels: list[str]


def read_graphs(folder: str | Path) -> GraphSet:
    """Read a set of labelled graphs from a folder.

    - One file per graph in a format of :func:`lresnet.data.read_graph`, and ``labels.csv`` (or ``.tsv``, ``.txt``) with
      rows ``file name, label``; files without a label are an error.
    - The format of the TU data sets: ``NAME_A.txt`` (edges as pairs of node numbers from 1),
      ``NAME_graph_indicator.txt`` (the graph of each node, from 1), ``NAME_graph_labels.txt``, and if present
      ``NAME_node_labels.txt`` (one-hot features) and ``NAME_node_attributes.txt`` (features).

    Raises:
        FileNotFoundError: The folder does not exist.
        ValueError: A file is missing or refused; the message names the file and the line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; graphs to classify are a folder with one file per graph")
    pairs = sorted(folder.glob("*_A.txt"))
    if len(pairs) == 1:
        return _tu_format(folder, pairs[0].name.removesuffix("_A.txt"))
    return _files(folder)


def _files(folder: Path) -> GraphSet:
    from lresnet.data.load import read_graph

    listed = find_part(folder, "labels")
    if listed is None:
        raise ValueError(f"{folder} has no labels.csv; write one row per graph: file name, label")
    rows = list(Table(listed))
    graphs, labels = list[Graph](), list[str]()
    for place, (line, fields) in enumerate(rows):
        if len(fields) != 2:
            raise ValueError(f"{listed}, line {line}: expected file name, label, found {quoted(', '.join(fields))}")
        file = folder / fields[0]
        if not file.is_file():
            if place == 0:
                continue  # a header
            raise ValueError(f"{listed}, line {line}: there is no file {quoted(fields[0])} in {folder}")
        graphs.append(read_graph(file))
        labels.append(fields[1])
    known = {fields[0] for _, fields in rows}
    others = [
        file.name
        for file in sorted(folder.iterdir())
        if file != listed and graph_suffix(file) in (*EDGE_LISTS, *NETWORKS, ".npz") and file.name not in known
    ]
    if others:
        raise ValueError(f"{listed} has no label for {quoted(others[0])}; list every graph, or move the file away")
    if not graphs:
        raise ValueError(f"{listed} lists no graphs; write one row per graph: file name, label")
    return GraphSet(graphs, labels)


def _tu_format(folder: Path, name: str) -> GraphSet:
    owner = _numbers(folder / f"{name}_graph_indicator.txt")[:, 0].astype(np.int64) - 1
    edges = _numbers(folder / f"{name}_A.txt").astype(np.int64).T - 1
    labels = [fields[0] for _, fields in Table(folder / f"{name}_graph_labels.txt")]
    count = len(labels)
    if owner.size == 0 or owner.min() < 0 or owner.max() >= count or (np.diff(owner) < 0).any():
        raise ValueError(f"{folder / name}_graph_indicator.txt must number the graphs 1 to {count} in increasing order")
    if edges.shape[0] != 2 or edges.min() < 0 or edges.max() >= owner.size:
        raise ValueError(f"{folder / name}_A.txt must hold pairs of the nodes 1 to {owner.size}")
    if (owner[edges[0]] != owner[edges[1]]).any():
        raise ValueError(f"{folder / name}_A.txt has an edge between two graphs")
    features = _tu_features(folder, name, owner.size)
    starts = np.searchsorted(owner, np.arange(count + 1))
    order = np.argsort(owner[edges[0]], kind="stable")
    edges, ends = edges[:, order], np.searchsorted(owner[edges[0]][order], np.arange(count + 1))
    graphs = []
    for graph in range(count):
        first, last = starts[graph], starts[graph + 1]
        own = edges[:, ends[graph] : ends[graph + 1]] - first
        rows = None if features is None else features[first:last]
        if own.size == 0:  # a graph without edges; Graph.checked would refuse it
            raise ValueError(f"{folder / name}_A.txt has no edge of graph {graph + 1}; leave this graph out")
        graphs.append(Graph.checked(f"{name} {graph + 1}", rows, own, num_nodes=int(last - first)))
    return GraphSet(graphs, labels)


def _tu_features(folder: Path, name: str, nodes: int) -> NDArray[np.float64] | None:
    parts: list[NDArray[Any]] = []
    attributes, classes = folder / f"{name}_node_attributes.txt", folder / f"{name}_node_labels.txt"
    if attributes.is_file():
        parts.append(_numbers(attributes))
    if classes.is_file():
        values, number = np.unique(_numbers(classes)[:, 0], return_inverse=True)
        if 8 * values.size * number.size > (limit := largest_expansion(classes.stat().st_size)):
            raise ValueError(
                f"{classes} has {values.size:,} labels of {number.size:,} nodes; one-hot, they exceed {limit:,} bytes"
            )
        parts.append(np.eye(values.size)[number])
    for part in parts:
        if part.shape[0] != nodes:
            raise ValueError(f"{folder}: {name} has {part.shape[0]} rows of node features for {nodes} nodes")
    return np.concatenate(parts, axis=1) if parts else None


def _numbers(path: Path) -> NDArray[np.float64]:
    """Read a table of numbers."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist; a folder with a file *_A.txt needs it")
    if not read_file(path).strip():
        raise ValueError(f"{path} is empty; it must hold a table of numbers")
    try:
        table: NDArray[np.float64] = np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from error
    return table
