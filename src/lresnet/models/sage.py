"""lorentz_sage: residual blocks of GraphSAGE convolutions on the hyperboloid, for graphs with and without homophily.

GraphSAGE (Hamilton et al., NeurIPS 2017) has a separate weight for the node itself. With residual connections, a norm
and a feed-forward layer it is among the strongest networks on heterophilous graphs (Platonov et al., ICLR 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.models.graph_model import GraphModel
from lresnet.nn.dropout import dropout
from lresnet.nn.euclidean import EuclideanLinear, EuclideanSAGEConv, sparse_linear
from lresnet.nn.graph_conv import LAYERS, make_linear
from lresnet.nn.input_map import MAX_RADIUS, Points, coordinate_input
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.sage_conv import LorentzSAGEConv, sum_options
from lresnet.nn.sparse import SparseMatrix, adjacency, mean_normalisation
from lresnet.residual import make_residual

__all__ = ["NORMS", "LorentzSAGE", "SAGEBlock"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
}

NORMS: dict[str, Callable[[int], torch.nn.Module]] = {
    "none": torch.nn.Identity,
    "layer": torch.nn.LayerNorm,
    "batch": torch.nn.BatchNorm1d,
}
"""Norms of the space coordinates, by name."""

_INITIAL_RADIUS = 1.0
"""Distance from the origin at which a norm places points at first, as a length in radii of curvature."""


class LorentzSAGE(GraphModel):
    r"""Graph network of SAGE convolutions on the hyperboloid; with ``residual="euclidean"`` the Euclidean baseline.

    .. math:: x^{(0)} = \sigma(L(f)), \qquad x^{(l)} = x^{(l-1)} \oplus L_l\big(\sigma(S_l(\nu_l(x^{(l-1)})))\big)

    L are linear layers, S is :class:`~lresnet.nn.LorentzSAGEConv`, :math:`\nu` the norm and :math:`\sigma` the
    activation of space coordinates. The node features f are the space coordinates of points. All blocks have the same
    width, so every layer has its residual connection. Residuals add by default (scale 1 + w,
    :func:`~lresnet.nn.sage_conv.sum_options`): an average would halve the input in every block.

    Args:
        in_features: Number of node features.
        hidden: Dimension n of the space, for all layers.
        num_layers: Number of blocks, each with one convolution.
        num_classes: Classes of the head (prototypes, or linear for the Euclidean baseline; behind a norm, if there is
            one). None: the output is the embeddings.
        residual: A name of :data:`lresnet.residual.METHODS`, around the blocks and inside the convolutions. "none" is
            without both: the blocks follow each other, and nodes see themselves only through self loops.
        residual_options: Options of the residual around the blocks, e.g. ``{"weight": 0.5, "scale": None}``. The
            residual in the convolutions is the sum.
        curvature: K < 0.
        learn_curvature: Train the curvature.
        dropout: Dropout rate of space coordinates, behind activations and blocks.
        activation: "none", "relu" or "gelu".
        self_loops: Make every node its own neighbour. Not needed, as the root has its own weight.
        max_radius: Distance of the farthest input point, in radii of curvature.
        layer: Linear layers (:data:`lresnet.nn.graph_conv.LAYERS`): "space", as in the Euclidean baseline, "hybonet" or
            "hyperplane".
        norm: Norm of the space coordinates before every block and before the head: "none", "layer" or "batch". Its gain
            starts so that points are about one radius of curvature from the origin.

    Shapes:
        x [N, in], edge_index [2, E], edge_weight [E], batch [N] -> embeddings [N, hidden] or logits [N, num_classes];
        with batch [B, hidden] or [B, num_classes]

    Example:
        >>> model = LorentzSAGE(in_features=8, num_classes=3)
        >>> model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([5, 3])
        >>> model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 2]]), batch=torch.tensor([0, 0, 0, 1, 1])).shape
        torch.Size([2, 3])
    """

    model_name = "lorentz_sage"
    generators: Sequence[torch.Generator] = ()
    """Random generators of dropout. Empty: torch's own generator."""

    def __init__(
        self,
        in_features: int,
        hidden: int = 64,
        num_layers: int = 3,
        num_classes: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        curvature: float = -1.0,
        learn_curvature: bool = False,
        dropout: float = 0.0,
        activation: str = "relu",
        self_loops: bool = False,
        max_radius: float = MAX_RADIUS,
        layer: str = "space",
        norm: str = "layer",
    ) -> None:
        super().__init__()
        for name, value, known in (
            ("activation", activation, _ACTIVATIONS),
            ("layer", layer, LAYERS),
            ("norm", norm, NORMS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if num_layers < 1 or not 0 <= dropout < 1:
            raise ValueError(f"need num_layers >= 1 and 0 <= dropout < 1, got {num_layers} and {dropout}")
        self.euclidean = residual == "euclidean"
        self.dropout, self.self_loops, self.max_radius = dropout, self_loops, max_radius
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not self.euclidean)
        self.activation = _ACTIVATIONS[activation]
        self.input_layer = self._linear(in_features, hidden, layer)
        self.layers = torch.nn.ModuleList(self._block(hidden, residual, layer, norm) for _ in range(num_layers))
        options = sum_options(residual, residual_options)
        self.residuals = torch.nn.ModuleList(
            make_residual(residual, self.manifold, **options) for _ in range(num_layers)
        )
        self.head = None if num_classes is None else self._head(hidden, num_classes, norm)

    def _linear(self, in_features: int, out_features: int, layer: str) -> torch.nn.Module:
        if not self.euclidean:
            return make_linear(layer, in_features, out_features, manifold=self.manifold)
        linear = EuclideanLinear(in_features, out_features)
        torch.nn.init.xavier_uniform_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
        return linear

    def _block(self, hidden: int, residual: str, layer: str, norm: str) -> SAGEBlock:
        conv: torch.nn.Module
        if self.euclidean:
            conv = EuclideanSAGEConv(hidden, hidden, self_loops=self.self_loops)
        else:
            conv = LorentzSAGEConv(
                hidden, hidden, manifold=self.manifold, layer=layer, residual=residual, self_loops=self.self_loops
            )
        return SAGEBlock(self._norm(hidden, norm), conv, self._linear(hidden, hidden, layer), self.activation)

    def _norm(self, hidden: int, norm: str) -> torch.nn.Module:
        module = NORMS[norm](hidden)
        if not self.euclidean and norm != "none" and not self.manifold.kappa.is_meta:
            kappa = float(self.manifold.kappa.detach())
            # A normalised row has length sqrt(n).
            torch.nn.init.constant_(module.weight, _INITIAL_RADIUS * (hidden * kappa) ** -0.5)  # type: ignore[arg-type]
        return module

    def _head(self, hidden: int, num_classes: int, norm: str) -> torch.nn.Module:
        head: torch.nn.Module = EuclideanLinear(hidden, num_classes)
        if not self.euclidean:
            head = Prototypes(hidden, num_classes, manifold=self.manifold)
        return head if norm == "none" else torch.nn.Sequential(self._norm(hidden, norm), head)

    def embed_nodes(
        self, x: Tensor | SparseMatrix | Points, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None
    ) -> Tensor:
        points = x if isinstance(x, Points) else self.input_points(x)
        A = edge_index
        if not isinstance(A, SparseMatrix) and not self.is_observed():
            A, edge_weight = self.graph(A, points.x.shape[0], edge_weight), None
        z = self.apply_layer(0, points, A, edge_weight)
        for number in range(1, len(self.layers)):
            z = self.apply_layer(number, z, A, edge_weight)
        return z

    def apply_layer(
        self, number: int, inputs: Points | Tensor, A: SparseMatrix | Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Return the nodes after block ``number`` and its residual connection, for some nodes at a time.

        Args:
            number: 0 for the first block, which includes the input layer.
            inputs: Result of :meth:`input_points` for the first block, otherwise that of the block before.
            A: Rows are the nodes to compute, columns those of ``inputs``; the rows are the first columns. Edges [2, E]
                are those of all nodes.
            edge_weight: Weights of edges [2, E].
        """
        z = self._start(inputs) if isinstance(inputs, Points) else inputs
        targets = A.shape[0] if isinstance(A, SparseMatrix) else z.shape[0]
        y = self.layers[number](z, targets, A, edge_weight, self._drop)
        return self.residuals[number](z[:targets], y)  # type: ignore[no-any-return]

    def layer_modules(self) -> list[torch.nn.Module]:
        return list(self.residuals)

    def _start(self, points: Points) -> Tensor:
        """Return x^(0)."""
        if self.euclidean:
            z = sparse_linear(self.input_layer, points.x)  # type: ignore[arg-type]
        else:
            z = self.input_layer(points.x, points.time if isinstance(points.x, SparseMatrix) else None)
        return self._drop(self.activation(z))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.generators) if self.training and self.dropout > 0 else x

    def input_points(self, features: Tensor | SparseMatrix) -> Points:
        """Return the features as points. They are constant unless the curvature is learned: build them once."""
        return coordinate_input(features, None if self.euclidean else self.manifold, self.max_radius)

    def graph(self, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> SparseMatrix:
        """Return the adjacency matrix for the layers, to be built once for many calls."""
        weights = self.weights_of_edges(edge_index, edge_weight)
        A = adjacency(edge_index, num_nodes, weights, self_loops=self.self_loops)
        return mean_normalisation(A) if self.euclidean else A


class SAGEBlock(torch.nn.Module):
    r"""Norm, SAGE convolution, activation and linear layer: the branch of a residual block.

    .. math:: y = L(\sigma(S(\nu(x))))

    Args:
        norm: :math:`\nu`, of space coordinates.
        conv: S.
        linear: L.
        activation: :math:`\sigma`, of space coordinates.

    Shapes:
        z [N, n], A [M, N] -> [M, n], where M nodes are the first of N
    """

    def __init__(
        self,
        norm: torch.nn.Module,
        conv: torch.nn.Module,
        linear: torch.nn.Module,
        activation: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.norm, self.conv, self.linear, self.activation = norm, conv, linear, activation

    def forward(
        self,
        z: Tensor,
        targets: int,
        A: SparseMatrix | Tensor,
        edge_weight: Tensor | None,
        drop: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Return the branch for the first ``targets`` nodes; ``drop`` is dropout."""
        h = self.norm(z)
        y = self.conv(h if targets == h.shape[0] else (h, h[:targets]), A, edge_weight)
        return drop(self.linear(drop(self.activation(y))))
