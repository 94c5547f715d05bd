"""Layers of the Euclidean baseline: the graph convolution and the linear layer without curvature."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.stack import times_rows
from lresnet.nn.message_passing import MeanPassing, Nodes, Sizes, channel_pair, split_pair
from lresnet.nn.sparse import SparseMatrix

__all__ = ["EuclideanGraphConv", "EuclideanLinear", "EuclideanSAGEConv", "sparse_linear"]


class EuclideanLinear(torch.nn.Linear):
    """Linear layer ``x W^T + b``, which also accepts the parameters of a stack (:mod:`lresnet.geometry.stack`).

    Args:
        in_features, out_features, bias, device, dtype: As in :class:`torch.nn.Linear`.

    Shapes:
        [..., in] -> [..., out]; with the parameters of a stack [N, S, in] -> [N, S, out].

    Example:
        >>> EuclideanLinear(8, 4)(torch.randn(3, 8)).shape
        torch.Size([3, 4])
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.weight.dim() == 2 else times_rows(self.weight, x) + self.bias


class EuclideanGraphConv(MeanPassing):
    r"""Graph convolution of the Euclidean baseline: a linear layer, then the mean over the neighbours.

    .. math:: y = D^{-1} A (x W^T + b)

    Args:
        in_channels: Dimension of the input.
        out_channels: Dimension of the output.
        self_loops: Add self loops to ``edge_index``. An adjacency matrix is used unchanged.

    Shapes:
        x [N, in], dense or sparse, or ([N, in], [M, any]), edge_index [2, E], edge_weight [E] -> [N, out] or [M, out]

    Example:
        >>> conv = EuclideanGraphConv(8, 4)
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, *, self_loops: bool = True) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.linear = EuclideanLinear(in_channels, out_channels)
        self.self_loops = self_loops
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as Glorot and Bengio do."""
        _reset(self.linear)

    def forward(
        self,
        x: Nodes | tuple[Nodes, Nodes | None],
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
    ) -> Tensor:
        """Return the new features. ``edge_index`` may be the normalised adjacency matrix, built once."""
        sources, targets = split_pair(x)
        h = sparse_linear(self.linear, sources)
        return self.means(h, edge_index, edge_weight, Sizes.of(sources, targets, size))


class EuclideanSAGEConv(MeanPassing):
    r"""GraphSAGE convolution (Hamilton et al., NeurIPS 2017) of the Euclidean baseline, with a separate root weight.

    .. math:: y_i = W_l \frac{\sum_j A_{ij} x_j}{\sum_j A_{ij}} + b_l + W_r x_i

    Args:
        in_channels: Dimension of the input; a pair (sources, targets) for bipartite graphs.
        out_channels: Dimension of the output.
        self_loops: Add self loops to ``edge_index``. An adjacency matrix is used unchanged.

    Shapes:
        x [N, in] or ([N, in], [M, in]), edge_index [2, E], edge_weight [E] -> [N, out] or [M, out]

    Example:
        >>> conv = EuclideanSAGEConv(8, 4)
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """

    def __init__(self, in_channels: int | tuple[int, int], out_channels: int, *, self_loops: bool = False) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.self_loops = in_channels, out_channels, self_loops
        source_size, target_size = channel_pair(in_channels)
        self.lin_l = EuclideanLinear(source_size, out_channels)
        self.lin_r = EuclideanLinear(target_size, out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as Glorot and Bengio do."""
        _reset(self.lin_l)
        _reset(self.lin_r)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
    ) -> Tensor:
        """Return the new features. ``edge_index`` may be the normalised adjacency matrix, built once."""
        sources, targets = split_pair(x)
        mean = self.means(sources, edge_index, edge_weight, Sizes.of(sources, targets, size))  # type: ignore[arg-type]
        y = self.lin_l(mean)
        return y if targets is None else y + self.lin_r(targets)  # type: ignore[no-any-return]


def sparse_linear(linear: EuclideanLinear, x: Nodes) -> Tensor:
    """Return ``x W^T + b`` for dense or sparse x."""
    if isinstance(x, Tensor) and x.layout != torch.strided:
        x = SparseMatrix.from_torch(x)
    if isinstance(x, SparseMatrix):
        return x.product(linear.weight.movedim(-1, 0)) + linear.bias
    return linear(x)  # type: ignore[no-any-return]


def _reset(linear: EuclideanLinear) -> None:
    torch.nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        torch.nn.init.zeros_(linear.bias)
