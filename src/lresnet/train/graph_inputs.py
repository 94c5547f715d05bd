"""The constant part of a graph model's input, computed once: sparse features, their points, the adjacency matrix."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from lresnet.models import LorentzGCN
from lresnet.nn.input_map import Points
from lresnet.nn.sparse import SparseMatrix

__all__ = ["GraphInputs", "sparse_if_thin"]

# Below this density a sparse first layer is faster. On one CPU thread it is 2x as fast without dropout and 4x with
# dropout at PubMed's 10 %, and no slower at 50 %. From 11 % on its indices take more memory than dense features.
_SPARSE_BELOW = 0.3


class GraphInputs:
    """Features and edges of one graph. :meth:`apply` runs a model on them and caches everything constant.

    Args:
        x: features ``[N, F]``, dense or a sparse COO tensor; stored as a sparse matrix if less than 30 % of them are
            non-zero.
        edge_index: edges ``[2, E]``.
        num_nodes: N.
        edge_weight: weights ``[E]``; None: all 1.
    """

    def __init__(self, x: Tensor, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> None:
        self.features = sparse_if_thin(x)
        self.edge_index, self.num_nodes, self.edge_weight = edge_index, num_nodes, edge_weight
        self._model: weakref.ref[LorentzGCN] | None = None
        self._points: Points | None = None
        self._graph: SparseMatrix | None = None

    def apply(self, model: LorentzGCN) -> Tensor:
        """Return the model's output. The input map is recomputed only if the curvature is learned."""
        if self._model is None or self._model() is not model:
            self._model = weakref.ref(model)
            self._graph = model.graph(self.edge_index, self.num_nodes, self.edge_weight)
            self._points = None if model.manifold.learnable else self._frozen_points(model)
        assert self._graph is not None
        points = model.input_points(self.features) if self._points is None else self._points
        return model(points, self._graph)  # type: ignore[no-any-return]

    def _frozen_points(self, model: LorentzGCN) -> Points:
        with torch.no_grad():
            return model.input_points(self.features)


def sparse_if_thin(x: Tensor) -> Tensor | SparseMatrix:
    """Return features as a sparse matrix if they are sparse already or mostly zero, otherwise unchanged."""
    if x.is_sparse:
        whole = x.coalesce()
        return SparseMatrix.from_coo(whole.indices(), whole.values(), (x.shape[0], x.shape[1]))
    density = float((x != 0).float().mean()) if x.numel() else 1.0
    return SparseMatrix.from_dense(x) if density < _SPARSE_BELOW else x
