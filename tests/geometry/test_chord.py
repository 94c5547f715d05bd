"""Distances and logarithms of near points keep their digits, and so do their gradients.

Bars are relative, in units of the last place (eps): a few of them, and for two points on one ray T of them more, with T
the unitless time (lresnet/geometry/chord.py derives it).
"""

import itertools

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lresnet import Lorentz
from lresnet.geometry import maps
from lresnet.geometry.chord import chord2
from lresnet.geometry.pair import separation
from tests.families import FAMILIES, NORMS, pairs
from tests.geometry import oracle

DTYPES = [torch.float32, torch.float64]
RADII = [1e-3, 1.0, 10.0, 1e3, 1e4]  # without units: sqrt(kappa) |x|
STEPS = [1e-6, 1e-4, 1e-2, 0.2, 1.0]  # |x - y| / |x|; the forms change places between 0.2 and 1
DIRECTIONS = ["random", "across", "radial"]
over_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
over_cases = pytest.mark.parametrize("direction", DIRECTIONS)
over_radii = pytest.mark.parametrize("R", RADII)


def near(R: float, step: float, direction: str, K: float, dtype: torch.dtype, count: int = 8) -> tuple[Tensor, Tensor]:
    """Pairs of radius R that are ``step`` R apart, as numbers of ``dtype``."""
    g = torch.Generator().manual_seed(3)
    x, v = (torch.randn(count, 5, generator=g, dtype=torch.float64) for _ in range(2))
    x = (x / x.norm(dim=-1, keepdim=True) * R / (-K) ** 0.5).to(dtype).double()
    if direction == "radial":
        v = x.clone()
    if direction == "across":
        v = v - (v * x).sum(-1, keepdim=True) / (x * x).sum(-1, keepdim=True) * x
    y = x + step * x.norm(dim=-1, keepdim=True) * v / v.norm(dim=-1, keepdim=True)
    return x.to(dtype), y.to(dtype)


def exactly(name: str, x: Tensor, y: Tensor, K: float) -> list[oracle.Row]:
    """The oracle's results, row by row; 90 digits outlast the textbook forms of points one unit apart at norm 1e18."""
    f = getattr(oracle, name)
    rows = zip(x.tolist(), y.tolist(), strict=True)
    return [f(mpmath.mpf(-K), *([mpmath.mpf(c) for c in row] for row in pair)) for pair in rows]


def worst(got: Tensor, x: Tensor, y: Tensor, K: float) -> float:
    """Largest relative error of distances, in eps."""
    with mpmath.workdps(90):
        exact = exactly("dist", x, y, K)
        errors = [abs(mpmath.mpf(float(d)) / e[0] - 1) for d, e in zip(got, exact, strict=True)]
        return float(max(errors)) / torch.finfo(got.dtype).eps


def bar(R: float, direction: str) -> float:
    return 6 + (R if direction == "radial" else 0)


@over_dtypes
@pytest.mark.parametrize("K", [-1.0, -0.1, -10.0])
@over_cases
@over_radii
def test_distance(R, direction, K, dtype):
    for step in STEPS:
        x, y = near(R, step, direction, K, dtype)
        assert worst(Lorentz(K).dist(x, y), x, y, K) <= bar(R, direction), step
        # The square of a distance in radii of curvature doubles its relative error.
        assert worst(Lorentz(K).dist2(x, y).sqrt(), x, y, K) <= bar(R, direction), step


@over_dtypes
@over_radii
def test_points_one_unit_in_the_last_place_apart(R, dtype):
    x, _ = near(R, 1.0, "random", -1.0, dtype, count=64)
    y = x.clone()
    rows = torch.arange(len(x))
    y[rows, rows % 5] = torch.nextafter(y, torch.full_like(y, torch.inf))[rows, rows % 5]
    got = Lorentz(-1.0).dist(x, y)
    assert (got > 0).all()
    assert worst(got, x, y, -1.0) <= bar(R, "radial")


