"""PyG's message passing with weighted sums of points: what all graph convolutions of this package share."""

from __future__ import annotations

from typing import NamedTuple, Self, TypeAlias

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv import MessagePassing

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import require_nonnegative
from lresnet.geometry.curvature import kappa_of
from lresnet.nn.aggregation import aggregate_with_time, centroid_of_sums
from lresnet.nn.sparse import SparseMatrix, adjacency, check_edges, edges_of, mean_normalisation

__all__ = [
    "CentroidPassing",
    "MeanPassing",
    "Nodes",
    "Sizes",
    "SumPassing",
    "WeightedPassing",
    "channel_pair",
    "sparse_rows",
    "split_pair",
]

Nodes: TypeAlias = Tensor | SparseMatrix


# --- Arguments as in PyG ----------------------------------------------------------------------------------------------


class Sizes(NamedTuple):
    """Numbers of sources and targets of a graph's edges, and whether both are the same nodes."""

    pair: tuple[int, int]
    same: bool

    @classmethod
    def of(cls, sources: Nodes, targets: Nodes | None, size: tuple[int | None, int | None] | None = None) -> Self:
        """Return the sizes of ``x = (sources, targets)``, checked against ``size``, an argument of PyG's layers."""
        given = size or (None, None)
        count = sources.shape[0]
        if given[0] not in (None, count):
            raise ValueError(f"size[0] is {given[0]}, but x has {count} sources; size is (sources, targets)")
        if targets is None:
            return cls((count, count if given[1] is None else given[1]), same=False)
        if given[1] not in (None, targets.shape[0]):
            raise ValueError(f"size[1] is {given[1]}, but x has {targets.shape[0]} targets; size is (sources, targets)")
        return cls((count, targets.shape[0]), same=targets is sources)

    def of_matrix(self, edge_index: Tensor | SparseMatrix) -> Sizes:
        """Return the sizes of an adjacency matrix of this library, whose rows may be some of the nodes only."""
        if isinstance(edge_index, SparseMatrix):
            return Sizes((edge_index.shape[1], edge_index.shape[0]), same=False)
        return self


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


def _plain_edges(edge_index: Tensor) -> Tensor:
    """Return PyG's ``EdgeIndex`` as a plain tensor, and any other tensor unchanged."""
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index


# --- Message passing --------------------------------------------------------------------------------------------------


class WeightedPassing(MessagePassing):  # type: ignore[misc]  # PyG has no types
    """Sums of weighted messages, by one sparse product unless single messages are needed.

    A message is :math:`A_{ij} [h_j, 1]`: the last coordinate sums to the weight of all messages, which the mean or the
    centroid needs. A mask of an edge, as in :mod:`torch_geometric.explain`, so multiplies the edge's weight.
    """

    self_loops: bool

    def __init__(self) -> None:
        super().__init__()
        self.node_dim = 0

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
            or type(self).message is not WeightedPassing.message
        )

    def neighbours(
        self, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None, num_nodes: Sizes
    ) -> SparseMatrix:
        """Return the adjacency matrix [targets, sources]; a matrix of this library is returned unchanged."""
        if isinstance(edge_index, SparseMatrix):
            return edge_index
        loops = self.self_loops and num_nodes.same
        return adjacency(_plain_edges(edge_index), num_nodes.pair, edge_weight, self_loops=loops)

    def message_edges(
        self, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None, num_nodes: Sizes
    ) -> tuple[Tensor, Tensor]:
        """Return the edges [2, E] of the messages and their weights [E], in the order that PyG's masks expect.

        With self loops these are all other edges in the given order, then the loop of every node.
        """
        if isinstance(edge_index, SparseMatrix):
            if self.explain:
                raise ValueError(
                    "an explanation needs edge_index [2, E], got a SparseMatrix, in which edges have lost their order; "
                    "pass edge_index to the model"
                )
            return edges_of(edge_index, num_nodes.pair, edge_weight)
        edge_index = _plain_edges(edge_index)
        if edge_index.layout != torch.strided:
            edge_index, edge_weight = edges_of(edge_index, num_nodes.pair, edge_weight)
        check_edges(edge_index, num_nodes.pair, edge_weight)
        edge_index = edge_index.long()
        weight = torch.ones(edge_index.shape[1], device=edge_index.device) if edge_weight is None else edge_weight
        require_nonnegative(weight, "edge weights")
        loops = self.self_loops and num_nodes.same
        return _loops_last(edge_index, weight, num_nodes.pair[0]) if loops else (edge_index, weight)

    def message_sums(self, h: Tensor, edge_index: Tensor, weight: Tensor, num_nodes: Sizes) -> Tensor:
        """Return the sums of single messages, [sources, ..., n] and weights [E, ...] -> [targets, ..., n+1]."""
        x = torch.cat([h, torch.ones_like(h[..., :1])], dim=-1)
        # propagate_type: (x: Tensor, edge_weight: Tensor)
        return self.propagate(  # type: ignore[no-any-return]
            edge_index, x=x, edge_weight=weight.to(h.dtype), size=num_nodes.pair
        )

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """Return the messages of the edges."""
        return edge_weight.unsqueeze(-1) * x_j


