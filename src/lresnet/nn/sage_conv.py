"""GraphSAGE convolution on the hyperboloid: neighbours and root have their own linear layers, joined by a residual."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import checked_points
from lresnet.geometry.curvature import kappa_of
from lresnet.geometry.distance import unitless_time
from lresnet.nn.graph_conv import Linear, make_linear
from lresnet.nn.message_passing import CentroidPassing, Nodes, Sizes, channel_pair, split_pair
from lresnet.nn.sparse import SparseMatrix
from lresnet.residual import make_residual

__all__ = ["LorentzSAGEConv", "sum_options"]


def sum_options(residual: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
    r"""Return the options of a residual, by default those with which it adds its arguments.

    The Lorentz residual :math:`\gamma (x + w y)/n` with :math:`n \ge 1 + w` is an average for :math:`\gamma = 1`. With
    :math:`\gamma = 1 + w` it tends to the sum x + w y as the curvature goes to 0. The default is w = 1 and this gamma;
    ``{"scale": None}`` requests the average. A learned weight starts with this gamma, and ``{"scale": "1+w"}`` makes
    gamma follow it. Other residuals are returned as given.

    Example:
        >>> sum_options("lorentz"), sum_options("lorentz", {"weight": 0.5}), sum_options("space")
        ({'weight': 1.0, 'scale': 2.0}, {'weight': 0.5, 'scale': 1.5}, {})
    """
    if residual != "lorentz":
        return dict(options or {})
    chosen: dict[str, Any] = {"weight": 1.0} | (options or {})
    weight = chosen.get("initial_weight", 1.0) if chosen["weight"] == "learned" else chosen["weight"]
    if isinstance(weight, int | float):
        name = "initial_scale" if chosen.get("scale") == "learned" else "scale"
        chosen.setdefault(name, 1.0 + abs(weight))
    return chosen


class LorentzSAGEConv(CentroidPassing):
    r"""GraphSAGE convolution (Hamilton et al., NeurIPS 2017) on the hyperboloid, with a separate root weight.

    .. math:: y_i = L_r(x_i) \oplus L_l\Big(\frac{\sum_j A_{ij} x_j}{n_i}\Big)

    The argument of :math:`L_l` is the Lorentzian centroid of the neighbours (:class:`~lresnet.nn.LorentzGraphConv`),
    which is the origin for a node without neighbours. :math:`\oplus` is a residual connection of the registry. By
    default it is the Lorentz residual as a sum (:func:`sum_options`). With ``layer="space"`` the limit for curvature 0
    is PyG's ``SAGEConv(aggr="mean")``: :math:`W_l\, \mathrm{mean}_j x_j + b + W_r x_i`.

    Args:
        in_channels: Dimension of the input space; -1 takes it from the first input. A pair (sources, targets) is for
            bipartite graphs.
        out_channels: Dimension of the output space.
        manifold: Owner of the curvature. It is not registered as a submodule.
        layer: The linear layers, a name of :data:`~lresnet.nn.graph_conv.LAYERS`.
        residual: A name of :data:`lresnet.residual.METHODS`; "none" leaves out the root, as ``root_weight=False`` does
            in PyG.
        residual_options: Options of the residual. Its first argument is the root, its weight that of the neighbours.
        self_loops: Add self loops to ``edge_index``. A :class:`~lresnet.nn.SparseMatrix` is used unchanged.
        linear: Other arguments of the linear layers.

    Shapes:
        x [N, in] or ([N, in], [M, in]), edge_index [2, E] or adj_t [M, N], edge_weight [E] with values >= 0
        -> [N, out] or [M, out]

    Example:
        >>> conv = LorentzSAGEConv((-1, -1), 4, manifold=Lorentz(-1.0))
        >>> conv((torch.randn(3, 8), torch.randn(2, 5)), torch.tensor([[0, 1, 2], [1, 0, 1]])).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        *,
        manifold: Lorentz,
        layer: str = "space",
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        self_loops: bool = False,
        **linear: Any,
    ) -> None:
        super().__init__(manifold, self_loops=self_loops)
        self.in_channels, self.out_channels = in_channels, out_channels
        source_size, target_size = channel_pair(in_channels)
        self.lin_l = make_linear(layer, source_size, out_channels, manifold=manifold, **linear)
        self.lin_r: Linear | None = None
        if residual != "none":
            self.lin_r = make_linear(layer, target_size, out_channels, manifold=manifold, **linear)
        self.residual = make_residual(residual, manifold, **sum_options(residual, residual_options))

    def reset_parameters(self) -> None:
        """Initialise the linear layers. A learned weight of the residual keeps its value."""
        self.lin_l.reset_parameters()
        if self.lin_r is not None:
            self.lin_r.reset_parameters()

    def forward(
        self,
        x: Nodes | tuple[Nodes, Nodes | None],
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
    ) -> Tensor:
        """Return the new points.

        Args:
            x: Dense points [N, in], or a pair (sources, targets). Without targets (None) there is no root.
            edge_index: Edges [2, E]; or the transposed adjacency matrix of PyG, ``adj_t`` (rows are targets), as a
                sparse tensor of torch; or the matrix of :func:`~lresnet.nn.adjacency`, built once for many calls.
            edge_weight: Weights [E]. Default: 1.
            size: Numbers of sources and targets. Default: those of x.
        """
        sources, targets = split_pair(x)
        if isinstance(sources, SparseMatrix) or sources.layout != torch.strided:
            raise TypeError("LorentzSAGEConv needs dense points, got sparse ones; apply a linear layer first")
        (points,), dtype = checked_points(sources)
        h = torch.cat([points, unitless_time(points, kappa_of(self.manifold.curvature, points.dtype), -1)], dim=-1)
        y: Tensor = self.lin_l(self.centroids(h, edge_index, edge_weight, Sizes.of(sources, targets, size)))
        if targets is None or self.lin_r is None:
            return y.to(dtype)
        (roots,), _ = checked_points(targets)  # type: ignore[arg-type]
        return self.residual(self.lin_r(roots), y).to(dtype)  # type: ignore[no-any-return]
