"""What a caller means by a space: a graph's edges or a matrix of distances, checked, as NumPy arrays."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["as_array", "edges_of", "metric_of"]

Array = NDArray[Any]

_ROWS = 256  # looked at together: a copy of all distances would double the memory
_TRIANGLES = 10**6  # drawn to look for a violation where there are too many to look at all


def as_array(space: Any) -> tuple[Array, float]:
    """The array behind a tensor or an array-like, and the epsilon of its dtype (0 for integers)."""
    epsilon = 0.0
    if isinstance(space, torch.Tensor):
        if space.layout != torch.strided:
            raise ValueError(f"a sparse tensor ({space.layout}) is not understood; pass its indices() as edge_index")
        epsilon = torch.finfo(space.dtype).eps if space.is_floating_point() else 0.0
        space = space.detach().cpu()
        space = space.float() if space.dtype == torch.bfloat16 else space  # NumPy has no bfloat16
    array = np.asarray(space)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"the space must hold integers or real numbers, got dtype {array.dtype}")
    return array, epsilon or (float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0)


def edges_of(space: Any, num_nodes: int | None) -> tuple[Array, Array, int] | None:
    """Sources, targets and the number of nodes, if ``space`` is a graph; None if it is to be read as distances."""
    if sparse.issparse(space):
        if space.shape[0] != space.shape[1] or num_nodes not in (None, space.shape[0]):
            wanted = "square" if num_nodes is None else f"of shape [{num_nodes}, {num_nodes}] (num_nodes)"
            raise ValueError(f"a sparse adjacency matrix must be {wanted}, got shape {list(space.shape)}")
        entries = sparse.coo_array(space)
        present = entries.data != 0
        return entries.coords[0][present], entries.coords[1][present], int(space.shape[0])
    array, epsilon = as_array(space)
    shape = list(array.shape)
    if array.ndim == 2 and shape[0] == 2 and not epsilon:
        return _checked_edges(array, num_nodes)
    if num_nodes is not None or (array.ndim == 2 and shape[0] == 2 != shape[1]):
        raise ValueError(
            f"edge_index must hold integers in shape [2, E], got {array.dtype} {shape}"
            + ("; convert it, e.g. edge_index.long()" if epsilon else "")
            + ("; pass its transpose" if shape[-1:] == [2] else "")
            + ("; num_nodes has no meaning for a distance matrix" if shape[:1] == shape[1:] else "")
        )
    return None


def _checked_edges(edge_index: Array, num_nodes: int | None) -> tuple[Array, Array, int]:
    mentioned = int(edge_index.max(initial=-1)) + 1
    nodes = mentioned if num_nodes is None else index(num_nodes)
    if nodes < 0:
        raise ValueError(f"num_nodes must not be negative, got {num_nodes}")
    if edge_index.min(initial=0) < 0:
        raise ValueError(f"edge_index holds the negative node {edge_index.min()}; nodes are counted from 0")
    if mentioned > nodes:
        raise ValueError(f"edge_index mentions node {mentioned - 1}, but num_nodes is {num_nodes}; it must be larger")
    source, target = edge_index.astype(np.int64, copy=False)
    return source, target, nodes


def metric_of(distances: Array, epsilon: float, exhaustive_nodes: int) -> Array:
    """The distances of a finite metric space, as integers where all of them are whole numbers.

    Args:
        distances: ``[n, n]``.
        epsilon: of the dtype they were computed in. The square root of it, times the diameter, is what a distance may
            be off by when it comes from a difference of squares; deviations from a metric up to there are rounding.
        exhaustive_nodes: up to so many points every triangle is looked at, beyond a million random ones.
    """
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        hint = "; an edge_index [2, E] is its transpose" if distances.ndim == 2 and distances.shape[1] == 2 else ""
        raise ValueError(f"distances must be a square matrix [n, n], got shape {list(distances.shape)}{hint}")
    if not np.isfinite(distances).all():
        i, j = np.argwhere(~np.isfinite(distances))[0]
        raise ValueError(f"distances[{i}, {j}] is {distances[i, j]}; delta needs finite distances (one component)")
    if distances.min(initial=0) < 0:
        i, j = np.unravel_index(distances.argmin(), distances.shape)
        raise ValueError(f"distances[{i}, {j}] = {distances[i, j]} is negative")
    tolerance = float(distances.max(initial=0)) * float(np.sqrt(epsilon))
    if (np.diagonal(distances) > tolerance).any():
        i = np.diagonal(distances).argmax()
        raise ValueError(f"distances[{i}, {i}] = {distances[i, i]}: a point must be at distance 0 from itself")
    distances = _compact(distances)
    _check_symmetry(distances, tolerance)
    _check_triangles(distances, tolerance, exhaustive_nodes)
    return distances


def _compact(distances: Array) -> Array:
    """Small integers if every distance is a whole number: exact, and several times faster."""
    largest = distances.max(initial=0)
    if largest < 2**15 and all((rows == np.rint(rows)).all() for rows in _blocks(distances)):
        return distances.astype(np.min_scalar_type(int(largest)))
    return distances if distances.dtype.kind == "f" else distances.astype(np.float64)


def _blocks(distances: Array) -> list[Array]:
    return [distances[start : start + _ROWS] for start in range(0, len(distances), _ROWS)]


def _check_symmetry(distances: Array, tolerance: float) -> None:
    for start, rows in zip(range(0, len(distances), _ROWS), _blocks(distances), strict=True):
        difference = np.abs(rows.astype(np.float64) - distances[:, start : start + _ROWS].T)
        if (difference > tolerance).any():
            i, j = np.unravel_index(difference.argmax(), difference.shape)
            i += start
            raise ValueError(
                f"distances are not symmetric: [{i}, {j}] is {distances[i, j]}, [{j}, {i}] is {distances[j, i]}; "
                "a metric has d(x, y) = d(y, x)"
            )


def _check_triangles(distances: Array, tolerance: float, exhaustive_nodes: int) -> None:
    n = len(distances)
    wide = np.int64 if distances.dtype.kind in "iu" else np.float64
    if n <= exhaustive_nodes:
        d = distances.astype(wide)
        for k in range(n):
            excess = d - (d[:, k, None] + d[k])
            if excess.max() > tolerance:
                i, j = np.unravel_index(excess.argmax(), excess.shape)
                _refuse_triangle(distances, int(i), k, int(j))
        return
    i, k, j = np.random.default_rng(0).integers(n, size=(3, _TRIANGLES))
    sampled = distances[i, j].astype(wide) - (distances[i, k].astype(wide) + distances[k, j])
    if sampled.max() > tolerance:
        worst = sampled.argmax()
        _refuse_triangle(distances, int(i[worst]), int(k[worst]), int(j[worst]))


def _refuse_triangle(distances: Array, i: int, k: int, j: int) -> None:
    adjacency = distances.dtype.kind in "iu" and distances.max() <= 1
    raise ValueError(
        f"the triangle inequality fails: d({i}, {j}) = {distances[i, j]} > d({i}, {k}) + d({k}, {j}) = "
        f"{distances[i, k]} + {distances[k, j]}; "
        + (
            "an adjacency matrix must be passed as scipy.sparse.csr_array(adjacency)"
            if adjacency
            else "delta is defined for metrics (a squared distance or a similarity is none)"
        )
    )
