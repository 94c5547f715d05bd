"""Graphs in one ``.npz`` file: users' own, SciPy adjacency matrices, and the heterophilous graphs with ten splits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lresnet._limits import largest_side
from lresnet.data.formats.arrays import read_all_arrays, read_arrays, require_range, sparse_matrix
from lresnet.data.graph import Graph
from lresnet.data.source import Files

__all__ = [
    "adjacency_graph",
    "read_graph_arrays",
    "read_heterophilous",
    "split_masks",
]

_FEATURES = ("x", "features", "node_features")
_LABELS = ("y", "labels", "node_labels")
_WEIGHTS = ("edge_weight", "edge_weights", "weights")
_NAMES = ("names", "node_names")
_CLASSES = ("classes", "class_names")
_PARTS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}


def read_heterophilous(name: str, files: Files) -> Graph:
    """Read a graph of the heterophilous-graphs repository; its masks are ``[n, 10]``."""
    (path,) = files.values()
    parts = ("train", "val", "test")
    arrays = read_arrays(path, "node_features", "node_labels", "edges", *(f"{part}_masks" for part in parts))
    masks = {part: arrays[f"{part}_masks"].T for part in parts}
    features = arrays["node_features"].astype(np.float64)
    return Graph.checked(name, features, arrays["edges"].T, arrays["node_labels"], masks)


def read_graph_arrays(path: Path) -> Graph:
    """Read a user's graph from a ``.npz`` file.

    The arrays are ``edge_index`` ``[2, m]`` or ``edges`` (``[m, 2]`` or ``[2, m]``); optional are ``x`` (``features``,
    ``node_features``), ``y`` (``labels``, ``node_labels``), ``train_mask``, ``val_mask`` and ``test_mask`` (``[n]`` or
    ``[n, splits]``; ``train_masks`` etc. are ``[splits, n]``), ``edge_weight``, ``names``, ``classes``, ``num_nodes``
    and ``directed``. A SciPy adjacency matrix (``scipy.sparse.save_npz``) is a graph too, and so are the arrays
    ``adj_data``, ``adj_indices``, ``adj_indptr`` and ``adj_shape``, with sparse features ``attr_data``, ...

    Raises:
        OSError: The file cannot be read.
        ValueError: An array is missing, damaged or of another form. Pickled objects are refused.
    """
    arrays = read_all_arrays(path, texts=_NAMES + _CLASSES)
    name = path.name
    try:
        if "format" in arrays:
            return adjacency_graph(sparse_matrix(arrays), name)
        features = _first(arrays, _FEATURES)
        if features is None and "attr_indptr" in arrays:
            features = sparse_matrix(_under("attr_", arrays))
        optional: dict[str, Any] = {
            "labels": _first(arrays, _LABELS),
            "names": _texts("names", _first(arrays, _NAMES)),
            "classes": _texts("classes", _first(arrays, _CLASSES)),
            "masks": _masks(arrays),
        }
        if "adj_indptr" in arrays:
            return adjacency_graph(sparse_matrix(_under("adj_", arrays)), name, features, **optional)
        edges, weights, notes = _without_loops(_edges(arrays), _first(arrays, _WEIGHTS))
        directed, nodes = arrays.get("directed"), arrays.get("num_nodes")
        rows = max(
            (array.shape[0] for array in (features, optional["labels"]) if array is not None and array.ndim), default=0
        )
        _require_plausible(edges, nodes, rows)
        return Graph.checked(
            name,
            features,
            edges,
            **optional,
            num_nodes=None if nodes is None else _scalar("num_nodes", nodes),
            weights=weights,
            directed=directed is not None and bool(_scalar("directed", directed)),
            notes=notes,
        )
    except ValueError as error:
        text = str(error)
        raise ValueError(f"{path}: {text.removeprefix(f'{name}: ')}") from error


def adjacency_graph(
    adjacency: Any, name: str = "graph", features: Any = None, *, directed: bool | None = None, **optional: Any
) -> Graph:
    """Return the graph of a square sparse adjacency matrix.

    The entries are weights unless all are 1. Stored zeros are not edges.

    Args:
        adjacency: ``[n, n]``; entry (i, j) is the edge from i to j.
        name: Name of the graph.
        features: As for :meth:`lresnet.data.Graph.checked`.
        directed: None: the graph is undirected if the matrix is symmetric or triangular.
        **optional: Labels, masks, names and classes, as for :meth:`lresnet.data.Graph.checked`.
    """
    matrix = sparse.coo_array(adjacency)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name}: the adjacency matrix has shape {list(matrix.shape)}; it must be square")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"{name}: the adjacency matrix is {matrix.dtype}; its entries must be numbers")
    _require_format(matrix.tocsr() if matrix.nnz else None)
    matrix = sparse.coo_array(matrix.tocsr())  # adds repeated entries
    stored = matrix.data != 0
    edges = np.stack([matrix.row[stored], matrix.col[stored]]).astype(np.int64)
    values = matrix.data[stored]
    notes = []
    if zeros := int((~stored).sum()):
        notes.append(f"{zeros:,} stored zeros of the adjacency matrix are not edges.")
    weights = None if (values == 1).all() else values
    if directed is None:
        triangular = bool((edges[0] <= edges[1]).all() or (edges[0] >= edges[1]).all())
        csr = matrix.tocsr()
        directed = not triangular and (csr != csr.T).nnz > 0
        shape = "triangular" if triangular else "not symmetric" if directed else "symmetric"
        notes.append(f"The adjacency matrix is {shape}: the graph is {'directed' if directed else 'undirected'}.")
    edges, weights, dropped = _without_loops(edges, weights)
    return Graph.checked(
        name,
        features,
        edges,
        **optional,
        num_nodes=matrix.shape[0],
        weights=weights,
        directed=directed,
        notes=[*notes, *dropped],
    )


def split_masks(arrays: Mapping[str, NDArray[Any]], n: int) -> dict[str, NDArray[Any]]:
    """Return the masks of a ``.npz`` file of splits: masks as in :func:`read_graph_arrays`, or node numbers.

    Node numbers are the arrays ``train``, ``val`` and ``test``, or ``train_idx`` etc.
    """
    masks = _masks(arrays)
    for part, synonyms in _PARTS.items():
        keys = [key for name in synonyms for key in (name, f"{name}_idx", f"idx_{name}", f"{name}_index")]
        numbers = _first(arrays, keys)
        if numbers is None or part in masks:
            continue
        if numbers.dtype.kind == "b":
            masks[part] = numbers
            continue
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ValueError(f"{part} is {numbers.dtype} {list(numbers.shape)}; give a mask or node numbers")
        require_range(part, numbers, n, numbers.size)
        masks[part] = np.zeros(n, dtype=np.bool_)
        masks[part][numbers] = True
    if not masks:
        raise ValueError(f"there is no train_mask, val_mask or test_mask among {', '.join(arrays) or 'its arrays'}")
    return masks


def _require_format(matrix: Any) -> None:
    """Check the index arrays of a matrix that was built elsewhere."""
    if matrix is not None:
        matrix.check_format(full_check=True)


def _first(arrays: Mapping[str, NDArray[Any]], keys: Any) -> NDArray[Any] | None:
    return next((arrays[key] for key in keys if key in arrays), None)


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _edges(arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if "edge_index" in arrays:
        edges = arrays["edge_index"]
        if edges.ndim != 2 or edges.shape[0] != 2:
            raise ValueError(f"edge_index has shape {list(edges.shape)}; it must be [2, m]")
        return edges
    if "edges" not in arrays:
        raise ValueError(f"there is no array edge_index among {', '.join(arrays) or 'its arrays'}")
    edges = arrays["edges"]
    if edges.shape == (2, 2):
        raise ValueError(
            "edges has shape [2, 2], which may be [2, m] or [m, 2]; save it as edge_index, which is always [2, m]"
        )
    if edges.ndim != 2 or 2 not in edges.shape:
        raise ValueError(f"edges has shape {list(edges.shape)}; it must be [m, 2] or [2, m]")
    return edges if edges.shape[0] == 2 else edges.T


def _require_plausible(edges: NDArray[Any], nodes: NDArray[Any] | None, rows: int) -> None:
    """Raise an error for a number of nodes that the file does not describe: its arrays would not fit in memory."""
    highest = max(
        int(edges.max(initial=0)) + 1 if edges.dtype.kind in "iu" else 0,
        0 if nodes is None else _scalar("num_nodes", nodes),
    )
    limit = max(largest_side(edges.shape[1]), rows)
    if highest > limit:
        raise ValueError(
            f"there are {highest:,} nodes and {edges.shape[1]:,} edges; the limit for so few edges is {limit:,} nodes"
        )


def _without_loops(
    edges: NDArray[Any], weights: NDArray[Any] | None
) -> tuple[NDArray[Any], NDArray[Any] | None, list[str]]:
    proper = edges[0] != edges[1]
    loops = int((~proper).sum())
    if not loops or loops == edges.shape[1] or (weights is not None and weights.shape[:1] != proper.shape):
        return edges, weights, []  # other forms are refused by Graph.checked
    note = f"{loops:,} self loop{' is' if loops == 1 else 's are'} left out."
    return edges[:, proper], None if weights is None else weights[proper], [note]


def _masks(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    masks = {}
    for part, synonyms in _PARTS.items():
        for name in synonyms:
            if f"{name}_mask" in arrays:
                masks[part] = arrays[f"{name}_mask"]
            elif f"{name}_masks" in arrays:
                masks[part] = arrays[f"{name}_masks"].T
    return masks


def _texts(key: str, array: NDArray[Any] | None) -> tuple[str, ...]:
    if array is None:
        return ()
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise ValueError(f"{key} is {array.dtype} {list(array.shape)}; save the names as text, in one column")
    return tuple(item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in array.tolist())


def _scalar(key: str, array: NDArray[Any]) -> int:
    if array.size != 1 or array.dtype.kind not in "biu":
        raise ValueError(f"{key} is {array.dtype} {list(array.shape)}; it must be one integer")
    return int(array.item())
