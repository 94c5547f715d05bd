"""The Lorentz residual's values: error against the exact result, exact cases, invariances."""

from __future__ import annotations

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lresnet import Lorentz
from lresnet.functional import lorentz_residual, parallel_transport_residual, tangent_residual
from lresnet.geometry.distance import measure
from lresnet.residual.lorentz import normaliser
from lresnet.residual.textbook import lorentz_textbook
from lresnet.testing import assert_commutative, assert_isometry_equivariant, assert_on_manifold
from tests.families import CURVATURES, FAMILIES, NORMS, exact_centroid, exact_distance, pairs
from tests.residual.common import (
    HALF_ULP,
    MORE_FAMILIES,
    WEIGHTS,
    float32,
    geodesic,
    more_pairs,
    normals,
    per_point,
)

# The absolute part of the tolerance, in radii of curvature.
SLACK = {torch.float32: 3e-7, torch.float64: 3e-7 * 2.0**-29}


# --- error against the exact result -------------------------------------------------------------------------------


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", MORE_FAMILIES)
def test_float32_error_is_at_most_four_roundings(family, K):
    for norm in NORMS:
        x, y = (t.float() for t in more_pairs(family, norm))
        for weight, scale in (*((w, None) for w in WEIGHTS), (per_point(len(x)), None), (0.37, 1.7)):
            got = lorentz_residual(x, y, weight, scale, K=K)
            w = weight.double() if isinstance(weight, torch.Tensor) else float32(weight)
            exact = lorentz_residual(x.double(), y.double(), w, scale and float32(scale), K=K)
            error = geodesic(got, exact, K).max()
            floor = geodesic(exact.float(), exact, K).max()
            assert error <= 4 * floor + SLACK[torch.float32], (norm, weight, scale, float(error), float(floor))


