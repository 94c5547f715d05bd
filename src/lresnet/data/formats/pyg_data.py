"""Graphs from PyG ``Data``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from lresnet.data.edges import merge_edges
from lresnet.data.graph import Graph

__all__ = ["read_data"]

_PARTS = ("train", "val", "test")


def read_data(data: Any, name: str = "graph") -> Graph:
    """Return PyG ``Data`` as a graph, see :meth:`lresnet.data.Graph.from_data`."""
    from torch_geometric.data import Data

    if not isinstance(data, Data):
        raise ValueError(
            f"{name}: {type(data).__name__} is not a PyG Data with one type of nodes; convert it, "
            "e.g. hetero_data.to_homogeneous()"
        )
    if not isinstance(data.edge_index, Tensor):
        raise ValueError(f"{name}: the data has no edge_index [2, m]; other forms such as adj_t are not read")
    notes: list[str] = []
    features = None if data.x is None else _features(data.x)
    edges = data.edge_index.detach().cpu()
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"{name}: edge_index has shape {list(edges.shape)}; PyG's edge_index is [2, m]")
    if edges.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name}: edge_index is {edges.dtype}; edges are pairs of node numbers, i.e. integers")
    n = _count(data, features, edges)
    weights = _weights(name, data, notes)
    labels = _labels(name, data, n, notes)
    masks = {part: data[f"{part}_mask"] for part in _PARTS if data.get(f"{part}_mask") is not None}

    proper = edges[0] != edges[1]
    if loops := int((~proper).sum()):
        if loops < edges.shape[1]:  # a graph of self loops only is refused below
            edges, weights = edges[:, proper], None if weights is None else weights[proper]
        notes.append(f"{loops:,} self loop{' is' if loops == 1 else 's are'} left out.")
    directed = bool(data.get("directed", False))
    if not directed and edges.numel() and int(edges.min()) >= 0 and int(edges.max()) < n:
        one_way = _one_way(edges.long(), n, weights)
        directed = one_way > 0
        notes.append(
            f"The graph is directed: {one_way:,} edges have no reverse edge of the same weight."
            if directed
            else "The graph is undirected: each edge occurs in both directions."
        )
    return Graph.checked(
        name, features, edges, labels, masks, num_nodes=n, weights=weights, directed=directed, notes=notes
    )


def _features(x: Any) -> Any:
    """Return ``x`` as an array or a CSR matrix, ``[n, f]``."""
    if isinstance(x, Tensor) and x.layout != torch.strided:
        coo = x.detach().cpu().to_sparse_coo().coalesce()
        return sparse.csr_array((coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape))
    if hasattr(x, "to_torch_sparse_coo_tensor"):  # torch_sparse.SparseTensor
        return _features(x.to_torch_sparse_coo_tensor())
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    return array[:, None] if array.ndim == 1 else array


def _count(data: Any, features: Any, edges: Tensor) -> int:
    """Return the number of nodes. PyG would warn where it has to guess."""
    if features is not None:
        return int(features.shape[0])
    if "num_nodes" in data:
        return int(data.num_nodes)
    highest = int(edges.max()) + 1 if edges.numel() else 0
    given = [value for key in ("y", *(f"{part}_mask" for part in _PARTS)) if (value := data.get(key)) is not None]
    return max([highest, *(len(value) for value in given if isinstance(value, Tensor) and value.ndim)])


def _weights(name: str, data: Any, notes: list[str]) -> Tensor | None:
    if (weights := data.get("edge_weight")) is not None:
        return _column(weights)
    attributes = data.get("edge_attr")
    if attributes is None:
        return None
    weights = _column(attributes)
    if weights.ndim == 1 and weights.dtype != torch.bool and bool((weights > 0).all() & weights.isfinite().all()):
        notes.append("The weights are edge_attr.")
        return weights
    notes.append(f"edge_attr {list(attributes.shape)} is not read: it does not hold one positive number per edge.")
    return None


def _column(values: Any) -> Tensor:
    column = torch.as_tensor(values).detach().cpu()
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def _labels(name: str, data: Any, n: int, notes: list[str]) -> Any:
    y = data.y
    if y is None:
        return None
    array = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if array.size == 1 and n > 1:
        notes.append("y is not read: it is one label of the whole graph, not one per node.")
        return None
    if array.ndim == 2 and array.shape[1] > 1:
        raise ValueError(
            f"{name}: y has shape {list(array.shape)}, but several labels per node are not supported; set data.y to "
            "one column, or to None for link prediction"
        )
    return array


def _one_way(edges: Tensor, n: int, weights: Tensor | None) -> int:
    """Return the number of edges without a reverse edge of the same weight; ``edges`` have no self loops."""
    merged = merge_edges(edges, n, weights, directed=True)
    numbers, reverse = merged.edges[0] * n + merged.edges[1], merged.edges[1] * n + merged.edges[0]
    position = torch.searchsorted(numbers, reverse).clamp_max(numbers.numel() - 1)
    missing = numbers[position] != reverse
    if merged.weights is not None:
        missing |= merged.weights[position] != merged.weights
    return int(missing.sum())
