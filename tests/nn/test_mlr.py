"""Tests of the HNN++ head in Lorentz coordinates: equal to its Poincare form, and more accurate."""

import copy

import pytest
import torch
from safetensors.torch import load, save

from lresnet import Lorentz
from lresnet.nn import LorentzMLR
from lresnet.nn.mlr import lorentz_mlr
from lresnet.testing import assert_compiles, assert_finite_gradients
from tests.families import pairs

CURVATURES = (-0.1, -1.0, -2.0)


def poincare_mlr(p: torch.Tensor, z: torch.Tensor, r: torch.Tensor, c: float) -> torch.Tensor:
    """Return equation 6 of HNN++ (Shimizu et al. 2021), as printed."""
    root = c**0.5
    factor = 2 / (1 - c * p.square().sum(-1, keepdim=True))
    norm = z.norm(dim=-1)
    inner = p @ (z / norm.unsqueeze(-1)).mT
    angle = 2 * root * r
    return 2 * norm / root * torch.asinh(factor * root * inner * angle.cosh() - (factor - 1) * angle.sinh())


def hyperplanes(n: int, classes: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(classes, n, generator=g).double(), 0.3 * torch.randn(classes, generator=g).double()


@pytest.mark.parametrize("K", CURVATURES)
def test_logits_equal_the_poincare_form(K):
    z, r = hyperplanes(8)
    for norm in (1e-3, 1.0, 10.0):
        x = pairs("random", norm, count=64, n=8)[0]
        expected = poincare_mlr(Lorentz(K).to_poincare(x), z, r, -K)
        torch.testing.assert_close(lorentz_mlr(x, z, r, K=K), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("norm", [1e2, 1e3, 1e4, 1e5])
def test_float32_is_no_worse_than_the_poincare_form(norm, K):
    z, r = hyperplanes(8)
    x = pairs("random", norm, count=256, n=8)[0].float()
    exact = lorentz_mlr(x.double(), z, r, K=K)
    ours = lorentz_mlr(x, z.float(), r.float(), K=K).double()
    # With the Poincare form the input is float32 points of the ball, which represent the same points less accurately.
    p = Lorentz(K).to_poincare(x.double()).float()
    theirs = poincare_mlr(p, z.float(), r.float(), -K).double()
    error, other = (ours - exact).abs().max(), (theirs - exact).abs().max()
    assert error <= other
    assert torch.isfinite(ours).all()


def test_a_logit_is_a_signed_distance_to_a_hyperplane():
    # With r = 0 and |z| = 1/2 the logit is the distance to the hyperplane through the origin with normal z.
    M = Lorentz(-2.0)
    x = pairs("random", 3.0, count=16, n=4)[0]
    z = torch.zeros(1, 4, dtype=torch.float64)
    z[0, 0] = 0.5
    logit = lorentz_mlr(x, z, torch.zeros(1, dtype=torch.float64), K=-2.0).squeeze(-1)
    mirrored = x * torch.tensor([-1.0, 1, 1, 1]).double()  # the reflection in that hyperplane
    torch.testing.assert_close(logit.abs(), M.dist(x, mirrored) / 2)
    assert torch.equal(logit.sign(), x[:, 0].sign())


def test_logits_are_linear_near_the_origin():
    z, r = hyperplanes(8)
    x = pairs("random", 1e-6, count=4, n=8)[0]
    torch.testing.assert_close(lorentz_mlr(x, z, 0 * r), 2 * x @ z.mT, rtol=1e-9, atol=0)


def test_gradients_are_finite_at_zero():
    z, r = (t.float() for t in hyperplanes(3))
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e4])
    x = torch.cartesian_prod(special, special, special)
    for bias in (r, torch.zeros_like(r)):
        assert_finite_gradients(lambda x, z, b, K: lorentz_mlr(x, z, b, K=-K), x, z, bias, torch.tensor(0.7))
        assert_finite_gradients(lorentz_mlr, x, torch.zeros_like(z), bias)
        assert_finite_gradients(lorentz_mlr, x, torch.full_like(z, 1e-45), bias)
        assert_finite_gradients(lorentz_mlr, x, torch.full_like(z, 1e-25), bias)


def test_first_and_second_derivatives():
    z, r = hyperplanes(3, classes=2)
    x = pairs("random", 1.0, count=2, n=3)[0]
    x[0] = 0
    args = tuple(t.clone().requires_grad_() for t in (x, z, r, torch.tensor(-0.7, dtype=torch.float64)))
    assert torch.autograd.gradcheck(lambda x, z, r, K: lorentz_mlr(x, z, r, K=K), args)
    assert torch.autograd.gradgradcheck(lambda x, z, r, K: lorentz_mlr(x, z, r, K=K), args)


# --- the module ------------------------------------------------------------------------------------------------------


def head(learnable: bool = False, **options) -> LorentzMLR:
    torch.manual_seed(0)
    return LorentzMLR(4, 3, manifold=Lorentz(-0.7, learnable=learnable), **options)


def test_shapes_and_state():
    h = head()
    assert h(torch.randn(2, 5, 4)).shape == (2, 5, 3)
    assert h(torch.randn(4)).shape == (3,)
    assert h(torch.randn(0, 4)).shape == (0, 3)
    assert list(h.state_dict()) == ["weight", "bias", "_extra_state"]
    assert repr(h) == "LorentzMLR(4, 3, curvature=-0.7)"
    assert torch.equal(h.bias, torch.zeros(3))
    assert head(dtype=torch.float64).weight.dtype == torch.float64
    assert head(device="meta").weight.device.type == "meta"


def test_initial_logits_have_the_deviation_of_a_linear_layer():
    torch.manual_seed(0)
    h = LorentzMLR(256, 64, manifold=Lorentz(-1.0))
    logits = h(1e-2 * torch.randn(512, 256))
    assert logits.std().item() == pytest.approx(1e-2, rel=0.1)


def test_a_learnable_curvature_has_a_gradient():
    h = head(learnable=True)
    h(torch.randn(8, 4)).square().sum().backward()
    assert h.manifold.log_kappa.grad.abs() > 0
    assert h.weight.grad.abs().sum() > 0
    assert h.bias.grad.abs().sum() > 0


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
    other = head()
    other.reset_parameters()
    other.load_state_dict(load(save(h.state_dict())))
    assert torch.equal(other.weight, h.weight)


@pytest.mark.parametrize("learnable", [False, True])
def test_compiles(learnable):
    assert_compiles(head(learnable), torch.randn(5, 4))


def test_training_separates_two_classes():
    torch.manual_seed(0)
    M = Lorentz(-1.0)
    x = M.random(300, 4, std=1.5)
    label = (x[:, 0] > 0.3).long()
    h = LorentzMLR(4, 2, manifold=M)
    optimiser = torch.optim.Adam(h.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(h(x), label)
        loss.backward()
        optimiser.step()
    assert (h(x).argmax(-1) == label).float().mean() > 0.97


def test_wrong_inputs_are_rejected():
    with pytest.raises(TypeError, match="x must be a floating point tensor"):
        head()(torch.ones(2, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"manifold must be an lresnet.Lorentz"):
        LorentzMLR(4, 3, manifold=-1.0)
