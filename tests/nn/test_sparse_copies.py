"""Tests of copies of a SparseMatrix after its first product, and of modules that contain one."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lresnet.nn import SparseMatrix


def saved_and_loaded(value: object) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "torch.save": saved_and_loaded,
}
every_copy = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


class Holder(nn.Module):
    def __init__(self, A: SparseMatrix) -> None:
        super().__init__()
        self.A = A
        self.weight = nn.Parameter(torch.ones(4, 2))

    def forward(self) -> Tensor:
        return self.A @ self.weight


def used() -> SparseMatrix:
    """Return a 3 x 4 matrix that keeps its sparse tensors, after a product and its gradient."""
    A = SparseMatrix.from_dense(torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.5, 0.0, 0.0]]))
    (A @ torch.ones(4, 1, requires_grad=True)).sum().backward()
    A.row_sums(), A.has_empty_rows()
    return A


@every_copy
def test_a_copy_gives_the_same_products_and_gradients(copied: Callable[[SparseMatrix], SparseMatrix]):
    A = used()
    B = copied(A)
    x = torch.randn(4, 2, requires_grad=True)
    y = B @ x
    assert torch.equal(y, A @ x)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad((A @ x).sum(), x)[0])
    assert torch.equal(B.row_sums(), A.row_sums())
    assert B.has_empty_rows()
    assert repr(B) == repr(A)


@every_copy
def test_a_copy_of_a_module_gives_the_same_result(copied: Callable[[Holder], Holder]):
    module = Holder(used())
    module().sum().backward()
    assert torch.equal(copied(module)(), module())


def test_a_deep_copy_shares_no_memory():
    A = used()
    B = copy.deepcopy(A)
    A.values.zero_()
    assert (B @ torch.ones(4, 1)).any()


def test_copying_does_not_change_the_original():
    A = used()
    kept = A._forward, A._backward
    copy.deepcopy(A)
    assert (A._forward, A._backward) == kept
