"""Tests of the Fermi-Dirac decoder."""

import copy

import pytest
import torch

from lresnet import Lorentz
from lresnet.nn import FermiDirac
from lresnet.testing import assert_commutative, assert_compiles, assert_finite_gradients


def test_probabilities_follow_the_formula():
    M = Lorentz(-0.5)
    x, y = torch.randn(2, 16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    decoder = FermiDirac(M, radius=1.5, temperature=0.7)
    expected = 1 / (((M.dist(x, y) ** 2 - 1.5) / 0.7).exp() + 1)
    torch.testing.assert_close(decoder(x, y), expected)
    torch.testing.assert_close(decoder.logits(x, y).sigmoid(), expected)


def test_probability_is_half_at_the_radius_and_falls_with_distance():
    M = Lorentz(-1.0)
    decoder = FermiDirac(M, radius=2.0, temperature=0.5)
    distances = torch.tensor([0.0, 1.0, 2.0**0.5, 2.0, 5.0], dtype=torch.float64)
    p = decoder(torch.zeros(5, 2, dtype=torch.float64), M.expmap0(distances.unsqueeze(-1) * torch.eye(2).double()[0]))
    assert p[2].item() == pytest.approx(0.5)
    assert (p.diff() < 0).all()


def test_logits_of_distant_points_are_finite():
    decoder = FermiDirac(Lorentz(-10.0), temperature=0.01)
    x = torch.tensor([[1e4, 0.0]])
    assert decoder(x, -x).item() == 0.0
    assert torch.isfinite(decoder.logits(x, -x))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(decoder.logits(x, -x), torch.ones(1))
    assert torch.isfinite(loss)


def test_gradients_are_finite_and_reach_the_curvature():
    decoder = FermiDirac(Lorentz(-1.0))
    special = torch.tensor([0.0, 1e-45, 1e-20, 1.0])
    x = torch.cartesian_prod(special, special)
    assert_finite_gradients(decoder, x, x.clone())
    assert_finite_gradients(decoder, x, torch.zeros_like(x))
    M = Lorentz(-1.0, learnable=True)
    FermiDirac(M)(torch.randn(4, 3), torch.randn(4, 3)).sum().backward()
    assert M.log_kappa.grad.abs() > 0


def test_shapes_state_copies_dtypes_and_compilation():
    decoder = FermiDirac(Lorentz(-1.0), radius=2, temperature=1)
    x, y = torch.randn(2, 5, 3)
    assert decoder(x.unsqueeze(1), y).shape == (5, 5)
    assert list(decoder.state_dict()) == ["_extra_state"]  # the curvature
    assert repr(decoder) == "FermiDirac(radius=2, temperature=1, curvature=-1)"
    assert_commutative(decoder, x, y)
    assert torch.equal(copy.deepcopy(decoder)(x, y), decoder(x, y))
    assert decoder(x.bfloat16(), y.bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(decoder(x, y), decoder(x.float(), y.float()))
    assert_compiles(decoder, x, y)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_not_positive_and_finite_is_rejected(temperature):
    with pytest.raises(ValueError, match=f"temperature must be positive and finite, got {temperature}"):
        FermiDirac(Lorentz(-1.0), temperature=temperature)
