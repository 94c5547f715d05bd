"""Users' graphs and metric spaces in one file, as input of :func:`lresnet.geometry.delta_hyperbolicity`."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lresnet.data.formats.edge_list import read_edge_list
from lresnet.data.formats.graph_arrays import read_all_arrays, read_graph_arrays, sparse_matrix

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["read_space"]


def read_space(path: str | Path) -> NDArray[Any] | sparse.sparray | sparse.spmatrix:
    """Read a graph or a matrix of distances. The suffix of ``path`` determines the format.

    - ``.npy``, or ``.npz`` with a single array: a square matrix of distances.
    - ``.npz`` written by ``scipy.sparse.save_npz``: the adjacency matrix of a graph. ``.npz`` with the array
      ``edge_index`` or ``edges``: a graph, see :func:`~lresnet.data.formats.graph_arrays.read_graph_arrays`.
    - Any other suffix: a graph as text with one edge per row, see
      :func:`~lresnet.data.formats.edge_list.read_edge_list`. Weights are checked but not used: the distance is the
      number of hops.

    Returns:
        The distances ``[n, n]``, the adjacency matrix, or the edges as integers ``[2, E]`` with renumbered nodes.

    Raises:
        OSError: The file cannot be read.
        ValueError: The content does not match the suffix.
    """
    path = Path(path)
    if path.suffix in {".npy", ".npz"}:
        return _arrays(path)
    return read_edge_list(path).edges


def _arrays(path: Path) -> NDArray[Any] | sparse.sparray | sparse.spmatrix:
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return _distances(content, path)
            names = content.files
            if "edge_index" in names or "edges" in names:
                return read_graph_arrays(path).edges.numpy()
            if len(names) == 1:
                return _distances(content[names[0]], path)
        if {"format", "shape", "data"} <= set(names):
            return sparse_matrix(read_all_arrays(path))
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as NumPy arrays: {error}") from error
    raise ValueError(f"{path} holds several arrays ({', '.join(names)}); save only the matrix of distances")


def _distances(matrix: NDArray[Any], path: Path) -> NDArray[Any]:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"{path} holds an array of shape {list(matrix.shape)}; distances must be a square matrix [n, n]"
        )
    # Integers of shape [2, 2] would be taken for two edges; a floating-point matrix always holds distances.
    return matrix.astype(np.float64) if matrix.dtype.kind in "iu" else matrix
