"""lorentz_sgformer: the attention branch and the graph branch of SGFormer, joined on the hyperboloid.

After He, Yang, Ying (KDD 2025), section 5.2, and Wu et al., SGFormer (NeurIPS 2023). Differences from the released
code:

- The exponential map takes n space coordinates and time 0. The released code uses the first coordinate as the time.
- Both branches start from the input embedding z^(0), as in the formula. The released graph branch starts from the
  features (``graph_input``).
- The values of the attention have their own matrix, as in the SGFormer paper (``values``).
- The adjacency is normalised once.
- alpha can be learned, there may be several attention layers and heads, and the norm is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import traced
from lresnet.geometry.curvature import kappa_of
from lresnet.geometry.stack import times_rows
from lresnet.models.graph_model import GraphModel
from lresnet.nn.attention import VALUES, LinearAttention, LorentzLinearAttention
from lresnet.nn.dropout import dropout
from lresnet.nn.euclidean import EuclideanGraphConv, EuclideanLinear
from lresnet.nn.graph_conv import LorentzGraphConv, centroid_of_sums, least_times
from lresnet.nn.input_map import MAX_RADIUS, Points, model_input
from lresnet.nn.linear import LorentzLinear
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.row_norm import ROW_NORMS
from lresnet.nn.sparse import BlockDiagonal, SparseMatrix, adjacency, symmetric_normalisation
from lresnet.nn.weighted_join import WeightedJoin
from lresnet.residual import make_residual

__all__ = ["NORMS", "EuclideanBranches", "LorentzBranches", "LorentzSGFormer"]

Drop = Callable[[Tensor], Tensor]

_BRANCHES = ("euclidean", "lorentz")
_GRAPH_INPUTS = ("embedding", "features")


class LorentzSGFormer(GraphModel):
    r"""Graph transformer in linear time: global attention and graph convolutions, joined by a residual connection.

    .. math:: (1 - \alpha) \exp_o z \oplus \alpha \exp_o g \quad\text{or}\quad
        \exp_o((1 - \alpha) z) \oplus \exp_o(\alpha g)

    z and g are the results of the branches (:class:`EuclideanBranches`). The first form is for residuals that weigh
    points, the second for residuals that weigh tangent vectors (:class:`~lresnet.nn.WeightedJoin`). A head of
    prototypes follows. With ``residual="euclidean"`` it is the Euclidean baseline, SGFormer itself:
    :math:`(1 - \alpha) z + \alpha g` and a linear head.

    Args:
        in_features: Number of node features.
        hidden: Dimension n of the space, and width of the branches.
        num_layers: Number of graph convolutions.
        num_classes: Classes of the head (prototypes, or linear for the Euclidean baseline). None: the output is the
            embeddings.
        residual: A name of :data:`lresnet.residual.METHODS`; "none" is the graph branch alone.
        residual_options: Options of the residual, e.g. ``{"scale": "1+w"}``. Its weight is set by ``graph_weight``.
        branches: "euclidean", as in the paper, or "lorentz": fully hyperbolic, with ``residual`` also for the skip
            connections inside the branches (:class:`LorentzBranches`).
        attention_layers: Number of attention layers.
        heads: Heads of each attention layer, averaged.
        graph_weight: alpha, the weight of the graph branch.
        learn_graph_weight: Train alpha.
        attention_weight: beta, the weight of the attention relative to its skip connection.
        norm: "none" or "layer", the norm in Euclidean branches.
        self_loops: Make every node its own neighbour.
        curvature: K < 0.
        learn_curvature: Train the curvature.
        dropout: Dropout rate between layers.
        max_radius: Length to which longer rows are shortened before the exponential map, in radii of curvature.
        graph_input: Input of the convolutions in Euclidean branches: "embedding", z^(0) as in the paper, or "features",
            as in the released code.
        values: Values of the attention in Euclidean branches: "matrix", as in the SGFormer paper, or "identity", as in
            the released scripts.
        prototype_distance: Typical distance of the initial prototypes from the origin. None: one radius of curvature.

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
    drops_features = False
    generators: Sequence[torch.Generator] = ()
    """Random generators of dropout in a stack, one for each member. Empty: torch's own generator."""

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
        prototype_distance: float | None = None,
    ) -> None:
        super().__init__()
        _require_released_options(branches, graph_input, values)
        _require_options(residual, branches, norm, residual_options, dropout)
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
            self.head = Prototypes(hidden, num_classes, manifold=self.manifold, initial_distance=prototype_distance)

    def pool(self, embedding: Tensor, batch: Tensor | None, batch_size: int | None = None) -> Tensor:
        if batch is not None:
            raise ValueError(
                "lorentz_sgformer attends to all nodes of one graph, but the input has a batch of graphs; use "
                "lorentz_sage or lorentz_gcn for whole graphs"
            )
        return embedding

    def embed_nodes(
        self, x: Tensor | SparseMatrix | Points, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None
    ) -> Tensor:
        points = x if isinstance(x, Points) else self.input_points(x)
        A = edge_index
        if not isinstance(A, SparseMatrix):
            A = self.graph(A, points.x.shape[0], edge_weight)
        start = self.branches.start(points, self._drop)
        z = self.branches.attend(start, self._drop)
        graph_input = points.x if self.graph_input == "features" else start
        g = self.branches.convolve(graph_input, A, self._drop)  # type: ignore[arg-type]
        return self.join(z, g) if self.hyperbolic_branches else self.join.of_vectors(z, g)

    def attention(self, x: Tensor | SparseMatrix | Points, nodes: Tensor, layer: int = 0) -> Tensor:
        """Return the attention weights of ``nodes`` [R] in one layer, [R, N], averaged over the heads; rows sum to 1.

        Time and memory are R N: the N x N matrix is never built.
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
        """Return the input of the branches: the features, mapped to points if the branches are hyperbolic."""
        shape = features.member_shape if isinstance(features, BlockDiagonal) else tuple(features.shape)
        if len(shape) < 2 or shape[-1] != self.in_features:
            raise ValueError(f"the model was built for features [N, {self.in_features}], got shape {shape}")
        return model_input(features, self.manifold if self.hyperbolic_branches else None, self.max_radius)

    def graph(self, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> SparseMatrix:
        """Return the symmetrically normalised adjacency matrix, to be built once for many calls."""
        weights = self.weights_of_edges(edge_index, edge_weight)
        return symmetric_normalisation(adjacency(edge_index, num_nodes, weights, self_loops=self.self_loops))


# --- The two branches -------------------------------------------------------------------------------------------------


NORMS: dict[str, Callable[[int], torch.nn.Module]] = {name: ROW_NORMS[name] for name in ("none", "layer")}
"""Norms of Euclidean branches, by name."""


class EuclideanBranches(torch.nn.Module):
    r"""The branches of SGFormer, in vectors. Dropout follows every step except the last convolution.

    .. math:: z^{(0)} = \mathrm{relu}(\nu(X W + b)), \qquad
        z^{(l)} = \nu\big((1 - \beta) z^{(l-1)} + \beta\, \mathrm{Att}_l(z^{(l-1)})\big)

        g^{(1)} = \hat A z^{(0)} W_1 + b_1, \qquad g^{(l)} = \hat A\, \mathrm{relu}(\nu(g^{(l-1)})) W_l + b_l

    :math:`\nu` is the norm or the identity, :math:`\hat A` the normalised adjacency. The bias is added after
    :math:`\hat A`, whose rows do not sum to 1: a bias before it would depend on the degrees.

    Args:
        in_features: Number of node features.
        hidden: Width of the branches.
        num_layers: Number of convolutions.
        attention_layers: Number of attention layers.
        heads: Heads of each attention layer.
        attention_weight: beta.
        norm: A name of :data:`NORMS`.
        manifold: Owner of the curvature, on which the result does not depend.
        graph_input: "embedding", or "features": the first convolution takes X instead of z^(0).
        values: Values of :class:`~lresnet.nn.LinearAttention`.

    Shapes:
        features [N, in_features] -> z and g, [N, hidden] each; see :meth:`start`, :meth:`attend` and :meth:`convolve`.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        num_layers: int,
        attention_layers: int,
        heads: int,
        attention_weight: float,
        norm: str,
        manifold: Lorentz,
        graph_input: str = "embedding",
        values: str = "matrix",
    ) -> None:
        super().__init__()
        self.input, self.input_norm = EuclideanLinear(in_features, hidden), NORMS[norm](hidden)
        attentions = range(attention_layers)
        self.attentions = torch.nn.ModuleList(LinearAttention(hidden, hidden, heads, values) for _ in attentions)
        self.joins = torch.nn.ModuleList(WeightedJoin("euclidean", manifold, attention_weight) for _ in attentions)
        self.attention_norms = torch.nn.ModuleList(NORMS[norm](hidden) for _ in attentions)
        widths = [in_features if graph_input == "features" else hidden] + [hidden] * (num_layers - 1)
        self.convs = torch.nn.ModuleList(EuclideanGraphConv(width, hidden) for width in widths)
        self.conv_norms = torch.nn.ModuleList(NORMS[norm](hidden) for _ in range(num_layers - 1))

    def start(self, points: Points, drop: Drop) -> Tensor:
        """Return z^(0) of the features."""
        z = _times(points.x, self.input.weight) + self.input.bias
        return drop(torch.relu(self.input_norm(z)))

    def attend(self, z: Tensor, drop: Drop, layers: int | None = None) -> Tensor:
        """Run the attention branch, or only its first ``layers`` layers."""
        steps = zip(self.attentions, self.joins, self.attention_norms, strict=True)
        for attention, join, norm in list(steps)[:layers]:
            z = drop(norm(join(z, attention(z))))
        return z

    def convolve(self, z: Tensor | SparseMatrix, A: SparseMatrix, drop: Drop) -> Tensor:
        """Run the graph branch on z^(0) or on the features."""
        g = _convolve(self.convs[0], z, A)
        for norm, conv in zip(self.conv_norms, self.convs[1:], strict=True):
            g = _convolve(conv, drop(torch.relu(norm(g))), A)
        return g

    def rows(self, z: Tensor, nodes: Tensor, layer: int, drop: Drop) -> Tensor:
        """Return the attention weights of ``nodes`` in attention layer number ``layer``."""
        return self.attentions[layer].rows(self.attend(z, drop, layer), nodes)  # type: ignore[operator, no-any-return]


