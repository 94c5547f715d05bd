"""The Lorentz residual of several branches."""

from __future__ import annotations

import itertools

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.functional import lorentz_residual, lorentz_residual_many
from lresnet.testing import assert_finite_gradients, assert_isometry_equivariant
from tests.families import CURVATURES, FAMILIES, NORMS, exact_centroid, exact_distance
from tests.residual.common import HALF_ULP, MORE_FAMILIES, float32, geodesic, more_pairs, normals, per_point

WEIGHTS = (1.0, 0.37, 2.0, 3.0)


def branches(family: str, norm: float, **options: int) -> list[torch.Tensor]:
    """Four float32 branches: a pair of the family, and both points moved a little along their rays."""
    x, y = (t.float() for t in more_pairs(family, norm, **options))
    return [x, y, 1.25 * x, 0.5 * y]


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", MORE_FAMILIES)
def test_float32_error_is_at_most_four_roundings(family, K):
    for norm in NORMS:
        xs = branches(family, norm)
        for scale in (None, 1.7):
            got = lorentz_residual_many(xs, WEIGHTS, scale, K=K)
            exact = lorentz_residual_many(
                [x.double() for x in xs], [float32(w) for w in WEIGHTS], scale and float32(scale), K=K
            )
            error, floor = geodesic(got, exact, K).max(), geodesic(exact.float(), exact, K).max()
            assert error <= 4 * floor + 3e-7, (norm, scale, float(error), float(floor))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_precisions_against_fifty_digits(family, dtype):
    for norm, K in itertools.product(NORMS, (-0.1, -10.0)):
        xs = [x.to(dtype) for x in branches(family, norm, count=1, n=5)]
        weights = [float(torch.tensor(w, dtype=dtype)) for w in WEIGHTS]
        got = lorentz_residual_many(xs, weights, K=K)[0].tolist()
        exact = exact_centroid([x[0].tolist() for x in xs], weights, -K)
        error = exact_distance(got, exact, -K) * (-K) ** 0.5
        length = float(mpmath.sqrt(sum(c * c for c in exact))) * (-K) ** 0.5
        slack = 3e-7 if dtype == torch.float32 else 3e-7 * 2.0**-29
        assert error <= 4 * HALF_ULP[dtype] * length + slack, (norm, K, error)


def test_two_branches_are_the_binary_residual():
    x, y = (normals(50, 8, seed=s, dtype=torch.float64) for s in (0, 1))
    for K, scale in itertools.product(CURVATURES, (None, 1.7)):
        torch.testing.assert_close(
            lorentz_residual_many([x, y], [1.0, 0.37], scale, K=K),
            lorentz_residual(x, y, 0.37, scale, K=K),
            rtol=1e-13,
            atol=1e-14,
        )


def test_only_the_ratios_of_the_weights_matter():
    xs = [normals(50, 8, seed=s) for s in range(3)]
    one = lorentz_residual_many(xs, [1.0, 0.5, 2.0])
    for factor in (1e-30, 1e-10, 1e10, 1e30):
        torch.testing.assert_close(
            lorentz_residual_many(xs, [factor, 0.5 * factor, 2 * factor]), one, rtol=1e-5, atol=1e-6
        )


def test_order_does_not_matter():
    xs, weights = [normals(50, 8, seed=s, dtype=torch.float64) for s in range(4)], WEIGHTS
    one = lorentz_residual_many(xs, weights)
    for order in itertools.permutations(range(4)):
        other = lorentz_residual_many([xs[i] for i in order], [weights[i] for i in order])
        torch.testing.assert_close(other, one, rtol=1e-13, atol=1e-14)


def test_equal_and_single_branches_are_exact():
    for norm, K in itertools.product((*NORMS, 1e8, 1e15), CURVATURES):
        x = norm * normals(32, 8)
        assert torch.equal(lorentz_residual_many([x, x, x], [1.0, 0.37, 100.0], K=K), x)
        assert torch.equal(lorentz_residual_many([x], [0.37], K=K), x)
        assert torch.equal(lorentz_residual_many([x, -2 * x], [0.37, 0.0], K=K), x)


def test_sign_of_weights_is_ignored_and_all_zero_weights_give_the_origin():
    xs = [normals(5, 4, seed=s) for s in range(3)]
    assert torch.equal(lorentz_residual_many(xs, [-1.0, 2.0, -3.0]), lorentz_residual_many(xs, [1.0, 2.0, 3.0]))
    assert torch.equal(lorentz_residual_many(xs, [0.0, 0.0, 0.0]), torch.zeros(5, 4))


