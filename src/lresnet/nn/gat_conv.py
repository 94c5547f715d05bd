"""Graph attention on the hyperboloid: scores from Lorentzian distances, values joined by Lorentzian centroids."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import softmax

from lresnet.geometry import Lorentz
from lresnet.geometry.centroid import centroid
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.geometry.distance import separation, unitless_time
from lresnet.nn.graph_conv import make_linear
from lresnet.nn.message_passing import CentroidPassing, Nodes, Sizes, channel_pair, sparse_rows, split_pair
from lresnet.nn.sparse import SparseMatrix

__all__ = ["LorentzGATConv", "distance_scores"]


def distance_scores(query: Tensor, key: Tensor, log_scale: Tensor, kappa: Curvature) -> Tensor:
    r"""Return :math:`-\beta\, d_L^2(q, k)` with :math:`d_L^2 = \frac2\kappa (\cosh d - 1)`, the squared distance.

    Shapes:
        query and key [E, H, n], log_scale = log beta [H] -> [E, H]

    Example:
        >>> distance_scores(torch.zeros(5, 2, 3), torch.ones(5, 2, 3), torch.zeros(2), 1.0).shape
        torch.Size([5, 2])
    """
    return -log_scale.exp() * (2 / kappa * separation(query, key, kappa, -1)).squeeze(-1)


class LorentzGATConv(CentroidPassing):
    r"""Graph attention on the hyperboloid: each head joins its neighbours' values by a weighted Lorentzian centroid.

    .. math:: \alpha_{ij} = \mathrm{softmax}_j\big(-\beta\, d_L^2(q_i, k_j)\big), \qquad
        y_i = \frac{\sum_j A_{ij} \alpha_{ij} k_j}{n_i}, \qquad d_L^2(q, k) = \tfrac2\kappa (\cosh d(q, k) - 1)

    The queries :math:`q = L_{dst}(x)` and the keys :math:`k = L_{src}(x)`, which are also the values, are points of H
    hyperboloids: linear layers with H times ``out_channels`` space coordinates, split into heads. :math:`\beta > 0` is
    learned for each head, as :math:`\log\beta`. n is the normaliser of :class:`~lresnet.nn.LorentzGraphConv`. The
    softmax is over the neighbours of i. Squared Lorentzian distances are inner products up to a constant,
    :math:`-d_L^2 = \tfrac2\kappa + 2 \langle q, k\rangle`, so these are the scores of HyboNet's attention (Chen et al.,
    ACL 2022), restricted to the edges of a graph as in GAT (Velickovic et al., ICLR 2018).

    Args:
        in_channels: Dimension of the input space; -1 takes it from the first input. A pair (sources, targets) is for
            bipartite graphs.
        out_channels: Dimension of the space of each head.
        heads: Number of heads H.
        concat: Concatenate the space coordinates of the heads. Otherwise the result is the centroid of the heads.
        manifold: Owner of the curvature. It is not registered as a submodule.
        layer: The linear layers, a name of :data:`~lresnet.nn.graph_conv.LAYERS`.
        self_loops: Add self loops to ``edge_index``. A :class:`~lresnet.nn.SparseMatrix` is used unchanged, and a
            bipartite graph has no self loops.
        dropout: Dropout rate of the coefficients alpha in training.
        linear: Other arguments of the linear layers.

    Shapes:
        x [N, in] or ([N, in], [M, in]), edge_index [2, E] or adj_t [M, N], edge_weight [E] with values >= 0
        -> [M, H out], or [M, out] without ``concat``; M = N unless x is a pair

    Example:
        >>> conv = LorentzGATConv(8, 4, heads=2, manifold=Lorentz(-1.0))
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        *,
        manifold: Lorentz,
        layer: str = "space",
        self_loops: bool = True,
        dropout: float = 0.0,
        **linear: Any,
    ) -> None:
        super().__init__(manifold, self_loops=self_loops)
        if heads < 1 or not 0 <= dropout < 1:
            raise ValueError(f"need heads >= 1 and 0 <= dropout < 1, got {heads} and {dropout}")
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.dropout = concat, dropout
        source_size, target_size = channel_pair(in_channels)
        self.lin_src = make_linear(layer, source_size, heads * out_channels, manifold=manifold, **linear)
        self.lin_dst = make_linear(layer, target_size, heads * out_channels, manifold=manifold, **linear)
        factory = {name: linear[name] for name in ("device", "dtype") if name in linear}
        self.log_scale = torch.nn.Parameter(torch.empty(heads, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the linear layers, and beta as 1/sqrt(out_channels)."""
        self.lin_src.reset_parameters()
        self.lin_dst.reset_parameters()
        torch.nn.init.constant_(self.log_scale, -0.5 * math.log(self.out_channels))

    def forward(
        self,
        x: Nodes | tuple[Nodes, Nodes | None],
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the new points; with ``return_attention_weights`` also the edges [2, E] and their alpha [E, H].

        Args:
            x: Points [N, in], dense or sparse, or a pair (sources, targets).
            edge_index: Edges [2, E]; or the transposed adjacency matrix of PyG, ``adj_t`` (rows are targets), as a
                sparse tensor of torch; or the matrix of :func:`~lresnet.nn.adjacency`.
            edge_weight: Weights [E] that multiply alpha. Default: 1.
            size: Numbers of sources and targets. Default: those of x.
            return_attention_weights: Return the coefficients too. Edges are in the order of PyG: with self loops these
                are last.
        """
        sources, targets = split_pair(x)
        if targets is None:
            raise ValueError("LorentzGATConv needs the points of the targets, got x = (sources, None)")
        num_nodes = Sizes.of(sources, targets, size)
        keys, queries = self._heads(self.lin_src, sources), self._heads(self.lin_dst, targets)
        edge_index, weight = self.message_edges(edge_index, edge_weight, num_nodes)
        kappa = kappa_of(self.manifold.curvature, keys.dtype)
        source, target = edge_index
        scores = distance_scores(queries[target], keys[source], self.log_scale.to(keys.dtype), kappa)
        alpha = softmax(scores, target, num_nodes=num_nodes.pair[1])
        dropped = torch.nn.functional.dropout(alpha, self.dropout, self.training)
        points = torch.cat([keys, unitless_time(keys, kappa, -1)], dim=-1)
        y = self.message_centroids(points, edge_index, weight.to(keys.dtype).unsqueeze(-1) * dropped, num_nodes)
        y = y.flatten(1) if self.concat else centroid(y, torch.ones_like(y[..., :1]), kappa)
        y = y.to(sources.dtype) if isinstance(sources, Tensor) else y
        return (y, (edge_index, alpha)) if return_attention_weights else y

    def _heads(self, linear: torch.nn.Module, x: Nodes) -> Tensor:
        """Return the mapped points as [N, H, out], in float32 or wider."""
        h: Tensor = linear.with_time(*sparse_rows(x, None, self.manifold))[..., :-1]  # type: ignore[operator]
        return h.unflatten(-1, (self.heads, self.out_channels))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
        return f"{type(self).__name__}({sizes}, {self.manifold.extra_repr()})"
