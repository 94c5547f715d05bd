"""Tests of BlockDiagonal against its matrices, one at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet.nn.sparse import BlockDiagonal, SparseMatrix

S, ROWS, COLUMNS = 3, 4, 6


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense() -> Tensor:
    """Return [S, ROWS, COLUMNS]. The members have different numbers of entries, and one has an empty row."""
    matrices = normals(S, ROWS, COLUMNS) * (normals(S, ROWS, COLUMNS, seed=1) > 0)
    matrices[1, 2] = 0
    return matrices


def make() -> BlockDiagonal:
    return BlockDiagonal.of([SparseMatrix.from_dense(matrix) for matrix in dense()])


def test_product_row_sums_and_gathered_rows():
    A, x = make(), normals(COLUMNS, S, 2, seed=3)
    assert len(set(A.counts)) > 1
    torch.testing.assert_close(A @ x, torch.einsum("src,cse->rse", dense(), x))
    torch.testing.assert_close(A @ x[:, :1], torch.einsum("src,ce->rse", dense(), x[:, 0]))  # x shared by all members
    torch.testing.assert_close(A.row_sums(), dense().sum(-1).T.unsqueeze(-1))
    torch.testing.assert_close(A.sum_rows(A.values.square()), dense().square().sum(-1).T.unsqueeze(-1))
    rows = normals(ROWS, S, 1, seed=4)
    expected = [rows[:, s, 0].unsqueeze(1).expand(ROWS, COLUMNS)[matrix != 0] for s, matrix in enumerate(dense())]
    assert torch.equal(A.gather_rows(rows), torch.cat(expected))
    assert A.has_empty_rows()


def test_first_and_second_derivatives_in_x_and_in_the_values():
    A = make()
    x, values = normals(COLUMNS, S, 2).requires_grad_(), A.values.clone().requires_grad_()

    def product(x: Tensor, values: Tensor) -> Tensor:
        return A.with_values(values) @ x

    assert gradcheck(product, (x, values))
    assert gradgradcheck(product, (x, values))


def test_wrong_shapes_are_rejected():
    with pytest.raises(ValueError, match=r"a stack \[columns, 3, d\], got shape \(6, 2, 1\)"):
        make() @ normals(COLUMNS, 2, 1)
    shapes = [SparseMatrix.from_dense(normals(2, n)) for n in (2, 3)]
    with pytest.raises(ValueError, match=r"must have the same shape, got \(2, 2\), \(2, 3\)"):
        BlockDiagonal.of(shapes)
