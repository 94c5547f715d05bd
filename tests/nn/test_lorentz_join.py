"""Tests of the Lorentz residual of two exponentials, computed in one step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.functional import lorentz_residual
from lresnet.nn.input_map import features_to_points
from lresnet.nn.weighted_join import lorentz_join
from lresnet.testing import assert_compiles, assert_finite_gradients, assert_on_manifold

# torch's tracer instantiates the residual's autograd.Function and warns about it.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")

CURVATURES = (-0.1, -1.0, -2.0, -10.0)


def vectors(rows: int = 12) -> tuple[Tensor, Tensor]:
    """Return pairs of random vectors, some of them zero, equal, near, small, opposite or parallel."""
    z, g = torch.randn(2, rows, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).unbind()
    z[0], g[1], z[2], g[2], z[3] = 0, 0, 0, 0, g[3]
    z[4], z[5], z[6], g[6], z[7] = g[4] + 1e-6, -g[5], 1e-3 * z[6], 1e-2 * g[6], 2 * g[7]
    return z, g


def in_three_steps(z: Tensor, g: Tensor, w: Tensor, K: float, max_radius: float = 10.0) -> Tensor:
    x, y = (features_to_points(v, -K, max_radius).x for v in (z, g))
    return lorentz_residual(x, y, w, K=K)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("w", [0.25, 1.0, 4.0])
def test_join_equals_the_residual_of_the_exponentials(K, w):
    (z, g), weight = vectors(), torch.tensor(w, dtype=torch.float64)
    y = lorentz_join(z, g, weight, -K, 10.0)
    torch.testing.assert_close(y, in_three_steps(z, g, weight, K), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(lorentz_join(z, g, -weight, -K, 10.0), y)  # the absolute value of the weight is used
    assert_on_manifold(y, Lorentz(K))


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("radius", [0.01, 1.0, 5.0, 9.0, 30.0])
@pytest.mark.parametrize("family", ["random", "near", "equal"])
def test_float32_is_about_as_accurate_as_in_three_steps(K, radius, family):
    """Mean errors of values and gradients against float64, relative to the largest entry of each row."""
    torch.manual_seed(0)
    z, g = torch.nn.functional.normalize(torch.randn(2, 200, 16, dtype=torch.float64), dim=-1).unbind()
    z = z * radius / (-K) ** 0.5
    g = {"random": g * z.norm(dim=-1, keepdim=True), "near": z * (1 + 1e-4 * g), "equal": z}[family]
    z, g, G = (t.float().double() for t in (z, g, torch.randn_like(z)))

    def results(function: object, dtype: torch.dtype) -> list[Tensor]:
        a, b = (t.to(dtype).requires_grad_() for t in (z, g))
        y = function(a, b, torch.tensor(4.0, dtype=dtype))
        return [t.double() for t in (y.detach(), *torch.autograd.grad(y, (a, b), G.to(dtype)))]

    def join(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return lorentz_join(a, b, w, -K, 10.0)

    def three_steps(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return in_three_steps(a, b, w, K)

    for exact, ours, theirs in zip(
        results(three_steps, torch.float64),
        results(join, torch.float32),
        results(three_steps, torch.float32),
        strict=True,
    ):
        scale = exact.abs().amax(-1)
        error, other = (((t - exact).abs().amax(-1) / scale).mean() for t in (ours, theirs))
        assert error <= 4 * other + 1e-6


@pytest.mark.parametrize("max_radius", [0.9, 10.0])
def test_first_and_second_derivatives(max_radius):
    """In both vectors, the weight and the curvature, with and without vectors that are shortened."""
    z, g = (t[:8].requires_grad_() for t in vectors())
    w, kappa = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.7, 0.6))

    def f(z: Tensor, g: Tensor, w: Tensor, kappa: Tensor) -> Tensor:
        return lorentz_join(z, g, w, kappa, max_radius)

    assert gradcheck(f, (z, g, w, kappa))
    assert gradgradcheck(f, (z, g, w, kappa), atol=1e-4)


def test_a_stack_may_have_its_own_weights_and_curvatures():
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


def test_gradients_are_finite_for_zeros_subnormals_and_long_vectors():
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e12])
    v = torch.cartesian_prod(special, special)
    w = torch.tensor(4.0)
    for g in (v, v.flip(0), torch.zeros_like(v)):
        assert_finite_gradients(lambda z, g: lorentz_join(z, g, w, 0.7, 10.0), v, g)


def test_an_overflowing_norm_gives_nan():
    assert lorentz_join(torch.tensor([[1e30, 1e30]]), torch.ones(1, 2), torch.tensor(1.0), 1.0, 10.0).isnan().all()


def test_join_compiles_without_a_graph_break():
    z, g, w = torch.randn(5, 3), torch.randn(5, 3), torch.tensor(4.0)
    assert_compiles(lambda z, g: lorentz_join(z, g, w, 0.7, 10.0), z, g)
