"""Entailment cones: angles against 60 digits, the forms of MERU and of Ganea et al., gradients, losses."""

import math

import mpmath
import pytest
import torch
from mpmath import mpf

from lresnet import Lorentz
from lresnet.nn import EntailmentConeLoss, cone_aperture, entailment_loss, exterior_angle
from tests.families import pairs
from tests.geometry import oracle


def meru_angle(x: list[float], y: list[float], kappa: float) -> float:
    """The arccos of MERU in 60 digits."""
    with mpmath.workdps(60):
        a, b, k = [mpf(c) for c in x], [mpf(c) for c in y], mpf(kappa)
        product = k * oracle.product(a, b, k)
        cosine = oracle.time(b, k) + oracle.time(a, k) * product
        cosine /= mpmath.sqrt(oracle.dot(a, a)) * mpmath.sqrt(product**2 - 1)
        return float(mpmath.acos(max(mpf(-1), min(mpf(1), cosine))))


@pytest.mark.parametrize("K", [-0.1, -1.0, -10.0])
@pytest.mark.parametrize("family", ["random", "near", "radial"])
def test_exterior_angle_is_accurate(family, K):
    for norm in (1e-3, 1.0, 100.0, 1e4):
        for dtype, eps in ((torch.float32, 2.0**-24), (torch.float64, 2.0**-53)):
            x, y = (t.to(dtype) for t in pairs(family, norm, count=4, n=4))
            # On one ray, rounding the coordinates by eps turns the geodesic by eps T.
            bar = 10 * eps * (1 + (norm * (-K) ** 0.5 if family == "radial" else 0))
            for a, b in ((x, y), (y, x)):
                got = exterior_angle(a, b, K=K)
                for i in range(len(a)):
                    assert abs(float(got[i]) - meru_angle(a[i].tolist(), b[i].tolist(), -K)) <= bar


@pytest.mark.parametrize("K", [-0.1, -10.0])
def test_nearly_opposite_points_are_accurate(K):
    for norm, share in ((0.1, 1.0), (1.0, 1e-3), (1e4, 1e-4)):
        for dtype, eps in ((torch.float32, 2.0**-24), (torch.float64, 2.0**-53)):
            x, near = (t.to(dtype) for t in pairs("near", norm, count=8, n=4))
            y = -share * (x + (near - x) * 0.1)  # an angle of 1e-4 to the opposite ray
            for a, b in ((x, y), (y, x)):
                got = exterior_angle(a, b, K=K)
                for i in range(len(a)):
                    assert abs(float(got[i]) - meru_angle(a[i].tolist(), b[i].tolist(), -K)) <= 16 * eps


def test_textbook_form_loses_the_digits_that_this_form_keeps():
    x, y = (t.float() for t in pairs("near", 100.0, count=32, n=4))
    t_x, t_y = ((v.square().sum(-1) + 1).sqrt() for v in (x, y))
    product = (x * y).sum(-1) - t_x * t_y
    cosine = (t_y + t_x * product) / (x.norm(dim=-1) * (product.square() - 1).clamp(min=1e-8).sqrt())
    textbook = cosine.clamp(-1, 1).acos()
    exact = exterior_angle(x.double(), y.double())
    assert float((textbook - exact).abs().max()) > 1e-2
    assert float((exterior_angle(x, y) - exact).abs().max()) < 1e-6


def test_aperture_has_the_forms_of_meru_and_of_ganea():
    M, x = Lorentz(-0.5), torch.randn(16, 3, dtype=torch.float64) * 4
    root = 0.5**0.5
    torch.testing.assert_close(cone_aperture(x, K=-0.5), torch.asin(0.2 / (root * x.norm(dim=-1))))
    p = M.to_poincare(x).norm(dim=-1) * root  # in the unit ball
    torch.testing.assert_close(cone_aperture(x, K=-0.5), torch.asin(0.1 * (1 - p.square()) / p))


