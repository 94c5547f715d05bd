"""The disease graphs as HGCN publishes them: a CSV of edges, sparse features and labels."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lresnet._files import read_file
from lresnet._limits import largest_expansion
from lresnet.data.formats.arrays import read_all_arrays, read_array, sparse_matrix
from lresnet.data.graph import Graph
from lresnet.data.quoting import quoted
from lresnet.data.source import Files

__all__ = ["read_disease"]

_EDGE = re.compile(rb" *([0-9]{1,18}) *, *([0-9]{1,18}) *")


def read_disease(name: str, files: Files) -> Graph:
    """Read ``<name>.edges.csv``, ``<name>.feats.npz`` and ``<name>.labels.npy``."""
    features_file, labels_file = files[f"{name}.feats.npz"], files[f"{name}.labels.npy"]
    try:
        features = sparse_matrix(read_all_arrays(features_file))
    except ValueError as error:
        text = str(error).removeprefix(f"{features_file} ")
        raise ValueError(f"{features_file} cannot be read as a sparse matrix: {text}") from error
    labels, edges = read_array(labels_file), _edges(files[f"{name}.edges.csv"])
    if features.shape[0] != labels.size:
        raise ValueError(f"{features_file} has {features.shape[0]:,} rows for {labels.size:,} labels")
    if 8 * math.prod(features.shape) > (limit := largest_expansion(features_file.stat().st_size)):
        raise ValueError(f"{features_file} has the shape {list(features.shape)}; the limit is {limit:,} bytes")
    return Graph.checked(name, features.astype(np.float64).toarray(), edges, labels)


def _edges(path: Path) -> NDArray[np.int64]:
    rows = []
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        match = _EDGE.fullmatch(line)
        if match is None:
            found = quoted(line.decode("utf-8", "replace"))
            raise ValueError(f"{path}, line {number}: expected two node numbers, found {found}")
        rows.append((int(match[1]), int(match[2])))
    return np.array(rows, dtype=np.int64).reshape(-1, 2).T
