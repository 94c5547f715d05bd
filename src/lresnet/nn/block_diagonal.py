"""Sparse matrices of one shape, one for each member of a stack, multiplied as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from lresnet.nn.sparse import SparseMatrix

__all__ = ["BlockDiagonal"]


class BlockDiagonal(SparseMatrix):
    """S sparse matrices [rows, columns] along the diagonal of one: a single product serves all members of a stack.

    (One matrix for all members needs none of this: :class:`SparseMatrix` multiplies [columns, S, d] as it is.)

    Args:
        matrices: of one shape; each may have its own places and values.

    Shapes:
        ``A @ x``: [columns, S, d] -> [rows, S, d]

    Example:
        >>> A = SparseMatrix.from_coo(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0]), (2, 2))
        >>> BlockDiagonal.of([A, A.with_values(10 * A.values)]) @ torch.ones(2, 2, 1)
        tensor([[[ 2.],
                 [20.]],
        <BLANKLINE>
                [[ 3.],
                 [30.]]])
    """

    counts: list[int]
    """How many entries each member has; the values are listed one member after the other."""

    @classmethod
    def of(cls, matrices: Sequence[SparseMatrix]) -> Self:
        """From one matrix for each member."""
        shapes = {matrix.shape for matrix in matrices}
        if len(shapes) != 1:
            raise ValueError(f"matrices of one shape are needed, got {', '.join(map(str, sorted(shapes)))}")
        (rows, columns), members = shapes.pop(), len(matrices)
        row = torch.cat([matrix.row + i * rows for i, matrix in enumerate(matrices)])
        col = torch.cat([matrix.col + i * columns for i, matrix in enumerate(matrices)])
        values = torch.cat([matrix.values for matrix in matrices])
        block = cls(row, col, values, (members * rows, members * columns))
        block.counts = [matrix.values.numel() for matrix in matrices]
        return block

    def matmul(self, x: Tensor, values: Tensor) -> Tensor:
        members = len(self.counts)
        if x.dim() != 3 or x.shape[1] not in (1, members):
            raise ValueError(f"x must be a stack [columns, {members}, d], got shape {tuple(x.shape)}")
        rows = x.expand(-1, members, -1).transpose(0, 1).flatten(0, 1)
        return self._stack(super().matmul(rows, values))

    def row_sums(self) -> Tensor:
        return self._stack(super().row_sums())

    def sum_rows(self, values: Tensor) -> Tensor:
        return self._stack(super().sum_rows(values))

    def spread_rows(self, x: Tensor) -> Tensor:
        return super().spread_rows(x.transpose(0, 1).flatten(0, 1))

    def _stack(self, rows: Tensor) -> Tensor:
        """Rows listed one member after the other, as a stack [rows, S, d]."""
        return rows.unflatten(0, (len(self.counts), -1)).transpose(0, 1)  # type: ignore[no-any-return]
