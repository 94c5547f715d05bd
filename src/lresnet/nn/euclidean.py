"""Layers of the Euclidean baseline: the graph convolution and the linear layer without curvature."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.stack import times_rows
from lresnet.nn.sparse import SparseMatrix, adjacency, mean_normalisation

__all__ = ["EuclideanGraphConv", "EuclideanLinear"]


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


class EuclideanGraphConv(torch.nn.Module):
    r"""Graph convolution of the Euclidean baseline: a linear layer, then the mean over the neighbours.

    .. math:: y = D^{-1} A (x W^T + b)

    Args:
        in_channels: Dimension of the input.
        out_channels: Dimension of the output.
        self_loops: Add self loops to ``edge_index``. An adjacency matrix is used unchanged.

    Shapes:
        x [N, in], dense or sparse, edge_index [2, E], edge_weight [E] -> [N, out]

    Example:
        >>> conv = EuclideanGraphConv(8, 4)
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, *, self_loops: bool = True) -> None:
        super().__init__()
        self.linear = EuclideanLinear(in_channels, out_channels)
        self.self_loops = self_loops
        torch.nn.init.xavier_uniform_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)

    def forward(
        self, x: Tensor | SparseMatrix, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Return the new features. ``edge_index`` may be the normalised adjacency matrix, built once."""
        if not isinstance(edge_index, SparseMatrix):
            A = adjacency(edge_index, x.shape[0], edge_weight, self_loops=self.self_loops)
            edge_index = mean_normalisation(A)
        W, b = self.linear.weight, self.linear.bias
        h = x.product(W.movedim(-1, 0)) + b if isinstance(x, SparseMatrix) else self.linear(x)
        return edge_index.product(h)
