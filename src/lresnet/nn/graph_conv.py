"""Graph convolution on the hyperboloid: a linear layer, then the Lorentzian centroid of each node's neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple, Self, TypeAlias

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv import MessagePassing

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import require_nonnegative, traced, transformed
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.geometry.distance import dot, unitless_time
from lresnet.geometry.smooth import with_derivatives_of
from lresnet.geometry.stack import sum_to
from lresnet.kernels import supports_rows
from lresnet.nn.hyperplane_linear import HyperplaneLinear
from lresnet.nn.linear import LorentzLinear
from lresnet.nn.space_linear import SpaceLinear
from lresnet.nn.sparse import SparseMatrix, adjacency, check_edges, edges_of

__all__ = [
    "LAYERS",
    "CentroidPassing",
    "LorentzGraphConv",
    "Sizes",
    "aggregate",
    "aggregate_with_time",
    "centroid_of_sums",
    "channel_pair",
    "least_times",
    "make_linear",
    "sparse_rows",
    "split_pair",
]

Nodes: TypeAlias = Tensor | SparseMatrix
Linear: TypeAlias = LorentzLinear | SpaceLinear | HyperplaneLinear

LAYERS: dict[str, type[LorentzLinear] | type[SpaceLinear] | type[HyperplaneLinear]] = {
    "hybonet": LorentzLinear,
    "space": SpaceLinear,
    "hyperplane": HyperplaneLinear,
}
"""Linear layers of a convolution, by name."""


def make_linear(layer: str, in_features: int, out_features: int, *, manifold: Lorentz, **options: Any) -> Linear:
    """Return the linear layer of that name of :data:`LAYERS`."""
    if layer not in LAYERS:
        raise ValueError(f"layer must be one of {', '.join(LAYERS)}, got {layer!r}")
    return LAYERS[layer](in_features, out_features, manifold=manifold, **options)


def aggregate(x: Tensor, A: SparseMatrix, kappa: Curvature) -> Tensor:
    """Return the weighted Lorentzian centroid of each row's neighbours, [N, n] -> [N, n].

    See :func:`aggregate_with_time`.
    """
    return aggregate_with_time(torch.cat([x, unitless_time(x, kappa, -1)], dim=-1), A, kappa)


def aggregate_with_time(x: Tensor, A: SparseMatrix, kappa: Curvature) -> Tensor:
    r"""Return the weighted Lorentzian centroid of each row's neighbours, :math:`y_i = s_i / n_i`.

    .. math:: s_i = \sum_j A_{ij} x_j, \qquad
        n_i^2 = \Big(\sum_j A_{ij} T_j\Big)^2 - \kappa |s_i|^2 \ge \Big(\sum_j A_{ij}\Big)^2

    This is one sparse product over n+1 columns. The difference loses about T^2 rounding units, where layers bound T to
    about ten. (:meth:`lresnet.Lorentz.centroid` loses none.) The lower bound is enforced, so n_i cannot vanish. Rows
    without neighbours give the origin. Scaling a row of A does not change the result.

    Args:
        x: The points, then :math:`T = \sqrt\kappa` times their time.
        A: Weights >= 0, rows are targets.
        kappa: -K > 0.

    Shapes:
        x [N, n+1] -> [N, n]
    """
    return centroid_of_sums(A.product(x), least_times(A, x), kappa, some_empty=A.has_empty_rows())


def least_times(A: SparseMatrix, x: Tensor) -> Tensor:
    """Return ``least`` of :func:`centroid_of_sums`, in the dtype of x and with as many axes."""
    sums = A.row_sums().to(x.dtype)
    return sums if sums.dim() == x.dim() else sums.unsqueeze(1)


def centroid_of_sums(sums: Tensor, least: Tensor, kappa: Curvature, *, some_empty: bool) -> Tensor:
    r"""Return the centroids :math:`s_i / n_i` of :func:`aggregate_with_time`, given the sums.

    Args:
        sums: :math:`[s_i, \sum_j A_{ij} T_j]`, [N, n+1].
        least: :math:`\sum_j A_{ij}`, the lower bound of n_i, [N, 1], a constant.
        kappa: -K > 0.
        some_empty: Whether a bound is 0, that is, whether a row has no neighbours.
    """
    if traced():
        return _centroid(sums, least, kappa, some_empty)[0]
    if supports_rows(sums, kappa):
        from lresnet.kernels.centroid import fused_centroid

        return fused_centroid(sums, least, float(kappa), _plain_centroid)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _Centroid.apply(sums, least, kappa_tensor, kappa, some_empty)  # type: ignore[no-untyped-call]
    return result


def _centroid(sums: Tensor, least: Tensor, kappa: Curvature, some_empty: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, 1/n and T of y by differentiable torch operations."""
    s, S_T = sums[..., :-1], sums[..., -1:]
    n2 = S_T.square() - kappa * dot(s, s, -1)
    bounded = torch.maximum(n2.detach(), least.square())
    # A single neighbour attains the bound, where the derivative of the maximum differs from that of n2.
    # (Within a transform requires_grad does not tell: a tensor of vmap has none, even if it is differentiated outside.)
    n2 = with_derivatives_of(bounded, n2) if n2.requires_grad or transformed() else bounded
    if some_empty:  # 1 / infinity, so that neither the value nor a derivative is 0 / 0
        n2 = n2.masked_fill(least <= 0, float("inf"))
    inverse = n2.rsqrt()
    return s * inverse, inverse, S_T * inverse


