"""The Poincare ball and the Klein model: isometric, invertible, and bounded."""

import geoopt
import mpmath
import pytest
import torch

from lresnet import Lorentz
from lresnet.geometry import charts
from lresnet.testing import assert_finite_gradients
from tests.families import CURVATURES, pairs


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("model", ["poincare", "klein"])
def test_round_trip(model, K):
    M = Lorentz(K)
    to, back = getattr(M, f"to_{model}"), getattr(M, f"from_{model}")
    for norm in (1e-3, 1.0, 100.0):
        x = pairs("random", norm, count=32)[0]
        torch.testing.assert_close(back(to(x)), x, rtol=1e-9, atol=0)
        single = x.float()
        # The distance to the boundary is 2/T (Poincare) or 1/(2 T^2) (Klein): rounding is compared with it.
        T2 = 1 - K * norm**2
        loss = 2.0**-24 * (T2**0.5 if model == "poincare" else T2)
        torch.testing.assert_close(back(to(single)), single, rtol=4 * loss + 4e-7, atol=0)


@pytest.mark.parametrize("K", CURVATURES)
def test_poincare_ball_is_that_of_geoopt(K):
    M, ball = Lorentz(K), geoopt.PoincareBall(c=torch.tensor(-K, dtype=torch.float64))
    for norm in (1e-3, 1.0, 10.0):
        x, y = pairs("random", norm, count=32)
        p, q = M.to_poincare(x), M.to_poincare(y)
        assert (p.norm(dim=-1) < (-K) ** -0.5).all()
        torch.testing.assert_close(ball.dist(p, q), M.dist(x, y), rtol=1e-8, atol=1e-12)
        torch.testing.assert_close(ball.logmap0(p), M.logmap0(x) / 2, rtol=1e-8, atol=1e-12)  # conformal factor 2


def test_klein_is_the_unit_ball_for_every_curvature():
    for K in CURVATURES:
        x = pairs("random", 100.0, count=32)[0]
        q = Lorentz(K).to_klein(x)
        torch.testing.assert_close(q, x / Lorentz(K).time(x).unsqueeze(-1))
        assert (q.norm(dim=-1) < 1).all()


@pytest.mark.parametrize("K", CURVATURES)
def test_klein_geodesics_are_straight(K):
    M = Lorentz(K)
    x, y = pairs("random", 2.0, count=16, n=3)
    u = M.logmap(x, y)
    a = M.to_klein(x)
    chord = M.to_klein(y) - a
    for t in (-0.5, 0.25, 0.5, 1.7):
        b = M.to_klein(M.expmap(x, t * u)) - a
        across = b - (b * chord).sum(-1, keepdim=True) / (chord * chord).sum(-1, keepdim=True) * chord
        assert across.abs().max() < 1e-12
    # The geodesics of the Poincare ball are not straight, so the test can fail.
    p = M.to_poincare(M.expmap(x, 0.5 * u)) - M.to_poincare(x)
    chord = M.to_poincare(y) - M.to_poincare(x)
    assert (p - (p * chord).sum(-1, keepdim=True) / (chord * chord).sum(-1, keepdim=True) * chord).abs().max() > 1e-2


def test_every_float32_point_inside_the_ball_is_mapped_to_a_finite_point():
    g = torch.Generator().manual_seed(0)
    p = torch.randn(20000, 3, generator=g)
    p = p / p.norm(dim=-1, keepdim=True) * (1 - 10 ** (-8 + 2 * torch.rand(len(p), 1, generator=g)))
    p = p[p.double().square().sum(-1) < 1]  # within 1e-6 to 1e-8 of the boundary
    M = Lorentz(-1.0)
    for x in (M.from_poincare(p), M.from_klein(p)):
        assert torch.isfinite(x).all()
        assert ((x * p).sum(-1) > 0).all()
    with mpmath.workdps(50):
        for row, image in zip(p[:20].tolist(), M.from_poincare(p[:20]).tolist(), strict=True):
            gap = 1 - sum(mpmath.mpf(c) ** 2 for c in row)
            for c, z in zip(row, image, strict=True):
                assert abs(z - 2 * c / gap) <= 1e-6 * abs(z)


@pytest.mark.parametrize("learnable", [False, True])
@pytest.mark.parametrize("model", ["poincare", "klein"])
def test_points_outside_are_an_error(model, learnable):
    M = Lorentz(-1.0, learnable=learnable)
    back = getattr(M, f"from_{model}")
    name = "Poincare ball" if model == "poincare" else "Klein model"
    for bad, words in ((2.0, "2 times"), (1.0, "1 times"), (float("nan"), "nan times"), (float("inf"), "inf times")):
        p = torch.tensor([[0.0, 0.5], [bad, 0.0], [0.0, 0.0]], requires_grad=True)
        with pytest.raises(
            ValueError, match=rf"p must lie inside the {name}: 1 of 3 points do not.*largest norm is {words}"
        ):
            back(p)


def test_radius_of_the_poincare_ball_depends_on_the_curvature():
    p = torch.tensor([1.5, 0.0])
    assert Lorentz(-0.25).from_poincare(p).isfinite().all()  # radius 2
    with pytest.raises(ValueError, match="inside the Poincare ball"):
        Lorentz(-1.0).from_poincare(p)
    with pytest.raises(ValueError, match="inside the Klein model"):
        Lorentz(-0.25).from_klein(p)


def test_half_precision_points_near_the_boundary():
    # In bfloat16 arithmetic this norm, 0.9976, rounds to 1.
    p = torch.full((64,), 0.12451171875, dtype=torch.bfloat16)
    x = Lorentz(-1.0).from_poincare(p)
    assert x.dtype == torch.bfloat16
    exact = 2 * p.double() / (1 - p.double().square().sum())
    torch.testing.assert_close(x.double(), exact, rtol=2**-8, atol=0)


@pytest.mark.parametrize("f", [charts.to_poincare, charts.from_poincare, charts.to_klein, charts.from_klein])
def test_derivatives(f):
    g = torch.Generator().manual_seed(0)
    p = 0.3 * torch.randn(3, 3, generator=g, dtype=torch.float64)
    p[1] = 0
    args = (p.requires_grad_(), torch.tensor(0.7, dtype=torch.float64, requires_grad=True))
    assert torch.autograd.gradcheck(lambda p, k: f(p, k, -1), args)
    assert torch.autograd.gradgradcheck(lambda p, k: f(p, k, -1), args)
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-30, 1e-20, 0.1])
    assert_finite_gradients(lambda p, k: f(p, k, -1), torch.cartesian_prod(special, special), torch.tensor(0.7))
