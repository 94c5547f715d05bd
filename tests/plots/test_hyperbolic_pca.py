"""Hyperbolic PCA: exact on geodesic planes, the same for moved points, and no plane nearby is nearer."""

import itertools
import math

import geoopt
import mpmath
import pytest
import torch
from torch import Tensor

from lresnet import Lorentz
from lresnet.plots import hyperbolic_pca as module
from lresnet.plots.hyperbolic_pca import hyperbolic_pca, squared_distance_kept


def points(count: int, n: int, seed: int, spread: float = 1.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    scales = spread * torch.linspace(1.5, 0.2, n, dtype=torch.float64)
    return torch.randn(count, n, generator=g, dtype=torch.float64) * scales


def distances(M: Lorentz, x: Tensor) -> Tensor:
    return M.dist(x[:, None], x[None])


def moved(M: Lorentz, x: Tensor, seed: int) -> Tensor:
    """After a rotation and a translation by about two radii of curvature."""
    n = x.shape[1]
    g = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(n, n, generator=g, dtype=torch.float64))[0]
    to = torch.randn(n, generator=g, dtype=torch.float64)
    return M.boost(to * 3.6 / to.norm() / M.kappa.sqrt(), x @ rotation)


@pytest.mark.parametrize("curvature", [-0.1, -1.0, -10.0])
@pytest.mark.parametrize("n", [3, 8])
def test_points_of_a_geodesic_plane_keep_their_distances(curvature: float, n: int) -> None:
    M = Lorentz(curvature)
    plane = points(40, 2, 0) / math.sqrt(-curvature)
    x = moved(M, torch.nn.functional.pad(plane, (0, n - 2)), 1)
    found = hyperbolic_pca(x, M)
    torch.testing.assert_close(distances(M, found.points), distances(M, plane), rtol=1e-9, atol=1e-9)
    assert found.kept == pytest.approx(1.0, abs=1e-12)
    assert found.spread.shape == (n,)
    assert (found.spread[2:] == 0).all()


@pytest.mark.parametrize("curvature", [-0.1, -1.0, -10.0])
def test_an_isometry_of_the_points_is_one_of_the_picture(curvature: float) -> None:
    M = Lorentz(curvature)
    x = points(60, 6, 2) / math.sqrt(-curvature)
    one, other = hyperbolic_pca(x, M), hyperbolic_pca(moved(M, x, 3), M)
    torch.testing.assert_close(distances(M, one.points), distances(M, other.points), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one.spread, other.spread, rtol=1e-9, atol=1e-9)


def test_the_spread_is_the_cost_and_no_other_plane_costs_less() -> None:
    """Cost by its definition: sinh² of the distance to the plane, the points moved by an isometry that tips it."""
    M = Lorentz(-1.0)
    x = points(50, 4, 4, spread=0.7)
    found = hyperbolic_pca(x, M)
    best = float(found.spread[2:].sum())

    def cost(y: Tensor) -> Tensor:
        nearest = torch.nn.functional.pad(_projected(M, y), (0, 2))
        return M.dist(y, nearest).sinh().square().mean()

    costs = torch.stack([cost(moved_a_little(M, x, seed)) for seed in range(300)])
    assert (costs >= best * (1 - 1e-9)).all()
    torch.testing.assert_close(float(_cost_in_plane(M, x)), best, rtol=1e-9, atol=0)


def _projected(M: Lorentz, y: Tensor) -> Tensor:
    """To the plane of the first two coordinates: drop the others and stretch back to the hyperboloid."""
    t, s = M.time(y)[:, None], y[:, :2]
    return s / (t.square() - s.square().sum(-1, keepdim=True)).sqrt()


