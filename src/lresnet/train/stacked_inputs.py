"""The constant part of a stack's input, made once: one graph for all members, or one for each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lresnet.models import LorentzGCN
from lresnet.nn.block_diagonal import BlockDiagonal
from lresnet.nn.input_map import Points
from lresnet.nn.sparse import SparseMatrix
from lresnet.train.graph_inputs import GraphInputs
from lresnet.train.stack import StackError

__all__ = ["StackedInputs"]

Features = Tensor | SparseMatrix


class StackedInputs:
    """Features and edges of the members' graphs; :meth:`apply` runs a stack on them with everything constant cached.

    What all members have in common is kept and computed once.

    Args:
        inputs: of graphs with equally many nodes and features.
        model: the model of the stack.
    """

    def __init__(self, inputs: Sequence[GraphInputs], model: LorentzGCN) -> None:
        first = inputs[0]
        if len({(each.num_nodes, each.features.shape[-1], type(each.features)) for each in inputs}) > 1:
            raise StackError(
                "graphs with other numbers of nodes or kinds of features cannot be stacked; run them one by one"
            )
        same_graph = all(torch.equal(each.edge_index, first.edge_index) for each in inputs[1:])
        graphs = [model.graph(each.edge_index, each.num_nodes) for each in (inputs[:1] if same_graph else inputs)]
        self._graph = graphs[0] if same_graph else BlockDiagonal.of(graphs)
        # Dropout and a learned curvature give each member other values of sparse features.
        own_values = model.dropout > 0 or model.manifold.learnable
        self._features = _stacked([each.features for each in inputs], own_values)
        self._points = None if model.manifold.learnable else self._make_points(model)

    def apply(self, model: LorentzGCN) -> Tensor:
        """The model's output, [N, S, ...]. The input map is repeated only where the curvature is learned."""
        points = self._make_points(model) if self._points is None else self._points
        return model(points, self._graph)  # type: ignore[no-any-return]

    def _make_points(self, model: LorentzGCN) -> Points:
        points = model.input_points(self._features)
        # One sparse matrix for all members has times [N, 1], which have to broadcast against [N, S, n].
        return Points(points.x, points.time.unsqueeze(1)) if points.time.dim() == 2 else points


def _stacked(features: Sequence[Features], own_values: bool) -> Features:
    same = all(_equal(each, features[0]) for each in features[1:])
    dense = [each for each in features if isinstance(each, Tensor)]
    if dense:
        return dense[0].unsqueeze(1) if same else torch.stack(dense, dim=1)
    sparse = [each for each in features if isinstance(each, SparseMatrix)]
    return sparse[0] if same and not own_values else BlockDiagonal.of(sparse)


def _equal(a: Features, b: Features) -> bool:
    if isinstance(a, SparseMatrix) and isinstance(b, SparseMatrix):
        return torch.equal(a.row, b.row) and torch.equal(a.col, b.col) and torch.equal(a.values, b.values)
    return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b)
