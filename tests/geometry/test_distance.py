"""Distances and pairwise quantities: accuracy against 90 digits, exactness, derivatives.

Tolerances of distances are relative, in units of the last place (eps): a few of them, plus T of them for two points on
one ray in float64, with T the unitless time (derived in lresnet/geometry/distance.py).
"""

import itertools

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lresnet import Lorentz
from lresnet.geometry import distance
from lresnet.geometry.distance import chord2, cross_separation, measure, separation, time_of, unit, unitless_time
from lresnet.testing import assert_finite_gradients
from tests.families import CURVATURES, FAMILIES, NORMS, pairs
from tests.geometry import oracle


def exact_separation(x: list[float], y: list[float], kappa: float) -> float:
    with mpmath.workdps(50):
        a, b, k = [mpmath.mpf(c) for c in x], [mpmath.mpf(c) for c in y], mpmath.mpf(kappa)
        t = [mpmath.sqrt(mpmath.fdot(p, p) + 1 / k) for p in (a, b)]
        return float(k * (t[0] * t[1] - mpmath.fdot(a, b)) - 1)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", ["random", "near", "radial", "zero"])
def test_separation_is_accurate_in_float32(family, K):
    # Relative error. Near pairs differ in the fourth digit: a unit in the last place counts 1e3 times, and twice that
    # for squares. Each direction is rounded to a unit in the last place, which adds an absolute error.
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
def test_pair_is_bit_identical_for_exchanged_points(family):
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


def test_separation_along_any_axis():
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
    """Results of the oracle, row by row; 90 digits suffice for its textbook forms up to norm 1e18."""
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
def test_distance_accuracy(R, direction, K, dtype):
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
def test_logarithm_accuracy(R, direction, dtype):
    # Errors are measured in the norm at x. Far out, geodesics start inwards: the vector is longest along the radius,
    # where the norm is T times smaller. The rounding of its coordinates across the radius is not.
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
    """Length of a covector at x for kappa = 1, the root of |g|^2 + (x . g)^2."""
    return (g.square().sum(-1) + (x * g).sum(-1).square()).sqrt()


@over_cases
@over_radii
def test_gradient_has_length_one(R, direction):
    """|grad d| = 1, and it agrees with float64: a covector of length 1 has a rounding error of up to eps T."""
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
    """Along the radius the gradient has length 1/T in R^n, and its rounding error is relative to that."""
    x = (R * pairs("random", 1.0, count=64)[0]).float().requires_grad_()
    (g,) = torch.autograd.grad(Lorentz(-1.0).dist0(x).sum(), x)
    assert ((length(x.detach().double(), g.double()) - 1).abs() <= 16 * 2.0**-23).all()


SIZES = itertools.product([1e-18, 1e-9, 1e9, 1e18], [1e-30, 1e-6, 1.0, 1e6, 1e30])


# Beyond this product the square of the time overflows in float32.
@pytest.mark.parametrize(("norm", "kappa"), [(norm, kappa) for norm, kappa in SIZES if kappa**0.5 * norm <= 1e18])
def test_distance_accuracy_of_tiny_and_huge_points(norm, kappa):
    x, y = (t.float() for t in pairs("random", norm, count=8, n=3))
    axis = torch.zeros_like(x)
    axis[:, 1] = x.norm(dim=-1)
    # A random pair, a point and its double, neighbours on an axis, the origin, the opposite point.
    for a, b in ((x, y), (x, 2 * x), (axis, 1.3 * axis), (axis, 1.2 * axis), (x, 0 * x), (x, -x)):
        a = a.clone().requires_grad_()
        got = Lorentz(-kappa).dist(a, b)
        assert worst(got.detach(), a.detach(), b, -kappa) <= 6
        assert torch.autograd.grad(got.sum(), a)[0].isfinite().all()