def moved_a_little(M: Lorentz, x: Tensor, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    size = 10 ** (-2 + 2 * torch.rand(1, generator=g, dtype=torch.float64))
    tilt = size * torch.randn(4, 4, generator=g, dtype=torch.float64)
    rotation = torch.linalg.matrix_exp(tilt - tilt.T)
    return M.boost(size * torch.randn(4, generator=g, dtype=torch.float64), x @ rotation)


def _cost_in_plane(M: Lorentz, x: Tensor) -> Tensor:
    """All four coordinates of the PCA are the points themselves, moved: their own first plane is the best."""
    y = hyperbolic_pca(x, M, dims=4).points
    torch.testing.assert_close(distances(M, y), distances(M, x), rtol=1e-9, atol=1e-9)
    return M.dist(y, torch.nn.functional.pad(_projected(M, y), (0, 2))).sinh().square().mean()


# The share of squared distances --------------------------------------------------------------------------------------


def kept_by_definition(x: Tensor, kappa: float, normals: Tensor) -> float:
    """Sum over all pairs of projected points by that over all pairs of points, with 40 digits.

    A point is projected by subtracting its components along the normals [m, n+1] of the submanifold in the Lorentz
    product, and scaling the rest back to the hyperboloid.
    """
    with mpmath.workdps(40):
        K = mpmath.mpf(kappa)
        lifted = [[mpmath.sqrt(1 / K + mpmath.fsum(mpmath.mpf(c) ** 2 for c in row)), *row] for row in x.tolist()]
        basis = [[mpmath.mpf(c) for c in row] for row in normals.tolist()]

        def product(p: list, q: list) -> mpmath.mpf:
            return mpmath.fsum(a * b for a, b in zip(p[1:], q[1:], strict=True)) - p[0] * q[0]

        def projected(p: list) -> list:
            rest = list(p)
            for u in basis:
                along = product(p, u)
                rest = [a - along * b for a, b in zip(rest, u, strict=True)]
            scale = mpmath.sqrt(-1 / K / product(rest, rest))
            return [scale * a for a in rest]

        def total(points: list) -> mpmath.mpf:
            coshs = (-K * product(p, q) for p, q in itertools.combinations(points, 2))
            return mpmath.fsum(mpmath.acosh(max(1, cosh)) ** 2 for cosh in coshs)  # below 1 by rounding

        return float(total([projected(p) for p in lifted]) / total(lifted))


@pytest.mark.parametrize("curvature", [-0.25, -1.0, -4.0])
def test_the_share_of_squared_distances_is_that_of_an_independent_computation(curvature: float) -> None:
    """The points are symmetric about z = 0, which is therefore a principal plane; its normals are known."""
    M = Lorentz(curvature)
    g = torch.Generator().manual_seed(6)
    y, z = (torch.randn(8, n, generator=g, dtype=torch.float64) * s for n, s in ((2, 2.0), (2, 0.3)))
    x = torch.cat([torch.cat([a * y, b * z], 1) for a in (1, -1) for b in (1, -1)]) / math.sqrt(-curvature)
    normals = torch.eye(5, dtype=torch.float64)[3:]
    expected = kept_by_definition(x, -curvature, normals)
    plane = hyperbolic_pca(x, M).points
    assert 0.5 < expected < 0.999
    assert squared_distance_kept(x, plane, M) == pytest.approx(expected, rel=1e-9)
    assert squared_distance_kept(moved(M, x, 7), plane, M) == pytest.approx(expected, rel=1e-9)
    lorentz = geoopt.Lorentz(torch.tensor(-1 / curvature, dtype=torch.float64))
    before, after = (lorentz.dist(M.lift(p)[:, None], M.lift(p)).square().nan_to_num(0.0).sum() for p in (x, plane))
    assert float(after / before) == pytest.approx(expected, rel=1e-6)


def test_a_projection_lengthens_no_distance_and_points_of_a_plane_keep_all() -> None:
    M = Lorentz(-1.0)
    x = points(40, 6, 8)
    plane = hyperbolic_pca(x, M).points
    assert (distances(M, plane) <= distances(M, x) + 1e-9).all()
    assert squared_distance_kept(plane, plane, M) == 1.0
    assert squared_distance_kept(torch.zeros(3, 4), torch.zeros(3, 2), M) == 1.0


def test_the_share_of_many_points_is_that_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    M = Lorentz(-1.0)
    x = points(400, 4, 9)
    plane = hyperbolic_pca(x, M).points
    exact = squared_distance_kept(x, plane, M)
    monkeypatch.setattr(module, "_SAMPLE", 150)
    sampled = squared_distance_kept(x, plane, M)
    assert sampled != exact
    assert sampled == pytest.approx(exact, abs=0.05)
    assert sampled == squared_distance_kept(x, plane, M)


def test_float32_and_far_points() -> None:
    M = Lorentz(-1.0)
    plane = points(30, 2, 5) * 200.0
    x = torch.nn.functional.pad(plane, (1, 3))
    found = hyperbolic_pca(x.float(), M)
    assert found.points.dtype == torch.float64
    torch.testing.assert_close(distances(M, found.points), distances(M, plane), rtol=1e-5, atol=1e-5)


def test_a_single_point_and_equal_points_lie_in_the_origin() -> None:
    for count in (1, 5):
        found = hyperbolic_pca(torch.full((count, 3), 2.0), Lorentz(-2.0))
        torch.testing.assert_close(found.points, torch.zeros(count, 2, dtype=torch.float64), atol=1e-7, rtol=0)
        assert found.kept == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(3), r"shape \[N, n\] with N >= 1 and n >= dims = 2, got \[3\]"),
        (torch.zeros(4, 1), r"got \[4, 1\]"),
        (torch.zeros(0, 3), r"got \[0, 3\]"),
        (torch.full((2, 3), math.nan), "NaN or infinite"),
    ],
)
def test_what_cannot_be_projected_is_refused(x: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hyperbolic_pca(x, Lorentz(-1.0))