@over_dtypes
@over_cases
@over_radii
def test_logarithm(R, direction, dtype):
    # In the norm at x. Far out geodesics head inwards: the vector is longest along the radius, where length counts T
    # times less, and its coordinates' rounding across the radius does not.
    eps, one = torch.finfo(dtype).eps, mpmath.mpf(1)
    for step in STEPS:
        x, y = near(R, step, direction, -1.0, dtype)
        rows = (t.tolist() for t in (x, Lorentz(-1.0).logmap(x, y)))
        with mpmath.workdps(90):
            for *pair, exact in zip(*rows, exactly("logmap", x, y, -1.0), strict=True):
                foot, got = ([mpmath.mpf(c) for c in row] for row in pair)
                error = oracle.norm(one, foot, oracle.combine(one, got, -one, exact))
                length = oracle.norm(one, foot, exact)
                assert error <= (6 + R) * eps * length, step


def length(x: Tensor, g: Tensor) -> Tensor:
    """Of a covector at x, for kappa = 1: |g|^2 + (x . g)^2 is its square."""
    return (g.square().sum(-1) + (x * g).sum(-1).square()).sqrt()


@over_cases
@over_radii
def test_gradient_has_length_one(R, direction):
    """|grad d| = 1, and it is float64's gradient: rounded in R^n, a covector of length 1 is off by up to eps T."""
    M, eps = Lorentz(-1.0), 2.0**-23
    for step in STEPS:
        x, y = near(R, step, direction, -1.0, torch.float32, count=64)
        (got,) = torch.autograd.grad(M.dist(x.requires_grad_(), y).sum(), x)
        wide = x.detach().double().requires_grad_()
        (exact,) = torch.autograd.grad(M.dist(wide, y.double()).sum(), wide)
        x = x.detach().double()
        assert ((length(x, got.double()) - 1).abs() <= (8 + R) * eps).all(), step
        assert (length(x, got.double() - exact) <= (8 + 2 * R) * eps).all(), step


@pytest.mark.parametrize("R", [*RADII, 1e8, 1e18])
def test_gradient_of_the_distance_to_the_origin(R):
    """Along the radius the gradient's length in R^n is 1/T, and its rounding counts no more than that."""
    x = (R * pairs("random", 1.0, count=64)[0]).float().requires_grad_()
    (g,) = torch.autograd.grad(Lorentz(-1.0).dist0(x).sum(), x)
    assert ((length(x.detach().double(), g.double()) - 1).abs() <= 16 * 2.0**-23).all()


SIZES = itertools.product([1e-18, 1e-9, 1e9, 1e18], [1e-30, 1e-6, 1.0, 1e6, 1e30])


# Beyond this product the square of the time leaves float32.
@pytest.mark.parametrize(("norm", "kappa"), [(norm, kappa) for norm, kappa in SIZES if kappa**0.5 * norm <= 1e18])
def test_tiny_and_huge(norm, kappa):
    x, y = (t.float() for t in pairs("random", norm, count=8, n=3))
    axis = torch.zeros_like(x)
    axis[:, 1] = x.norm(dim=-1)
    # A point, its double on one axis and not, its neighbour, the origin, its opposite.
    for a, b in ((x, y), (x, 2 * x), (axis, 1.3 * axis), (axis, 1.2 * axis), (x, 0 * x), (x, -x)):
        a = a.clone().requires_grad_()
        got = Lorentz(-kappa).dist(a, b)
        assert worst(got.detach(), a.detach(), b, -kappa) <= 6
        assert torch.autograd.grad(got.sum(), a)[0].isfinite().all()


def test_one_dimension_has_no_direction_to_lose():
    x = torch.tensor([[1.0], [1e4], [1e8], [-1e18]])
    for factor in (1.000001, 1.01, 1.3, 7.0, -3.0):
        assert worst(Lorentz(-1.0).dist(x, factor * x), x, factor * x, -1.0) <= 6


@over_dtypes
@pytest.mark.parametrize("family", FAMILIES)
def test_symmetric_to_the_bit(family, dtype):
    for norm in NORMS:
        x, y = (t.to(dtype) for t in pairs(family, norm))
        assert torch.equal(chord2(x, y, 0.7, -1), chord2(y, x, 0.7, -1))


