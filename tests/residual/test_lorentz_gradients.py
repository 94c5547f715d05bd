"""The Lorentz residual's derivatives: float32 against float64, finite everywhere, first and second order."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet.functional import lorentz_residual
from lresnet.testing import assert_finite_gradients
from tests.families import CURVATURES, NORMS
from tests.residual.common import float32, more_pairs, normals

# Norms up to which the float32 gradients in x and y are accurate to 1e-4. Beyond them radial pairs are ill
# conditioned; with a zero branch the loss comes from the difference vectors, which near points need.
REACH = {"random": 1e4, "near": 1e3, "equal": 1e4, "radial": 1.0, "zero": 100.0, "zero skip": 100.0, "opposite": 1e4}


def gradients(x: Tensor, y: Tensor, g: Tensor, weight: float, scale: float, K: float) -> dict[str, Tensor]:
    """Gradients of ``(g * residual).sum()``, one of weight, scale and K for each pair."""
    leaves = {
        "x": x.clone(),
        "y": y.clone(),
        "weight": x.new_full((len(x), 1), weight),
        "scale": x.new_full((len(x), 1), scale),
        "K": x.new_full((len(x), 1), K),
    }
    for leaf in leaves.values():
        leaf.requires_grad_()
    z = lorentz_residual(leaves["x"], leaves["y"], leaves["weight"], leaves["scale"], K=leaves["K"])
    return dict(zip(leaves, torch.autograd.grad(z, list(leaves.values()), g), strict=True))


@pytest.mark.parametrize("weight", [1.0, 0.37, 3.0, 100.0, 0.01])
@pytest.mark.parametrize("family", REACH)
def test_float32_gradients_of_the_branches(family, weight):
    for norm, K in itertools.product((r for r in NORMS if r <= REACH[family]), CURVATURES):
        x, y = (t.float() for t in more_pairs(family, norm))
        arguments = float32(weight), float32(1.3), float32(K)
        g = normals(*x.shape, seed=5)
        got, exact = gradients(x, y, g, *arguments), gradients(x.double(), y.double(), g.double(), *arguments)
        for name in ("x", "y"):
            error = (got[name] - exact[name]).norm(dim=-1) / exact[name].norm(dim=-1)
            assert error.max() <= 1e-4, (name, norm, K, float(error.max()))


@pytest.mark.parametrize("family", REACH)
def test_float32_gradients_of_weight_scale_and_curvature(family):
    # One number per pair, each a sum that may cancel: the error is relative to the largest number of the batch.
    for norm, K in itertools.product((r for r in NORMS if r <= REACH[family]), CURVATURES):
        x, y = (t.float() for t in more_pairs(family, norm))
        arguments = float32(0.37), float32(1.3), float32(K)
        g = normals(*x.shape, seed=5)
        got, exact = gradients(x, y, g, *arguments), gradients(x.double(), y.double(), g.double(), *arguments)
        for name in ("weight", "scale", "K"):
            error = (got[name] - exact[name]).abs().max()
            assert error <= 2e-4 * exact[name].abs().max(), (name, norm, K, float(error))


# --- finite forward and backward ------------------------------------------------------------------------------------

SMALL = (0.0, 1e-45, 1e-40, 1e-38, 1e-30, 1e-20, 1e-3, 1.0)
LARGE = (0.0, 1e-20, 1e-3, 1.0, 1e4, 1e8, 1e12, 1e15)


def patterns(a: float, b: float, n: int) -> tuple[Tensor, Tensor]:
    """Pairs of norms of about a and b: random, on one ray, on opposite rays, with some coordinates 0."""
    u, v = normals(n), normals(n, seed=1)
    u, v = u / u.abs().max(), v / v.abs().max()
    even = (torch.arange(n) % 2 == 0).float()
    cases = [(u, v), (u, u), (u, -u), (u * even, v * (1 - even)), (u * even, v), (u, v * even), (u, u * (1 + 1e-3 * v))]
    return torch.stack([a * c[0] for c in cases]), torch.stack([b * c[1] for c in cases])


def assert_finite(x: Tensor, y: Tensor, weight: float, K: float) -> None:
    rows = x.new_ones(len(x), 1)
    assert_finite_gradients(
        lambda p, q, w, s, k: lorentz_residual(p, q, w, s, K=k), x, y, weight * rows, 1.5 * rows, K * rows
    )


@pytest.mark.parametrize("n", [1, 2, 16])
@pytest.mark.parametrize("magnitudes", [SMALL, LARGE], ids=["small", "large"])
def test_finite_for_every_pattern_of_zeros_subnormals_and_large_norms(magnitudes, n):
    # All pairs of magnitudes in one batch for each weight and curvature. At weight 0 the gradient of the weight is
    # (cosh d) x, which overflows in float32 beyond norms of 1e12.
    for weight, K in itertools.product((1.0, 0.37, 100.0, 0.01, 0.0), (-0.1, -1.0, -10.0)):
        reach = [m for m in magnitudes if weight > 0 or m <= 1e12]
        batches = [patterns(a, b, n) for a, b in itertools.product(reach, reach)]
        x, y = (torch.cat([batch[i] for batch in batches]) for i in range(2))
        assert_finite(x, y, weight, K)


def test_finite_with_a_zero_among_many_points():
    x, y = normals(64, 8), normals(64, 8, seed=1)
    x[::3], y[::2] = 0.0, 0.0
    x[1::3, ::2], y[1::2, 1::2] = 1e-42, 0.0
    assert_finite(x, y, 0.5, -1.0)


def test_gradient_at_the_origin():
    # At x = y = 0 the residual is (x + w y)/(1 + w) to first order.
    zero = torch.zeros(3)
    got = torch.autograd.functional.jacobian(lambda x, y: lorentz_residual(x, y, 3.0, K=-2.0), (zero, zero))
    torch.testing.assert_close(got[0], 0.25 * torch.eye(3))
    torch.testing.assert_close(got[1], 0.75 * torch.eye(3))


def test_gradient_at_coincident_points():
    # Moving x by u moves the residual by u/(1 + w), whatever the curvature.
    x = normals(5, dtype=torch.float64)
    got = torch.autograd.functional.jacobian(lambda p, q: lorentz_residual(p, q, 3.0, K=-2.0), (x, x.clone()))
    eye = torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(got[0], 0.25 * eye)
    torch.testing.assert_close(got[1], 0.75 * eye)


# --- first and second derivatives in float64 -------------------------------------------------------------------------


def leaf(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).squeeze(0).requires_grad_()


def check(f, *leaves: Tensor) -> None:
    assert gradcheck(f, leaves)
    assert gradgradcheck(f, leaves)


def points(case: str) -> tuple[Tensor, Tensor]:
    x, y = normals(2, 3, dtype=torch.float64), normals(2, 3, seed=1, dtype=torch.float64)
    if case == "near":
        y = x + 1e-3 * y
    elif case == "equal":
        y = x.clone()
    elif case == "radial":
        y = 1.5 * x
    elif case == "zero":
        y = torch.zeros_like(x)
    elif case == "both zero":
        x, y = torch.zeros_like(x), torch.zeros_like(x)
    elif case == "far":
        x, y = 30 * x, 30 * y
    return x.requires_grad_(), y.requires_grad_()


@pytest.mark.parametrize("case", ["random", "near", "equal", "radial", "zero", "both zero", "far"])
def test_gradcheck_in_every_argument(case):
    x, y = points(case)
    check(lambda x, y, w, s, K: lorentz_residual(x, y, w, s, K=K), x, y, leaf(0.7), leaf(1.3), leaf(-2.0))


@pytest.mark.parametrize("case", ["random", "near", "equal", "radial", "zero", "both zero", "far"])
def test_gradients_with_and_without_create_graph_agree(case):
    # gradcheck tests the gradient without a graph, gradgradcheck the one with a graph.
    leaves = *points(case), leaf([0.7, 2.0]), leaf([1.3, 0.4]), leaf([[-2.0], [-0.5]])
    z = lorentz_residual(*leaves[:4], K=leaves[4])
    g = normals(*z.shape, seed=5, dtype=torch.float64)
    plain = torch.autograd.grad(z, leaves, g, retain_graph=True)
    again = torch.autograd.grad(z, leaves, g, create_graph=True)
    for a, b in zip(plain, again, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_gradcheck_per_point():
    x, y = points("random")
    weight, scale, K = leaf([0.7, 2.0]), leaf([1.3, 0.4]), leaf([[-2.0], [-0.5]])
    check(lambda x, y, w, s, K: lorentz_residual(x, y, w, s, K=K), x, y, weight, scale, K)


def test_gradcheck_of_a_negative_weight():
    x, y = points("random")
    check(lambda x, y, w: lorentz_residual(x, y, w), x, y, leaf(-0.7))


def test_gradcheck_of_images():
    x, y = (normals(1, 3, 1, 2, seed=s, dtype=torch.float64).requires_grad_() for s in (0, 1))
    weight = leaf([[[0.7, 2.0]]])
    check(lambda x, y, w, K: lorentz_residual(x, y, w, 1.3, K=K, dim=1), x, y, weight, leaf(-2.0))


def test_gradcheck_of_broadcast_branches():
    x, y = normals(3, dtype=torch.float64).requires_grad_(), points("random")[1]
    check(lambda x, y: lorentz_residual(x, y, 0.7, K=-2.0), x, y)


def test_gradients_of_some_arguments_only():
    x, y = points("random")
    everything = torch.autograd.grad(lorentz_residual(x, y, leaf(0.7), leaf(1.3), K=leaf(-2.0)).sum(), (x, y))
    torch.testing.assert_close(
        torch.autograd.grad(lorentz_residual(x, y.detach(), 0.7, 1.3, K=-2.0).sum(), x), everything[:1]
    )
    torch.testing.assert_close(
        torch.autograd.grad(lorentz_residual(x.detach(), y, 0.7, 1.3, K=-2.0).sum(), y), everything[1:]
    )
    (only_weight,) = torch.autograd.grad(lorentz_residual(x.detach(), y.detach(), w := leaf(0.7)).sum(), w)
    assert only_weight.shape == ()