class CentroidPassing(ManifoldModule, WeightedPassing):
    r"""Base of the convolutions on the hyperboloid: the Lorentzian centroid of each node's neighbours.

    Args:
        manifold: Owner of the curvature. It is not registered as a submodule.
        self_loops: Add a self loop to every node that has none.
    """

    def __init__(self, manifold: Lorentz, *, self_loops: bool) -> None:
        super().__init__(manifold)
        self.self_loops = self_loops

    def centroids(
        self, h: Tensor, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None, num_nodes: Sizes
    ) -> Tensor:
        r"""Return the centroid of each target's neighbours, [sources, n+1] -> [targets, n].

        Args:
            h: The points, then :math:`\sqrt\kappa` times their time, in float32 or wider.
            edge_index: Edges [2, E], or an adjacency matrix, whose rows are targets.
            edge_weight: Weights [E]. Default: 1.
            num_nodes: Sources and targets.
        """
        if self.is_observed():
            num_nodes = num_nodes.of_matrix(edge_index)
            return self.message_centroids(h, *self.message_edges(edge_index, edge_weight, num_nodes), num_nodes)
        A = self.neighbours(edge_index, edge_weight, num_nodes)
        return aggregate_with_time(h, A, kappa_of(self.manifold.curvature, h.dtype))

    def message_centroids(self, h: Tensor, edge_index: Tensor, weight: Tensor, num_nodes: Sizes) -> Tensor:
        """Return the same by single messages: points [sources, ..., n+1] and weights [E, ...] of the edges."""
        sums = self.message_sums(h, edge_index, weight, num_nodes)
        kappa = kappa_of(self.manifold.curvature, h.dtype)
        return centroid_of_sums(sums[..., :-1].contiguous(), sums[..., -1:].detach(), kappa, some_empty=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, {self.manifold.extra_repr()})"


class MeanPassing(WeightedPassing):
    """Base of the convolutions of the Euclidean baseline: the weighted mean of each node's neighbours."""

    def means(
        self, h: Tensor, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None, num_nodes: Sizes
    ) -> Tensor:
        """Return the mean over each target's neighbours; a matrix must be normalised (``mean_normalisation``)."""
        if self.is_observed():
            num_nodes = num_nodes.of_matrix(edge_index)
            sums = self.message_sums(h, *self.message_edges(edge_index, edge_weight, num_nodes), num_nodes)
            total = sums[..., -1:]
            return sums[..., :-1] / torch.where(total > 0, total, 1.0)
        if isinstance(edge_index, SparseMatrix):
            return edge_index.product(h)
        A = self.neighbours(edge_index, edge_weight, num_nodes)
        if h.dtype == torch.float64 and A.values.dtype != h.dtype:  # otherwise 1/3 would be rounded to float32
            A = A.to(dtype=h.dtype)
        return mean_normalisation(A).product(h)


class SumPassing(WeightedPassing):
    """Messages of a model whose layers have no convolution of their own; it has no parameters.

    A class of its own, since PyG compiles ``propagate`` once for a class, and its subclasses would inherit that.

    Args:
        self_loops: Add a self loop to every node that has none.
    """

    def __init__(self, *, self_loops: bool) -> None:
        super().__init__()
        self.self_loops = self_loops


def _loops_last(edge_index: Tensor, weight: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the edges without self loops, then one loop per node: its own weight if it has loops, else 1."""
    loop = edge_index[0] == edge_index[1]
    ends = edge_index[0, loop]
    own = weight.new_zeros(nodes).index_add(0, ends, weight[loop])
    has_loop = torch.zeros(nodes, dtype=torch.bool, device=edge_index.device).index_fill(0, ends, True)
    loops = torch.arange(nodes, device=edge_index.device).expand(2, -1)
    edges = torch.cat([edge_index[:, ~loop], loops], dim=1)
    return edges, torch.cat([weight[~loop], torch.where(has_loop, own, 1.0)])
