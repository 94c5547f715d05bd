"""The manifold class: lift and drop, shapes, geoopt's interface, and modules that refer to it."""

import copy

import geoopt
import pytest
import torch

from lresnet import Lorentz
from lresnet.geometry import ManifoldModule
from lresnet.testing import assert_on_manifold
from tests.families import CURVATURES, NORMS, pairs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("K", CURVATURES)
def test_lifted_points_are_on_the_hyperboloid(K, dtype):
    M = Lorentz(K)
    for norm in NORMS:
        x = pairs("random", norm)[0].to(dtype)
        p = M.lift(x).double()
        time, space = p[..., 0], p[..., 1:]
        constraint = -K * (space.square().sum(-1) - time.square()) + 1
        relative = constraint.abs() / (-K * time.square())
        assert relative.max() <= 4 * torch.finfo(dtype).eps  # 7e-7 in float32, 8e-16 in float64
        assert_on_manifold(x, M, rounding=4)
        assert (time > 0).all()


@pytest.mark.parametrize("K", CURVATURES)
def test_drop_is_the_exact_inverse_of_lift(K):
    M = Lorentz(K)
    for norm in NORMS:
        x = pairs("random", norm)[0].float()
        assert torch.equal(M.drop(M.lift(x)), x)
        assert torch.equal(M.lift(x)[..., 0], M.time(x))


def test_the_paper_s_points():
    M = Lorentz(-1.0)
    x = torch.tensor([[2.0, -2.0], [2.0, 2.0]])
    assert torch.equal(M.lift(x), torch.tensor([[3.0, 2.0, -2.0], [3.0, 2.0, 2.0]]))
    assert torch.equal(M.boost(x[0], x[1]), torch.tensor([8.0, -4.0]))
    assert torch.equal(M.boost(x[1], x[0]), torch.tensor([8.0, 4.0]))


def test_shapes_and_broadcasting():
    M = Lorentz(-1.0)
    x, y, u = torch.randn(5, 1, 3), torch.randn(4, 3), torch.randn(3)
    assert M.dist(x, y).shape == M.dist2(x, y).shape == (5, 4)
    assert M.dist(x, y, keepdim=True).shape == M.dist2(x, y, keepdim=True).shape == (5, 4, 1)
    assert M.dist0(x).shape == (5, 1)
    assert M.dist0(x, keepdim=True).shape == (5, 1, 1)
    assert M.inner(x, u).shape == (5, 1)
    assert M.inner(x, y, u, keepdim=True).shape == (5, 4, 1)
    assert M.expmap(x, y).shape == M.logmap(x, y).shape == M.transp(x, y, u).shape == M.boost(x, y).shape == (5, 4, 3)
    assert M.time(u).shape == ()
    assert M.lift(u).shape == (4,)
    assert M.dist(u, u).shape == ()
    torch.testing.assert_close(M.dist(x, y)[3, 2], M.dist(x[3, 0], y[2]))


def test_inner_is_a_metric():
    M = Lorentz(-2.0)
    x, u = pairs("random", 5.0, count=32)
    v = pairs("random", 1.0, count=32, seed=1)[0]
    assert (M.inner(x, u) > 0).all()
    torch.testing.assert_close(M.inner(x, u, v), M.inner(x, v, u))
    torch.testing.assert_close(M.inner(x, 2 * u + v, v), 2 * M.inner(x, u, v) + M.inner(x, v))
    torch.testing.assert_close(M.norm(x, u), M.inner(x, u).sqrt())


def test_metric_and_gradient_are_inverse():
    # <grad f, v>_x = df(v): egrad2rgrad is the inverse of the metric, at any distance from the origin.
    for K in CURVATURES:
        M = Lorentz(K)
        for norm in (1e-3, 1.0, 100.0):
            x, g = pairs("random", norm, count=32)
            v = pairs("random", 1.0, count=32, seed=1)[0]
            scale = M.norm(x, M.egrad2rgrad(x, g)) * M.norm(x, v)
            assert ((M.inner(x, M.egrad2rgrad(x, g), v) - (g * v).sum(-1)).abs() <= 1e-11 * scale).all()


