"""lorentz_embedding: one point per node, or one linear map of features to points; without layers and residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.models.graph_model import GraphModel
from lresnet.nn.dropout import dropout
from lresnet.nn.input_map import Points, checked_features, dropout_values
from lresnet.nn.sparse import SparseMatrix

__all__ = ["LorentzNodeEmbedding"]


class LorentzNodeEmbedding(GraphModel):
    r"""Shallow embedding of nodes in hyperbolic space; with ``residual="euclidean"`` the Euclidean baseline.

    .. math:: x_i = W^T f_i

    f are the features and x the space coordinates of points. For learned features (the identity) the rows of W are free
    points, one per node, as in Nickel and Kiela (NeurIPS 2017, `arXiv 1705.08039 <https://arxiv.org/abs/1705.08039>`_).
    Every vector is a point, so ordinary Adam on W needs no projection. Edges are ignored.

    Args:
        in_features: Number of features; for learned features the number of nodes.
        hidden: Dimension n of the space.
        num_classes: Not supported; None. The output is the embeddings.
        residual: ``"euclidean"`` for vectors instead of points; any other method gives the same network.
        residual_options: Without effect, because there is no residual connection.
        curvature: K < 0.
        learn_curvature: Train the curvature.
        dropout: Dropout rate of the features, such as words; 0 for learned features.
        initial_std: Standard deviation of the initial W.

    Shapes:
        x [N, in] -> [N, hidden]

    Example:
        >>> model = LorentzNodeEmbedding(in_features=5, hidden=2)
        >>> model(torch.eye(5), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([5, 2])
    """

    model_name = "lorentz_embedding"
    generators: Sequence[torch.Generator] = ()

    def __init__(
        self,
        in_features: int,
        hidden: int = 16,
        num_classes: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        curvature: float = -1.0,
        learn_curvature: bool = False,
        dropout: float = 0.0,
        initial_std: float = 0.01,
    ) -> None:
        super().__init__()
        if num_classes is not None:
            raise ValueError(
                "lorentz_embedding has no classifier; use lorentz_gcn for classes, or leave num_classes out"
            )
        if not 0 < initial_std < float("inf"):
            raise ValueError(f"initial_std must be positive and finite, got {initial_std}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
        self.dropout = dropout
        self.euclidean = residual == "euclidean"
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not self.euclidean)
        self.weight = torch.nn.Parameter(initial_std * torch.randn(in_features, hidden))
        self.head: torch.nn.Module | None = None

    def embed_nodes(
        self, x: Tensor | SparseMatrix | Points, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None
    ) -> Tensor:
        features = x.x if isinstance(x, Points) else self.input_points(x).x
        if self.training and self.dropout > 0:
            if isinstance(features, SparseMatrix):
                features = dropout_values(features, self.dropout)
            else:
                features = dropout(features, self.dropout)
        return features @ self.weight

    def input_points(self, features: Tensor | SparseMatrix) -> Points:
        """Return the features as they are: they are not points here. The time is a placeholder."""
        return Points(checked_features(features), torch.empty(0))

    def graph(self, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> Tensor:
        """Return the edges as they are."""
        return edge_index
