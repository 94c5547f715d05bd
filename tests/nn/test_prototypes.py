"""Tests of class prototypes: logits, Riemannian training, derivatives, state."""

import copy

import geoopt
import pytest
import torch
from safetensors.torch import load, save
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.nn import Prototypes
from lresnet.nn.prototypes import prototype_separation
from lresnet.testing import assert_compiles, assert_finite_gradients


def head(learnable: bool = False, K: float = -0.7, **options) -> Prototypes:
    torch.manual_seed(0)
    return Prototypes(4, 3, manifold=Lorentz(K, learnable=learnable), **options)


@pytest.mark.parametrize("K", [-0.1, -1.0, -2.0, -10.0])
def test_logits_are_negative_squared_lorentzian_distances_plus_bias(K):
    h = head(K=K, dtype=torch.float64)
    torch.nn.init.normal_(h.bias)
    x = 2 * torch.randn(16, 4, dtype=torch.float64)
    d = h.manifold.dist(x.unsqueeze(1), h.points.detach())
    expected = -2 / -K * ((-K) ** 0.5 * d).cosh().sub(1) + h.bias
    torch.testing.assert_close(h(x), expected, rtol=1e-12, atol=1e-12)


def test_shapes_and_state():
    h = head()
    assert h(torch.randn(2, 5, 4)).shape == (2, 5, 3)
    assert h(torch.randn(0, 4)).shape == (0, 3)
    assert h(torch.randn(4)).shape == (3,)
    assert list(h.state_dict()) == ["points", "bias", "_extra_state"]
    assert isinstance(h.points, geoopt.ManifoldParameter)
    assert h.points.manifold is h.manifold
    assert repr(h) == "Prototypes(4, 3, curvature=-0.7)"
    assert head(device="meta").points.device.type == "meta"


@pytest.mark.parametrize("K", [-1e-6, -1.0, -4.0])
def test_the_initial_distance_of_prototypes_does_not_depend_on_the_curvature(K):
    torch.manual_seed(0)
    M = Lorentz(K)
    h = Prototypes(64, 500, manifold=M, initial_distance=1.5)
    distances = M.dist(h.points.detach(), M.origin(64))
    assert float(distances.mean()) == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize("distance", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_initial_distance_is_an_error(distance):
    with pytest.raises(ValueError, match="initial_distance must be positive and finite, or None, got"):
        head(initial_distance=distance)


def test_initial_prototypes_are_about_one_radius_from_the_origin():
    torch.manual_seed(0)
    for K in (-0.1, -10.0):
        h = Prototypes(32, 100, manifold=Lorentz(K))
        assert (h.manifold.dist0(h.points).mean() * (-K) ** 0.5).item() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("optimiser", [geoopt.optim.RiemannianAdam, geoopt.optim.RiemannianSGD])
def test_riemannian_optimisers_train_the_prototypes(optimiser):
    torch.manual_seed(0)
    M = Lorentz(-1.0)
    label = torch.arange(3).repeat(50)
    centres = 2 * torch.eye(3, 4)
    x = M.boost(centres[label], M.random(150, 4, std=0.3))
    h = Prototypes(4, 3, manifold=M)
    step = optimiser(h.parameters(), lr=0.05)
    losses = []
    for _ in range(100):
        step.zero_grad()
        loss = torch.nn.functional.cross_entropy(h(x), label)
        loss.backward()
        step.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert (h(x).argmax(-1) == label).float().mean() > 0.97
    # The nearest prototype decides.
    assert M.dist(centres.unsqueeze(1), h.points.detach()).argmin(-1).tolist() == [0, 1, 2]


def test_a_learnable_curvature_has_a_gradient():
    h = head(learnable=True)
    h(torch.randn(8, 4)).square().sum().backward()
    assert h.manifold.log_kappa.grad.abs() > 0
    assert h.points.grad.abs().sum() > 0
    assert h.bias.grad.abs().sum() > 0


def test_gradients_are_finite_at_zero_and_at_the_prototypes():
    h = head()
    special = torch.tensor([0.0, 1e-45, 1e-20, 1.0])
    assert_finite_gradients(h, torch.cartesian_prod(special, special, special, special))
    assert_finite_gradients(h, h.points.detach().clone().as_subclass(torch.Tensor))
    logits = h(h.points.detach())
    assert (logits.diagonal() > -1e-5).all()
    assert (logits <= 0).all()


def test_autocast_computes_in_float32():
    h, x = head(), 3 * torch.randn(64, 4)
    expected = h(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(h(x), expected)
        half = h(x.bfloat16())
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, h(x.bfloat16().float()).bfloat16())
    assert h(x.double()).dtype == torch.float64


def test_copy_save_and_load():
    h = head(learnable=True)
    copied = copy.deepcopy(h)
    x = torch.randn(2, 4)
    assert torch.equal(copied(x), h(x))
    assert copied.manifold is not h.manifold
    assert copied.points.manifold is copied.manifold
    other = head()
    other.reset_parameters()
    other.load_state_dict(load(save(h.state_dict())))
    assert torch.equal(other.points, h.points)
    assert isinstance(other.points, geoopt.ManifoldParameter)


@pytest.mark.parametrize("learnable", [False, True])
def test_compiles(learnable):
    assert_compiles(head(learnable), torch.randn(5, 4))
    assert_compiles(lambda x, y: prototype_separation(x, y, 0.7), torch.randn(5, 3), torch.randn(5, 3))


def test_wrong_inputs_are_rejected():
    with pytest.raises(TypeError, match="x must be a floating point tensor"):
        head()(torch.ones(2, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"manifold must be an lresnet.Lorentz"):
        Prototypes(4, 3, manifold=geoopt.Lorentz())


def test_separation_and_its_first_and_second_derivatives():
    """In points, prototypes and curvature. The origin is among both, and one point equals a prototype."""
    x, y = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).unbind()
    x[0], x[2], y[2], x[3] = 0, 0, 0, y[3]
    x, y = x[:4].requires_grad_(), y[2:5].clone().requires_grad_()
    kappa = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    M = Lorentz(-0.7)
    expected = (0.7**0.5 * M.dist(x.unsqueeze(1), y)).cosh() - 1
    torch.testing.assert_close(prototype_separation(x, y, 0.7), expected)
    assert gradcheck(prototype_separation, (x, y, kappa))
    assert gradgradcheck(prototype_separation, (x, y, kappa), atol=1e-4)