def test_the_gradient_of_the_squared_distance_is_minus_twice_the_logarithm():
    M = Lorentz(-0.5)
    x, y = pairs("random", 2.0, count=16)
    x.requires_grad_()
    (g,) = torch.autograd.grad(M.dist2(x, y).sum(), x)
    torch.testing.assert_close(M.egrad2rgrad(x.detach(), g), -2 * M.logmap(x.detach(), y), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("K", CURVATURES)
def test_boost_is_a_translation(K):
    M = Lorentz(K)
    for norm in (1e-3, 1.0, 10.0):
        x, y = pairs("random", norm, count=32)
        o = torch.zeros_like(x)
        assert torch.equal(M.boost(x, o), x)
        assert torch.equal(M.boost(o, y), y)
        torch.testing.assert_close(M.boost(-x, M.boost(x, y)), y, rtol=1e-10 * (1 - K * norm**2), atol=1e-15)
        torch.testing.assert_close(M.boost(x, -x), o, rtol=0, atol=1e-13 * norm * (1 - K * norm**2))
        torch.testing.assert_close(M.boost(x, y), M.expmap(x, M.transp(o, x, M.logmap0(y))), rtol=1e-9, atol=1e-12)


def test_boost_of_opposite_points_does_not_cancel():
    # boost(x, -x) is the origin. The weight of x is 1 there; the printed formula subtracts numbers of order 1e4.
    for K in CURVATURES:
        x = pairs("random", 1e4, count=64)[0].float()
        assert torch.equal(Lorentz(K).boost(x, -x), torch.zeros_like(x))


def test_origin_and_random():
    M = Lorentz(-1.0)
    assert torch.equal(M.origin(3), torch.zeros(3))
    assert M.origin(2, 3, dtype=torch.float64).dtype == torch.float64
    assert M.origin(2, 3, seed=5, device="meta").device.type == "meta"
    x = M.random(2000, 3, std=0.5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert x.shape == (2000, 3)
    assert x.dtype == torch.float64
    assert M.logmap0(x).std().item() == pytest.approx(0.5, rel=0.05)
    same = M.random(2000, 3, std=0.5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(x, same)


def test_geoopt_interface():
    M = Lorentz(-1.0)
    x, u, v = torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 3)
    assert isinstance(M, geoopt.manifolds.Manifold)
    assert M.ndim == 1
    assert M.name == "Lorentz"
    assert not M.reversible
    assert M.projx(x) is x
    assert M.proju(x, u) is u
    assert M.check_point_on_manifold(x)
    assert M.check_vector_on_tangent(x, u)
    ok, reason = M.check_point_on_manifold(torch.tensor([1.0, float("nan")]), explain=True)
    assert (ok, reason) == (False, "space coordinates must be finite")
    assert not M.check_vector_on_tangent(x, torch.full_like(u, float("inf")))
    assert torch.equal(M.retr(x, u), M.expmap(x, u))
    y, moved = M.retr_transp(x, u, v)
    assert torch.equal(y, M.expmap(x, u))
    assert torch.equal(moved, M.transp(x, y, v))
    assert torch.equal(M.component_inner(x, u), M.inner(x, u, keepdim=True))
    parameter = geoopt.ManifoldParameter(x, manifold=M)
    assert torch.equal(parameter.dist(v, p="g"), M.dist(x, v))


def test_the_manifold_is_not_a_submodule():
    M = Lorentz(-0.5, learnable=True)
    module = ManifoldModule(M)
    assert module.manifold is M
    assert list(module.parameters()) == []
    assert list(module.state_dict()) == []
    assert "curvature=-0.5" in repr(module)


def test_the_model_owns_the_manifold():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.manifold = Lorentz(-0.5, learnable=True)
            self.layers = torch.nn.ModuleList(ManifoldModule(self.manifold) for _ in range(3))

    model = Model()
    assert list(model.state_dict()) == ["manifold.log_kappa"]
    twin = copy.deepcopy(model)
    assert twin.manifold is not model.manifold
    assert all(layer.manifold is twin.manifold for layer in twin.layers)


@pytest.mark.parametrize("wrong", [geoopt.Lorentz(), -1.0, None, Lorentz])
def test_other_manifolds_are_an_error(wrong):
    with pytest.raises(TypeError, match=r"manifold must be an lresnet.Lorentz, got .*Lorentz.from_geoopt\(k\)"):
        ManifoldModule(wrong)
