"""cosh d - 1 between two sets of points by one matrix product."""

import pytest
import torch

from lresnet import Lorentz
from lresnet.geometry.cross import cross_separation
from lresnet.geometry.pair import separation
from lresnet.testing import assert_finite_gradients
from tests.families import CURVATURES, NORMS, pairs


@pytest.mark.parametrize("K", CURVATURES)
def test_it_is_the_separation_of_all_pairs(K):
    for norm in NORMS:
        x, y = pairs("random", norm, count=24)
        exact = separation(x.unsqueeze(1), y[:8].unsqueeze(0), -K, -1).squeeze(-1)
        torch.testing.assert_close(cross_separation(x, y[:8], -K), exact, rtol=1e-12, atol=1e-15)
        got = cross_separation(x.float(), y[:8].float(), -K).double()
        bound = 2e-6 * exact + 8 * 2.0**-24 * (-K) * x.norm(dim=-1).unsqueeze(-1) * y[:8].norm(dim=-1)
        assert ((got - exact).abs() <= bound).all()
        assert (got >= 0).all()


def test_near_points_lose_one_rounding_of_the_cosine():
    # The documented price of the matrix product: 6e-8 R_x R_y in float32 (times a few), and never negative.
    x, y = pairs("near", 30.0, count=32)
    exact = separation(x.unsqueeze(1), y.unsqueeze(0), 1.0, -1).squeeze(-1)
    got = cross_separation(x.float(), y.float(), 1.0).double()
    assert ((got - exact).abs() <= 8 * 6e-8 * 901 + 1e-5 * exact).all()


def test_shapes_and_batches():
    x, y = torch.randn(2, 5, 3), torch.randn(4, 3)
    out = cross_separation(x, y, 1.0)
    assert out.shape == (2, 5, 4)
    torch.testing.assert_close(out[1, 2], cross_separation(x[1, 2:3], y, 1.0)[0])
    assert cross_separation(x[1, 2], y, 1.0).shape == (4,)


def test_derivatives():
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 3, generator=g, dtype=torch.float64) for n in (2, 3))
    y[0] = x[0]
    x[1] = 0
    args = tuple(t.requires_grad_() for t in (x, y, torch.tensor(0.7, dtype=torch.float64)))
    assert torch.autograd.gradcheck(cross_separation, args)
    assert torch.autograd.gradgradcheck(cross_separation, args, atol=1e-4)


def test_finite_for_zeros_and_subnormals():
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-30, 1e-20, 1.0])
    points = torch.cartesian_prod(special, special)
    assert_finite_gradients(lambda x, y: cross_separation(x, y, 0.7), points, points)


def test_in_float32_under_autocast():
    M = Lorentz(-1.0)
    x, y = torch.randn(4, 3), torch.randn(5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = cross_separation(x, y, 1.0)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, M.dist(x.unsqueeze(1), y).cosh() - 1, rtol=1e-5, atol=1e-5)
