"""Tests of LorentzLinear against HyboNet's formula on time-first vectors in float64, and of its derivatives."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from lresnet import Lorentz
from lresnet.nn import LorentzLinear, SparseMatrix
from lresnet.nn.input_map import features_to_points
from lresnet.testing import assert_finite_gradients, assert_on_manifold

CURVATURES = (-0.1, -1.0, -2.0, -10.0)


def normals(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def randomised(layer: LorentzLinear, seed: int = 7) -> LorentzLinear:
    """Change the initial parameters, of which the time column and the bias are 0."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=g, dtype=torch.float64))
    return layer


def make(K: float = -1.0, n: int = 5, m: int = 4, *, learnable: bool = False, **options: object) -> LorentzLinear:
    torch.manual_seed(3)
    return LorentzLinear(n, m, manifold=Lorentz(K, learnable=learnable).double(), dtype=torch.float64, **options)


def hybonet(p: Tensor, layer: LorentzLinear) -> Tensor:
    """Return the published formula, [N, 1 + n] -> [N, 1 + m], for <x, x> = 1/K."""
    radius2 = 1 / float(layer.manifold.kappa)
    W = torch.cat([layer.time_weight.unsqueeze(1), layer.weight], dim=1)
    z = p @ W.T + layer.bias
    t = torch.sigmoid(z[:, :1]) * layer.log_scale.exp() + math.sqrt(radius2) + layer.floor
    scale = ((t.square() - radius2) / z[:, 1:].square().sum(-1, keepdim=True)).sqrt()
    return torch.cat([t, z[:, 1:] * scale], dim=-1)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("floor", [0.1, 0.5])
def test_layer_equals_hybonet_s(K, floor):
    layer = randomised(make(K, floor=floor))
    x = 3 * normals(50, 5)
    y = layer(x)
    expected = hybonet(layer.manifold.lift(x), layer)
    torch.testing.assert_close(layer.manifold.lift(y), expected, rtol=1e-13, atol=1e-13)
    assert_on_manifold(y, layer.manifold)


@pytest.mark.parametrize("K", CURVATURES)
def test_with_time_returns_the_time_of_its_points(K):
    layer = randomised(make(K))
    x = 3 * normals(50, 5)
    x[7] = 0
    y = layer.with_time(x)
    assert torch.equal(y[:, :-1], layer(x))
    torch.testing.assert_close(y[:, -1], (-K) ** 0.5 * layer.manifold.time(y[:, :-1]))


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_time_stays_between_its_bounds(K, dtype):
    """Inputs from 1e-3 to 1e6 saturate the gate."""
    layer = randomised(make(K, initial_scale=3.0)).to(dtype)
    x = normals(70, 5, dtype=dtype) * torch.logspace(-3, 6, 70, dtype=dtype).unsqueeze(1)
    least = (-K) ** -0.5 + layer.floor
    time = layer.manifold.time(layer(x)).double()
    rounding = 4 * torch.finfo(dtype).eps
    assert (time >= least * (1 - rounding)).all()
    assert (time <= (least + float(layer.log_scale.detach().exp())) * (1 + rounding)).all()
    assert time.max() - time.min() > 1  # both bounds are approached


def test_initial_parameters_are_hybonet_s():
    """Uniform weights, no weight of the time, no bias, scale 10."""
    layer = make(n=40, m=24).requires_grad_(False)
    assert layer.weight.abs().max() <= 1 / 5
    assert layer.weight.std() == pytest.approx(1 / 5 / math.sqrt(3), rel=0.05)
    assert not layer.time_weight.any()
    assert not layer.bias.any()
    assert layer.log_scale.exp() == pytest.approx(10)


# --- derivatives -----------------------------------------------------------------------------------------------------


class Holder(torch.nn.Module):
    """Owns a learned curvature, as a model does; the layer's input may depend on it too."""

    def __init__(self, K: float) -> None:
        super().__init__()
        self.manifold = Lorentz(K, learnable=True).double()
        self.layer = randomised(LorentzLinear(3, 2, manifold=self.manifold, initial_scale=2.0, dtype=torch.float64))

    def forward(self, features: Tensor, through_input: bool = True) -> Tensor:
        x = features_to_points(features, self.manifold.kappa).x if through_input else features
        return self.layer.with_time(x)


@pytest.mark.parametrize("K", [-0.5, -2.0])
@pytest.mark.parametrize("through_input", [True, False], ids=["input depends on K", "input does not"])
def test_first_and_second_derivatives_in_all_inputs(K, through_input):
    holder = Holder(K)
    names, parameters = zip(*holder.named_parameters(), strict=True)
    assert set(names) == {
        "manifold.log_kappa",
        "layer.weight",
        "layer.time_weight",
        "layer.bias",
        "layer.log_scale",
    }

    def f(features: Tensor, *values: Tensor) -> Tensor:
        return functional_call(holder, dict(zip(names, values, strict=True)), (features, through_input))

    inputs = (normals(4, 3).requires_grad_(), *(p.detach().clone().requires_grad_() for p in parameters))
    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


def test_derivatives_with_fixed_curvature_and_leading_axes():
    layer = randomised(make(-2.0, 3, 2))
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def f(x: Tensor, *values: Tensor) -> Tensor:
        return functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    inputs = (normals(2, 3, 3).requires_grad_(), *(p.detach().clone().requires_grad_() for p in parameters))
    assert f(*inputs).shape == (2, 3, 2)
    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


