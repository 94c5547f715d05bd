"""Users' graphs and metric spaces in one file, as input of :func:`lresnet.geometry.delta_hyperbolicity`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lresnet.data.formats.arrays import read_all_arrays, read_array, sparse_matrix
from lresnet.data.formats.edge_list import read_edge_list
from lresnet.data.formats.graph_arrays import read_graph_arrays

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
    if path.suffix == ".npy":
        return _distances(read_array(path), path)
    arrays = read_all_arrays(path)
    if "edge_index" in arrays or "edges" in arrays:
        return read_graph_arrays(path).edges.numpy()
    if len(arrays) == 1:
        return _distances(next(iter(arrays.values())), path)
    if {"format", "shape", "data"} <= arrays.keys():
        try:
            return sparse_matrix(arrays)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    raise ValueError(f"{path} holds several arrays ({', '.join(arrays)}); save only the matrix of distances")


def _distances(matrix: NDArray[Any], path: Path) -> NDArray[Any]:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"{path} holds an array of shape {list(matrix.shape)}; distances must be a square matrix [n, n]"
        )
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"{path} holds {matrix.dtype}; distances must be numbers")
    # Integers of shape [2, 2] would be taken for two edges; a floating-point matrix always holds distances.
    return matrix.astype(np.float64) if matrix.dtype.kind in "iu" else matrix
