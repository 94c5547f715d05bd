"""sinh(r)/r and asinh(r)/r in r^2: value and derivatives on both sides of the switch to the power series."""

import mpmath
import pytest
import torch

from lresnet.geometry.smooth import asinhc, cosh_minus_one, safe_sqrt, sinhc, with_derivatives_of

SAMPLES = [0.0, 1e-300, 1e-30, 1e-8, 1e-4, 9.9e-3, 0.01, 1.01e-2, 0.1, 1.0, 30.0, 400.0]
EXACT = {
    sinhc: lambda q: mpmath.sinh(mpmath.sqrt(q)) / mpmath.sqrt(q) if q else mpmath.mpf(1),
    asinhc: lambda q: mpmath.asinh(mpmath.sqrt(q)) / mpmath.sqrt(q) if q else mpmath.mpf(1),
    cosh_minus_one: lambda q: mpmath.cosh(mpmath.sqrt(q)) - 1,
}
SLOPE = {
    sinhc: lambda q: (mpmath.cosh(mpmath.sqrt(q)) - EXACT[sinhc](q)) / (2 * q),
    asinhc: lambda q: (1 / mpmath.sqrt(1 + q) - EXACT[asinhc](q)) / (2 * q),
    cosh_minus_one: lambda q: EXACT[sinhc](q) / 2,
}
SLOPE_AT_ZERO = {sinhc: 1 / 6, asinhc: -1 / 6, cosh_minus_one: 1 / 2}


@pytest.mark.parametrize("f", EXACT, ids=lambda f: f.__name__)
def test_values(f):
    with mpmath.workdps(700):  # cosh - 1 at 1e-300
        for dtype, unit in ((torch.float64, 2.0**-53), (torch.float32, 2.0**-24)):
            q = torch.tensor(SAMPLES, dtype=dtype)
            for got, sample in zip(f(q).tolist(), q.tolist(), strict=True):
                exact = EXACT[f](mpmath.mpf(sample))
                # sinh(r) has condition number r
                assert abs(got - exact) <= (5 + 2 * sample**0.5) * unit * exact


@pytest.mark.parametrize("f", EXACT, ids=lambda f: f.__name__)
def test_derivatives(f):
    """Relative error: worst just above the switch, where the closed form's derivative subtracts (4e-5 in float32)."""
    with mpmath.workdps(700):
        for dtype, bar in ((torch.float64, 1e-13), (torch.float32, 5e-5)):
            q = torch.tensor(SAMPLES, dtype=dtype, requires_grad=True)
            (slope,) = torch.autograd.grad(f(q).sum(), q)
            for got, sample in zip(slope.tolist(), q.tolist(), strict=True):
                exact = SLOPE[f](mpmath.mpf(sample)) if sample else SLOPE_AT_ZERO[f]
                assert abs(got - exact) <= bar * abs(exact)


@pytest.mark.parametrize("f", EXACT, ids=lambda f: f.__name__)
def test_second_derivatives(f):
    q = torch.tensor([0.0, 1e-3, 0.5, 7.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(f, q + 1e-5)  # inside the series and away from it; q >= 0 all along


def test_series_and_closed_form_agree_at_the_switch():
    for f in (sinhc, asinhc):
        below, above = (torch.tensor(v, dtype=torch.float64) for v in (0.01 - 1e-15, 0.01))
        assert abs(float(f(below) - f(above))) < 1e-15


def test_the_discarded_branch_does_not_make_the_gradient_nan():
    # The power series would overflow at 1e60, where the closed form is used.
    for f, large in ((sinhc, 1e5), (asinhc, 1e60), (cosh_minus_one, 1e5)):
        q = torch.tensor([large, 1e-30, 0.0], dtype=torch.float64, requires_grad=True)
        f(q).sum().backward()
        assert torch.isfinite(q.grad).all()


def test_safe_sqrt():
    q = torch.tensor([0.0, 4.0, 1e-40], requires_grad=True)
    r = safe_sqrt(q)
    assert r[:2].tolist() == [0.0, 2.0]
    r[:2].sum().backward()
    assert q.grad.tolist() == [0.0, 0.25, 0.0]
    assert torch.isnan(safe_sqrt(torch.tensor(float("nan"))))


def test_with_derivatives_of():
    x = torch.tensor(3.0, requires_grad=True)
    out = with_derivatives_of(torch.tensor(9.5), x.square())
    assert out.item() == 9.5
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert (first.item(), second.item()) == (6.0, 2.0)
    _, tangent = torch.func.jvp(lambda x: with_derivatives_of(torch.tensor(9.5), x.square()), (x,), (torch.ones(()),))
    assert tangent.item() == 6.0
