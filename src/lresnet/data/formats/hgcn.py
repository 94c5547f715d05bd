"""The disease graphs as HGCN publishes them: a CSV of edges, sparse features and labels."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lresnet.data.graph import Graph
from lresnet.data.source import Files

__all__ = ["read_disease"]


def read_disease(name: str, files: Files) -> Graph:
    """Read ``<name>.edges.csv``, ``<name>.feats.npz`` and ``<name>.labels.npy``."""
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


def _edges(path: Path) -> NDArray[np.int64]:
    rows = []
    for line_number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            first, second = line.split(",")
            rows.append((int(first), int(second)))
        except ValueError:
            raise ValueError(f"{path}, line {line_number}: expected two node numbers, found {line!r}") from None
    return np.array(rows, dtype=np.int64).reshape(-1, 2).T