coordinate = st.floats(-1e6, 1e6, width=32)
point = st.tuples(coordinate, coordinate, coordinate)
curvature = st.sampled_from([-0.01, -1.0, -100.0])


@settings(deadline=None, derandomize=True, max_examples=200)
@given(point, point, curvature)
def test_any_two_points(a, b, K):
    # Length in R^n bounds length in the metric, so d <= |x - y|; below the root of the smallest number nothing is left.
    x, y, M = torch.tensor(a), torch.tensor(b), Lorentz(K)
    there = M.dist(x, y)
    assert torch.equal(there, M.dist(y, x))
    assert 0 <= there <= (x.double() - y.double()).norm() * (1 + 1e-6) + 2e-19
    assert M.dist(x, x.clone()) == 0
    assert there > 0 or (x - y).norm() < 1e-18


@settings(deadline=None, derandomize=True, max_examples=200)
@given(point, point, point, curvature)
def test_triangle_inequality(a, b, c, K):
    # Directions far out are known to eps T radii only where the points are not near: that much each side may be off.
    x, y, z = (torch.tensor(p) for p in (a, b, c))
    M = Lorentz(K)
    T = 1 + (-K) ** 0.5 * max(p.norm() for p in (x, y, z))
    room = 8 * 2.0**-24 * T * (1 + M.dist(x, y) + M.dist(y, z))
    assert M.dist(x, z) <= M.dist(x, y) + M.dist(y, z) + room


def test_near_triples_keep_the_triangle_inequality():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 3, generator=g)
    y, z = (x + 1e-6 * torch.randn(1000, 3, generator=g) for _ in range(2))
    M = Lorentz(-1.0)
    assert (M.dist(x, z) <= (M.dist(x, y) + M.dist(y, z)) * (1 + 8 * 2.0**-24)).all()


def test_it_is_the_separation_over_kappa():
    x, y = pairs("random", 2.0, count=16)
    torch.testing.assert_close(0.35 * chord2(x, y, 0.7, -1), separation(x, y, 0.7, -1), rtol=1e-14, atol=0)


def test_derivatives():
    x, y = pairs("random", 2.0, count=4, n=3)
    y[1], y[2], x[3] = x[1], -x[2], 0
    kappa = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    args = (x.requires_grad_(), y.requires_grad_(), kappa)
    assert torch.autograd.gradcheck(lambda x, y, k: chord2(x, y, k, -1), args, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x, y, k: chord2(x, y, k, -1), args, atol=1e-4)


def test_forward_derivatives_without_grad_mode():
    x, y = pairs("near", 2.0, count=4, n=3)
    _, slope = torch.func.jvp(lambda x: chord2(x, y, 0.7, -1), (x,), (y,))
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, y)
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(chord2(dual, y, 0.7, -1)).tangent, slope)


def test_values_do_not_depend_on_grad_mode():
    x, y = (t.float() for t in pairs("near", 2.0))
    with torch.no_grad():
        value = chord2(x, y, 0.7, -1)
    assert torch.equal(chord2(x.requires_grad_(), y, 0.7, -1), value)


def test_broadcasting_and_axes():
    x, y = torch.randn(5, 1, 3), torch.randn(4, 3)
    with torch.no_grad():
        out = maps.dist(x, y, 1.0, -1)
    assert out.shape == (5, 4, 1)
    torch.testing.assert_close(maps.dist(y, x, 1.0, -1), out, rtol=0, atol=0)
    torch.testing.assert_close(maps.dist(x.expand(5, 4, 3).movedim(-1, 0), y.T.unsqueeze(1), 1.0, 0)[0], out[..., 0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_inputs_are_computed_in_float32(dtype):
    x, y = (t.to(dtype) for t in pairs("near", 2.0))
    assert torch.equal(Lorentz(-1.0).dist(x, y), Lorentz(-1.0).dist(x.float(), y.float()).to(dtype))
