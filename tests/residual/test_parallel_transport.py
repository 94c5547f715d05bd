"""The parallel-transport residual: a boost equal to exp, transport and log, and the theorem on its two directions."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz, make_residual
from lresnet.functional import parallel_transport_residual
from lresnet.testing import assert_commutative, assert_finite_gradients
from tests.families import CURVATURES, NORMS
from tests.residual.common import geodesic, more_pairs, normals

coordinates = st.floats(-5, 5, allow_subnormal=False)
triples = st.lists(coordinates, min_size=3, max_size=3)


def double(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_papers_example():
    M = Lorentz(-1.0)
    x, y = M.drop(torch.tensor([[3.0, 2.0, -2.0], [3.0, 2.0, 2.0]]))
    assert torch.equal(M.lift(parallel_transport_residual(x, y)), torch.tensor([9.0, 8.0, -4.0]))
    assert torch.equal(M.lift(parallel_transport_residual(y, x)), torch.tensor([9.0, 8.0, 4.0]))


@pytest.mark.parametrize("K", CURVATURES)
def test_is_exp_transport_log_with_our_maps(K):
    M = Lorentz(K)
    for norm in (1e-3, 0.1, 1.0, 10.0, 100.0):
        for family in ("random", "near", "equal", "radial", "zero", "zero skip", "unequal norms"):
            x, y = more_pairs(family, norm)
            u = M.transp(torch.zeros_like(x), x, M.logmap0(y))
            expected = M.expmap(x, u)
            got = parallel_transport_residual(x, y, K=K)
            assert geodesic(got, expected, K).max() <= 1e-14 * (1 + (-K) ** 0.5 * got.norm(dim=-1).max()), (
                norm,
                family,
            )


@pytest.mark.parametrize("K", CURVATURES)
def test_is_exp_transport_log_with_geoopt(K):
    M = Lorentz(K)
    G = M.to_geoopt()
    x, y = (3 * normals(64, 5, seed=s, dtype=torch.float64) for s in (0, 1))
    p, q = M.lift(x), M.lift(y)
    expected = M.drop(G.expmap(p, G.transp0(p, G.logmap0(q))), check=False)
    torch.testing.assert_close(parallel_transport_residual(x, y, K=K), expected, rtol=1e-9, atol=1e-9)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(coordinates, min_size=1, max_size=5), coordinates, st.floats(0.05, 10))
def test_theorem_on_the_two_directions(rest, last, kappa):
    # x and y differ in the sign of the last coordinate only, and so do both results, bit for bit.
    x, y = double([*rest, -last]), double([*rest, last])
    z, other = parallel_transport_residual(x, y, K=-kappa), parallel_transport_residual(y, x, K=-kappa)
    assert torch.equal(z[:-1], other[:-1])
    assert torch.equal(z[-1], -other[-1])
    # Hence the results differ, unless the points are opposite (then the result is 0) or equal.
    if abs(last) > 0.01 and max(map(abs, rest)) > 0.01:
        assert geodesic(z, other, -kappa) > 1e-6


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.lists(coordinates, min_size=3, max_size=3), st.lists(coordinates, min_size=3, max_size=3), st.floats(0.05, 10)
)
def test_is_an_isometry_of_its_second_argument(a, b, kappa):
    M = Lorentz(-kappa)
    x, y, w = double(a), double(b), double([0.3, -1.0, 2.0])
    moved = [parallel_transport_residual(x, p, K=-kappa) for p in (y, w)]
    torch.testing.assert_close(M.dist(*moved), M.dist(y, w), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(parallel_transport_residual(-x, moved[0], K=-kappa), y, rtol=1e-6, atol=1e-7)


def test_the_origin_is_neutral():
    for norm, K in itertools.product((*NORMS, 1e8), CURVATURES):
        x = norm * normals(32, 8)
        zero = torch.zeros_like(x)
        assert torch.equal(parallel_transport_residual(x, zero, K=K), x)
        assert torch.equal(parallel_transport_residual(zero, x, K=K), x)


def test_the_opposite_point_is_the_inverse():
    for norm, K in itertools.product(NORMS, CURVATURES):
        x = norm * normals(32, 8)
        assert parallel_transport_residual(x, -x, K=K).abs().max() <= 1e-6 * norm


def test_reversed_is_swapped():
    x, y = normals(20, 4), normals(20, 4, seed=1)
    M = Lorentz(-2.0)
    forward, backward = make_residual("parallel_transport", M), make_residual("parallel_transport_reversed", M)
    assert torch.equal(backward(x, y), forward(y, x))
    assert torch.equal(forward(x, y), parallel_transport_residual(x, y, K=-2.0))
    with pytest.raises(AssertionError, match="not commutative"):
        assert_commutative(forward, x, y, tolerance=0.1)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", ["random", "near", "equal", "radial", "zero", "zero skip", "unequal norms"])
def test_float32_error_is_at_most_four_roundings(family, K):
    for norm in NORMS:
        x, y = (t.float() for t in more_pairs(family, norm))
        got = parallel_transport_residual(x, y, K=K)
        exact = parallel_transport_residual(x.double(), y.double(), K=K)
        error, floor = geodesic(got, exact, K).max(), geodesic(exact.float(), exact, K).max()
        assert error <= 4 * floor + 3e-7, (norm, float(error), float(floor))


def test_images_and_curvature_per_point():
    x, y = normals(2, 5, 3, 4), normals(2, 5, 3, 4, seed=1)
    K = torch.tensor([-0.5, -2.0]).reshape(2, 1, 1, 1)
    last = parallel_transport_residual(x.movedim(1, -1), y.movedim(1, -1), K=K)
    torch.testing.assert_close(parallel_transport_residual(x, y, K=K, dim=1), last.movedim(-1, 1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(last[0], parallel_transport_residual(x[0], y[0], K=-0.5, dim=0).movedim(0, -1))


@pytest.mark.parametrize("case", ["random", "opposite", "near opposite", "equal", "zero", "both zero"])
def test_gradcheck_in_every_argument(case):
    x, y = normals(2, 3, dtype=torch.float64), normals(2, 3, seed=1, dtype=torch.float64)
    if case == "opposite":
        y = -x
    elif case == "near opposite":
        y = -x + 1e-3 * y
    elif case == "equal":
        y = x.clone()
    elif case == "zero":
        y = torch.zeros_like(x)
    elif case == "both zero":
        x, y = torch.zeros_like(x), torch.zeros_like(x)
    leaves = [t.requires_grad_() for t in (x, y, torch.tensor([[-2.0], [-0.5]], dtype=torch.float64))]
    assert gradcheck(lambda x, y, K: parallel_transport_residual(x, y, K=K), leaves)
    assert gradgradcheck(lambda x, y, K: parallel_transport_residual(x, y, K=K), leaves)


def test_gradcheck_of_images():
    leaves = [normals(1, 3, 1, 2, seed=s, dtype=torch.float64).requires_grad_() for s in (0, 1)]
    assert gradcheck(lambda x, y: parallel_transport_residual(x, y, K=-2.0, dim=1), leaves)
    assert gradgradcheck(lambda x, y: parallel_transport_residual(x, y, K=-2.0, dim=1), leaves)


@pytest.mark.parametrize("n", [1, 8])
def test_finite_for_zeros_subnormals_and_norms_up_to_1e8(n):
    magnitudes = (0.0, 1e-45, 1e-40, 1e-30, 1e-20, 1e-3, 1.0, 1e4, 1e8)
    u, v = (normals(n, seed=s) / normals(n, seed=s).abs().max() for s in (0, 1))
    sparse = v * (torch.arange(n) % 2 == 0)
    for K, (p, q) in itertools.product((-0.1, -1.0, -10.0), ((u, v), (u, u), (u, -u), (u, sparse), (sparse, u))):
        x = torch.stack([a * p for a, _ in itertools.product(magnitudes, repeat=2)])
        y = torch.stack([b * q for _, b in itertools.product(magnitudes, repeat=2)])
        rows = K * torch.ones(len(x), 1)
        assert_finite_gradients(lambda x, y, k: parallel_transport_residual(x, y, K=k), x, y, rows)
