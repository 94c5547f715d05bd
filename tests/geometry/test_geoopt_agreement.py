"""Agreement with geoopt's manifolds in float64, through lift and drop."""

import geoopt
import pytest
import torch

from lresnet import Lorentz
from tests.families import pairs

CURVATURES = (-0.1, -0.5, -1.0, -2.0, -10.0)
over_curvatures = pytest.mark.parametrize("K", CURVATURES)


def scene(K: float) -> tuple[Lorentz, geoopt.Lorentz, torch.Tensor, torch.Tensor, torch.Tensor]:
    M = Lorentz(K)
    scale = (-K) ** -0.5  # two radii of curvature from the origin: geoopt's own forms still have their digits
    x, y = (scale * t for t in pairs("random", 2.0, count=32, n=5))
    u = scale * pairs("random", 1.0, count=32, n=5, seed=1)[0]
    return M, M.to_geoopt(), x, y, u


def lifted(M: Lorentz, x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """The ambient vector of a tangent vector: its time part is x.u / x_t."""
    return torch.cat([((x * u).sum(-1) / M.time(x)).unsqueeze(-1), u], -1)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    assert a.dtype == b.dtype == torch.float64
    torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)  # geoopt adds an eps of 1e-8 to some norms


@over_curvatures
def test_points(K):
    M, G, x, _, u = scene(K)
    p, v = M.lift(x), lifted(M, x, u)
    close(G.inner(None, p, p), -G.k.expand(32))
    close(G.inner(None, p, v), torch.zeros(32, dtype=torch.float64))
    close(G.proju(p, v), v)
    assert torch.equal(M.drop(G.projx(M.lift(x))), x)
    close(M.drop(G.origin(5, dtype=torch.float64)), torch.zeros(4, dtype=torch.float64))


@over_curvatures
def test_dist(K):
    M, G, x, y, _ = scene(K)
    close(M.dist(x, y), G.dist(M.lift(x), M.lift(y)))
    close(M.dist0(x), G.dist0(M.lift(x)))


@over_curvatures
def test_inner(K):
    M, G, x, y, u = scene(K)
    close(M.inner(x, u, y), G.inner(M.lift(x), lifted(M, x, u), lifted(M, x, y)))


@over_curvatures
def test_expmap_and_logmap(K):
    M, G, x, y, u = scene(K)
    close(M.lift(M.expmap(x, u)), G.expmap(M.lift(x), lifted(M, x, u)))
    close(lifted(M, x, M.logmap(x, y)), G.logmap(M.lift(x), M.lift(y)))
    zero = torch.zeros_like(x)
    close(M.lift(M.expmap0(u)), G.expmap0(lifted(M, zero, u)))
    close(M.logmap0(x), G.logmap0(M.lift(x))[..., 1:])


@over_curvatures
def test_transp(K):
    M, G, x, y, u = scene(K)
    close(lifted(M, y, M.transp(x, y, u)), G.transp(M.lift(x), M.lift(y), lifted(M, x, u)))


@over_curvatures
def test_riemannian_gradient(K):
    # A function of space coordinates and the same function of lifted points have the same Riemannian gradient.
    M, G, x, y, _ = scene(K)
    leaf = x.clone().requires_grad_()
    (ours,) = torch.autograd.grad(M.dist2(leaf, y).sum(), leaf)
    ambient = M.lift(x).requires_grad_()
    (theirs,) = torch.autograd.grad(G.dist(ambient, M.lift(y)).square().sum(), ambient)
    close(lifted(M, x, M.egrad2rgrad(x, ours)), G.egrad2rgrad(M.lift(x), theirs))


@over_curvatures
def test_poincare_ball(K):
    M, _, x, y, u = scene(K)
    ball = geoopt.PoincareBall(c=torch.tensor(-K, dtype=torch.float64))
    p, q = M.to_poincare(x), M.to_poincare(y)
    close(ball.dist(p, q), M.dist(x, y))
    v = torch.func.jvp(M.to_poincare, (x,), (u,))[1]
    close(ball.inner(p, v, keepdim=True).squeeze(-1), M.inner(x, u))
    close(ball.expmap(p, v), M.to_poincare(M.expmap(x, u)))
    close(ball.mobius_add(p, q), M.to_poincare(M.boost(x, y)))
    close(ball.transp(p, q, v), torch.func.jvp(M.to_poincare, (y,), (M.transp(x, y, u),))[1])


def test_from_geoopt_gives_the_same_space():
    G = geoopt.Lorentz(k=torch.tensor(2.5, dtype=torch.float64))
    M = Lorentz.from_geoopt(G)
    p = G.random_normal(8, 4, dtype=torch.float64)
    q = G.random_normal(8, 4, dtype=torch.float64)
    close(M.dist(M.drop(p), M.drop(q)), G.dist(p, q))