def test_exterior_angle_is_pi_minus_the_angle_of_the_triangle():
    M, (x, y) = Lorentz(-2.0), torch.randn(2, 8, 3, dtype=torch.float64)
    to_y, to_origin = M.logmap(x, y), M.logmap(x, torch.zeros_like(x))
    cosine = M.inner(x, to_y, to_origin) / (M.inner(x, to_y) * M.inner(x, to_origin)).sqrt()
    torch.testing.assert_close(exterior_angle(x, y, K=-2.0), math.pi - cosine.acos())


def test_special_positions_have_finite_gradients():
    x = torch.tensor([[1.0, 0.0]] * 6 + [[0.0, 0.0]] * 2)
    y = torch.tensor(
        [[2.0, 0.0], [0.5, 0.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1e-20], [0.0, 0.0], [1.0, 1.0]]
    )
    x.requires_grad_(), y.requires_grad_()
    angle = exterior_angle(x, y)
    expected = torch.tensor([0.0, math.pi, 0.0, math.pi, math.pi, 0.0, 0.0, 0.0])
    torch.testing.assert_close(angle[[0, 1, 2, 3, 4, 6, 7]], expected[[0, 1, 2, 3, 4, 6, 7]], atol=1e-6, rtol=0)
    entailment_loss(x, y).backward()
    assert x.grad.isfinite().all()
    assert y.grad.isfinite().all()
    near = torch.tensor([[0.2, 0.0], [0.2 + 2e-8, 0.0], [0.0, 0.0]], requires_grad=True)
    cone_aperture(near).sum().backward()
    assert near.grad.isfinite().all()


def test_gradcheck_with_curvature():
    x, y = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    K = torch.tensor(-0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b, k: exterior_angle(a, b, K=k), (x, y, K))
    assert torch.autograd.gradcheck(lambda a, k: cone_aperture(4 * a, K=k), (x, K))


def test_float32_gradients_agree_with_float64():
    for family in ("random", "near"):
        x, y = (t.float().requires_grad_() for t in pairs(family, 3.0, count=8, n=4))
        a, b = (t.detach().double().requires_grad_() for t in (x, y))
        got = torch.autograd.grad(exterior_angle(x, y).sum(), [x, y])
        expected = torch.autograd.grad(exterior_angle(a, b).sum(), [a, b])
        for one, other in zip(got, expected, strict=True):
            assert float((one - other).norm() / other.norm()) < 1e-5


def test_loss_is_the_mean_energy_and_negatives_have_a_margin():
    x, y, z = torch.randn(3, 6, 3)
    energy = torch.relu(exterior_angle(x, y) - cone_aperture(x))
    torch.testing.assert_close(entailment_loss(x, y), energy.mean())
    other = torch.relu(0.3 - torch.relu(exterior_angle(x, z) - cone_aperture(x)))
    torch.testing.assert_close(entailment_loss(x, y, negatives=z, margin=0.3), energy.mean() + other.mean())
    module = EntailmentConeLoss(Lorentz(-1.0), margin=0.3)
    torch.testing.assert_close(module(x, y, z), entailment_loss(x, y, negatives=z, margin=0.3))
    assert list(module.parameters()) == []
    assert "min_radius=0.1" in repr(module)


def test_descent_moves_points_into_the_cone():
    x, y = torch.tensor([[1.0, 0.0]]), torch.nn.Parameter(torch.tensor([[0.5, 1.5]]))
    optimizer = torch.optim.Adam([y], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        entailment_loss(x, y).backward()
        optimizer.step()
    assert float(entailment_loss(x, y).detach()) < 0.02
    assert float(y.detach().norm()) > 1


def test_half_precision_is_computed_in_float32():
    x, y = torch.randn(2, 5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        inside = exterior_angle(x, y)
    assert torch.equal(inside, exterior_angle(x, y))
    assert exterior_angle(x.bfloat16(), y.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("radius", [0.0, -1.0, math.inf])
def test_wrong_radius_is_reported(radius):
    with pytest.raises(ValueError, match="min_radius must be positive"):
        cone_aperture(torch.randn(2, 3), min_radius=radius)
    with pytest.raises(ValueError, match="min_radius must be positive"):
        EntailmentConeLoss(Lorentz(-1.0), min_radius=radius)
