"""Tests of the torch operators for sparse products: values, derivatives, and compilation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet.nn import SparseMatrix
from lresnet.nn.sparse import csr_product, csr_product_transposed
from lresnet.testing import assert_compiles

both = pytest.mark.parametrize("product", [csr_product, csr_product_transposed], ids=["plain", "transposed"])


def matrix() -> tuple[SparseMatrix, Tensor]:
    """Return a 3 x 4 matrix with an empty row and an empty column, sparse and dense."""
    dense = torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.5, 0.0, 0.0]], dtype=torch.float64)
    return SparseMatrix.from_dense(dense), dense


def operand(product: object, dtype: torch.dtype = torch.float64) -> Tensor:
    rows = 4 if product is csr_product else 3
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


@both
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_operators_equal_the_dense_product(product, dtype):
    A, dense = matrix()
    x = operand(product, dtype)
    y = product(x, A.values.to(dtype), *A.indices)
    expected = (dense if product is csr_product else dense.T) @ x.double()
    assert y.dtype == dtype
    torch.testing.assert_close(y, expected.to(dtype))


@both
def test_first_and_second_derivatives(product):
    A, _ = matrix()
    x, values = operand(product).requires_grad_(), A.values.clone().requires_grad_()
    assert gradcheck(lambda x, values: product(x, values, *A.indices), (x, values))
    assert gradgradcheck(lambda x, values: product(x, values, *A.indices), (x, values))


@both
def test_operators_pass_opcheck(product):
    A, _ = matrix()
    arguments = (operand(product).requires_grad_(), A.values.clone().requires_grad_(), *A.indices)
    torch.library.opcheck(product, arguments)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_product_compiles_without_a_graph_break(stacked):
    A, dense = matrix()
    A = A.with_values(A.values.float())
    x = torch.randn(4, 2, 3) if stacked else torch.randn(4, 3)
    assert_compiles(lambda x: A.product(x).tanh(), x)
    torch.testing.assert_close(A.product(x), torch.tensordot(dense.float(), x, 1))


def test_compiled_code_does_not_evaluate_whether_rows_are_empty():
    full = SparseMatrix.from_dense(torch.ones(2, 2))
    assert not full.has_empty_rows()
    empty, _ = matrix()
    answers = torch.compile(lambda: (full.has_empty_rows(), empty.has_empty_rows()), backend="eager", fullgraph=True)()
    assert answers == (False, True)
