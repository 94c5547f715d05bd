"""lorentz_sgformer: SGFormer's attention branch and graph branch, joined on the hyperboloid.

After He, Yang, Ying (KDD 2025), section 5.2, and Wu et al., SGFormer (NeurIPS 2023). Where this differs from the
released code: the exponential map takes n space coordinates and time 0, where the code lets the first coordinate pass
for time; both branches start from the input embedding z^(0), as the formula says, where the code's graph branch starts
from the features (graph_input); values have a matrix of their own, as in SGFormer's paper (values); the adjacency is
normalised once; alpha can be learned; there may be several attention layers and heads, and a norm is a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import traced
from lresnet.models.pretrained import Pretrained
from lresnet.models.sgformer_branches import NORMS, EuclideanBranches, LorentzBranches
from lresnet.nn.attention import VALUES
from lresnet.nn.dropout import dropout
from lresnet.nn.euclidean import EuclideanLinear
from lresnet.nn.input_map import MAX_RADIUS, Points, model_input
from lresnet.nn.normalised_adjacency import symmetric_normalisation
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.sparse import SparseMatrix, adjacency
from lresnet.nn.weighted_join import WeightedJoin

__all__ = ["LorentzSGFormer"]

_BRANCHES = ("euclidean", "lorentz")
_GRAPH_INPUTS = ("embedding", "features")


class LorentzSGFormer(Pretrained):
    r"""Graph transformer of linear time: global attention and graph convolutions, joined by a residual connection.

    .. math:: (1 - \alpha) \exp_o z \oplus \alpha \exp_o g \quad\text{or}\quad
        \exp_o((1 - \alpha) z) \oplus \exp_o(\alpha g)

    for the branches' results z and g (:class:`~lresnet.models.sgformer_branches.EuclideanBranches`) and the residuals
    that weigh points, or tangent vectors (:class:`~lresnet.nn.weighted_join.WeightedJoin`); then prototypes. With
    ``residual="euclidean"`` it is the Euclidean SGFormer, :math:`(1 - \alpha) z + \alpha g` and a linear head.

    Args:
        in_features: number of node features.
        hidden: dimension n of the space, and width of the branches.
        num_layers: graph convolutions. attention_layers: attention layers. heads: of each, averaged.
        num_classes: classes of a prototype decoder (linear for the twin); None: the embeddings are the output.
        residual: a name of :data:`lresnet.residual.RESIDUALS`; "none" is the graph branch alone.
        residual_options: its options, e.g. ``{"scale": 2.0}``; the weight is ``graph_weight``'s.
        branches: "euclidean", as in the paper, or "lorentz": fully hyperbolic, with ``residual`` for the skips inside
            the branches too (:class:`~lresnet.models.sgformer_branches.LorentzBranches`).
        graph_weight: alpha. learn_graph_weight: train it.
        attention_weight: beta, of the attention against its skip.
        norm: "none" or "layer", of the vectors in Euclidean branches.
        graph_input: what the convolutions of Euclidean branches start from: the "embedding" z^(0), as in the paper, or
            the "features", as in the released code.
        values: of the attention in Euclidean branches: "matrix", as in SGFormer's paper, or "identity", as in the
            released scripts.
        self_loops: every node is its own neighbour.
        curvature: K < 0. learn_curvature: train it.
        dropout: rate on what goes from layer to layer.
        max_radius: radius, in radii of curvature, to which rows are shortened before the exponential map.

    Shapes:
        x [N, in], edge_index [2, E], edge_weight [E] -> embeddings [N, hidden] or logits [N, num_classes]

    Example:
        >>> model = LorentzSGFormer(in_features=8, num_classes=3)
        >>> x, edge_index = torch.randn(5, 8), torch.tensor([[0, 1], [1, 2]])
        >>> model(x, edge_index).shape
        torch.Size([5, 3])
        >>> model.attention(x, torch.tensor([0, 4])).shape
        torch.Size([2, 5])
    """

    model_name = "lorentz_sgformer"
    generators: Sequence[torch.Generator] = ()
    """What dropout draws from in a stack, one for each member; none: torch's own generator."""

    def __init__(
        self,
        in_features: int,
        hidden: int = 64,
        num_layers: int = 3,
        num_classes: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        branches: str = "euclidean",
        attention_layers: int = 1,
        heads: int = 1,
        graph_weight: float = 0.8,
        learn_graph_weight: bool = False,
        attention_weight: float = 0.5,
        norm: str = "none",
        self_loops: bool = True,
        curvature: float = -1.0,
        learn_curvature: bool = False,
        dropout: float = 0.0,
        max_radius: float = MAX_RADIUS,
        graph_input: str = "embedding",
        values: str = "matrix",
    ) -> None:
        super().__init__()
        _require_released(branches, graph_input, values)
        _require_sense(residual, branches, norm, residual_options, dropout)
        _require_at_least_one(
            in_features=in_features,
            hidden=hidden,
            num_layers=num_layers,
            attention_layers=attention_layers,
            heads=heads,
        )
        self.in_features = in_features
        self.euclidean, self.hyperbolic_branches = residual == "euclidean", branches == "lorentz"
        self.dropout, self.self_loops, self.max_radius = dropout, self_loops, max_radius
        self.graph_input = graph_input
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not self.euclidean)
        sizes = in_features, hidden, num_layers, attention_layers, heads, attention_weight
        self.branches: EuclideanBranches | LorentzBranches
        if self.hyperbolic_branches:
            self.branches = LorentzBranches(*sizes, residual, self.manifold)
        else:
            self.branches = EuclideanBranches(*sizes, norm, self.manifold, graph_input, values)
        options = residual_options or {}
        self.join = WeightedJoin(
            residual, self.manifold, graph_weight, learn_weight=learn_graph_weight, max_radius=max_radius, **options
        )
        self.head: torch.nn.Module | None = None
        if num_classes is not None and self.euclidean:
            self.head = EuclideanLinear(hidden, num_classes)
        elif num_classes is not None:
            self.head = Prototypes(hidden, num_classes, manifold=self.manifold)

    def forward(
        self,
        x: Tensor | SparseMatrix | Points,
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """``x`` may be :meth:`input_points`' result and ``edge_index`` :meth:`graph`'s, both made once."""
        embedding = self.embed(x, edge_index, edge_weight)
        return embedding if self.head is None else self.head(embedding)

    def embed(
        self,
        x: Tensor | SparseMatrix | Points,
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Node embeddings, [N, hidden], in space coordinates."""
        points = x if isinstance(x, Points) else self.input_points(x)
        A = edge_index
        if not isinstance(A, SparseMatrix):
            A = self.graph(A, points.x.shape[0], edge_weight)
        start = self.branches.start(points, self._drop)
        z = self.branches.attend(start, self._drop)
        entering = points.x if self.graph_input == "features" else start
        g = self.branches.convolve(entering, A, self._drop)  # type: ignore[arg-type]
        return self.join(z, g) if self.hyperbolic_branches else self.join.of_vectors(z, g)

    def attention(self, x: Tensor | SparseMatrix | Points, nodes: Tensor, layer: int = 0) -> Tensor:
        """What ``nodes`` [R] attend to in one attention layer: rows [R, N] that sum to 1, the mean over the heads.

        In time and memory R N: the whole matrix is never made.
        """
        layers = len(self.branches.attentions)
        if not 0 <= layer < layers:
            raise ValueError(f"layer must be 0 to {layers - 1}, as there are {layers} attention layers, got {layer}")
        points = x if isinstance(x, Points) else self.input_points(x)
        _require_nodes(nodes, points.x.shape[0])
        return self.branches.rows(self.branches.start(points, self._drop), nodes, layer, self._drop)

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.generators) if self.training and self.dropout > 0 else x

    def input_points(self, features: Tensor | SparseMatrix) -> Points:
        """What the branches start from: the features, for hyperbolic branches as points. Made once and passed in."""
        shape = tuple(features.shape)
        if len(shape) < 2 or shape[-1] != self.in_features:
            raise ValueError(f"the model was built for features [N, {self.in_features}], got shape {shape}")
        return model_input(features, self.manifold if self.hyperbolic_branches else None, self.max_radius)

    def graph(self, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> SparseMatrix:
        """The symmetrically normalised adjacency, made once for many calls."""
        return symmetric_normalisation(adjacency(edge_index, num_nodes, edge_weight, self_loops=self.self_loops))


def _require_released(branches: str, graph_input: str, values: str) -> None:
    """What only the released code has, and there in vectors."""
    for name, value, known in (("graph_input", graph_input, _GRAPH_INPUTS), ("values", values, VALUES)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if branches == "lorentz" and value != known[0]:
            raise ValueError(f"{name}={value!r} is for Euclidean branches; use {known[0]!r} with branches='lorentz'")


def _require_sense(
    residual: str, branches: str, norm: str, residual_options: dict[str, Any] | None, dropout: float
) -> None:
    for name, value, known in (("branches", branches, _BRANCHES), ("norm", norm, NORMS)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    if branches == "lorentz" and residual == "euclidean":
        raise ValueError("branches='lorentz' needs a residual on the hyperboloid, got residual='euclidean'")
    if branches == "lorentz" and norm != "none":
        raise ValueError(f"norms are for Euclidean branches; use norm='none' with branches='lorentz', got {norm!r}")
    if own := {"weight", "initial_weight", "learn_weight"} & set(residual_options or {}):
        raise ValueError(f"the weight is graph_weight, trained with learn_graph_weight; not {min(own)} as an option")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")


def _require_at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def _require_nodes(nodes: Tensor, count: int) -> None:
    """Values are looked at where that does not wait for a device."""
    if nodes.dim() != 1 or nodes.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"nodes must be integers of shape [R], got {nodes.dtype} of shape {tuple(nodes.shape)}")
    if nodes.device.type == "cpu" and not traced():
        for node in nodes[(nodes < 0) | (nodes >= count)][:1].tolist():
            raise ValueError(f"nodes has {node}, but nodes are 0 to {count - 1}")
