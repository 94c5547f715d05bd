"""The Euclidean twin of the graph convolution: the same graph, the same widths, no curvature."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.stack import times_rows
from lresnet.nn.sparse import SparseMatrix, adjacency

__all__ = ["EuclideanGraphConv", "EuclideanLinear", "mean_normalisation"]


def mean_normalisation(A: SparseMatrix) -> SparseMatrix:
    r""":math:`D^{-1} A`: each row a mean, which is what the Lorentzian centroid becomes as the curvature goes to 0.

    (The symmetric :math:`D^{-1/2} A D^{-1/2}` makes the norm of an embedding depend on the node's degree. On trees that
    sets the ends of an edge apart: in link prediction on disease it ranked pairs worse than chance.)
    Rows without entries stay 0. Differentiable in the values.
    """
    degree = A.sum_rows(A.values).squeeze(-1)
    return A.with_values(A.values / torch.where(degree > 0, degree, 1.0)[A.row])


class EuclideanLinear(torch.nn.Linear):
    """torch's linear layer, whose parameters may also be those of a stack: [N, S, in] -> [N, S, out].

    Example:
        >>> EuclideanLinear(8, 4)(torch.randn(3, 8)).shape
        torch.Size([3, 4])
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.weight.dim() == 2 else times_rows(self.weight, x) + self.bias


class EuclideanGraphConv(torch.nn.Module):
    """Graph convolution ``D^-1 A (x W + b)``: a linear layer, then the mean of the neighbours.

    Shapes:
        x [N, in] dense or sparse, edge_index [2, E] -> [N, out]; an adjacency that is passed in is taken as it is.

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
        if not isinstance(edge_index, SparseMatrix):
            A = adjacency(edge_index, x.shape[0], edge_weight, self_loops=self.self_loops)
            edge_index = mean_normalisation(A)
        W, b = self.linear.weight, self.linear.bias
        h = x.product(W.movedim(-1, 0)) + b if isinstance(x, SparseMatrix) else self.linear(x)
        return edge_index.product(h)
