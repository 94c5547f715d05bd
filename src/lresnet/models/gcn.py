"""lorentz_gcn: HyboNet's graph convolutions with a residual connection on every layer but the first.

After He, Yang, Ying (KDD 2025), section 5.1. Where this differs from the released code (docs/fidelity.md): one
hyperboloid throughout, at any curvature; one owner of a learned curvature; as many classes as there are labels;
dropout of space coordinates gives points again; residual weights stay positive.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.curvature import kappa_of
from lresnet.models.pretrained import Pretrained
from lresnet.nn.dropout import dropout
from lresnet.nn.euclidean import EuclideanGraphConv, EuclideanLinear, mean_normalisation
from lresnet.nn.graph_conv import LAYERS, LorentzGraphConv, centroid_of_sums, least_times
from lresnet.nn.input_map import MAX_RADIUS, Points, dropout_points, model_input
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.sparse import SparseMatrix, adjacency
from lresnet.residual import make_residual

__all__ = ["LorentzGCN"]

_ACTIVATIONS = {"none": None, "relu": torch.relu}

# Rows worked on at a time in a large graph on a CPU. An array above 32 MB is mapped, cleared page by page and unmapped
# by the system each time it is made; with a million nodes and a hundred such arrays that was half of a training step.
_ROWS = 2**15


class LorentzGCN(Pretrained):
    r"""Graph network on the hyperboloid; with ``residual="euclidean"`` its Euclidean twin, same code and budget.

    .. math:: x^{(1)} = G_1(\exp_o f), \qquad x^{(l)} = x^{(l-1)} \oplus G_l(x^{(l-1)})

    Args:
        in_features: number of node features.
        hidden: dimension n of the space, for all layers.
        num_layers: number of graph convolutions.
        num_classes: classes of a prototype decoder (linear for the twin); None: the embeddings are the output.
        residual: a name of :data:`lresnet.residual.RESIDUALS`.
        residual_options: its options, e.g. ``{"weight": "learned"}``. Lorentz without a weight: 1, as in the paper.
        curvature: K < 0. learn_curvature: train it.
        dropout: rate on the space coordinates that enter a layer.
        activation: "none" or "relu", on what enters every layer but the first.
        self_loops: every node is its own neighbour.
        max_radius: radius, in radii of curvature, to which input rows are shortened.
        layer: "hybonet", as in the paper, "space", a linear map of the space coordinates as the twin has, or
            "hyperplane", HNN++'s (:data:`lresnet.nn.graph_conv.LAYERS`).

    Shapes:
        x [N, in], edge_index [2, E], edge_weight [E] -> embeddings [N, hidden] or logits [N, num_classes]

    Example:
        >>> model = LorentzGCN(in_features=8, num_classes=3)
        >>> model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([5, 3])
    """

    model_name = "lorentz_gcn"
    generators: Sequence[torch.Generator] = ()
    """What dropout draws from in a stack, one for each member; none: torch's own generator."""

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
        self.head: torch.nn.Module | None = None if num_classes is None else self._head(hidden, num_classes)

    def _conv(self, in_features: int, out_features: int, layer: str) -> torch.nn.Module:
        if self.euclidean:
            return EuclideanGraphConv(in_features, out_features)
        return LorentzGraphConv(in_features, out_features, manifold=self.manifold, layer=layer)

    def _head(self, hidden: int, num_classes: int) -> torch.nn.Module:
        if self.euclidean:
            return EuclideanLinear(hidden, num_classes)
        return Prototypes(hidden, num_classes, manifold=self.manifold)

    def forward(
        self,
        x: Tensor | SparseMatrix | Points,
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """``x`` may be :meth:`input_points`' result and ``edge_index`` :meth:`graph`'s, both made once."""
        embedding = self.embed(x, edge_index, edge_weight)
        if self.head is None:
            return embedding
        if not _is_large(embedding):
            return self.head(embedding)  # type: ignore[no-any-return]
        return torch.cat([self.head(rows) for rows in embedding.split(_ROWS)])

    def embed(
        self,
        x: Tensor | SparseMatrix | Points,
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Node embeddings, [N, hidden], in space coordinates."""
        points = x if isinstance(x, Points) else self.input_points(x)
        A = (
            edge_index
            if isinstance(edge_index, SparseMatrix)
            else self.graph(edge_index, points.x.shape[0], edge_weight)
        )
        # A compiler has its own way with large arrays, and would meet a break in ours.
        if _is_large(A) and not self.euclidean and not torch.compiler.is_compiling():
            return self._embed_by_rows(points, A)
        z = self._apply_layer(self.layers[0], points, A)
        for layer, residual in zip(self.layers[1:], self.residuals, strict=True):
            z = residual(z, self._apply_layer(layer, self._activated(z), A))
        return z

    def _embed_by_rows(self, points: Points, A: SparseMatrix) -> Tensor:
        """The same for a large graph: whole arrays for the sparse products only, some rows at a time between them."""
        entering, z = _blocks(points), list[Tensor]()
        for layer, residual in zip(self.layers, [None, *self.residuals], strict=True):
            assert isinstance(layer, LorentzGraphConv)
            h = torch.cat([layer.linear.with_time(*self._dropped(rows)) for rows in entering])
            kappa = kappa_of(self.manifold.curvature, h.dtype)
            dtype = points.x.dtype if isinstance(points.x, Tensor) else h.dtype
            sums = zip((A @ h).split(_ROWS), least_times(A, h).split(_ROWS), strict=True)
            y = [centroid_of_sums(*rows, kappa, some_empty=A.has_empty_rows()).to(dtype) for rows in sums]
            z = y if residual is None else [residual(*rows) for rows in zip(z, y, strict=True)]
            entering = [self._activated(rows) for rows in z]
        return torch.cat(z)

    def _activated(self, z: Tensor) -> Points:
        """What enters the next layer: between layers only the space part is known."""
        return Points(z if self.activation is None else self.activation(z), z)

    def _dropped(self, points: Points) -> tuple[Tensor | SparseMatrix, Tensor | None]:
        """Points after dropout, and their time where a sparse x needs it."""
        if isinstance(points.x, Tensor):
            drops = self.training and self.dropout > 0
            return dropout(points.x, self.dropout, self.generators) if drops else points.x, None
        kappa = 1.0 if self.euclidean else kappa_of(self.manifold.curvature, points.time.dtype)
        x, time = dropout_points(points, self.dropout, kappa, training=self.training, generators=self.generators)
        return x, None if self.euclidean else time

    def _apply_layer(self, layer: torch.nn.Module, points: Points, A: SparseMatrix) -> Tensor:
        x, time = self._dropped(points)
        return layer(x, A) if time is None else layer(x, A, time=time)  # type: ignore[no-any-return]

    def input_points(self, features: Tensor | SparseMatrix) -> Points:
        """The features as points. Constant unless the curvature is learned: make them once and pass them in."""
        return model_input(features, None if self.euclidean else self.manifold, self.max_radius)

    def graph(self, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> SparseMatrix:
        """The adjacency that the layers aggregate with, made once for many calls."""
        A = adjacency(edge_index, num_nodes, edge_weight, self_loops=self.self_loops)
        return mean_normalisation(A) if self.euclidean else A


def _is_large(x: Tensor | SparseMatrix) -> bool:
    return x.shape[0] > _ROWS and x.device.type == "cpu"


def _blocks(points: Points) -> list[Points]:
    """Some rows each; sparse features stay in one piece."""
    if not isinstance(points.x, Tensor):
        return [points]
    return [Points(*rows) for rows in zip(points.x.split(_ROWS), points.time.split(_ROWS), strict=True)]
