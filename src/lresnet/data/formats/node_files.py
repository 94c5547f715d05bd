"""Features, labels and splits of the nodes of a graph, from files or arrays of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet._limits import largest_expansion
from lresnet.data.formats.arrays import read_all_arrays, read_array, sparse_matrix
from lresnet.data.formats.edge_list import number_names
from lresnet.data.formats.graph_arrays import split_masks
from lresnet.data.formats.graph_paths import graph_suffix
from lresnet.data.formats.split_file import PART_NAMES
from lresnet.data.formats.text_rows import Table, is_number
from lresnet.data.graph import Graph, checked_features, checked_mask
from lresnet.data.labels import number_labels
from lresnet.data.quoting import quoted

__all__ = ["add_features", "add_labels", "add_splits"]

_NODE_TITLES = ("", "node", "nodes", "name", "id", "nodeid", "nodename", "vertex", "index")
_LABEL_TITLES = ("label", "labels", "class", "y", "target", "category", "nodelabel")
_SPLIT_TITLES = ("part", "split", "set", "subset", "mask")
_PARTS = PART_NAMES | dict.fromkeys(("", "none", "-"), "")

Row = tuple[int, list[str]]


def add_features(graph: Graph, source: Any) -> Graph:
    """Return the graph with other features.

    Args:
        graph: The graph.
        source: An array, tensor or sparse matrix ``[n, f]`` in the order of the nodes, or a file: ``.npy``, ``.npz``
            (one array, or a SciPy matrix), or a table with one row per node. The first column of a table holds the
            names of the nodes, unless the rows are in the order of the nodes; a header is optional. Nodes that only the
            features list are isolated nodes of the result.

    Raises:
        ValueError: A feature is not a finite number (with the line), a node has no row or two, or the number of rows is
            wrong.
    """
    if not isinstance(source, str | Path):
        return _with_matrix(graph, source, f"features of {graph.name}")
    path = Path(source)
    if graph_suffix(path) in (".npy", ".npz"):
        return _with_matrix(graph, _matrix(path), str(path))
    table = _FeatureTable(path)
    graph = replace(graph, notes=(*graph.notes, *table.notes))
    if not table.has_names(graph):
        return _with_matrix(graph, table.all_columns(), str(path))
    matrix = table.columns_after_names()
    names = _unique_names(path, table.first)
    graph = _with_nodes(graph, names, path)
    number = _numbers_of(graph)
    if len(names) < graph.num_nodes:
        described = set(names)
        missing = next(name for name in number if name not in described)
        raise ValueError(
            f"{path} has no row for node {quoted(missing)}; it describes {len(names):,} of {graph.num_nodes:,} nodes"
        )
    ordered = np.empty_like(matrix)
    ordered[[number[name] for name in names]] = matrix
    return replace(graph, features=ordered)


def add_labels(graph: Graph, source: Any) -> Graph:
    """Return the graph with other labels.

    Args:
        graph: The graph.
        source: ``[n]`` labels in the order of the nodes, or a file: ``.npy``, ``.npz`` with one array, or a table of
            node names and labels (text or numbers) with an optional header. Nodes that are not listed have no label. A
            table of one column lists the labels in the order of the nodes.

    Raises:
        ValueError: A label belongs to an unknown node (with the line), or see
            :func:`lresnet.data.labels.number_labels`.
    """
    name, notes = graph.name, list(graph.notes)
    if isinstance(source, str | Path):
        path = Path(source)
        name = path.name
        if graph_suffix(path) in (".npy", ".npz"):
            labels = _matrix(path)
            if not isinstance(labels, np.ndarray):
                raise ValueError(f"{path} holds a sparse matrix; save the labels as an array [n]")
            graph = _with_rows(graph, len(labels) if labels.ndim else 0, path.name)
        else:
            labels = _label_table(graph, path, notes)
    else:
        labels = source.detach().cpu().numpy() if isinstance(source, Tensor) else np.asarray(source)
    numbered = number_labels(name, labels, graph.num_nodes)
    if numbered.numbers is None:
        raise ValueError(f"{name}: no node has a label")
    if numbered.unlabelled:
        count = graph.num_nodes - numbered.unlabelled
        notes.append(f"{count:,} of {graph.num_nodes:,} nodes have a label.")
    return replace(graph, labels=torch.from_numpy(numbered.numbers), classes=numbered.classes, notes=tuple(notes))


def add_splits(graph: Graph, path: Path) -> Graph:
    """Return the graph with the splits of a file.

    Args:
        graph: The graph.
        path: A table of node names and parts (``train``, ``val`` or ``test``; several columns are several splits), or a
            ``.npz`` file with masks or node numbers, see :func:`~lresnet.data.formats.graph_arrays.split_masks`.

    Raises:
        ValueError: A node or a part is unknown (with the line).
    """
    if graph_suffix(path) == ".npz":
        content = read_all_arrays(path)
        try:
            arrays = split_masks(content, graph.num_nodes)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        checked = {part: checked_mask(str(path), part, mask, graph.num_nodes) for part, mask in arrays.items()}
        return replace(graph, masks=checked)
    file = Table(path)
    number = _numbers_of(graph)
    rows, titles = _without_header(list(file), number, _SPLIT_TITLES)
    notes = file.notes
    splits = len(rows[0][1]) - 1 if rows else 0
    if splits < 1:
        raise ValueError(f"{path} has one column; it needs node names and their part: train, val or test")
    if 3 * graph.num_nodes * splits > (limit := largest_expansion(path.stat().st_size)):
        raise ValueError(
            f"{path} has {splits:,} splits for {graph.num_nodes:,} nodes; as masks they need more than {limit:,} bytes"
        )
    table = np.zeros((3, graph.num_nodes, splits), dtype=np.bool_)
    kinds = ("train", "val", "test")
    _unique_names(path, rows)
    for line, (name, *parts) in rows:
        if name not in number:
            raise _unknown(path, line, name)
        for split, text in enumerate(parts):
            part = _PARTS.get(text.lower())
            if part is None:
                raise ValueError(f"{path}, line {line}: the part {quoted(text)} is unknown; choose train, val or test")
            if part:
                table[kinds.index(part), number[name], split] = True
    if titles:
        notes.append(f"{path.name} has a header.")
    masks = {
        kind: torch.from_numpy(mask[:, 0] if splits == 1 else mask) for kind, mask in zip(kinds, table, strict=True)
    }
    return replace(graph, masks=masks, notes=(*graph.notes, *notes))


# --- tables -----------------------------------------------------------------------------------------------------------


class _FeatureTable:
    """A table of features whose first column may hold node names, converted to numbers row by row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first: list[Row] = []  # the first column as text
        self.titles: list[str] = []
        rows: list[NDArray[np.float64]] = []  # the other columns
        table = Table(path)
        self.notes = list(table.notes)
        for line, row in table:
            if not self.first and not self.titles and _is_feature_header(row):
                self.titles = row
                self.notes.append(f"Line {line} of {path.name} is a header.")
                continue
            self.first.append((line, row[:1]))
            rows.append(self._numbers(line, row[1:], 1))
        if not rows:
            raise ValueError(f"{path} holds no rows below its header")
        self._rest = np.stack(rows)

    def has_names(self, graph: Graph) -> bool:
        """Return whether the first column holds node names."""
        if self.titles and _title(self.titles[0]) in _NODE_TITLES:
            return True
        texts = [text for _, (text,) in self.first]
        if not all(is_number(text) for text in texts):
            return True
        # Numbers that are all different and contain every name of the graph are names.
        return self._rest.shape[1] > 0 and len(set(texts)) == len(texts) and set(_numbers_of(graph)) <= set(texts)

    def columns_after_names(self) -> NDArray[np.float64]:
        if not self._rest.shape[1]:
            raise ValueError(f"{self.path} has no columns of features, only names")
        return self._rest

    def all_columns(self) -> NDArray[np.float64]:
        first = [self._numbers(line, row, 0) for line, row in self.first]
        return np.concatenate([np.stack(first), self._rest], axis=1)

    def _numbers(self, line: int, fields: list[str], start: int) -> NDArray[np.float64]:
        """Return the numbers of the columns from ``start`` on."""
        try:
            numbers = np.array(fields, dtype=np.float64)
            column = int(np.isfinite(numbers).argmin()) if not np.isfinite(numbers).all() else -1
        except ValueError:
            column = next(position for position, text in enumerate(fields) if not is_number(text))
        if column < 0:
            return numbers
        where = f"column {start + column + 1}" + (f" ({self.titles[start + column]})" if self.titles else "")
        raise ValueError(
            f"{self.path}, line {line}: {where} is {quoted(fields[column])}; features must be finite numbers"
        )


