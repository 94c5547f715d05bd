"""BlockDiagonal against its matrices one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet.nn.block_diagonal import BlockDiagonal
from lresnet.nn.sparse import SparseMatrix

S, ROWS, COLUMNS = 3, 4, 6


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense() -> Tensor:
    """[S, ROWS, COLUMNS]; the members have different numbers of entries, and one an empty row."""
    matrices = normals(S, ROWS, COLUMNS) * (normals(S, ROWS, COLUMNS, seed=1) > 0)
    matrices[1, 2] = 0
    return matrices


def make() -> BlockDiagonal:
    return BlockDiagonal.of([SparseMatrix.from_dense(matrix) for matrix in dense()])


def test_product_row_sums_and_rows_spread_over_entries():
    A, x = make(), normals(COLUMNS, S, 2, seed=3)
    assert len(set(A.counts)) > 1
    torch.testing.assert_close(A @ x, torch.einsum("src,cse->rse", dense(), x))
    torch.testing.assert_close(A @ x[:, :1], torch.einsum("src,ce->rse", dense(), x[:, 0]))  # the same for all
    torch.testing.assert_close(A.row_sums(), dense().sum(-1).T.unsqueeze(-1))
    torch.testing.assert_close(A.sum_rows(A.values.square()), dense().square().sum(-1).T.unsqueeze(-1))
    rows = normals(ROWS, S, 1, seed=4)
    expected = [rows[:, s, 0].unsqueeze(1).expand(ROWS, COLUMNS)[matrix != 0] for s, matrix in enumerate(dense())]
    assert torch.equal(A.spread_rows(rows), torch.cat(expected))
    assert A.has_empty_rows()


def test_derivatives_in_the_points_and_the_values():
    A = make()
    x, values = normals(COLUMNS, S, 2).requires_grad_(), A.values.clone().requires_grad_()

    def product(x: Tensor, values: Tensor) -> Tensor:
        return A.with_values(values) @ x

    assert gradcheck(product, (x, values))
    assert gradgradcheck(product, (x, values))


def test_what_is_no_stack_is_refused():
    with pytest.raises(ValueError, match=r"a stack \[columns, 3, d\], got shape \(6, 2, 1\)"):
        make() @ normals(COLUMNS, 2, 1)
    shapes = [SparseMatrix.from_dense(normals(2, n)) for n in (2, 3)]
    with pytest.raises(ValueError, match=r"one shape are needed, got \(2, 2\), \(2, 3\)"):
        BlockDiagonal.of(shapes)
