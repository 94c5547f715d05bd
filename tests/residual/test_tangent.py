"""The tangent residual: a sum of logarithms at the origin."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.functional import tangent_residual
from lresnet.testing import assert_commutative, assert_finite_gradients, assert_isometry_equivariant
from tests.families import CURVATURES, NORMS
from tests.residual.common import MORE_FAMILIES, float32, geodesic, more_pairs, normals, per_point


@pytest.mark.parametrize("K", CURVATURES)
def test_is_exp_of_the_sum_of_logarithms(K):
    M = Lorentz(K)
    G = M.to_geoopt()
    x, y = (3 * normals(64, 5, seed=s, dtype=torch.float64) for s in (0, 1))
    for weight in (1.0, 0.37, -0.37):
        got = tangent_residual(x, y, weight, K=K)
        total = M.logmap0(x) + abs(weight) * M.logmap0(y)
        torch.testing.assert_close(got, M.expmap0(total), rtol=1e-12, atol=1e-14)
        ambient = G.logmap0(M.lift(x)) + abs(weight) * G.logmap0(M.lift(y))
        torch.testing.assert_close(got, M.drop(G.expmap0(ambient), check=False), rtol=1e-8, atol=1e-8)


def test_origin_and_opposite_point():
    for norm, K in itertools.product(NORMS, CURVATURES):
        x = norm * normals(32, 8)
        zero = torch.zeros_like(x)
        # log and exp have a relative error in the radius; the slope cosh of sinh turns it into an error of the norm.
        torch.testing.assert_close(tangent_residual(x, zero, K=K), x, rtol=5e-6, atol=0.0)
        assert torch.equal(tangent_residual(x, -x, K=K), zero)
        torch.testing.assert_close(tangent_residual(x, normals(32, 8, seed=1), 0.0, K=K), x, rtol=5e-6, atol=0.0)


@pytest.mark.parametrize("family", MORE_FAMILIES)
def test_bitwise_commutative_at_equal_weights(family):
    # It is a sum, although the paper lists it as not commutative.
    for norm, K in itertools.product(NORMS, CURVATURES):
        x, y = (t.float() for t in more_pairs(family, norm))
        assert_commutative(lambda a, b, K=K: tangent_residual(a, b, K=K), x, y)


def test_is_not_equivariant_under_isometries():
    x, y = (normals(20, 3, seed=s, dtype=torch.float64) for s in (0, 1))
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_isometry_equivariant(tangent_residual, Lorentz(-1.0), x, y, tolerance=1e-2)


@pytest.mark.parametrize("weight", [1.0, 0.37])
@pytest.mark.parametrize("family", ["random", "near", "equal", "radial", "unequal norms"])
def test_float32_error_is_at_most_four_roundings(family, weight):
    for norm, K in itertools.product(NORMS, CURVATURES):
        x, y = (t.float() for t in more_pairs(family, norm))
        got = tangent_residual(x, y, weight, K=K)
        exact = tangent_residual(x.double(), y.double(), float32(weight), K=K)
        error, floor = geodesic(got, exact, K).max(), geodesic(exact.float(), exact, K).max()
        assert error <= 4 * floor + 3e-7, (norm, K, float(error), float(floor))


def test_images_and_weights_per_point():
    x, y = normals(2, 5, 3, 4), normals(2, 5, 3, 4, seed=1)
    weight = per_point(24).reshape(2, 3, 4)
    last = tangent_residual(x.movedim(1, -1), y.movedim(1, -1), weight, K=-2.0)
    torch.testing.assert_close(tangent_residual(x, y, weight, K=-2.0, dim=1), last.movedim(-1, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["random", "equal", "opposite", "zero", "both zero"])
def test_gradcheck_in_every_argument(case):
    x, y = normals(2, 3, dtype=torch.float64), normals(2, 3, seed=1, dtype=torch.float64)
    if case == "equal":
        y = x.clone()
    elif case == "opposite":
        y = -x
    elif case == "zero":
        y = torch.zeros_like(x)
    elif case == "both zero":
        x, y = torch.zeros_like(x), torch.zeros_like(x)
    weight, K = torch.tensor([0.7, -2.0]), torch.tensor([[-2.0], [-0.5]])
    leaves = [t.double().requires_grad_() for t in (x, y, weight, K)]
    assert gradcheck(lambda x, y, w, K: tangent_residual(x, y, w, K=K), leaves)
    assert gradgradcheck(lambda x, y, w, K: tangent_residual(x, y, w, K=K), leaves)


def test_gradcheck_of_images():
    leaves = [normals(1, 3, 1, 2, seed=s, dtype=torch.float64).requires_grad_() for s in (0, 1)]
    leaves.append(torch.tensor([[[0.7, 2.0]]], dtype=torch.float64).requires_grad_())
    assert gradcheck(lambda x, y, w: tangent_residual(x, y, w, K=-2.0, dim=1), leaves)
    assert gradgradcheck(lambda x, y, w: tangent_residual(x, y, w, K=-2.0, dim=1), leaves)


@pytest.mark.parametrize("n", [1, 8])
def test_finite_for_zeros_subnormals_and_norms_up_to_1e8(n):
    # Weights above 1 raise the norm to that power: 1e8 with weight 3 gives a point of norm 1e32.
    magnitudes = (0.0, 1e-45, 1e-40, 1e-30, 1e-20, 1e-3, 1.0, 1e4, 1e8)
    u, v = (normals(n, seed=s) / normals(n, seed=s).abs().max() for s in (0, 1))
    sparse = v * (torch.arange(n) % 2 == 0)
    x = torch.stack([a * p for p in (u, sparse) for a, _ in itertools.product(magnitudes, repeat=2)])
    y = torch.stack([b * q for q in (v, u) for _, b in itertools.product(magnitudes, repeat=2)])
    for weight, K, other in itertools.product((1.0, 0.37, 0.01, 0.0), (-0.1, -1.0, -10.0), (y, x.flip(0), -y)):
        rows = torch.ones(len(x), 1)
        assert_finite_gradients(lambda x, y, w, k: tangent_residual(x, y, w, K=k), x, other, weight * rows, K * rows)