def _is_feature_header(row: Sequence[str]) -> bool:
    """Return whether the first row of a table of features names the columns: no field after the first is a number."""
    return not any(is_number(text) or not text for text in row[1:] or row)


def _without_header(
    rows: list[Row], number: Mapping[str, int], second_titles: Sequence[str]
) -> tuple[list[Row], list[str]]:
    """Return the rows below the header, and the titles of the columns.

    The first row is a header if it has one of the known titles and does not start with the name of a node.
    """
    titles = [_title(text) for text in rows[0][1]]
    if len(titles) > 1 and rows[0][1][0] in number:
        return rows, []
    if titles[0] in _NODE_TITLES[1:] or any(title in second_titles for title in titles[1:] or titles):
        return rows[1:], rows[0][1]
    return rows, []


def _title(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())


def _unique_names(path: Path, rows: list[Row]) -> list[str]:
    seen: dict[str, int] = {}
    for line, row in rows:
        if not row[0]:
            raise ValueError(f"{path}, line {line}: the name of the node is missing")
        if row[0] in seen:
            raise ValueError(
                f"{path}, line {line}: node {quoted(row[0])} occurs again; it is already in line {seen[row[0]]}"
            )
        seen[row[0]] = line
    return list(seen)


def _label_table(graph: Graph, path: Path, notes: list[str]) -> Any:
    content = Table(path)
    number = _numbers_of(graph)
    rows, titles = _without_header(list(content), number, _LABEL_TITLES)
    notes += content.notes
    if titles:
        notes.append(f"{path.name} has a header.")
    if not rows:
        raise ValueError(f"{path} holds no rows below its header")
    width = len(rows[0][1])
    if width == 1:
        if len(rows) != graph.num_nodes:
            raise ValueError(f"{path} has {len(rows):,} labels without names for {graph.num_nodes:,} nodes")
        return [row[0] for _, row in rows]
    plain = [_title(title) for title in titles]
    column = next((plain.index(title) for title in _LABEL_TITLES if title in plain[1:]), 1)
    if width > 2:
        notes.append(f"The labels are column {column + 1} of {path.name}; its other columns are not read.")
    _unique_names(path, rows)
    labels = [""] * graph.num_nodes
    for line, row in rows:
        if row[0] not in number:
            raise _unknown(path, line, row[0])
        labels[number[row[0]]] = row[column]
    return labels


