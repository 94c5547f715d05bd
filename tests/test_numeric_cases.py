"""The documented error bounds (docs/theory/numerics.md, "What is promised") on many hard pairs of points.

The quick form draws 100 pairs per configuration, the slow form 2,500, together more than 100,000.
"""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from lresnet import Lorentz, nn
from lresnet.functional import lorentz_residual
from lresnet.geometry import pairwise_dist
from tests import numeric_cases as cases
from tests.families import exact_centroid, exact_distance
from tests.geometry import oracle
from tests.numeric_cases import Pairs

pytestmark = pytest.mark.skipif(not cases.EXACT, reason="numpy.longdouble is not wider than float64 here")

COUNTS = [100, pytest.param(2500, marks=pytest.mark.slow)]
# Powers of ten of the unitless radius (norm in radii of curvature), and curvatures.
ORDINARY = [((-3.0, 4.0), K) for K in (-0.1, -1.0, -2.0, -10.0, -1e15, -1e30)] + [((4.0, 6.0), -1.0)]
SMALL = [((-45.0, -3.0), -1.0), ((-15.0, 0.0), -1e30), ((-45.0, 3.0), -1e-30)]
FAR = [((6.0, 15.0), -1.0)]
BEYOND = [((17.0, 38.5), -1.0), ((0.0, 23.0), -1e-30)]  # squares of norms overflow
over_counts = pytest.mark.parametrize("count", COUNTS)
over_dimensions = pytest.mark.parametrize("n", [1, 2, 3, 8, 32])


def drawn(n: int, count: int, radii: tuple[float, float], K: float, seed: int = 0) -> tuple[Pairs, Tensor, Tensor]:
    shift = np.log10(-K) / 2
    pairs = cases.draw(n, count, (radii[0] - shift, radii[1] - shift), seed)
    return pairs, torch.from_numpy(pairs.x), torch.from_numpy(pairs.y)


@over_counts
@over_dimensions
@pytest.mark.parametrize(("radii", "K"), ORDINARY + SMALL + FAR + BEYOND)
def test_eager_float32(n, radii, K, count):
    pairs, x, y = drawn(n, count, radii, K)
    M, kappa = Lorentz(K), -K
    weight = torch.from_numpy(pairs.weight)
    cases.check_distance(M.dist(x, y), pairs, kappa, 2.0**-27, "dist")
    z = lorentz_residual(x, y, weight, K=K)
    cases.check_residual(z, pairs, kappa, "residual")
    equal = (x == y).all(-1)
    assert equal.any()
    assert torch.equal(z[equal], x[equal])
    assert torch.equal(M.dist(x, y), M.dist(y, x))
    both, weights = torch.stack((x, y), -2), torch.stack((torch.ones_like(weight), weight), -1)
    cases.check_residual(M.centroid(both, weights), pairs, kappa, "centroid")
    exact = cases.time(pairs.x, kappa)
    cases.within(abs(M.time(x).numpy() - exact), 3 * cases.EPS * exact, pairs, "time")
    if radii[1] <= 6:
        exact = cases.logarithm(pairs, kappa)
        error = cases.length(pairs.x, M.logmap(x, y).numpy() - exact, kappa)
        units = 6 + 2 * (1 + cases.larger_radius(pairs, kappa))
        bound = units * cases.EPS * cases.length(pairs.x, exact, kappa) + kappa**0.5 * 1e-19
        cases.within(error, bound, pairs, "logmap")


@over_counts
@over_dimensions
@pytest.mark.parametrize(("radii", "K"), ORDINARY + SMALL + FAR)
def test_float32_formulas_that_read_no_values(n, radii, K, count):
    # Under vmap, as in compiled code and for distances on CUDA, no pair is computed again in float64.
    pairs, x, y = drawn(n, count, radii, K, seed=1)
    M, kappa = Lorentz(K), -K
    cases.check_distance(torch.vmap(M.dist)(x, y), pairs, kappa, 2.0, "dist")
    z = torch.vmap(lambda x, y, w: lorentz_residual(x, y, w, K=K))(x, y, torch.from_numpy(pairs.weight))
    cases.check_residual(z, pairs, kappa, "residual")
    equal = (x == y).all(-1)
    assert torch.equal(z[equal], x[equal])


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_float64(n, count):
    pairs, x, y = drawn(n, count, (-3.0, 4.0), -1.0, seed=2)
    got = Lorentz(-1.0).dist(x.double() / 3, y.double() / 3).tolist()
    w = torch.from_numpy(pairs.weight).double()
    z = lorentz_residual(x.double() / 3, y.double() / 3, w).tolist()
    for i, (a, b) in enumerate(zip((x.double() / 3).tolist(), (y.double() / 3).tolist(), strict=True)):
        with mpmath.workdps(90):
            d = float(oracle.dist(mpmath.mpf(1), *([mpmath.mpf(c) for c in p] for p in (a, b)))[0])
        T = 1 + max(np.linalg.norm(a), np.linalg.norm(b))
        assert abs(got[i] - d) <= (6 + 2 * T) * 2.0**-52 * d + 1e-40, (a, b)
        exact = exact_centroid([a, b], [1.0, float(w[i])], 1.0)
        bound = 2.0**-52 * float(mpmath.norm(exact)) + 3e-7 * 2.0**-29
        assert exact_distance(z[i], exact, 1.0) <= bound, (a, b)