def test_distance_accuracy_of_points_nearly_on_one_ray():
    # Their distance is 2000 times shorter than the difference of their coordinates.
    x = torch.tensor([[3000.0, 4000.0], [3e6, 4e6], [30.0, 40.0]])
    y = torch.tensor([[3003.0, 4004.0005], [3.003e6, 4.004e6], [60.0, 80.00001]])
    M = Lorentz(-1.0)
    assert worst(M.dist(x, y), x, y, -1.0) <= 6
    images = (t.T.reshape(1, 2, 3, 1) for t in (x, y))
    kappa = torch.ones(1, 1, 3, 1)
    assert torch.equal(distance.dist(*images, kappa, 1).flatten(), M.dist(x, y))
    assert torch.equal(M.dist(x.requires_grad_(), y), M.dist(x.detach(), y))


def test_norms_with_squares_beyond_float32():
    # For 3e19 the distance is 46 radii of curvature, although the square of the norm overflows.
    x = torch.tensor([[3e19, 0.0], [3e19, 4e19], [-1e38, 2e38], [1.0, 2.0]], requires_grad=True)
    M = Lorentz(-1.0)
    assert torch.equal(M.time(x), x.double().norm(dim=-1).clamp(min=6**0.5).float())
    assert torch.equal(M.drop(M.lift(x)), x)
    for y in (torch.zeros(2), torch.tensor([3e19, 1.0]), torch.tensor([-2e38, 1e20])):
        exact = M.dist(x.detach().double(), y.double())
        assert ((M.dist(x, y) - exact).abs() <= 2.0**-24 * exact).all()
        assert torch.autograd.grad(M.dist(x, y).sum(), x)[0].isfinite().all()
    assert M.dist(x, x.clone()).eq(0).all()
    assert M.dist(x * torch.nan, x).isnan().all()


def test_distance_accuracy_in_one_dimension():
    x = torch.tensor([[1.0], [1e4], [1e8], [-1e18]])
    for factor in (1.000001, 1.01, 1.3, 7.0, -3.0):
        assert worst(Lorentz(-1.0).dist(x, factor * x), x, factor * x, -1.0) <= 6


@over_dtypes
@pytest.mark.parametrize("family", FAMILIES)
def test_chord_is_bit_identical_for_exchanged_points(family, dtype):
    for norm in NORMS:
        x, y = (t.to(dtype) for t in pairs(family, norm))
        assert torch.equal(chord2(x, y, 0.7, -1), chord2(y, x, 0.7, -1))


coordinate = st.floats(-1e6, 1e6, width=32)
point = st.tuples(coordinate, coordinate, coordinate)
curvature = st.sampled_from([-0.01, -1.0, -100.0])


@settings(deadline=None, derandomize=True, max_examples=200)
@given(point, point, curvature)
def test_distance_bounds_of_any_two_points(a, b, K):
    # The Euclidean length bounds the length in the metric, so d <= |x - y|; squares below 1e-38 underflow.
    x, y, M = torch.tensor(a), torch.tensor(b), Lorentz(K)
    there = M.dist(x, y)
    assert torch.equal(there, M.dist(y, x))
    assert 0 <= there <= (x.double() - y.double()).norm() * (1 + 1e-6) + 2e-19
    assert M.dist(x, x.clone()) == 0
    assert there > 0 or (x - y).norm() < 1e-18


@settings(deadline=None, derandomize=True, max_examples=200)
@given(point, point, point, curvature)
def test_triangle_inequality(a, b, c, K):
    # Far out, directions of points that are not near have an error of eps T radii: each side may be off by that.
    x, y, z = (torch.tensor(p) for p in (a, b, c))
    M = Lorentz(K)
    T = 1 + (-K) ** 0.5 * max(p.norm() for p in (x, y, z))
    tolerance = 8 * 2.0**-24 * T * (1 + M.dist(x, y) + M.dist(y, z))
    assert M.dist(x, z) <= M.dist(x, y) + M.dist(y, z) + tolerance


