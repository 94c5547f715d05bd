"""Tests of SparseMatrix against dense products, and of adjacency against PyG."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch_geometric.nn import MessagePassing

from lresnet.nn.sparse import SparseMatrix, adjacency

SHAPES = [(5, 5), (6, 3), (2, 7), (1, 4), (4, 1)]


def normals(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def sparse(rows: int, columns: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, SparseMatrix]:
    """Return a matrix, dense and sparse, of which two thirds are 0. If it has several rows, the first is empty."""
    keep = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed + 1)) < 1 / 3
    keep[0] = False
    keep[-1, -1] = True
    dense = normals(rows, columns, seed=seed, dtype=dtype) * keep
    return dense, SparseMatrix.from_dense(dense)


def to_dense(A: SparseMatrix) -> Tensor:
    return A @ torch.eye(A.shape[1], dtype=A.values.dtype)


def with_dense_values(A: SparseMatrix, values: Tensor) -> Tensor:
    return values.new_zeros(A.shape).index_put((A.row, A.col), values)


# --- products and their derivatives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_product_and_transposed_product_equal_those_of_the_dense_matrix(shape):
    dense, A = sparse(*shape)
    x, y = normals(shape[1], 4), normals(shape[0], 4)
    assert A.shape == shape
    assert torch.equal(to_dense(A), dense)
    torch.testing.assert_close(A @ x, dense @ x)
    torch.testing.assert_close(A.transposed_times(y, A.values), dense.T @ y)
    torch.testing.assert_close(A @ x, dense @ x)  # again, with the kept sparse tensor


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("own_values", [True, False], ids=["own values", "other values"])
def test_first_and_second_derivatives(shape, own_values):
    _, A = sparse(*shape)
    x = normals(shape[1], 2, seed=5).requires_grad_()
    values = normals(A.values.numel(), seed=6).requires_grad_()

    def product(x: Tensor, values: Tensor) -> Tensor:
        return A.with_values(values) @ x if own_values else A.matmul(x, values)

    def quadratic(x: Tensor, values: Tensor) -> Tensor:
        return product(x, values).square() * product(torch.ones_like(x), values)

    assert gradcheck(product, (x, values))
    assert gradgradcheck(product, (x, values))
    assert gradgradcheck(quadratic, (x, values))


def test_gradients_equal_those_of_the_dense_matrix_also_if_only_one_is_requested():
    dense, A = sparse(6, 4)
    x, g = normals(4, 3), normals(6, 3, seed=1)
    for wants_x, wants_values in ((True, True), (True, False), (False, True)):
        a, b = x.clone().requires_grad_(wants_x), A.values.clone().requires_grad_(wants_values)
        (A.with_values(b) @ a).backward(g)
        p, q = x.clone().requires_grad_(wants_x), A.values.clone().requires_grad_(wants_values)
        (with_dense_values(A, q) @ p).backward(g)
        for got, expected in ((a.grad, p.grad), (b.grad, q.grad)):
            assert (got is None) == (expected is None)
            if got is not None:
                torch.testing.assert_close(got, expected)
    assert torch.equal(to_dense(A), dense)


def test_a_vector_is_a_matrix_of_one_column():
    dense, A = sparse(6, 4)
    x, values = normals(4).requires_grad_(), A.values.clone().requires_grad_()
    torch.testing.assert_close(A @ x, dense @ x)
    assert gradcheck(A.matmul, (x, values))
    assert gradgradcheck(A.matmul, (x, values))


def test_values_that_are_a_parameter_may_change_in_place():
    """An optimiser changes them, so nothing derived from the old values may be reused."""
    _, A = sparse(4, 4)
    weight = torch.nn.Parameter(A.values.abs())
    B = A.with_values(weight)
    x = normals(4, 2).requires_grad_()
    for _ in range(2):
        dense = with_dense_values(A, weight.detach())
        x.grad = None
        y = B @ x
        y.sum().backward()
        torch.testing.assert_close(y.detach(), dense @ x.detach())
        torch.testing.assert_close(x.grad, dense.T @ torch.ones(4, 2, dtype=torch.float64))
        torch.testing.assert_close(B.row_sums(), dense.sum(1, keepdim=True))
        with torch.no_grad():
            weight.mul_(10)


# --- construction ----------------------------------------------------------------------------------------------------


def test_entries_in_any_order_are_sorted_and_equal_entries_added():
    index = torch.tensor([[2, 0, 2, 0, 2], [1, 3, 1, 0, 0]])
    values = torch.tensor([1.0, 2.0, 10.0, 3.0, 4.0], dtype=torch.float64).requires_grad_()
    A = SparseMatrix.from_coo(index, values, (3, 4))
    expected = torch.tensor([[3.0, 0, 0, 2.0], [0, 0, 0, 0], [4.0, 11.0, 0, 0]], dtype=torch.float64)
    assert torch.equal(to_dense(A), expected)
    assert A.values.numel() == 4
    assert A.row.tolist() == [0, 0, 2, 2]
    assert A.col.tolist() == [0, 3, 0, 1]
    to_dense(A)[2, 1].backward()
    assert values.grad.tolist() == [1.0, 0.0, 1.0, 0.0, 0.0]  # both entries that were added


def test_a_matrix_without_entries_gives_zeros():
    A = SparseMatrix.from_coo(torch.empty(2, 0, dtype=torch.int64), torch.empty(0), (3, 2))
    x = torch.ones(2, 4, requires_grad=True)
    y = A @ x
    y.sum().backward()
    assert torch.equal(y, torch.zeros(3, 4))
    assert torch.equal(x.grad, torch.zeros(2, 4))
    assert A.has_empty_rows()


def test_a_matrix_without_rows_has_no_empty_rows():
    A = SparseMatrix.from_dense(torch.empty(0, 3))
    assert (A @ torch.ones(3, 2)).shape == (0, 2)
    assert not A.has_empty_rows()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_narrow_integers_do_not_overflow(dtype):
    """Entries are numbered row by row: 30,000 nodes need 9 * 10^8 numbers, 100,000 nodes more than int32 has."""
    n = 30_000 if dtype == torch.int16 else 100_000
    edges = torch.tensor([[n - 1, 5, n - 1, 7], [n - 2, 0, n - 2, n - 1]], dtype=dtype)
    A = adjacency(edges, n, self_loops=False)
    assert A.row.tolist() == [0, n - 2, n - 1]
    assert A.col.tolist() == [5, n - 1, 7]
    assert A.values.tolist() == [1.0, 2.0, 1.0]


# --- other values, other dtypes, other devices -----------------------------------------------------------------------


def test_with_values_shares_every_index_and_clears_what_was_derived_from_the_values():
    dense, A = sparse(5, 5)
    A.row_sums(), A.has_empty_rows(), A @ normals(5, 1), A.transposed_times(normals(5, 1), A.values)
    B = A.with_values(2 * A.values)
    for name in ("row", "col", "permutation", "crow", "col_csr", "crow_t", "col_t"):
        assert getattr(A, name) is getattr(B, name)
    x = normals(5, 3)
    torch.testing.assert_close(B @ x, 2 * dense @ x)
    torch.testing.assert_close(B.transposed_times(x, B.values), 2 * dense.T @ x)
    torch.testing.assert_close(B.row_sums(), 2 * dense.sum(1, keepdim=True))
    torch.testing.assert_close(A @ x, dense @ x)
    full = SparseMatrix.from_dense(torch.ones(2, 2))
    assert not full.has_empty_rows()
    assert full.with_values(torch.zeros(4)).has_empty_rows()


def test_row_sums_have_no_gradient():
    _, A = sparse(3, 3)
    B = A.with_values(A.values.clone().requires_grad_())
    assert not B.row_sums().requires_grad


def test_to_another_dtype_and_back():
    dense, A = sparse(4, 3)
    B = A.to(dtype=torch.float32)
    assert B.values.dtype == torch.float32
    assert A.values.dtype == torch.float64
    torch.testing.assert_close(B @ torch.eye(3), dense.float())
    assert B.to("cpu").device == torch.device("cpu")
    assert repr(B) == f"SparseMatrix(4 x 3, {B.values.numel()} entries, cpu)"


def test_to_another_device_moves_every_index():
    _, A = sparse(4, 3)
    B = A.to("meta")
    names = ("row", "col", "values", "permutation", "crow", "col_csr", "crow_t", "col_t")
    assert {getattr(B, name).device.type for name in names} == {B.device.type} == {"meta"}
    assert A.device.type == A.row.device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_product_has_the_dtype_of_x_and_is_computed_in_float32_or_wider(dtype):
    dense, A = sparse(6, 6)
    x = normals(6, 3).to(dtype).requires_grad_()
    y = A @ x
    y.sum().backward()
    tolerance = 4 * torch.finfo(dtype).eps
    assert y.dtype == x.grad.dtype == dtype
    torch.testing.assert_close(y.double(), dense @ x.detach().double(), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(x.grad.double(), dense.T @ torch.ones(6, 3).double(), rtol=tolerance, atol=tolerance)


def test_values_and_x_of_different_dtypes():
    dense, A = sparse(4, 4, dtype=torch.float32)
    values = A.values.clone().requires_grad_()
    x = normals(4, 2).requires_grad_()
    y = A.matmul(x, values)
    y.sum().backward()
    assert (y.dtype, x.grad.dtype, values.grad.dtype) == (torch.float64, torch.float64, torch.float32)
    torch.testing.assert_close(y, dense.double() @ x)


def test_autocast_does_not_change_the_product():
    _, A = sparse(4, 4, dtype=torch.float32)
    x = normals(4, 2, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(A @ x, A @ x)
        got = A @ x
    assert got.dtype == torch.float32
    assert torch.equal(got, A @ x)


def test_an_integer_x_is_rejected():
    _, A = sparse(4, 4)
    with pytest.raises(TypeError, match=r"floating point tensor, got torch\.int64"):
        A @ torch.ones(4, 2, dtype=torch.int64)


# --- adjacency -------------------------------------------------------------------------------------------------------


class Sum(MessagePassing):
    """PyG's own aggregation: each node sums w x over its incoming edges."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return edge_weight.unsqueeze(-1) * x_j


