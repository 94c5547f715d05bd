"""The constant part of a graph model's input, computed once: sparse features, their points, the adjacency matrix."""

from __future__ import annotations

import weakref
from typing import TypeVar

import torch
from torch import Tensor

from lresnet.data import GraphTask
from lresnet.models import LorentzGCN
from lresnet.nn.input_map import Points
from lresnet.nn.sparse import SparseMatrix

__all__ = ["GraphInputs", "in_precision_of", "is_sparse"]

T = TypeVar("T", bound=Tensor | SparseMatrix)

# Below this density a sparse first layer is faster. On one CPU thread it is 2x as fast without dropout and 4x with
# dropout at PubMed's 10 %, and no slower at 50 %. From 11 % on its indices take more memory than dense features.
_SPARSE_BELOW = 0.3


class GraphInputs:
    """Features and edges of one graph. :meth:`apply` runs a model on them and caches everything constant.

    Args:
        x: features ``[N, F]``; stored as a sparse matrix if less than 30 % of them are non-zero. A sparse tensor of
            torch stays sparse.
        edge_index: edges ``[2, E]``.
        num_nodes: N.
        edge_weight: weights ``[E]``; None: 1.
    """

    def __init__(self, x: Tensor, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> None:
        self.features: Tensor | SparseMatrix = x
        if x.layout != torch.strided:
            entries = x.to_sparse_coo().coalesce()
            self.features = SparseMatrix.from_coo(entries.indices(), entries.values(), (x.shape[0], x.shape[1]))
        elif is_sparse(x):
            self.features = SparseMatrix.from_dense(x)
        self.edge_index, self.num_nodes, self.edge_weight = edge_index, num_nodes, edge_weight
        self._model: weakref.ref[LorentzGCN] | None = None
        self._points: Points | None = None
        self._graph: SparseMatrix | None = None

    @classmethod
    def of(cls, task: GraphTask) -> GraphInputs:
        """Return the inputs of a task, on its device."""
        return cls(task.x, task.edge_index, task.num_nodes, getattr(task, "edge_weight", None))

    def apply(self, model: LorentzGCN) -> Tensor:
        """Return the model's output. The input map is recomputed only if the curvature is learned."""
        if self._model is None or self._model() is not model:
            self._model = weakref.ref(model)
            self._graph = self.graph(model)
            self._points = None if model.manifold.learnable else self._frozen_points(model)
        assert self._graph is not None
        points = self.points(model) if self._points is None else self._points
        return model(points, self._graph)  # type: ignore[no-any-return]

    def embed(self, model: LorentzGCN) -> Tensor:
        """Return the points of the nodes."""
        return model.embed(self.points(model), self.graph(model))

    def points(self, model: LorentzGCN) -> Points:
        """Return the features as the model's input, in its precision."""
        return model.input_points(in_precision_of(model, self.features))

    def graph(self, model: LorentzGCN) -> SparseMatrix:
        """Return the model's adjacency matrix."""
        weight = None if self.edge_weight is None else in_precision_of(model, self.edge_weight, at_least=torch.float32)
        return model.graph(self.edge_index, self.num_nodes, weight)

    def _frozen_points(self, model: LorentzGCN) -> Points:
        with torch.no_grad():
            return self.points(model)


def in_precision_of(model: torch.nn.Module, data: T, at_least: torch.dtype | None = None) -> T:
    """Return features or weights in the floating-point type of the model's parameters.

    Args:
        model: the model.
        data: a floating-point tensor, or a sparse matrix, whose values are never narrower than float32.
        at_least: the narrowest type.

    Example:
        >>> in_precision_of(torch.nn.Linear(2, 2).double(), torch.ones(2)).dtype
        torch.float64
    """
    own = data.values.dtype if isinstance(data, SparseMatrix) else data.dtype
    dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), own)
    narrowest = torch.float32 if isinstance(data, SparseMatrix) else at_least
    if narrowest is not None:
        dtype = torch.promote_types(dtype, narrowest)
    return data if own == dtype else data.to(dtype=dtype)  # type: ignore[return-value]


def is_sparse(x: Tensor) -> bool:
    """Whether a sparse first layer is faster for these dense features: less than 30 % of them are non-zero."""
    density = float((x != 0).float().mean()) if x.numel() else 1.0
    return density < _SPARSE_BELOW