def test_triangle_inequality_of_near_points():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 3, generator=g)
    y, z = (x + 1e-6 * torch.randn(1000, 3, generator=g) for _ in range(2))
    M = Lorentz(-1.0)
    assert (M.dist(x, z) <= (M.dist(x, y) + M.dist(y, z)) * (1 + 8 * 2.0**-24)).all()


def test_chord_and_separation_agree():
    x, y = pairs("random", 2.0, count=16)
    torch.testing.assert_close(0.35 * chord2(x, y, 0.7, -1), separation(x, y, 0.7, -1), rtol=1e-14, atol=0)


def test_chord_derivatives():
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
        out = distance.dist(x, y, 1.0, -1)
    assert out.shape == (5, 4, 1)
    torch.testing.assert_close(distance.dist(y, x, 1.0, -1), out, rtol=0, atol=0)
    first = distance.dist(x.expand(5, 4, 3).movedim(-1, 0), y.T.unsqueeze(1), 1.0, 0)[0]
    torch.testing.assert_close(first, out[..., 0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_distances_are_computed_in_float32(dtype):
    x, y = (t.to(dtype) for t in pairs("near", 2.0))
    assert torch.equal(Lorentz(-1.0).dist(x, y), Lorentz(-1.0).dist(x.float(), y.float()).to(dtype))


@pytest.mark.parametrize("K", CURVATURES)
def test_cross_separation_is_the_separation_of_all_pairs(K):
    for norm in NORMS:
        x, y = pairs("random", norm, count=24)
        exact = separation(x.unsqueeze(1), y[:8].unsqueeze(0), -K, -1).squeeze(-1)
        torch.testing.assert_close(cross_separation(x, y[:8], -K), exact, rtol=1e-12, atol=1e-15)
        got = cross_separation(x.float(), y[:8].float(), -K).double()
        bound = 2e-6 * exact + 8 * 2.0**-24 * (-K) * x.norm(dim=-1).unsqueeze(-1) * y[:8].norm(dim=-1)
        assert ((got - exact).abs() <= bound).all()
        assert (got >= 0).all()


def test_cross_separation_of_near_points_is_off_by_one_rounding_of_the_cosine():
    # The documented error of the matrix product: a few times 6e-8 R_x R_y in float32; never negative.
    x, y = pairs("near", 30.0, count=32)
    exact = separation(x.unsqueeze(1), y.unsqueeze(0), 1.0, -1).squeeze(-1)
    got = cross_separation(x.float(), y.float(), 1.0).double()
    assert ((got - exact).abs() <= 8 * 6e-8 * 901 + 1e-5 * exact).all()


def test_cross_separation_shapes():
    x, y = torch.randn(2, 5, 3), torch.randn(4, 3)
    out = cross_separation(x, y, 1.0)
    assert out.shape == (2, 5, 4)
    torch.testing.assert_close(out[1, 2], cross_separation(x[1, 2:3], y, 1.0)[0])
    assert cross_separation(x[1, 2], y, 1.0).shape == (4,)


def test_cross_separation_derivatives():
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 3, generator=g, dtype=torch.float64) for n in (2, 3))
    y[0] = x[0]
    x[1] = 0
    args = tuple(t.requires_grad_() for t in (x, y, torch.tensor(0.7, dtype=torch.float64)))
    assert torch.autograd.gradcheck(cross_separation, args)
    assert torch.autograd.gradgradcheck(cross_separation, args, atol=1e-4)


def test_cross_separation_is_finite_for_zeros_and_subnormals():
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-30, 1e-20, 1.0])
    points = torch.cartesian_prod(special, special)
    assert_finite_gradients(lambda x, y: cross_separation(x, y, 0.7), points, points)


def test_cross_separation_is_float32_under_autocast():
    M = Lorentz(-1.0)
    x, y = torch.randn(4, 3), torch.randn(5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = cross_separation(x, y, 1.0)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, M.dist(x.unsqueeze(1), y).cosh() - 1, rtol=1e-5, atol=1e-5)