def test_direction_and_weights_agree_with_pyg():
    g = torch.Generator().manual_seed(0)
    edge_index = torch.randint(7, (2, 20), generator=g)  # directed, with repetitions and self loops
    weight = torch.rand(20, generator=g, dtype=torch.float64)
    x = normals(7, 3)
    A = adjacency(edge_index, 7, weight, self_loops=False)
    torch.testing.assert_close(A @ x, Sum()(x, edge_index, weight))
    one_way = adjacency(torch.tensor([[0], [1]]), 2, self_loops=False)
    assert to_dense(one_way).tolist() == [[0.0, 0.0], [1.0, 0.0]]  # node 1 receives from node 0


def test_self_loops_are_added_only_to_nodes_without_one():
    A = adjacency(torch.tensor([[0, 1, 2], [1, 1, 0]]), 4, torch.tensor([0.5, 3.0, 0.25]))
    expected = torch.tensor([[1.0, 0, 0.25, 0], [0.5, 3.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])
    assert torch.equal(to_dense(A), expected)
    assert torch.equal(to_dense(adjacency(torch.empty(2, 0, dtype=torch.int64), 3)), torch.eye(3))


def test_a_gradient_reaches_the_edge_weights_but_not_the_self_loops():
    weight = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    A = adjacency(torch.tensor([[2, 0], [0, 1]]), 3, weight)
    x = normals(3, 2)
    (A @ x).sum().backward()
    torch.testing.assert_close(weight.grad, torch.stack([x[2].sum(), x[0].sum()]))


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        (torch.tensor([[0, 3], [1, 0]]), "edge_index has node 3, but nodes are 0 to 2"),
        (torch.tensor([[0, -1], [1, 0]]), "edge_index has node -1, but nodes are 0 to 2"),
        (torch.tensor([[0.0], [1.0]]), "integer tensor of shape [2, E] as in PyG, got torch.float32 of shape (2, 1)"),
        (torch.tensor([[True], [False]]), "integer tensor of shape [2, E] as in PyG, got torch.bool"),
        (torch.tensor([[0, 1], [1, 2], [2, 0]]), "of shape (3, 2)"),
        (torch.tensor([0, 1]), "of shape (2,)"),
    ],
)
def test_wrong_edges_are_rejected(edge_index, message):
    with pytest.raises(ValueError) as error:
        adjacency(edge_index, 3)
    assert message in str(error.value)


@pytest.mark.parametrize("bad", [-0.5, float("nan"), float("inf")])
def test_weights_that_are_negative_or_not_finite_are_rejected(bad):
    with pytest.raises(ValueError, match="edge weights must be finite and not negative"):
        adjacency(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([1.0, bad]))


def test_a_wrong_number_of_weights_is_rejected():
    with pytest.raises(ValueError, match=r"edge_weight has shape \(3,\), expected one per edge \(2,\)"):
        adjacency(torch.tensor([[0, 1], [1, 0]]), 2, torch.ones(3))
