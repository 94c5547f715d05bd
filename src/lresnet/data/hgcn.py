"""The graphs published with HGCN: disease (a CSV of edges, sparse features, labels) and airport (a pickled graph)."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lresnet.data.graph import Graph
from lresnet.data.unpickle import PickledGraph, read_pickle

__all__ = ["AIRPORT_BINS", "read_airport", "read_disease"]

# The last feature of an airport is its country's population, scaled; its bins are the classes.
AIRPORT_BINS = (7 / 7, 8 / 7, 9 / 7)


def read_disease(name: str, files: dict[str, Path]) -> Graph:
    """``disease_lp`` or ``disease_nc`` from ``<name>.edges.csv``, ``<name>.feats.npz`` and ``<name>.labels.npy``."""
    features_file, labels_file = files[f"{name}.feats.npz"], files[f"{name}.labels.npy"]
    try:
        features = sparse.csr_array(sparse.load_npz(features_file)).astype(np.float64)
    except (ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{features_file} cannot be read as a sparse matrix: {error}") from error
    try:
        labels = np.load(labels_file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{labels_file} cannot be read as an array: {error}") from error
    return Graph.checked(name, features.toarray(), _edges(files[f"{name}.edges.csv"]), labels)


def read_airport(name: str, files: dict[str, Path]) -> Graph:
    """``airport`` from ``airport.p``; nodes are numbered in the file's order, a class is a bin of the last feature."""
    path = files["airport.p"]
    graph = read_pickle(path)
    if not isinstance(graph, PickledGraph):
        raise ValueError(f"{path} holds no graph")
    number = {node: index for index, node in enumerate(graph.node)}
    try:
        features = np.array([attributes["feat"] for attributes in graph.node.values()], dtype=np.float64)
        pairs = [(number[a], number[b]) for a, neighbours in graph.adj.items() for b in neighbours]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: a node without features, or an edge to a node that is not there") from error
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Graph.checked(name, features, edges, np.digitize(features[:, -1], AIRPORT_BINS))


def _edges(path: Path) -> NDArray[np.int64]:
    rows = []
    for line_number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            first, second = line.split(",")
            rows.append((int(first), int(second)))
        except ValueError:
            raise ValueError(f"{path}, line {line_number}: expected two node numbers, found {line!r}") from None
    return np.array(rows, dtype=np.int64).reshape(-1, 2).T