def _times(x: Tensor | SparseMatrix, weight: Tensor) -> Tensor:
    return x.product(weight.movedim(-1, 0)) if isinstance(x, SparseMatrix) else times_rows(weight, x)


def _convolve(conv: torch.nn.Module, x: Tensor | SparseMatrix, A: SparseMatrix) -> Tensor:
    linear: EuclideanLinear = conv.linear  # type: ignore[assignment]
    return A.product(_times(x, linear.weight)) + linear.bias


class LorentzBranches(torch.nn.Module):
    r"""The branches of SGFormer on the hyperboloid, with a residual connection of one kind in place of every sum.

    .. math:: z^{(0)} = L(\exp_o x), \qquad
        z^{(l)} = (1 - \beta) z^{(l-1)} \oplus \beta\, \mathrm{Att}_l(z^{(l-1)})

        g^{(1)} = G_1(z^{(0)}), \qquad g^{(l)} = g^{(l-1)} \oplus G_l(g^{(l-1)})

    L is a :class:`~lresnet.nn.LorentzLinear`, Att a :class:`~lresnet.nn.LorentzLinearAttention` and G a
    :class:`~lresnet.nn.LorentzGraphConv`. The input of Att and G passes through a ReLU and dropout of the space
    coordinates, which give points again. There is no norm.

    Args:
        residual: Residual connection of the skips. The other arguments are those of :class:`EuclideanBranches`.

    Shapes:
        points [N, in_features] -> z and g, [N, hidden] each, as in :class:`EuclideanBranches`.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        num_layers: int,
        attention_layers: int,
        heads: int,
        attention_weight: float,
        residual: str,
        manifold: Lorentz,
    ) -> None:
        super().__init__()
        self.input = LorentzLinear(in_features, hidden, manifold=manifold)
        attentions, convs = range(attention_layers), range(num_layers)
        self.attentions = torch.nn.ModuleList(
            LorentzLinearAttention(hidden, hidden, heads, manifold=manifold) for _ in attentions
        )
        self.joins = torch.nn.ModuleList(WeightedJoin(residual, manifold, attention_weight) for _ in attentions)
        self.convs = torch.nn.ModuleList(LorentzGraphConv(hidden, hidden, manifold=manifold) for _ in convs)
        options: dict[str, Any] = {"weight": 1.0} if residual == "lorentz" else {}
        self.residuals = torch.nn.ModuleList(make_residual(residual, manifold, **options) for _ in convs[1:])

    def start(self, points: Points, drop: Drop) -> Tensor:
        """Return z^(0) of the points."""
        time = points.time if isinstance(points.x, SparseMatrix) else None
        return self.input(points.x, time)  # type: ignore[no-any-return]

    def attend(self, z: Tensor, drop: Drop, layers: int | None = None) -> Tensor:
        """Run the attention branch, or only its first ``layers`` layers."""
        for attention, join in list(zip(self.attentions, self.joins, strict=True))[:layers]:
            z = join(z, attention(drop(torch.relu(z))))
        return z

    def convolve(self, z: Tensor, A: SparseMatrix, drop: Drop) -> Tensor:
        """Run the graph branch on z^(0)."""
        g = _centroids(self.convs[0], drop(torch.relu(z)), A)
        for conv, residual in zip(self.convs[1:], self.residuals, strict=True):
            g = residual(g, _centroids(conv, drop(torch.relu(g)), A))
        return g

    def rows(self, z: Tensor, nodes: Tensor, layer: int, drop: Drop) -> Tensor:
        """Return the attention weights of ``nodes`` in attention layer number ``layer``."""
        x = drop(torch.relu(self.attend(z, drop, layer)))
        return self.attentions[layer].rows(x, nodes)  # type: ignore[operator, no-any-return]


def _centroids(conv: torch.nn.Module, x: Tensor, A: SparseMatrix) -> Tensor:
    """Return the result of a :class:`LorentzGraphConv`, computed by the product that a compiler can trace."""
    h = conv.linear.with_time(x)  # type: ignore[union-attr, operator]
    kappa = kappa_of(conv.manifold.curvature, h.dtype)  # type: ignore[union-attr, arg-type]
    y = centroid_of_sums(A.product(h), least_times(A, h), kappa, some_empty=A.has_empty_rows())
    return y.to(x.dtype)


# --- Checks of arguments ----------------------------------------------------------------------------------------------


def _require_released_options(branches: str, graph_input: str, values: str) -> None:
    """Check the options that reproduce the released code, which exist for Euclidean branches only."""
    for name, value, known in (("graph_input", graph_input, _GRAPH_INPUTS), ("values", values, VALUES)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if branches == "lorentz" and value != known[0]:
            raise ValueError(f"{name}={value!r} is for Euclidean branches; use {known[0]!r} with branches='lorentz'")


def _require_options(
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
        raise ValueError(
            f"residual_options must not contain {min(own)!r}; set the weight with graph_weight and learn_graph_weight"
        )
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")


def _require_at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def _require_nodes(nodes: Tensor, count: int) -> None:
    """Check node indices. Values on a GPU are not read, which would wait for it."""
    if nodes.dim() != 1 or nodes.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"nodes must be integers of shape [R], got {nodes.dtype} of shape {tuple(nodes.shape)}")
    if nodes.device.type == "cpu" and not traced():
        for node in nodes[(nodes < 0) | (nodes >= count)][:1].tolist():
            raise ValueError(f"nodes has {node}, but nodes are 0 to {count - 1}")