def _plain_centroid(sums: Tensor, least: Tensor, kappa: Curvature) -> Tensor:
    return _centroid(sums, least, kappa, some_empty=True)[0]


class _Centroid(torch.autograd.Function):
    r"""With :math:`a = g \cdot y`: :math:`\partial s = (g + \kappa a y)/n`, :math:`\partial S_T = -a T_y/n`."""

    @staticmethod
    def forward(
        ctx: Any, sums: Tensor, least: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, some_empty: bool
    ) -> Tensor:
        y, inverse, T_y = _centroid(sums, least, kappa, some_empty)
        ctx.kappa, ctx.some_empty = None if kappa_tensor is not None else kappa, some_empty
        ctx.save_for_backward(sums, least, y, inverse, T_y, kappa_tensor)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sums, least, y, inverse, T_y, kappa_tensor = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():  # a second derivative is needed: autograd computes both
            # Differentiate with respect to aliases, so that gradients stop here: the sums may depend on kappa.
            sums, alias = sums.view_as(sums), None if kappa_tensor is None else kappa_tensor.view_as(kappa_tensor)
            y = _centroid(sums, least, kappa if alias is None else alias, ctx.some_empty)[0]
            inputs = [sums] if alias is None else [sums, alias]
            g_sums, *rest = torch.autograd.grad(y, inputs, g, create_graph=True)
            return g_sums, None, rest[0] if rest else None, None, None
        a = dot(g, y, -1)
        back = torch.cat([torch.addcmul(g, kappa * a, y), -a * T_y], dim=-1) * inverse
        gk = None if kappa_tensor is None else 0.5 * sum_to(kappa_tensor.shape, a * dot(y, y, -1))
        return back, None, gk, None, None


