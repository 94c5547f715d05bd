"""Layer norm and batch norm of space coordinates, row by row, which also accept the parameters of a stack."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["ROW_NORMS", "RowBatchNorm", "RowNorm"]


class RowNorm(torch.nn.LayerNorm):
    """torch's layer norm of the coordinates, which also accepts the parameters of a stack, [S, n].

    Shapes:
        [..., n] -> [..., n]; with the parameters of a stack [N, S, n] -> [N, S, n].

    Example:
        >>> RowNorm(4)(torch.randn(5, 4)).shape
        torch.Size([5, 4])
    """

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.nn.functional.layer_norm(x, self.normalized_shape, eps=self.eps)
        return torch.addcmul(self.bias, rows, self.weight)


class RowBatchNorm(torch.nn.BatchNorm1d):
    """torch's batch norm of the coordinates over all rows, which also accepts the parameters of a stack, [S, n].

    A stack has no running statistics of its own: it uses those of the batch, in training and in evaluation. On a whole
    graph, evaluation without dropout then gives what re-estimated running statistics give.

    Shapes:
        [N, n] -> [N, n]; with the parameters of a stack [N, S, n] -> [N, S, n].

    Example:
        >>> RowBatchNorm(4)(torch.randn(5, 4)).shape
        torch.Size([5, 4])
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 1:
            return super().forward(x)
        parameters = self.weight.flatten(), self.bias.flatten()
        rows = torch.nn.functional.batch_norm(x.flatten(1), None, None, *parameters, training=True, eps=self.eps)
        return rows.view_as(x)


ROW_NORMS: dict[str, Callable[[int], torch.nn.Module]] = {
    "none": torch.nn.Identity,
    "layer": RowNorm,
    "batch": RowBatchNorm,
}
"""Norms of space coordinates, by name."""
