"""Tests of SpaceLinear against the time-first form in float64, as a stack, and in a graph convolution."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from lresnet import Lorentz
from lresnet.nn import LorentzGraphConv, LorentzLinear, SpaceLinear, SparseMatrix, adjacency
from lresnet.nn.sparse import BlockDiagonal
from lresnet.testing import assert_compiles, assert_finite_gradients, assert_on_manifold
from tests.nn.derivatives import assert_derivatives

CURVATURES = (-0.1, -1.0, -2.0, -10.0)
EDGES = torch.tensor([[0, 1, 2, 3, 3, 4], [1, 2, 0, 4, 0, 4]])


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(K: float = -1.0, n: int = 5, m: int = 4, *, learnable: bool = False) -> SpaceLinear:
    torch.manual_seed(3)
    layer = SpaceLinear(n, m, manifold=Lorentz(K, learnable=learnable).double(), dtype=torch.float64)
    with torch.no_grad():
        layer.bias.copy_(normals(m, seed=5))  # the initial bias is 0
    return layer


@pytest.mark.parametrize("K", CURVATURES)
def test_layer_maps_the_space_part_of_time_first_vectors(K):
    layer, x = make(K), 3 * normals(50, 5)
    x[7] = 0
    p = layer.manifold.lift(x)
    space = p[:, 1:] @ layer.weight.T + layer.bias
    time = (space.square().sum(-1, keepdim=True) - 1 / K).sqrt()
    torch.testing.assert_close(layer.manifold.lift(layer(x)), torch.cat([time, space], dim=-1))
    y = layer.with_time(x)
    torch.testing.assert_close(y[:, :-1], space)
    torch.testing.assert_close(y[:, -1:], (-K) ** 0.5 * time)


@pytest.mark.parametrize("K", CURVATURES)
def test_results_are_points_with_finite_gradients_and_the_layer_compiles(K):
    M = Lorentz(K)
    layer = SpaceLinear(8, 4, manifold=M)
    assert_on_manifold(layer(torch.randn(5, 8)), M)
    assert_finite_gradients(layer, torch.zeros(5, 8))
    assert_compiles(layer, torch.randn(5, 8))


def test_initial_parameters_are_those_of_the_euclidean_baseline():
    layer = SpaceLinear(40, 24, manifold=Lorentz(-1.0)).requires_grad_(False)
    bound = (6 / 64) ** 0.5
    assert 0.95 * bound < layer.weight.abs().max() <= bound
    assert not layer.bias.any()


@pytest.mark.parametrize("learnable", [False, True], ids=["fixed", "learned"])
def test_first_and_second_derivatives_in_all_inputs(learnable):
    assert_derivatives(make(-2.0, 3, 2, learnable=learnable), normals(2, 4, 3), learnable=learnable)


def test_sparse_features_do_not_need_their_time():
    layer, x = make(), normals(6, 5) * (normals(6, 5, seed=1) > 0)
    matrix = SparseMatrix.from_dense(x)
    torch.testing.assert_close(layer(matrix), layer(x))
    torch.testing.assert_close(layer.with_time(matrix, torch.full((6, 1), torch.nan)), layer.with_time(x))


def test_half_precision_is_computed_in_float32():
    """Also under autocast: a product in bfloat16 has three digits."""
    layer = SpaceLinear(5, 4, manifold=Lorentz(-1.0))
    x = normals(6, 5).bfloat16()
    assert layer(x).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        wide = layer.with_time(x)
    assert wide.dtype == torch.float32
    expected = x.double() @ layer.weight.double().T + layer.bias.double()
    torch.testing.assert_close(wide[:, :-1].double(), expected, rtol=1e-6, atol=1e-6)


def test_points_of_another_dimension_are_rejected():
    with pytest.raises(ValueError, match="SpaceLinear was built for points of dimension 5"):
        make()(normals(3, 6))


# --- stacks and convolutions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "shared", "sparse", "own sparse"])
def test_a_stack_equals_its_members(kind):
    S, N = 3, 6
    layer = make()
    x = normals(N, S, 5) * (normals(N, S, 5, seed=1) > 0)
    if kind in ("shared", "sparse"):
        x = x[:, :1].expand(-1, S, -1)
    members = [SparseMatrix.from_dense(x[:, s].contiguous()) for s in range(S)]
    given = {"dense": x, "shared": x[:, :1], "sparse": members[0], "own sparse": BlockDiagonal.of(members)}[kind]
    results = []
    for stacked in (True, False):
        weight, bias = normals(S, 4, 5, seed=2).requires_grad_(), normals(S, 4, seed=3).requires_grad_()
        if stacked:
            y = functional_call(layer, {"weight": weight, "bias": bias}, (given,))
        else:
            own = [{"weight": weight[s], "bias": bias[s]} for s in range(S)]
            y = torch.stack([functional_call(layer, own[s], (x[:, s],)) for s in range(S)], dim=1)
        results.append([y, *torch.autograd.grad(y, [weight, bias], normals(N, S, 4, seed=4))])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("K", CURVATURES)
def test_a_convolution_returns_centroids_of_mapped_points(K):
    M = Lorentz(K).double()
    conv = LorentzGraphConv(5, 4, manifold=M, layer="space", dtype=torch.float64)
    x = normals(5, 5)
    y = conv(x, EDGES)
    h = conv.linear(x)
    A = adjacency(EDGES, 5)
    for node in range(5):
        neighbours = A.col[A.row == node]
        torch.testing.assert_close(y[node], M.centroid(h[neighbours], A.values[A.row == node].double()))


def test_a_convolution_selects_its_layer_by_name():
    M = Lorentz(-1.0)
    assert isinstance(LorentzGraphConv(3, 2, manifold=M).linear, LorentzLinear)
    assert isinstance(LorentzGraphConv(3, 2, manifold=M, layer="space").linear, SpaceLinear)
    with pytest.raises(ValueError, match="layer must be one of hybonet, space, hyperplane, got 'euclidean'"):
        LorentzGraphConv(3, 2, manifold=M, layer="euclidean")
