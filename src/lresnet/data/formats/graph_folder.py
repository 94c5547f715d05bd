"""Users' graphs as a file of edges, alone or in a folder with features, labels and splits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import torch

from lresnet.data.edges import merge_edges
from lresnet.data.formats.edge_list import read_edge_list
from lresnet.data.formats.graph_arrays import read_graph_arrays
from lresnet.data.formats.graph_paths import find_part, graph_suffix
from lresnet.data.formats.node_files import add_features, add_labels, add_splits
from lresnet.data.graph import Graph
from lresnet.data.registry import GRAPHS

__all__ = ["read_edge_file", "read_graph_folder"]


def read_edge_file(path: Path, *, directed: bool = False) -> Graph:
    """Read an edge list as a graph.

    Repeated rows are merged (weights in the same direction are added), and self loops are left out. ``notes`` counts
    both.

    Args:
        path: See :func:`~lresnet.data.formats.edge_list.read_edge_list`.
        directed: Whether a row is an edge from the first name to the second.

    Raises:
        ValueError: The file is damaged, or has only self loops.
    """
    listed = read_edge_list(path)
    edges = torch.from_numpy(listed.edges)
    weights = None if listed.weights is None else torch.from_numpy(listed.weights)
    proper = edges[0] != edges[1]
    loops = edges.shape[1] - int(proper.sum())
    notes = list(listed.notes)
    if loops:
        if loops == edges.shape[1]:
            raise ValueError(f"{path}: all {loops:,} rows are self loops; an edge must join two different nodes")
        edges, weights = edges[:, proper], None if weights is None else weights[proper]
        notes.append(f"{loops:,} self loop{' is' if loops == 1 else 's are'} left out.")
    nodes, names = listed.num_nodes, listed.names
    del listed, proper
    merged = merge_edges(edges, nodes, weights, directed=directed)
    if merged.repeated:
        added = "; their weights are added" if weights is not None else ""
        notes.append(
            f"{_rows(merged.repeated, 'repeats', 'repeat')} an edge and {_are(merged.repeated)} merged{added}."
        )
    if merged.reversed:
        added = ""
        if merged.unequal:
            added = f"; {merged.unequal:,} with different weights get their mean"
        notes.append(f"{_edges(merged.reversed)} given in both directions and joined{added}.")
    del edges, weights
    return Graph.checked(
        path.name,
        None,
        merged.edges,
        names=names,
        num_nodes=nodes,
        weights=merged.weights,
        directed=directed,
        notes=notes,
    )


def read_graph_folder(folder: Path, *, directed: bool = False, skip: Collection[str] = ()) -> Graph:
    """Read ``edges.*`` of a folder and, where present, ``features.*``, ``labels.*`` and ``splits.*``.

    Args:
        folder: ``edges`` is an edge list or a ``.npz`` file; the others are described in
            :mod:`lresnet.data.formats.node_files`. Nodes that only ``features`` lists are isolated nodes. A label or a
            part of an unknown node is an error.
        directed: Whether the rows of an edge list have a direction.
        skip: Parts that are not read, such as ``"features"``.

    Raises:
        ValueError: A file is missing, damaged or inconsistent with the others.
    """
    edges = find_part(folder, "edges", required=True)
    assert edges is not None
    suffix = graph_suffix(edges)
    if suffix == ".npy":
        raise ValueError(f"{edges}: edges are read from text or .npz; save the array as edge_index in edges.npz")
    graph = read_graph_arrays(edges) if suffix == ".npz" else read_edge_file(edges, directed=directed)
    for part, add in (("features", add_features), ("labels", add_labels), ("splits", add_splits)):
        if part not in skip and (path := find_part(folder, part)) is not None:
            graph = add(graph, path)
    name = folder.resolve().name
    return replace(graph, name=f"{name}/" if name in GRAPHS else name)  # shipped graphs have features of their own kind


def _rows(count: int, one: str, many: str) -> str:
    return f"1 row {one}" if count == 1 else f"{count:,} rows {many}"


def _edges(count: int) -> str:
    return "1 edge is" if count == 1 else f"{count:,} edges are"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
