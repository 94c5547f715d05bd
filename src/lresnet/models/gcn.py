"""lorentz_gcn: graph convolutions of HyboNet with a residual connection after every layer except the first.

After He, Yang, Ying (KDD 2025), section 5.1. Differences from the released code (docs/reproduction/fidelity.md): one
hyperboloid throughout, with any curvature; one owner of a learned curvature; as many classes as there are labels;
dropout of space coordinates, which gives points again; positive residual weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.curvature import kappa_of
from lresnet.models.graph_model import GraphModel
from lresnet.nn.dropout import dropout
from lresnet.nn.euclidean import EuclideanGraphConv, EuclideanLinear
from lresnet.nn.graph_conv import LAYERS, LorentzGraphConv, centroid_of_sums, least_times
from lresnet.nn.input_map import MAX_RADIUS, Points, dropout_points, model_input
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.sparse import SparseMatrix, adjacency, mean_normalisation
from lresnet.residual import make_residual

__all__ = ["LorentzGCN"]

_ACTIVATIONS = {"none": None, "relu": torch.relu}

# Rows per block of a large graph on a CPU. The system maps, clears and unmaps every tensor above 32 MB each time it is
# allocated; with a million nodes and a hundred such tensors this took half of a training step.
_ROWS = 2**15


class LorentzGCN(GraphModel):
    r"""Graph network on the hyperboloid; with ``residual="euclidean"`` the Euclidean baseline.

    .. math:: x^{(1)} = G_1(\exp_o f), \qquad x^{(l)} = x^{(l-1)} \oplus G_l(x^{(l-1)})

    G is a graph convolution (:class:`~lresnet.nn.LorentzGraphConv`), f are the node features.

    Args:
        in_features: Number of node features.
        hidden: Dimension n of the space, for all layers.
        num_layers: Number of graph convolutions.
        num_classes: Classes of the head (prototypes, or linear for the Euclidean baseline). None: the output is the
            embeddings.
        residual: A name of :data:`lresnet.residual.METHODS`.
        residual_options: Options of the residual, e.g. ``{"weight": "learned"}``. The default weight of the Lorentz
            residual is 1, as in the paper, and it is an average; ``{"scale": "1+w"}`` makes it a sum in flat space.
        curvature: K < 0.
        learn_curvature: Train the curvature.
        dropout: Dropout rate of the space coordinates that enter a layer.
        activation: "none" or "relu", applied to the input of every layer except the first.
        self_loops: Make every node its own neighbour.
        max_radius: Length to which longer input rows are shortened, in radii of curvature.
        layer: Linear layer of the convolutions (:data:`lresnet.nn.graph_conv.LAYERS`): "hybonet", as in the paper;
            "space", a linear map of the space coordinates, as in the Euclidean baseline; "hyperplane", that of HNN++.
        prototype_distance: Typical distance of the head's initial prototypes from the origin. None: one radius of
            curvature, which is far away for a curvature near 0.

    Shapes:
        x [N, in], edge_index [2, E], edge_weight [E], batch [N] -> embeddings [N, hidden] or logits [N, num_classes];
        with batch [B, hidden] or [B, num_classes]

    Example:
        >>> model = LorentzGCN(in_features=8, num_classes=3)
        >>> model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([5, 3])
        >>> from torch_geometric.data import Data
        >>> model(Data(x=torch.randn(5, 8), edge_index=torch.tensor([[0, 1], [1, 2]]))).shape
        torch.Size([5, 3])
    """

    model_name = "lorentz_gcn"
    generators: Sequence[torch.Generator] = ()
    """Random generators of dropout in a stack, one for each member. Empty: torch's own generator."""

    def __init__(
        self,
        in_features: int,
        hidden: int = 16,
        num_layers: int = 3,
        num_classes: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        curvature: float = -1.0,
        learn_curvature: bool = False,
        dropout: float = 0.0,
        activation: str = "none",
        self_loops: bool = True,
        max_radius: float = MAX_RADIUS,
        layer: str = "hybonet",
        prototype_distance: float | None = None,
    ) -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
        if layer not in LAYERS:
            raise ValueError(f"layer must be one of {', '.join(LAYERS)}, got {layer!r}")
        if num_layers < 1 or not 0 <= dropout < 1:
            raise ValueError(f"need num_layers >= 1 and 0 <= dropout < 1, got {num_layers} and {dropout}")
        self.euclidean = residual == "euclidean"
        self.dropout, self.self_loops, self.max_radius = dropout, self_loops, max_radius
        self.activation = _ACTIVATIONS[activation]
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not self.euclidean)
        widths = [in_features] + [hidden] * num_layers
        options = ({"weight": 1.0} if residual == "lorentz" else {}) | (residual_options or {})
        self.layers = torch.nn.ModuleList(self._conv(i, o, layer) for i, o in itertools.pairwise(widths))
        self.residuals = torch.nn.ModuleList(
            make_residual(residual, self.manifold, **options) for _ in range(num_layers - 1)
        )
        self.head: torch.nn.Module | None = None
        if num_classes is not None:
            self.head = self._head(hidden, num_classes, prototype_distance)

    def _conv(self, in_features: int, out_features: int, layer: str) -> torch.nn.Module:
        if self.euclidean:
            return EuclideanGraphConv(in_features, out_features, self_loops=self.self_loops)
        return LorentzGraphConv(
            in_features, out_features, manifold=self.manifold, layer=layer, self_loops=self.self_loops
        )

    def _head(self, hidden: int, num_classes: int, prototype_distance: float | None) -> torch.nn.Module:
        if self.euclidean:
            return EuclideanLinear(hidden, num_classes)
        return Prototypes(hidden, num_classes, manifold=self.manifold, initial_distance=prototype_distance)

    def logits(self, embedding: Tensor) -> Tensor:
        if self.head is None or not _is_large(embedding):
            return super().logits(embedding)
        return torch.cat([self.head(rows) for rows in embedding.split(_ROWS)])

    def embed_nodes(
        self, x: Tensor | SparseMatrix | Points, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None
    ) -> Tensor:
        points = x if isinstance(x, Points) else self.input_points(x)
        A = edge_index
        if not isinstance(A, SparseMatrix) and not self.is_observed():
            A, edge_weight = self.graph(A, points.x.shape[0], edge_weight), None
        # A compiler handles large tensors itself, and could not trace the blocks.
        if isinstance(A, SparseMatrix) and _is_large(A) and not self.euclidean and not torch.compiler.is_compiling():
            return self._embed_by_rows(points, A)
        z = self.apply_layer(0, points, A, edge_weight)
        for number in range(1, len(self.layers)):
            z = self.apply_layer(number, z, A, edge_weight)
        return z

    def apply_layer(
        self, number: int, inputs: Points | Tensor, A: SparseMatrix | Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Return the nodes after layer ``number`` and its residual connection, for some nodes at a time.

        Args:
            number: 0 for the first layer.
            inputs: Result of :meth:`input_points` for the first layer, otherwise that of the layer before.
            A: Rows are the nodes to compute, columns those of ``inputs``; the rows are the first columns. Edges [2, E]
                are those of all nodes.
            edge_weight: Weights of edges [2, E].
        """
        if isinstance(inputs, Points):
            return self._apply_layer(self.layers[number], inputs, A, edge_weight)
        y = self._apply_layer(self.layers[number], self._activate(inputs), A, edge_weight)
        return self.residuals[number - 1](inputs[: y.shape[0]], y)  # type: ignore[no-any-return]

    def layer_modules(self) -> list[torch.nn.Module]:
        return [self.layers[0], *self.residuals]

    def _embed_by_rows(self, points: Points, A: SparseMatrix) -> Tensor:
        """Return the same for a large graph: sparse products use whole tensors, all other operations blocks of rows."""
        inputs, z = _blocks(points), list[Tensor]()
        for layer, residual in zip(self.layers, [None, *self.residuals], strict=True):
            assert isinstance(layer, LorentzGraphConv)
            h = torch.cat([layer.linear.with_time(*self._apply_dropout(rows)) for rows in inputs])
            kappa = kappa_of(self.manifold.curvature, h.dtype)
            dtype = points.x.dtype if isinstance(points.x, Tensor) else h.dtype
            sums = zip((A @ h).split(_ROWS), least_times(A, h).split(_ROWS), strict=True)
            y = [centroid_of_sums(*rows, kappa, some_empty=A.has_empty_rows()).to(dtype) for rows in sums]
            z = y if residual is None else [residual(*rows) for rows in zip(z, y, strict=True)]
            inputs = [self._activate(rows) for rows in z]
        return torch.cat(z)

    def _activate(self, z: Tensor) -> Points:
        """Return the input of the next layer. Its time is a placeholder, which dense layers do not read."""
        return Points(z if self.activation is None else self.activation(z), z)

    def _apply_dropout(self, points: Points) -> tuple[Tensor | SparseMatrix, Tensor | None]:
        """Return the points after dropout, and their time if x is sparse."""
        if isinstance(points.x, Tensor):
            active = self.training and self.dropout > 0
            return dropout(points.x, self.dropout, self.generators) if active else points.x, None
        kappa = 1.0 if self.euclidean else kappa_of(self.manifold.curvature, points.time.dtype)
        x, time = dropout_points(points, self.dropout, kappa, training=self.training, generators=self.generators)
        return x, None if self.euclidean else time

    def _apply_layer(
        self, layer: torch.nn.Module, points: Points, A: SparseMatrix | Tensor, edge_weight: Tensor | None
    ) -> Tensor:
        x, time = self._apply_dropout(points)
        return layer(x, A, edge_weight) if time is None else layer(x, A, edge_weight, time=time)  # type: ignore[no-any-return]

    def input_points(self, features: Tensor | SparseMatrix) -> Points:
        """Return the features as points. They are constant unless the curvature is learned: build them once."""
        return model_input(features, None if self.euclidean else self.manifold, self.max_radius)

    def graph(self, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> SparseMatrix:
        """Return the adjacency matrix for the layers, to be built once for many calls."""
        weights = self.weights_of_edges(edge_index, edge_weight)
        A = adjacency(edge_index, num_nodes, weights, self_loops=self.self_loops)
        return mean_normalisation(A) if self.euclidean else A


def _is_large(x: Tensor | SparseMatrix) -> bool:
    return x.shape[0] > _ROWS and x.device.type == "cpu"


def _blocks(points: Points) -> list[Points]:
    """Split dense points into blocks of rows. Sparse points stay whole."""
    if not isinstance(points.x, Tensor):
        return [points]
    return [Points(*rows) for rows in zip(points.x.split(_ROWS), points.time.split(_ROWS), strict=True)]
