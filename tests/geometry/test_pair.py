"""The polar form of cosh d - 1 and what hangs on it."""

import mpmath
import pytest
import torch

from lresnet.geometry.pair import measure, separation, time_of, unit, unitless_time
from tests.families import CURVATURES, FAMILIES, NORMS, pairs


def exact_separation(x: list[float], y: list[float], kappa: float) -> float:
    with mpmath.workdps(50):
        a, b, k = [mpmath.mpf(c) for c in x], [mpmath.mpf(c) for c in y], mpmath.mpf(kappa)
        t = [mpmath.sqrt(mpmath.fdot(p, p) + 1 / k) for p in (a, b)]
        return float(k * (t[0] * t[1] - mpmath.fdot(a, b)) - 1)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", ["random", "near", "radial", "zero"])
def test_separation_keeps_its_digits(family, K):
    # Relative error. Near pairs differ in the fourth digit: there it is a unit over 1e-3, squared terms twice that.
    # Directions are known to a unit each, which is all that two points on a ray have between them besides the radii.
    bar = 5e-4 if family == "near" else 2e-6
    for norm in NORMS:
        direction = -K * norm**2 * 2.0**-46
        x, y = (t.float() for t in pairs(family, norm, count=8, n=4))
        got = separation(x, y, -K, -1).squeeze(-1)
        for i in range(len(x)):
            exact = exact_separation(x[i].tolist(), y[i].tolist(), -K)
            assert abs(float(got[i]) - exact) <= bar * exact + direction


def test_separation_is_zero_for_equal_points_only():
    for norm in NORMS:
        x, y = (t.float() for t in pairs("near", norm))
        assert torch.equal(separation(x, x.clone(), 1.0, -1), torch.zeros(len(x), 1))
        assert (separation(x, y, 1.0, -1) > 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_symmetric_to_the_bit(family):
    for norm in NORMS:
        x, y = (t.float() for t in pairs(family, norm))
        there, back = measure(x, y, 0.7, -1), measure(y, x, 0.7, -1)
        assert torch.equal(there.separation, back.separation)
        assert torch.equal(there.growth, back.growth)
        assert torch.equal(there.T_x, back.T_y)


def test_growth_is_the_derivative_in_kappa():
    x, y = pairs("random", 2.0, count=16)
    kappa = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(separation(x, y, kappa, -1).sum(), kappa)
    growth = measure(x, y, 0.7, -1).growth
    assert (growth >= 0).all()
    torch.testing.assert_close(growth.sum() / 0.7, slope)


def test_any_axis_can_hold_the_coordinates():
    x, y = pairs("random", 2.0, count=6, n=4)
    a = separation(x.view(2, 3, 4).movedim(-1, 1), y.view(2, 3, 4).movedim(-1, 1), 0.7, 1)
    assert a.shape == (2, 1, 3)
    torch.testing.assert_close(a.flatten(), separation(x, y, 0.7, -1).flatten())


def test_unit():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0], [1e-45, 1e-45], [1e-20, 0.0], [1e-15, 0.0]])
    e, r = unit(x, -1)
    assert torch.equal(r[0], torch.tensor([5.0]))
    torch.testing.assert_close(e[0], torch.tensor([0.6, 0.8]))
    assert torch.equal(e[1], torch.zeros(2))
    assert (e.norm(dim=-1) <= 1.0001).all()  # never longer than 1, whatever underflows
    torch.testing.assert_close(e[5], torch.tensor([1.0, 0.0]))


def test_time():
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert float(time_of(x, 0.25, -1)) == pytest.approx(29**0.5, rel=1e-15)
    assert float(unitless_time(x, 0.25, -1)) == pytest.approx(0.5 * 29**0.5, rel=1e-15)