@pytest.mark.parametrize("n", [1, 2, 3, 64])
@pytest.mark.parametrize("family", MORE_FAMILIES)
def test_float32_error_pair_by_pair_in_other_dimensions(family, n):
    # The rounding of a single pair may be small by chance, so errors are compared with the largest possible one.
    for norm in NORMS:
        x, y = (t.float() for t in more_pairs(family, norm, n=n))
        for K in (-0.1, -10.0):
            for weight in (1.0, 0.37):
                got = lorentz_residual(x, y, weight, K=K)
                exact = lorentz_residual(x.double(), y.double(), float32(weight), K=K)
                bar = 4 * HALF_ULP[torch.float32] * (-K) ** 0.5 * exact.norm(dim=-1) + SLACK[torch.float32]
                assert (geodesic(got, exact, K) <= bar).all(), (norm, K, weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_both_precisions_against_fifty_digits(family, K, dtype):
    kappa = -K
    for norm in NORMS:
        x, y = (t.to(dtype) for t in pairs(family, norm, count=1, n=5, seed=3))
        for weight in (1.0, 0.37, 100.0):
            w = float(torch.tensor(weight, dtype=dtype))
            got = lorentz_residual(x, y, w, K=K)[0].tolist()
            exact = exact_centroid([x[0].tolist(), y[0].tolist()], [1.0, w], kappa)
            error = exact_distance(got, exact, kappa) * kappa**0.5
            length = float(mpmath.sqrt(sum(c * c for c in exact))) * kappa**0.5
            assert error <= 4 * HALF_ULP[dtype] * length + SLACK[dtype], (norm, weight, error)


def test_the_textbook_form_exceeds_the_tolerance():
    # The norm of the sum by subtraction, for near points far out.
    x, y = (t.float() for t in pairs("near", 1e4))
    exact = lorentz_residual(x.double(), y.double())
    floor = geodesic(exact.float(), exact, -1.0).max()
    error = geodesic(lorentz_textbook(x, y), exact, -1.0)
    assert not (error <= 1000 * floor).all()


# --- exact cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("K", CURVATURES)
def test_equal_points_give_that_point_exactly(K, dtype):
    for norm in (*NORMS, 1e8, 1e15):
        x, _ = (t.to(dtype) for t in pairs("equal", norm / (-K) ** 0.5))
        for weight in (*WEIGHTS, -2.0, per_point(len(x))):
            assert torch.equal(lorentz_residual(x, x.clone(), weight, K=K), x), (norm, weight)


def test_equal_points_near_the_origin():
    # Down to subnormals, where the separation of different points underflows to 0 too.
    for norm in (0.0, 1e-44, 1e-40, 1e-30, 1e-20, 1e-10, 1e-5, 1e-4):
        x = norm * normals(64, 16)
        for weight in (1.0, 0.3, 0.37, 1e6, per_point(64)):
            assert torch.equal(lorentz_residual(x, x.clone(), weight), x), (norm, weight)
            assert torch.equal(lorentz_residual(x.mT, x.mT, weight, dim=0), x.mT), (norm, weight)
        assert torch.equal(torch.vmap(lambda point: lorentz_residual(point, point, 0.3))(x), x)


def test_norms_with_squares_beyond_float32():
    x = torch.tensor([[3e19, 0.0], [1e25, 2e25], [3e38, 0.0], [0.0, 0.0]], requires_grad=True)
    y = torch.tensor([[0.0, 3e19], [-2e25, 1e25], [3e38, 0.0], [1e20, 1.0]], requires_grad=True)
    weight = torch.tensor(0.3, requires_grad=True)
    z = lorentz_residual(x, y, weight)
    exact = lorentz_residual(x.double(), y.double(), weight.double())
    assert z.dtype == torch.float32
    torch.testing.assert_close(z.double(), exact, rtol=2.0**-23, atol=0.0)
    assert torch.equal(z[2], x[2])
    assert all(g.isfinite().all() for g in torch.autograd.grad(z[:2].sum(), (x, y, weight)))
    for other in (tangent_residual, parallel_transport_residual):
        assert torch.equal(other(x, torch.zeros_like(y)), x)


@pytest.mark.parametrize("norm", [1e-5, 1e-10, 1e-20, 1e-25, 1e-30, 1e-37])
def test_near_the_origin_it_is_the_weighted_mean(norm):
    # Including norms for which the squares of the coordinates, and the separation, underflow to 0.
    x, y = norm * normals(64, 8), norm * normals(64, 8, seed=1)
    for weight in (1.0, 0.37, 100.0):
        mean = (x.double() + weight * y.double()) / (1 + weight)
        got = lorentz_residual(x, y, weight)
        assert ((got - mean).abs() <= 1e-6 * norm).all()


def test_weight_zero_gives_the_skip_branch():
    x, y = normals(50, 8), normals(50, 8, seed=1)
    assert torch.equal(lorentz_residual(x, y, 0.0), x)


def test_a_huge_weight_gives_the_other_branch():
    x, y = normals(50, 8), normals(50, 8, seed=1)
    torch.testing.assert_close(lorentz_residual(x, y, 1e12), y)


def test_the_papers_example():
    M = Lorentz(-1.0)
    x, y = M.drop(torch.tensor([[3.0, 2.0, -2.0], [3.0, 2.0, 2.0]]))
    z = lorentz_residual(x, y)
    torch.testing.assert_close(M.lift(z), torch.tensor([1.8**0.5, 0.8**0.5, 0.0]), rtol=2e-7, atol=0.0)


# --- the bound n >= 1 + w ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def million() -> tuple[torch.Tensor, torch.Tensor]:
    """A million pairs: all families mixed, norms log-uniform from 1e-3 to 1e4."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1_000_000, 4, generator=g) * 10 ** (torch.rand(1_000_000, 1, generator=g) * 7 - 3)
    y = torch.randn(1_000_000, 4, generator=g) * 10 ** (torch.rand(1_000_000, 1, generator=g) * 7 - 3)
    part = len(x) // 5
    y[:part] = x[:part] * (1 + 1e-3 * torch.randn(part, 4, generator=g))
    y[part : 2 * part] = x[part : 2 * part]
    y[2 * part : 3 * part] = 1.5 * x[2 * part : 3 * part]
    y[3 * part : 3 * part + 1000] = 0.0
    return x, y


@pytest.mark.parametrize("K", CURVATURES)
def test_normaliser_is_at_least_the_sum_of_the_weights(million, K):
    x, y = million
    D = measure(x, y, -K, -1).separation
    assert (D >= 0).all()
    random_weights = 10 ** (8 * torch.rand(D.shape, generator=torch.Generator().manual_seed(7)) - 4)
    for weight in (*map(torch.tensor, WEIGHTS), random_weights):
        n = normaliser(1.0, weight, D)
        assert n.dtype == torch.float32
        assert (n >= 1 + weight).all()
        assert (n == 1 + weight)[D == 0].all()
    equal = (x == y).all(-1)
    assert equal.sum() >= 200_000
    assert (D[equal] == 0).all()


# --- finite everywhere -----------------------------------------------------------------------------------------------


def test_result_is_not_larger_than_the_larger_branch(million):
    x, y = (t[::10] for t in million)
    larger = torch.maximum(x.double().norm(dim=-1), y.double().norm(dim=-1))
    for weight in (1.0, 0.37, 100.0):
        z = lorentz_residual(x, y, weight)
        assert (z.double().norm(dim=-1) <= larger * (1 + 4e-7)).all()


@pytest.mark.parametrize("K", CURVATURES)
def test_points_are_on_the_manifold(K):
    for family in FAMILIES:
        for norm in NORMS:
            x, y = (t.float() for t in pairs(family, norm))
            assert_on_manifold(lorentz_residual(x, y, 0.37, K=K), Lorentz(K))


# --- properties ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", MORE_FAMILIES)
def test_bitwise_commutative_at_equal_weights(family):
    for norm in (*NORMS, 1e8, 1e15):
        x, y = (t.float() for t in more_pairs(family, norm))
        for K in CURVATURES:
            for scale in (None, 1.7):
                assert_commutative(lambda a, b, K=K, s=scale: lorentz_residual(a, b, 1.0, s, K=K), x, y)


def test_commutative_if_the_weights_are_exchanged_too():
    x, y = (normals(50, 8, seed=s, dtype=torch.float64) for s in (0, 1))
    for weight in (0.1, 3.0):
        torch.testing.assert_close(
            lorentz_residual(x, y, weight), lorentz_residual(y, x, 1 / weight), rtol=1e-14, atol=1e-14
        )
    with pytest.raises(AssertionError, match="not commutative"):
        assert_commutative(lambda a, b: lorentz_residual(a, b, 0.1), x, y, tolerance=1e-3)


coordinates = st.floats(-5, 5, allow_subnormal=False)
triples = st.lists(coordinates, min_size=3, max_size=3)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(triples, triples, st.floats(0, 10), st.floats(0.05, 10), st.integers(0, 2**16))
def test_equivariant_under_isometries(a, b, weight, kappa, seed):
    x, y = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    assert_isometry_equivariant(
        lambda p, q: lorentz_residual(p, q, weight, K=-kappa), Lorentz(-kappa), x, y, tolerance=1e-9, seed=seed
    )


@settings(deadline=None, derandomize=True, max_examples=50)
@given(triples, triples, st.floats(-5, 5), st.floats(0.05, 10))
def test_sign_of_the_weight_is_ignored(a, b, weight, kappa):
    x, y = torch.tensor(a), torch.tensor(b)
    assert torch.equal(lorentz_residual(x, y, weight, K=-kappa), lorentz_residual(x, y, -weight, K=-kappa))


@settings(deadline=None, derandomize=True, max_examples=50)
@given(triples, triples, st.floats(0.05, 10), st.floats(0.05, 10))
def test_lies_on_the_geodesic_between_the_branches(a, b, weight, kappa):
    M = Lorentz(-kappa)
    x, y = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    z = lorentz_residual(x, y, weight, K=-kappa)
    torch.testing.assert_close(M.dist(x, z) + M.dist(z, y), M.dist(x, y), rtol=1e-6, atol=1e-9)
    if weight == 1.0:
        torch.testing.assert_close(M.dist(x, z), M.dist(z, y), rtol=1e-6, atol=1e-9)


def test_equal_weights_give_the_midpoint():
    M = Lorentz(-2.0)
    x, y = (normals(50, 8, seed=s, dtype=torch.float64) for s in (0, 1))
    z = lorentz_residual(x, y, K=-2.0)
    torch.testing.assert_close(M.dist(x, z), M.dist(x, y) / 2, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(M.dist(y, z), M.dist(x, y) / 2, rtol=1e-12, atol=0.0)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(triples, triples, st.floats(1e-3, 1e3), st.floats(0.05, 10))
def test_scale_moves_along_the_geodesic_through_the_origin(a, b, gamma, kappa):
    M = Lorentz(-kappa)
    x, y = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    plain = lorentz_residual(x, y, K=-kappa)
    scaled = lorentz_residual(x, y, 1.0, gamma, K=-kappa)
    torch.testing.assert_close(scaled, gamma * plain, rtol=1e-14, atol=0.0)
    # Distances along a geodesic add up: origin, nearer result, farther result.
    near, far = sorted((M.dist0(plain), M.dist0(scaled)))
    torch.testing.assert_close(near + M.dist(plain, scaled), far, rtol=1e-9, atol=1e-12)


def test_scaling_points_and_curvature_together():
    x, y = (normals(50, 8, seed=s, dtype=torch.float64) for s in (0, 1))
    for K in CURVATURES:
        root = (-K) ** 0.5
        torch.testing.assert_close(
            root * lorentz_residual(x, y, 0.37, K=K), lorentz_residual(root * x, root * y, 0.37), rtol=1e-13, atol=1e-14
        )


# --- arguments ------------------------------------------------------------------------------------------------------


def test_weight_and_scale_per_point():
    x, y = normals(6, 8), normals(6, 8, seed=1)
    weight, scale = per_point(6), per_point(6, seed=2) + 0.1
    got = lorentz_residual(x, y, weight, scale, K=-2.0)
    rows = [lorentz_residual(x[i], y[i], float(weight[i]), float(scale[i]), K=-2.0) for i in range(6)]
    torch.testing.assert_close(got, torch.stack(rows), rtol=3e-7, atol=0.0)
    assert torch.equal(got, lorentz_residual(x, y, weight.unsqueeze(-1), scale.unsqueeze(-1), K=-2.0))


def test_curvature_per_point():
    x, y = normals(3, 8), normals(3, 8, seed=1)
    K = torch.tensor([[-0.1], [-1.0], [-10.0]])
    got = lorentz_residual(x, y, 0.37, K=K)
    rows = [lorentz_residual(x[i], y[i], 0.37, K=float(K[i])) for i in range(3)]
    torch.testing.assert_close(got, torch.stack(rows), rtol=3e-7, atol=0.0)


@pytest.mark.parametrize("dim", [1, -3])
def test_images(dim):
    x, y = normals(2, 5, 3, 4), normals(2, 5, 3, 4, seed=1)
    weight = per_point(2 * 3 * 4).reshape(2, 3, 4)
    last = lorentz_residual(x.movedim(1, -1), y.movedim(1, -1), weight, 2.0, K=-2.0).movedim(-1, 1)
    torch.testing.assert_close(lorentz_residual(x, y, weight, 2.0, K=-2.0, dim=dim), last, rtol=1e-6, atol=1e-7)
    kept = weight.unsqueeze(1)
    torch.testing.assert_close(lorentz_residual(x, y, kept, 2.0, K=-2.0, dim=dim), last, rtol=1e-6, atol=1e-7)


def test_channels_last_stays_channels_last():
    x, y = (normals(2, 8, 3, 4, seed=s).to(memory_format=torch.channels_last) for s in (0, 1))
    assert lorentz_residual(x, y, dim=1).is_contiguous(memory_format=torch.channels_last)


def test_branches_broadcast():
    x, y = normals(7, 1, 4), normals(3, 4, seed=1)
    got = lorentz_residual(x, y, 0.37)
    assert got.shape == (7, 3, 4)
    assert torch.equal(got, lorentz_residual(x.expand(7, 3, 4).clone(), y.expand(7, 3, 4).clone(), 0.37))


def test_one_unbatched_point():
    x, y = normals(4), normals(4, seed=1)
    assert torch.equal(lorentz_residual(x, y), lorentz_residual(x[None], y[None])[0])
