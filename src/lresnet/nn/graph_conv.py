"""Graph convolution on the hyperboloid: a linear layer, then the Lorentzian centroid of each node's neighbours."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.nn.aggregation import aggregate, aggregate_with_time, centroid_of_sums, least_times
from lresnet.nn.hyperplane_linear import HyperplaneLinear
from lresnet.nn.linear import LorentzLinear
from lresnet.nn.message_passing import CentroidPassing, Nodes, Sizes, channel_pair, sparse_rows, split_pair
from lresnet.nn.space_linear import SpaceLinear
from lresnet.nn.sparse import SparseMatrix

__all__ = [
    "LAYERS",
    "Linear",
    "LorentzGraphConv",
    "aggregate",
    "aggregate_with_time",
    "centroid_of_sums",
    "least_times",
    "make_linear",
]

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


class LorentzGraphConv(CentroidPassing):
    r"""Fully hyperbolic graph convolution: a linear layer, then the Lorentzian centroid of each node's neighbours.

    .. math:: h = L(x), \qquad y_i = \frac{\sum_j A_{ij} h_j}{n_i}, \qquad
        n_i^2 = \Big(\sum_j A_{ij} T_j\Big)^2 - \kappa \Big|\sum_j A_{ij} h_j\Big|^2

    where L is the linear layer and T is :math:`\sqrt\kappa` times the time of h. It is a
    :class:`torch_geometric.nn.MessagePassing` with PyG's arguments, and works in ``HeteroConv``, ``to_hetero`` and
    :mod:`torch_geometric.explain`. PyG's ``to_hetero`` copies every layer together with its manifold, so a learned
    curvature would no longer be shared or trained: learn it with ``HeteroConv``, whose layers keep theirs.

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