@pytest.mark.parametrize("n", [1, 3, 8])
@pytest.mark.parametrize(("radii", "K"), ORDINARY + SMALL + FAR + BEYOND)
def test_the_exact_results_agree_with_the_definitions(n, radii, K):
    # 250 digits: the definitions subtract squares of times up to 1e39, and take a root of what is left.
    pairs, _, _ = drawn(n, 12, radii, K, seed=3)
    kappa = -K
    d, z = cases.distance(pairs.x, pairs.y, kappa), cases.residual(pairs, kappa)
    with mpmath.workdps(250):
        k = mpmath.mpf(kappa)
        for i, (a, b) in enumerate(zip(pairs.x.tolist(), pairs.y.tolist(), strict=True)):
            rows = [[mpmath.mpf(c) for c in p] for p in (a, b)]
            exact = oracle.dist(k, *rows)[0]
            assert abs(mpmath.mpf(str(d[i])) - exact) <= mpmath.mpf("1e-15") * exact + mpmath.mpf("1e-60")
            for got, c in zip(z[i], exact_centroid([a, b], [1.0, float(pairs.weight[i])], kappa, 250), strict=True):
                largest = max(abs(v) for row in rows for v in row)
                assert abs(mpmath.mpf(str(got)) - c) <= mpmath.mpf("1e-15") * (abs(c) + mpmath.mpf("1e-3") * largest)


_NORMS = (0.0, 1e-36, 1e-3, 1.0, 1e15, 1e18)
OTHERS = {
    "ancestor energy": lambda u, v, M: nn.ancestor_energy(u, v, K=M.K),
    "product of norm and distance": lambda u, v, M: nn.ancestor_energy(u, v, K=M.K, form="product"),
    "ancestor energies of all pairs": lambda u, v, M: nn.pairwise_ancestor_energy(u, v, K=M.K),
    "entailment energies of all pairs": lambda u, v, M: nn.pairwise_entailment_energy(u, v, K=M.K),
    "exterior angle": lambda u, v, M: nn.exterior_angle(u, v, K=M.K),
    "distances of all pairs": lambda u, v, M: pairwise_dist(u, v, K=M.K),
    "transformer block": lambda u, v, M: nn.LorentzTransformerBlock(8, num_heads=2, manifold=M)(torch.stack([u, v])),
    "RMS norm": lambda u, v, M: nn.LorentzRMSNorm(8, manifold=M)(u),
    "layer norm": lambda u, v, M: nn.LorentzLayerNorm(8, manifold=M)(u),
    "MLR": lambda u, v, M: nn.LorentzMLR(8, 3, manifold=M)(u),
    "prototypes": lambda u, v, M: nn.Prototypes(8, 3, manifold=M)(u),
    "linear map": lambda u, v, M: nn.LorentzLinear(8, 3, manifold=M)(u),
}


@pytest.mark.parametrize("K", [-1e-30, -1.0, -1e30])
@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS)
def test_other_functions_and_their_gradients_are_finite(function, K):
    torch.manual_seed(0)
    norms = [norm for norm in _NORMS if norm * (-K) ** 0.5 <= 1e15]
    for one, other in itertools.product(norms, norms):
        directions = torch.nn.functional.normalize(torch.randn(2, 6, 8, dtype=torch.float64), dim=-1)
        directions[:, 1], directions[:, 2], directions[1, 3] = directions[:, 0], -directions[:, 0], directions[0, 3]
        u, v = ((d * norm).float().requires_grad_() for d, norm in zip(directions, (one, other), strict=True))
        result = function(u, v, Lorentz(K))
        assert result.isfinite().all(), (one, other)
        result.sum().backward()
        assert all(x.grad is None or x.grad.isfinite().all() for x in (u, v)), (one, other)
