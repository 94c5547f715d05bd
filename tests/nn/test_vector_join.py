"""The Lorentz residual of two exponentials in one step, and the exponential with a closed backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.functional import lorentz_residual
from lresnet.nn.bounded_exp import bounded_exp
from lresnet.nn.input_map import features_to_points
from lresnet.nn.prototype_distance import prototype_separation
from lresnet.nn.vector_join import lorentz_join
from lresnet.testing import assert_compiles, assert_finite_gradients, assert_on_manifold

# Of torch's tracer, at the residual's function.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")

CURVATURES = (-0.1, -1.0, -2.0, -10.0)


def vectors(rows: int = 12) -> tuple[Tensor, Tensor]:
    """Random ones, and zeros, equal ones, near ones, small ones, opposite ones."""
    z, g = torch.randn(2, rows, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).unbind()
    z[0], g[1], z[2], g[2], z[3] = 0, 0, 0, 0, g[3]
    z[4], z[5], z[6], g[6], z[7] = g[4] + 1e-6, -g[5], 1e-3 * z[6], 1e-2 * g[6], 2 * g[7]
    return z, g


def apart(z: Tensor, g: Tensor, w: Tensor, K: float, max_radius: float = 10.0) -> Tensor:
    x, y = (features_to_points(v, -K, max_radius).x for v in (z, g))
    return lorentz_residual(x, y, w, K=K)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("w", [0.25, 1.0, 4.0])
def test_is_the_residual_of_the_exponentials(K, w):
    (z, g), weight = vectors(), torch.tensor(w, dtype=torch.float64)
    y = lorentz_join(z, g, weight, -K, 10.0)
    torch.testing.assert_close(y, apart(z, g, weight, K), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(lorentz_join(z, g, -weight, -K, 10.0), y)  # of a weight, the absolute value
    assert_on_manifold(y, Lorentz(K))


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("radius", [0.01, 1.0, 5.0, 9.0, 30.0])
@pytest.mark.parametrize("family", ["random", "near", "equal"])
def test_float32_loses_hardly_more_than_one_after_the_other(K, radius, family):
    """Values and gradients of both ways in float32, against float64, in units of the largest entry of a row; means."""
    torch.manual_seed(0)
    z, g = torch.nn.functional.normalize(torch.randn(2, 200, 16, dtype=torch.float64), dim=-1).unbind()
    z = z * radius / (-K) ** 0.5
    g = {"random": g * z.norm(dim=-1, keepdim=True), "near": z * (1 + 1e-4 * g), "equal": z}[family]
    z, g, G = (t.float().double() for t in (z, g, torch.randn_like(z)))

    def results(way: object, dtype: torch.dtype) -> list[Tensor]:
        a, b = (t.to(dtype).requires_grad_() for t in (z, g))
        y = way(a, b, torch.tensor(4.0, dtype=dtype))
        return [t.double() for t in (y.detach(), *torch.autograd.grad(y, (a, b), G.to(dtype)))]

    def join(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return lorentz_join(a, b, w, -K, 10.0)

    def one_by_one(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return apart(a, b, w, K)

    for exact, ours, theirs in zip(
        results(one_by_one, torch.float64),
        results(join, torch.float32),
        results(one_by_one, torch.float32),
        strict=True,
    ):
        scale = exact.abs().amax(-1)
        error, other = (((t - exact).abs().amax(-1) / scale).mean() for t in (ours, theirs))
        assert error <= 4 * other + 1e-6


@pytest.mark.parametrize("max_radius", [0.9, 10.0])
def test_derivatives(max_radius):
    """In both vectors, the weight and the curvature, with and without vectors that are shortened, to second order."""
    z, g = (t[:8].requires_grad_() for t in vectors())
    w, kappa = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.7, 0.6))

    def f(z: Tensor, g: Tensor, w: Tensor, kappa: Tensor) -> Tensor:
        return lorentz_join(z, g, w, kappa, max_radius)

    assert gradcheck(f, (z, g, w, kappa))
    assert gradgradcheck(f, (z, g, w, kappa), atol=1e-4)


def test_weights_and_curvatures_of_a_stack():
    z, g = (t.view(6, 2, 4) for t in vectors())
    w, kappa = torch.tensor([0.5, 2.0]).double(), torch.tensor([[0.3], [1.5]]).double()
    arguments = [t.clone().requires_grad_() for t in (z, g, w, kappa)]
    y = lorentz_join(*arguments, 10.0)
    G = torch.randn_like(y)
    got = torch.autograd.grad(y, arguments, G)
    for i in range(2):
        own = [t.clone().requires_grad_() for t in (z[:, i], g[:, i], w[i], kappa[i, 0])]
        alone = lorentz_join(*own, 10.0)
        torch.testing.assert_close(y[:, i], alone)
        expected = torch.autograd.grad(alone, own, G[:, i])
        found = got[0][:, i], got[1][:, i], got[2][i], got[3][i, 0]
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


def test_finite_for_zeros_and_subnormals_and_vectors_of_any_length():
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e12])
    v = torch.cartesian_prod(special, special)
    w = torch.tensor(4.0)
    for g in (v, v.flip(0), torch.zeros_like(v)):
        assert_finite_gradients(lambda z, g: lorentz_join(z, g, w, 0.7, 10.0), v, g)
    assert_finite_gradients(lambda z: bounded_exp(z, 0.7, 10.0), v)


def test_a_norm_that_overflows_is_not_taken_for_the_origin():
    assert bounded_exp(torch.tensor([[1e30, 1e30]]), 1.0, 10.0).isnan().all()
    assert lorentz_join(torch.tensor([[1e30, 1e30]]), torch.ones(1, 2), torch.tensor(1.0), 1.0, 10.0).isnan().all()


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("max_radius", [0.9, 10.0])
def test_bounded_exp_is_that_of_features(K, max_radius):
    v, _ = vectors()
    torch.testing.assert_close(
        bounded_exp(v, -K, max_radius), features_to_points(v, -K, max_radius).x, rtol=1e-14, atol=0
    )
    v = v.requires_grad_()
    kappa = torch.tensor(-K, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda v, kappa: bounded_exp(v, kappa, max_radius), (v, kappa))
    assert gradgradcheck(lambda v, kappa: bounded_exp(v, kappa, max_radius), (v, kappa), atol=1e-4)


def test_separation_from_prototypes():
    """To second order in points, prototypes and curvature; coincident ones and the origin among them."""
    x, y = vectors()
    x, y = x[:4].requires_grad_(), y[2:5].clone().requires_grad_()
    kappa = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    M = Lorentz(-0.7)
    expected = (0.7**0.5 * M.dist(x.unsqueeze(1), y)).cosh() - 1
    torch.testing.assert_close(prototype_separation(x, y, 0.7), expected)
    assert gradcheck(prototype_separation, (x, y, kappa))
    assert gradgradcheck(prototype_separation, (x, y, kappa), atol=1e-4)


def test_compile_into_one_graph():
    z, g, w = torch.randn(5, 3), torch.randn(5, 3), torch.tensor(4.0)
    assert_compiles(lambda z, g: lorentz_join(z, g, w, 0.7, 10.0), z, g)
    assert_compiles(lambda z, g: prototype_separation(z, g, 0.7), z, g)
