"""Tests of HyperplaneLinear against the layer of HNN++ in the Poincare ball, as a stack, and in a graph network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from lresnet import Lorentz
from lresnet.models import LorentzGCN
from lresnet.nn import HyperplaneLinear, LorentzGraphConv, SparseMatrix
from lresnet.nn.mlr import lorentz_mlr
from lresnet.testing import assert_compiles, assert_finite_gradients, assert_on_manifold
from tests.nn.derivatives import assert_derivatives

CURVATURES = (-0.1, -1.0, -2.0, -10.0)
EDGES = torch.tensor([[0, 1, 2, 3, 3, 4], [1, 2, 0, 4, 0, 4]])


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(K: float = -1.0, n: int = 5, m: int = 4, *, learnable: bool = False) -> HyperplaneLinear:
    torch.manual_seed(3)
    layer = HyperplaneLinear(n, m, manifold=Lorentz(K, learnable=learnable).double(), dtype=torch.float64)
    with torch.no_grad():
        layer.bias.copy_(0.3 * normals(m, seed=5))  # the initial bias is 0
    return layer


def poincare(x: Tensor, c: float) -> Tensor:
    """Return the point of the ball of curvature -c with space coordinates x."""
    return x / (1 + (1 + c * x.square().sum(-1, keepdim=True)).sqrt())


@pytest.mark.parametrize("K", CURVATURES)
def test_layer_equals_that_of_hnn_plus_plus(K):
    """Equation 7 of Shimizu et al., in the ball."""
    layer, x, c = make(K), normals(50, 5), -K
    p, z, r = poincare(x, c), layer.weight.detach(), layer.bias.detach()
    conformal = 2 / (1 - c * p.square().sum(-1, keepdim=True))
    inner = c**0.5 * conformal * (p @ (z / z.norm(dim=-1, keepdim=True)).T) * (2 * c**0.5 * r).cosh()
    v = 2 / c**0.5 * z.norm(dim=-1) * (inner - (conformal - 1) * (2 * c**0.5 * r).sinh()).asinh()
    w = (c**0.5 * v).sinh() / c**0.5
    expected = w / (1 + (1 + c * w.square().sum(-1, keepdim=True)).sqrt())
    torch.testing.assert_close(poincare(layer(x), c), expected)
    torch.testing.assert_close(layer(x), (c**0.5 * lorentz_mlr(x, z, r, K=K)).sinh() / c**0.5)


def test_rows_of_norm_one_half_without_offset_give_a_linear_map():
    layer, x = make(), 100 * normals(20, 5)
    with torch.no_grad():
        layer.bias.zero_()
        layer.weight.mul_(0.5 / layer.weight.norm(dim=-1, keepdim=True))
    torch.testing.assert_close(layer(x), 2 * x @ layer.weight.T)


@pytest.mark.parametrize("K", CURVATURES)
def test_results_are_points_with_finite_gradients_and_the_layer_compiles(K):
    M = Lorentz(K)
    layer = HyperplaneLinear(8, 4, manifold=M)
    assert_on_manifold(layer(torch.randn(5, 8)), M)
    assert_finite_gradients(layer, torch.zeros(5, 8))
    assert_compiles(layer, torch.randn(5, 8))
    y = layer.with_time(torch.randn(5, 8))
    torch.testing.assert_close(y[:, -1], (1 - K * y[:, :-1].square().sum(-1)).sqrt())


def test_distances_are_limited_to_the_range_of_float32():
    layer = HyperplaneLinear(4, 3, manifold=Lorentz(-1.0))
    with torch.no_grad():
        layer.weight.mul_(100)
    y = layer(1e6 * torch.randn(7, 4))
    assert y.abs().max() <= torch.tensor(10.0).sinh() * 1.001
    assert_finite_gradients(layer, 1e6 * torch.randn(7, 4))


@pytest.mark.parametrize("learnable", [False, True], ids=["fixed", "learned"])
def test_first_and_second_derivatives_in_all_inputs(learnable):
    assert_derivatives(make(-2.0, 3, 2, learnable=learnable), 0.5 * normals(2, 4, 3), learnable=learnable)


def test_sparse_features_need_their_time():
    layer, x = make(-2.0), normals(6, 5) * (normals(6, 5, seed=1) > 0)
    time = layer.manifold.lift(x)[:, :1]
    torch.testing.assert_close(layer.with_time(SparseMatrix.from_dense(x), time), layer.with_time(x))
    with pytest.raises(ValueError, match="a sparse x needs its time"):
        layer(SparseMatrix.from_dense(x))


def test_a_stack_equals_its_members():
    layers = [make(), make()]
    with torch.no_grad():
        layers[1].weight.copy_(normals(4, 5, seed=9))
    stack = make()
    names = [name for name, _ in stack.named_parameters()]
    values = {name: torch.stack([getattr(layer, name).detach() for layer in layers]) for name in names}
    x = normals(7, 2, 5)
    expected = torch.stack([layer(x[:, i]) for i, layer in enumerate(layers)], dim=1)
    torch.testing.assert_close(functional_call(stack, values, (x,)), expected)


def test_wrong_dimension_and_radius_are_rejected():
    with pytest.raises(ValueError, match="HyperplaneLinear was built for points of dimension 5"):
        make()(normals(3, 4))
    with pytest.raises(ValueError, match="max_radius must be positive, got 0"):
        HyperplaneLinear(3, 2, manifold=Lorentz(-1.0), max_radius=0)


def test_a_graph_network_with_this_layer_has_finite_gradients():
    assert isinstance(LorentzGraphConv(3, 2, manifold=Lorentz(-1.0), layer="hyperplane").linear, HyperplaneLinear)
    model = LorentzGCN(in_features=5, num_classes=3, layer="hyperplane", activation="relu")
    logits = model(normals(5, 5).float(), EDGES)
    assert logits.shape == (5, 3)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