def _unknown(path: Path, line: int, name: str) -> ValueError:
    advice = "; title its columns node and label if it is a header" if line == 1 else ""
    return ValueError(f"{path}, line {line}: there is no node {quoted(name)} in the graph{advice}")


# --- arrays -----------------------------------------------------------------------------------------------------------


def _matrix(path: Path) -> Any:
    """Read the array or the sparse matrix of a file."""
    if graph_suffix(path) == ".npy":
        return read_array(path)
    arrays = read_all_arrays(path)
    if "data" in arrays and "shape" in arrays:
        try:
            return sparse_matrix(arrays)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    if len(arrays) != 1:
        raise ValueError(f"{path} holds {len(arrays)} arrays ({', '.join(arrays)}); save one array")
    return next(iter(arrays.values()))


def _with_matrix(graph: Graph, matrix: Any, source: str) -> Graph:
    """Return the graph with features in the order of its nodes."""
    if hasattr(matrix, "shape") and not matrix.shape:
        raise ValueError(f"{source}: the features are a single number; give one row per node, [n, f]")
    rows = matrix.shape[0] if hasattr(matrix, "shape") else len(matrix)
    graph = _with_rows(graph, rows, Path(source).name)
    if rows != graph.num_nodes:
        raise ValueError(f"{source}: there are {rows:,} rows for {graph.num_nodes:,} nodes")
    return replace(graph, features=checked_features(source, matrix))


def _with_rows(graph: Graph, rows: int, source: str) -> Graph:
    """Return the graph numbered for an array with ``rows`` rows.

    Nodes whose names are integers below ``rows`` have these numbers, and the other rows are isolated nodes. Other nodes
    keep their order.
    """
    if not graph.names:
        if rows > graph.num_nodes and graph.features is None and graph.labels is None and not graph.masks:
            extra = rows - graph.num_nodes
            note = f"{extra:,} nodes of {source} have no edges."
            return replace(graph, num_nodes=rows, notes=(*graph.notes, note))
        return graph
    integers = [
        int(name) if name.isascii() and name.isdigit() and str(int(name)) == name else -1 for name in graph.names
    ]
    if min(integers) >= 0 and max(integers) < rows and graph.features is None and graph.labels is None:
        order = np.array(integers, dtype=np.int64)
        note = f"Node names are row numbers of {source}; {rows - len(integers):,} nodes have no edges."
        return _renumbered(replace(graph, notes=(*graph.notes, note)), order, (), rows)
    note = f"Rows of {source} belong to the nodes in the order of their first appearance in the edges."
    return replace(graph, notes=(*graph.notes, note))


# --- nodes ------------------------------------------------------------------------------------------------------------


def _numbers_of(graph: Graph) -> Mapping[str, int]:
    """Return node name to node number; names that occur twice are refused."""
    names = graph.names or tuple(map(str, range(graph.num_nodes)))
    number = {name: position for position, name in enumerate(names)}
    if len(number) < len(names):
        raise ValueError(f"{graph.name}: several nodes have the same name, so a file cannot refer to them by name")
    return number


def _with_nodes(graph: Graph, names: Sequence[str], path: Path) -> Graph:
    """Return the graph with the further nodes of ``names``, which have no edges."""
    known = _numbers_of(graph)
    extra = [name for name in names if name not in known]
    if not extra:
        return graph
    if graph.labels is not None or graph.masks:
        raise ValueError(
            f"{path}: there is no node {quoted(extra[0])} in the graph, which has labels or splits already"
        )
    order, kept = number_names([*known, *extra])
    count = "1 node has" if len(extra) == 1 else f"{len(extra):,} nodes have"
    note = f"{count} features in {path.name} but no edges."
    graph = replace(graph, notes=(*graph.notes, note), features=None)
    return _renumbered(graph, order[: len(known)], kept, len(order))


def _renumbered(graph: Graph, order: NDArray[np.int64], names: Sequence[str], nodes: int) -> Graph:
    """Return a graph without features, labels and splits, in which node i has the number ``order[i]``."""
    edges = torch.from_numpy(order)[graph.edges]
    return Graph.checked(
        graph.name,
        None,
        edges,
        names=names,
        num_nodes=nodes,
        weights=graph.weights,
        directed=graph.directed,
        notes=graph.notes,
    )