def test_weights_scale_and_curvature_per_point():
    xs = [normals(3, 4, seed=s) for s in range(3)]
    weights = [per_point(3, seed=s) for s in range(3)]
    scale, K = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([[-0.1], [-1.0], [-10.0]])
    got = lorentz_residual_many(xs, weights, scale, K=K)
    for i in range(3):
        one = lorentz_residual_many([x[i] for x in xs], [w[i] for w in weights], scale[i], K=float(K[i]))
        torch.testing.assert_close(got[i], one, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dim", [1, -3])
def test_images(dim):
    xs = [normals(2, 5, 3, 4, seed=s) for s in range(3)]
    weights = [1.0, per_point(24).reshape(2, 3, 4), per_point(2).reshape(2, 1, 1, 1)]
    K = torch.tensor([-0.5, -2.0]).reshape(2, 1, 1, 1)
    last = lorentz_residual_many(
        [x.movedim(1, -1) for x in xs], [1.0, weights[1], weights[2].reshape(2, 1, 1)], 2.0, K=K
    )
    got = lorentz_residual_many(xs, weights, 2.0, K=K, dim=dim)
    torch.testing.assert_close(got, last.movedim(-1, 1), rtol=1e-6, atol=1e-7)


def test_branches_broadcast():
    xs = [normals(7, 1, 4), normals(3, 4, seed=1), normals(4, seed=2)]
    full = [x.expand(7, 3, 4) for x in xs]
    assert torch.equal(lorentz_residual_many(xs, WEIGHTS[:3]), lorentz_residual_many(full, WEIGHTS[:3]))


def test_equivariant_under_isometries():
    xs = [normals(20, 4, seed=s, dtype=torch.float64) for s in range(3)]
    assert_isometry_equivariant(
        lambda *p: lorentz_residual_many(p, [1.0, 0.37, 3.0], K=-2.0), Lorentz(-2.0), *xs, tolerance=1e-9
    )


@pytest.mark.parametrize("case", ["random", "near", "equal", "zero"])
def test_gradcheck_in_every_argument(case):
    xs = [normals(2, 2, seed=s, dtype=torch.float64) for s in range(3)]
    if case == "near":
        xs = [xs[0], xs[0] + 1e-3 * xs[1], xs[0] + 1e-3 * xs[2]]
    elif case == "equal":
        xs = [xs[0], xs[0].clone(), xs[0].clone()]
    elif case == "zero":
        xs = [torch.zeros_like(x) for x in xs]
    weights = [torch.tensor(0.7), torch.tensor([1.0, 2.0]), torch.tensor(0.3)]
    scale, K = torch.tensor([1.3, 0.4]), torch.tensor([[-2.0], [-0.5]])
    leaves = [t.double().requires_grad_() for t in (*xs, *weights, scale, K)]

    def f(a, b, c, u, v, w, s, k):
        return lorentz_residual_many([a, b, c], [u, v, w], s, K=k)

    assert gradcheck(f, leaves)
    assert gradgradcheck(f, leaves)
    # gradgradcheck tests the gradient with a graph; it must equal the one without.
    z = f(*leaves)
    plain = torch.autograd.grad(z.sum(), leaves, retain_graph=True)
    again = torch.autograd.grad(z.sum(), leaves, create_graph=True)
    torch.testing.assert_close(plain, again, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("n", [1, 8])
@pytest.mark.parametrize("magnitudes", [(0.0, 1e-45, 1e-40, 1e-30, 1e-20, 1e-3, 1.0), (0.0, 1e-3, 1.0, 1e8, 1e15)])
def test_finite_for_every_pattern_of_zeros_subnormals_and_large_norms(magnitudes, n):
    u, v, w = (normals(n, seed=s) / normals(n, seed=s).abs().max() for s in range(3))
    v[::2] = 0.0
    triples = list(itertools.product(magnitudes, repeat=3))
    xs = [torch.stack([t[i] * d for t in triples]) for i, d in enumerate((u, v, w))]
    rows = torch.ones(len(triples), 1)
    for weight, K in itertools.product((1.0, 0.01, 100.0), (-0.1, -10.0)):
        assert_finite_gradients(
            lambda a, b, c, p, q, s, k: lorentz_residual_many([a, b, c], [1.0, p, q], s, K=k),
            *xs,
            weight * rows,
            0.37 * rows,
            1.5 * rows,
            K * rows,
        )


def test_float32_gradients():
    # The same families, norms and tolerance as for the binary residual.
    reach = {"random": 1e4, "near": 1e3, "equal": 1e4}
    for family, limit in reach.items():
        for norm, K in itertools.product((r for r in NORMS if r <= limit), CURVATURES):
            x, y = (t.float() for t in more_pairs(family, norm))
            third = (x + y) / 2 + 1e-3 * norm * normals(*x.shape, seed=9)
            g = normals(*x.shape, seed=5)
            results = []
            for dtype in (torch.float32, torch.float64):
                leaves = [t.to(dtype).requires_grad_() for t in (x, y, third)]
                z = lorentz_residual_many(leaves, [1.0, float32(0.37), 2.0], K=float32(K))
                results.append(torch.autograd.grad(z, leaves, g.to(dtype)))
            for got, exact in zip(*results, strict=True):
                error = (got - exact).norm(dim=-1) / exact.norm(dim=-1)
                assert error.max() <= 1e-4, (family, norm, K, float(error.max()))