def test_closed_form_gradient_equals_that_of_the_published_formula():
    """gradcheck does not detect errors below its step; autograd of the textbook form does."""
    layer = randomised(make(-2.0))
    x = normals(30, 5).requires_grad_()
    weight = normals(30, 4, seed=2)
    wanted = [x, *layer.parameters()]
    got = torch.autograd.grad((layer(x) * weight).sum(), wanted)
    expected = torch.autograd.grad((hybonet(layer.manifold.lift(x), layer)[:, 1:] * weight).sum(), wanted)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_zero_row_gives_the_origin_with_gradient_0_before_training(create_graph):
    """For a node without features W 0 + 0 t + 0 has no direction. Other rows must not be affected."""
    layer = make(-2.0, learnable=True)
    x = normals(6, 5)
    x[2] = 0
    rest = torch.tensor([0, 1, 3, 4, 5])
    wanted = [layer.manifold.log_kappa, *layer.parameters()]

    def gradients(x: Tensor) -> tuple[Tensor, ...]:
        y = layer.with_time(x)
        return torch.autograd.grad(y.square().sum(), [x, *wanted], create_graph=create_graph)

    y = layer.with_time(x)
    assert y[2].tolist() == [0.0] * 4 + [1.0]
    full = gradients(x.clone().requires_grad_())
    without = gradients(x[rest].clone().requires_grad_())
    assert not full[0][2].any()
    torch.testing.assert_close(full[0][rest], without[0])
    for a, b in zip(full[1:], without[1:], strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_of_zero_and_extreme_rows_are_finite():
    layer = randomised(make()).float()
    x = normals(5, 5, dtype=torch.float32) * torch.tensor([[0.0], [1e-15], [1.0], [1e4], [1e15]])
    assert_finite_gradients(layer, x)


# --- sparse input, dtypes, autocast ----------------------------------------------------------------------------------


@pytest.mark.parametrize("learnable", [False, True])
def test_sparse_input_gives_the_same_result_as_dense_input(learnable):
    layer = randomised(make(-2.0, learnable=learnable))
    features = normals(20, 5) * (normals(20, 5, seed=1) > 0.5)
    features[3] = 0
    results = []
    for kind in (features, SparseMatrix.from_dense(features)):
        layer.zero_grad()
        layer.manifold.zero_grad()
        x, time = features_to_points(kind, layer.manifold.kappa)
        y = layer(x, time if isinstance(x, SparseMatrix) else None)
        y.square().sum().backward()
        kappa = [layer.manifold.log_kappa.grad] if learnable else []
        results.append([y.detach(), *kappa, *(p.grad.clone() for p in layer.parameters())])
    for dense, sparse in zip(*results, strict=True):
        torch.testing.assert_close(dense, sparse)


def test_sparse_input_without_its_time_is_rejected():
    with pytest.raises(ValueError, match=r"a sparse x needs its time, \[N, 1\]"):
        make()(SparseMatrix.from_dense(normals(3, 5)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_computed_in_float32(dtype, autocast):
    layer = randomised(make()).float()
    x = (3 * normals(20, 5)).to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = layer(x)
        assert layer.with_time(x).dtype == torch.float32
    y.float().sum().backward()
    wide = x.detach().float().requires_grad_()
    expected = layer(wide)
    expected.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    assert torch.equal(y, expected.to(dtype))  # rounded once, at the end
    assert torch.equal(x.grad, wide.grad.to(dtype))


def test_autocast_does_not_change_float32_results():
    layer = randomised(make()).float()
    x = normals(20, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert torch.equal(y, layer(x))


def test_float32_is_close_to_float64():
    layer = randomised(make(-2.0))
    x = normals(200, 5)
    exact = layer(x)
    got = copy.deepcopy(layer).float()(x.float())
    assert (layer.manifold.dist(exact, got.double())).max() < 3e-6


# --- module ----------------------------------------------------------------------------------------------------------


def test_state_and_repr():
    layer = make(-2.0, learnable=True)
    assert list(layer.state_dict()) == ["weight", "time_weight", "bias", "log_scale"]
    assert [tuple(p.shape) for p in layer.parameters()] == [(5, 5), (5,), (5,), (1,)]
    assert repr(layer) == "LorentzLinear(5, 4, curvature=-2, learnable)"


def test_a_deep_copy_is_independent_and_keeps_one_manifold():
    holder = Holder(-2.0)
    copied = copy.deepcopy(holder)
    assert copied.layer.manifold is copied.manifold
    assert copied.manifold is not holder.manifold
    x = normals(4, 3)
    assert torch.equal(copied(x), holder(x))
    with torch.no_grad():
        copied.manifold.log_kappa.add_(1.0)
    assert not torch.equal(copied(x), holder(x))


@pytest.mark.parametrize("options", [{"floor": 0.0}, {"floor": -1.0}, {"initial_scale": 0.0}, {"floor": float("nan")}])
def test_options_that_are_not_positive_are_rejected(options):
    with pytest.raises(ValueError, match="floor and initial_scale must be positive"):
        make(**options)


def test_an_integer_input_is_rejected():
    with pytest.raises(TypeError, match="floating point"):
        make()(torch.ones(2, 5, dtype=torch.int64))


def test_torch_func_gives_the_same_gradients_for_rows_without_a_direction():
    """Rows of zeros have no direction while the bias is 0, as for 94 nodes of chameleon before training."""
    layer = LorentzLinear(4, 3, manifold=Lorentz(-1.0), dtype=torch.float64)
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[2] = 0.0
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def loss(values: tuple[torch.Tensor, ...], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,)).sin().sum()

    plain = torch.autograd.grad(loss(parameters, x.requires_grad_()), [*parameters, x])
    found, by_x = torch.func.grad(loss, argnums=(0, 1))(parameters, x.detach())
    for name, expected, got in zip([*names, "x"], plain, [*found, by_x], strict=True):
        torch.testing.assert_close(got, expected, msg=name)
