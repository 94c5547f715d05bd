"""Tests of layers with the parameters of a stack against the same layers one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from lresnet import Lorentz
from lresnet.geometry.stack import _outer_in_one_product, outer_rows, sum_to, times_rows
from lresnet.nn import EuclideanGraphConv, LorentzGraphConv, LorentzLinear, Prototypes, SparseMatrix, adjacency
from lresnet.nn.euclidean import EuclideanLinear
from lresnet.nn.input_map import features_to_points
from lresnet.nn.sparse import BlockDiagonal

S, N = 3, 7


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parameters(layer: torch.nn.Module, seed: int = 1) -> dict[str, Tensor]:
    """Return S sets of random parameters of ``layer``."""
    shapes = {name: p.shape for name, p in layer.named_parameters()}
    return {name: normals(S, *shape, seed=seed + i) for i, (name, shape) in enumerate(shapes.items())}


def one_by_one(layer: torch.nn.Module, stacked: dict[str, Tensor], call: Callable[[int], tuple]) -> Tensor:
    rows = [{name: tensor[s] for name, tensor in stacked.items()} for s in range(S)]
    return torch.stack([functional_call(layer, row, call(s)) for s, row in enumerate(rows)], dim=1)


def assert_agree(layer: torch.nn.Module, arguments: tuple, call: Callable[[int], tuple]) -> None:
    """Assert that values and gradients of all parameters agree."""
    results = []
    for run in (functional_call, one_by_one):
        stacked = {name: tensor.requires_grad_() for name, tensor in parameters(layer).items()}
        y = run(layer, stacked, arguments if run is functional_call else call)
        gradients = torch.autograd.grad(y, list(stacked.values()), normals(*y.shape, seed=9))
        results.append((y, *gradients))
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


def edges(seed: int = 0) -> Tensor:
    return torch.randint(N, (2, 12), generator=torch.Generator().manual_seed(seed))


# --- products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, S], ids=["shared rows", "own rows"])
def test_times_rows_and_its_gradient(members):
    matrix, x = normals(S, 4, 5).requires_grad_(), normals(N, members, 5)
    y = times_rows(matrix, x)
    torch.testing.assert_close(y, torch.einsum("smn,isn->ism", matrix, x.expand(N, S, 5)))
    g = normals(N, S, 4, seed=2)
    (expected,) = torch.autograd.grad(y, matrix, g)
    torch.testing.assert_close(outer_rows(g, x), expected)
    torch.testing.assert_close(times_rows(matrix[0], x), x @ matrix[0].mT)


def test_outer_rows_in_one_product():
    g, x = normals(N, S, 3), normals(N, S, 5, seed=1)
    torch.testing.assert_close(_outer_in_one_product(g, x), torch.einsum("nsi,nsj->sij", g, x))


def test_sum_to_sums_to_one_number_or_to_one_per_member():
    g = normals(N, S, 1)
    assert sum_to(torch.Size([]), g) == g.sum()
    assert sum_to(torch.Size([1, 1]), g).shape == (1, 1)
    torch.testing.assert_close(sum_to(torch.Size([S, 1]), g), g.sum(0))


# --- layers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, S], ids=["shared points", "own points"])
@pytest.mark.parametrize("K", [-0.5, -2.0])
def test_a_stack_of_lorentz_linear_equals_its_members(K, members):
    layer, x = LorentzLinear(5, 4, manifold=Lorentz(K)).double(), normals(N, members, 5)
    assert_agree(layer, (x,), lambda s: (x[:, s % members],))


def test_a_stack_of_lorentz_linear_with_sparse_features_equals_its_members():
    layer, dense = LorentzLinear(5, 4, manifold=Lorentz(-2.0)).double(), normals(N, 5) * (normals(N, 5, seed=3) > 0)
    shared = features_to_points(SparseMatrix.from_dense(dense), 2.0)
    assert_agree(layer, (shared.x, shared.time.unsqueeze(1)), lambda s: shared)
    kinds = [SparseMatrix.from_dense(dense * (s + 1)) for s in range(S)]
    own = features_to_points(BlockDiagonal.of(kinds), 2.0)
    assert_agree(layer, own, lambda s: features_to_points(kinds[s], 2.0))


@pytest.mark.parametrize("layer", [LorentzGraphConv(5, 4, manifold=Lorentz(-2.0)), EuclideanGraphConv(5, 4)])
def test_a_stack_of_graph_convolutions_equals_its_members_on_one_graph_and_on_several(layer):
    layer, x = layer.double(), normals(N, S, 5)
    A = adjacency(edges(), N, self_loops=False)  # some nodes have no incoming edge
    assert_agree(layer, (x, A), lambda s: (x[:, s], A))
    graphs = [adjacency(edges(s), N) for s in range(S)]
    assert_agree(layer, (x, BlockDiagonal.of(graphs)), lambda s: (x[:, s], graphs[s]))


def test_a_stack_of_heads_equals_its_members():
    x = normals(N, S, 5)
    for head in (Prototypes(5, 3, manifold=Lorentz(-2.0)), EuclideanLinear(5, 3)):
        assert_agree(head.double(), (x,), lambda s: (x[:, s],))


@pytest.mark.parametrize("members", [1, 2], ids=["shared points", "own points"])
def test_first_and_second_derivatives_also_in_each_member_s_curvature(members):
    A, names = adjacency(edges(), N), ("weight", "time_weight", "bias", "log_scale")

    def convolution(x: Tensor, log_kappa: Tensor, *parameters: Tensor) -> Tensor:
        conv = LorentzGraphConv(3, 2, manifold=Lorentz(-1.0, learnable=True))
        del conv.manifold.log_kappa
        conv.manifold.log_kappa = log_kappa
        stacked = {f"linear.{name}": tensor for name, tensor in zip(names, parameters, strict=True)}
        return functional_call(conv, stacked, (x, A))

    shapes = [(N, members, 3), (2, 1), (2, 3, 3), (2, 3), (2, 3), (2,)]
    inputs = [normals(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    assert gradcheck(convolution, inputs)
    assert gradgradcheck(convolution, inputs, atol=1e-4)


def test_a_stack_under_vmap_gives_the_same_result():
    layer = LorentzLinear(5, 4, manifold=Lorentz(-2.0)).double()
    stacked, x = parameters(layer), normals(2, N, S, 5)
    both = torch.vmap(lambda x: functional_call(layer, stacked, (x,)))(x)
    torch.testing.assert_close(both[1], functional_call(layer, stacked, (x[1],)))