class CentroidPassing(ManifoldModule, MessagePassing):  # type: ignore[misc]  # PyG has no types
    r"""Base of the graph convolutions: PyG's message passing, with the Lorentzian centroid as aggregation.

    A message is :math:`A_{ij} [h_j, T_j, 1]`, the weighted point, its time and the weight itself; sums of messages
    determine the centroid (:func:`centroid_of_sums`). Usually one sparse product computes the sums. If the layer is
    explained (:mod:`torch_geometric.explain`), has hooks of message passing or overrides ``message``, then
    ``propagate`` computes them, with the same result. A mask of an edge multiplies its weight.

    Args:
        manifold: Owner of the curvature. It is not registered as a submodule.
        self_loops: Add a self loop to every node that has none.
    """

    def __init__(self, manifold: Lorentz, *, self_loops: bool) -> None:
        super().__init__(manifold)
        self.node_dim = 0
        self.self_loops = self_loops

    def is_observed(self) -> bool:
        """Return whether single messages are needed: for an explanation, a hook or a ``message`` of a subclass."""
        return bool(
            self.explain
            or self._propagate_forward_pre_hooks
            or self._propagate_forward_hooks
            or self._message_forward_pre_hooks
            or self._message_forward_hooks
            or self._aggregate_forward_pre_hooks
            or self._aggregate_forward_hooks
            or type(self).message is not CentroidPassing.message
        )

    def centroids(
        self, h: Tensor, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None, num_nodes: Sizes
    ) -> Tensor:
        r"""Return the centroid of each target's neighbours, [sources, n+1] -> [targets, n].

        Args:
            h: The points, then :math:`\sqrt\kappa` times their time, in float32 or wider.
            edge_index: Edges [2, E], or an adjacency matrix, whose rows are targets.
            edge_weight: Weights [E]. Default: 1.
            num_nodes: Sources and targets, and whether they are the same nodes.
        """
        kappa = kappa_of(self.manifold.curvature, h.dtype)
        if not self.is_observed():
            if not isinstance(edge_index, SparseMatrix):
                loops = self.self_loops and num_nodes.same
                edge_index = adjacency(as_tensor(edge_index), num_nodes.pair, edge_weight, self_loops=loops)
            return aggregate_with_time(h, edge_index, kappa)
        edge_index, weight = self.message_edges(edge_index, edge_weight, num_nodes)
        return self.propagated_centroids(h, edge_index, weight, num_nodes)

    def propagated_centroids(self, h: Tensor, edge_index: Tensor, weight: Tensor, num_nodes: Sizes) -> Tensor:
        """Return the same by single messages: points [sources, ..., n+1] and weights [E, ...] of the edges."""
        x = torch.cat([h, torch.ones_like(h[..., :1])], dim=-1)
        # propagate_type: (x: Tensor, edge_weight: Tensor)
        sums = self.propagate(edge_index, x=x, edge_weight=weight.to(h.dtype), size=num_nodes.pair)
        kappa = kappa_of(self.manifold.curvature, h.dtype)
        return centroid_of_sums(sums[..., :-1].contiguous(), sums[..., -1:].detach(), kappa, some_empty=True)

    def message_edges(
        self, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None, num_nodes: Sizes
    ) -> tuple[Tensor, Tensor]:
        """Return the edges [2, E] of the messages and their weights [E], in the order that PyG's masks expect.

        With self loops: all other edges in the given order, then the loop of every node.
        """
        loops = self.self_loops and num_nodes.same
        if isinstance(edge_index, SparseMatrix):
            if self.explain:
                raise ValueError(
                    "an explanation needs edge_index [2, E], got a SparseMatrix, in which edges have lost their order; "
                    "pass edge_index to the model"
                )
            return edges_of(edge_index, num_nodes.pair, edge_weight)
        edge_index = as_tensor(edge_index)
        if edge_index.layout != torch.strided:
            edge_index, edge_weight = edges_of(edge_index, num_nodes.pair, edge_weight)
        check_edges(edge_index, num_nodes.pair, edge_weight)
        weight = torch.ones(edge_index.shape[1], device=edge_index.device) if edge_weight is None else edge_weight
        require_nonnegative(weight, "edge weights")
        return _loops_last(edge_index.long(), weight, num_nodes.pair[0]) if loops else (edge_index.long(), weight)

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """Return the messages of the edges."""
        return edge_weight.unsqueeze(-1) * x_j

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}"
        return f"{type(self).__name__}({sizes}, {self.manifold.extra_repr()})"


class Sizes(NamedTuple):
    """Numbers of sources and targets of a graph's edges, and whether both are the same nodes."""

    pair: tuple[int, int]
    same: bool

    @classmethod
    def of(cls, sources: Nodes, targets: Nodes | None, size: tuple[int | None, int | None] | None) -> Self:
        """Return the sizes of ``x = (sources, targets)``, checked against ``size``, PyG's argument."""
        given = size or (None, None)
        count = sources.shape[0]
        if given[0] not in (None, count):
            raise ValueError(f"size says {given[0]} sources, but x has {count}")
        if targets is None:
            return cls((count, count if given[1] is None else given[1]), same=False)
        if given[1] not in (None, targets.shape[0]):
            raise ValueError(f"size says {given[1]} targets, but x has {targets.shape[0]}")
        return cls((count, targets.shape[0]), same=targets is sources)


def split_pair(x: Nodes | tuple[Nodes, Nodes | None]) -> tuple[Nodes, Nodes | None]:
    """Return sources and targets of PyG's argument x: one set of nodes, or a pair of which targets may be None."""
    if isinstance(x, (tuple, list)):
        if len(x) != 2:
            raise ValueError(f"x must be points [N, n] or a pair (sources, targets), got {len(x)} elements")
        return x[0], x[1]
    return x, x


def channel_pair(in_channels: int | tuple[int, int]) -> tuple[int, int]:
    """Return the input sizes of sources and targets."""
    return (in_channels, in_channels) if isinstance(in_channels, int) else (in_channels[0], in_channels[1])


def as_tensor(edge_index: Tensor) -> Tensor:
    """Return PyG's ``EdgeIndex`` as a plain tensor, and any other tensor unchanged."""
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index


