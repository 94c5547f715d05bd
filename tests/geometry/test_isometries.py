"""Invariance and equivariance under random isometries: boosts and rotations."""

import hypothesis.strategies as st
import torch
from hypothesis import given, settings

from lresnet import Lorentz
from lresnet.testing import assert_isometry_equivariant

seldom = settings(deadline=None, derandomize=True, max_examples=40)

curvatures = st.sampled_from([-0.1, -0.5, -1.0, -2.0, -10.0])
dimensions = st.integers(1, 6)
seeds = st.integers(0, 2**31)
radii = st.floats(1e-3, 3.0)  # in radii of curvature: the boosts multiply norms by e^radius, and errors with them


class Scene:
    """Points and an isometry of float64, drawn from a seed."""

    def __init__(self, K: float, n: int, seed: int, radius: float, count: int = 4) -> None:
        self.M = Lorentz(K)
        self.g = torch.Generator().manual_seed(seed)
        self.n, self.radius = n, radius
        self.points = [self.draw(3) for _ in range(count)]
        self.rotation = torch.linalg.qr(torch.randn(n, n, generator=self.g, dtype=torch.float64))[0]
        self.shift = self.draw(1)

    def draw(self, rows: int) -> torch.Tensor:
        v = torch.randn(rows, self.n, generator=self.g, dtype=torch.float64)
        return self.M.expmap0(v / v.norm(dim=-1, keepdim=True) * self.radius / float(self.M.kappa) ** 0.5)

    def move(self, x: torch.Tensor) -> torch.Tensor:
        return self.M.boost(self.shift.expand_as(x), x @ self.rotation)

    def push(self, x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """The differential of the isometry: the image of the tangent vector u at x."""
        return torch.func.jvp(self.move, (x,), (u,))[1]


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


@seldom
@given(curvatures, dimensions, seeds, radii)
def test_distance_is_invariant(K, n, seed, radius):
    s = Scene(K, n, seed, radius)
    x, y, *_ = s.points
    close(s.M.dist(s.move(x), s.move(y)), s.M.dist(x, y))


@seldom
@given(curvatures, dimensions, seeds, radii)
def test_the_metric_is_invariant(K, n, seed, radius):
    s = Scene(K, n, seed, radius)
    x, u, v, _ = s.points
    close(s.M.inner(s.move(x), s.push(x, u), s.push(x, v)), s.M.inner(x, u, v))


@seldom
@given(curvatures, dimensions, seeds, radii)
def test_exponential_and_logarithm_are_equivariant(K, n, seed, radius):
    s = Scene(K, n, seed, radius)
    x, y, u, _ = s.points
    u = u / (1 + s.M.norm(x, u, keepdim=True))  # of length below 1: the points stay within reach
    close(s.M.expmap(s.move(x), s.push(x, u)), s.move(s.M.expmap(x, u)))
    close(s.M.logmap(s.move(x), s.move(y)), s.push(x, s.M.logmap(x, y)))


@seldom
@given(curvatures, dimensions, seeds, radii)
def test_transport_is_equivariant(K, n, seed, radius):
    s = Scene(K, n, seed, radius)
    x, y, u, _ = s.points
    close(s.M.transp(s.move(x), s.move(y), s.push(x, u)), s.push(y, s.M.transp(x, y, u)))


@seldom
@given(curvatures, dimensions, seeds, radii)
def test_centroid_is_equivariant(K, n, seed, radius):
    s = Scene(K, n, seed, radius)
    w = torch.rand(3, 4, generator=s.g, dtype=torch.float64)
    assert_isometry_equivariant(
        lambda *points: s.M.centroid(torch.stack(points, -2), w), s.M, *s.points, tolerance=1e-7, seed=seed
    )


@seldom
@given(curvatures, dimensions, seeds, radii)
def test_distance_is_a_metric(K, n, seed, radius):
    s = Scene(K, n, seed, radius)
    x, y, z, _ = s.points
    d = s.M.dist
    assert torch.equal(d(x, y), d(y, x))
    assert (d(x, y) >= 0).all()
    assert (d(x, z) <= d(x, y) + d(y, z) + 1e-12).all()


@seldom
@given(curvatures, dimensions, seeds, radii)
def test_geodesics_have_constant_speed(K, n, seed, radius):
    s = Scene(K, n, seed, radius)
    x, y, *_ = s.points
    u = s.M.logmap(x, y)
    close(s.M.norm(x, u), s.M.dist(x, y))
    for t in (0.25, 0.5):
        close(s.M.dist(x, s.M.expmap(x, t * u)), t * s.M.dist(x, y))


@seldom
@given(curvatures, dimensions, seeds, radii)
def test_boost_by_the_opposite_point_is_the_inverse(K, n, seed, radius):
    s = Scene(K, n, seed, radius)
    x, y, *_ = s.points
    close(s.M.boost(-x, s.M.boost(x, y)), y)
    close(s.M.boost(-x, x), torch.zeros_like(x))