def sparse_rows(x: Nodes, time: Tensor | None, manifold: Lorentz) -> tuple[Nodes, Tensor | None]:
    """Return sparse points as a :class:`SparseMatrix` and their time [N, 1], and dense points unchanged."""
    if isinstance(x, Tensor):
        if x.layout == torch.strided:
            return x, None
        x = SparseMatrix.from_torch(x)
    if time is None:
        values = x.values.to(torch.promote_types(x.values.dtype, torch.float32))
        time = (x.sum_rows(values.square()) + 1 / kappa_of(manifold.curvature, values.dtype)).sqrt()
    return x, time


def _loops_last(edge_index: Tensor, weight: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the edges without self loops, then one loop per node: its own weight if it has loops, else 1."""
    loop = edge_index[0] == edge_index[1]
    ends = edge_index[0, loop]
    own = weight.new_zeros(nodes).index_add(0, ends, weight[loop])
    has_loop = torch.zeros(nodes, dtype=torch.bool, device=edge_index.device).index_fill(0, ends, True)
    loops = torch.arange(nodes, device=edge_index.device).expand(2, -1)
    edges = torch.cat([edge_index[:, ~loop], loops], dim=1)
    return edges, torch.cat([weight[~loop], torch.where(has_loop, own, 1.0)])


class LorentzGraphConv(CentroidPassing):
    r"""Fully hyperbolic graph convolution: a linear layer, then the Lorentzian centroid of each node's neighbours.

    .. math:: h = L(x), \qquad y_i = \frac{\sum_j A_{ij} h_j}{n_i}, \qquad
        n_i^2 = \Big(\sum_j A_{ij} T_j\Big)^2 - \kappa \Big|\sum_j A_{ij} h_j\Big|^2

    where L is the linear layer and T is :math:`\sqrt\kappa` times the time of h. It is a
    :class:`torch_geometric.nn.MessagePassing` with PyG's arguments, and works in ``HeteroConv``, ``to_hetero`` and
    :mod:`torch_geometric.explain`.

    Args:
        in_channels: Dimension of the input space; -1 takes it from the first input. A pair is for bipartite graphs;
            its second number is not used, since targets only receive.
        out_channels: Dimension of the output space.
        manifold: Owner of the curvature. It is not registered as a submodule.
        layer: The linear layer, a name of :data:`LAYERS`: "hybonet" (:class:`LorentzLinear`), "space"
            (:class:`SpaceLinear`) or "hyperplane" (:class:`HyperplaneLinear`).
        self_loops: Add self loops to ``edge_index`` and to sparse tensors of torch. A
            :class:`~lresnet.nn.SparseMatrix` is used unchanged, and a bipartite graph has no self loops.
        linear: Other arguments of the linear layer.

    Shapes:
        x [N, in] or ([N, in], [M, any]), edge_index [2, E] or adj_t [M, N], edge_weight [E] with values >= 0
        -> [N, out] or [M, out]

    Example:
        >>> conv = LorentzGraphConv(8, 4, manifold=Lorentz(-1.0))
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        *,
        manifold: Lorentz,
        layer: str = "hybonet",
        self_loops: bool = True,
        **linear: Any,
    ) -> None:
        super().__init__(manifold, self_loops=self_loops)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.linear = make_linear(layer, channel_pair(in_channels)[0], out_channels, manifold=manifold, **linear)

    def reset_parameters(self) -> None:
        """Initialise the linear layer."""
        self.linear.reset_parameters()

    def forward(
        self,
        x: Nodes | tuple[Nodes, Nodes | None],
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
        time: Tensor | None = None,
    ) -> Tensor:
        """Return the new points.

        Args:
            x: Points [N, in], dense or sparse, or a pair (sources, targets). Only the number of targets is used.
            edge_index: Edges [2, E]; or the transposed adjacency matrix of PyG, ``adj_t`` (rows are targets), as a
                sparse tensor of torch; or the matrix of :func:`~lresnet.nn.adjacency`, built once for many calls.
            edge_weight: Weights [E]. Default: 1.
            size: Numbers of sources and targets. Default: those of x.
            time: Time of a sparse x, [N, 1]. Default: computed from x.
        """
        sources, targets = split_pair(x)
        if isinstance(sources, SparseMatrix) or sources.layout != torch.strided:
            points, time = sparse_rows(sources, time, self.manifold)
        else:
            points = sources
        h = self.linear.with_time(points, time)
        y = self.centroids(h, edge_index, edge_weight, Sizes.of(sources, targets, size))
        return y.to(points.dtype) if isinstance(points, Tensor) else y
