"""The weighted centroid: values and gradients are accurate in float32, in clouds for which other formulas fail."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, jvp

from lresnet import Lorentz
from lresnet.geometry.centroid import centroid
from lresnet.testing import assert_finite_gradients, assert_isometry_equivariant
from tests.families import CURVATURES, NORMS, exact_centroid, exact_distance

CLOUDS = ("random", "near", "equal", "ray", "line", "mixed", "zero", "hub")


def cloud(kind: str, norm: float, N: int, count: int = 32, n: int = 16, seed: int = 3) -> tuple[torch.Tensor, ...]:
    """Points [count, N, n] and weights [count, N], float64 tensors of float32 numbers."""
    g = torch.Generator().manual_seed(seed)

    def sphere(*shape):
        v = torch.randn(*shape, n, generator=g, dtype=torch.float64)
        return v / v.norm(dim=-1, keepdim=True)

    def uniform(*shape):
        return torch.rand(*shape, generator=g, dtype=torch.float64)

    centre, v = norm * sphere(count, 1), sphere(count, N)
    first = (torch.arange(N) == 0).unsqueeze(-1)
    x = {
        "random": lambda: norm * v,
        "near": lambda: centre + 1e-3 * norm * v,
        "equal": lambda: centre.expand(-1, N, -1),
        "ray": lambda: centre * uniform(count, N, 1),
        "line": lambda: centre * (2 * uniform(count, N, 1) - 1),
        "mixed": lambda: norm * v * 10 ** (-4 * uniform(count, N, 1)),
        "zero": lambda: torch.where(first, 0.0, norm * v),
        "hub": lambda: torch.where(first, centre, v),  # one point far out, the others near the origin
    }[kind]()
    return x.float().double(), uniform(count, N).float().double()


def clouds(kind: str, N: int, norms: tuple[float, ...] = NORMS) -> tuple[torch.Tensor, ...]:
    """Eight clouds for each norm."""
    x, w = zip(*(cloud(kind, norm, N, count=8) for norm in norms), strict=True)
    return torch.cat(x), torch.cat(w)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("kind", CLOUDS)
def test_float32_is_the_exact_result_rounded(kind, K):
    """Required: at most 4 times the error of the rounded exact result, plus 3e-7 radii. Measured: that error itself."""
    M = Lorentz(K)
    for N in (2, 5, 50):
        x, w = clouds(kind, N)
        for weight in (w, torch.ones_like(w)):
            exact = M.centroid(x, weight)
            got = M.centroid(x.float(), weight.float())
            assert got.dtype == torch.float32
            error, floor = M.dist(exact, got.double()), M.dist(exact, exact.float().double())
            assert (error <= 1.01 * floor + 1e-9 / (-K) ** 0.5).all()


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("kind", CLOUDS)
def test_against_50_digits(kind, K):
    M = Lorentz(K)
    for norm, N in product((1e-3, 1.0, 100.0, 1e4), (2, 5)):
        x, w = cloud(kind, norm, N, count=2, n=4)
        for dtype, unit in ((torch.float32, 3e-7), (torch.float64, 6e-16)):
            got = M.centroid(x.to(dtype), w.to(dtype))
            for i in range(len(x)):
                exact = exact_centroid(x[i].tolist(), w[i].tolist(), -K)
                rounded = torch.tensor([float(c) for c in exact], dtype=torch.float64).to(dtype).tolist()
                floor = exact_distance(exact, rounded, -K)
                # Sums of float64 are rounded; sums of float32 are computed in float64.
                spread = norm * 2.0**-53 if dtype == torch.float64 else 0.0
                assert exact_distance(exact, got[i].tolist(), -K) <= 4 * (floor + spread) + unit / (-K) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("K", CURVATURES)
def test_equal_points_give_the_point_exactly(K, dtype):
    M = Lorentz(K)
    for norm, N in product(NORMS, (1, 2, 5, 50)):
        x, w = (t.to(dtype) for t in cloud("equal", norm, N))
        assert torch.equal(M.centroid(x, w), x[:, 0])
        assert torch.equal(M.centroid(x), x[:, 0])


def test_centroid_of_two_points_is_the_midpoint():
    M = Lorentz(-0.5)
    x, _ = cloud("random", 3.0, 2)
    c = M.centroid(x)
    a, b, whole = M.dist(c, x[:, 0]), M.dist(c, x[:, 1]), M.dist(x[:, 0], x[:, 1])
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(a + b, whole)


def test_the_paper_s_formula():
    # x = [3, 2, -2], y = [3, 2, 2], K = -1: the sum [6, 4, 0] has Lorentz norm sqrt(20).
    c = Lorentz(-1.0).centroid(torch.tensor([[2.0, -2.0], [2.0, 2.0]], dtype=torch.float64))
    torch.testing.assert_close(c, torch.tensor([4 / 20**0.5, 0.0], dtype=torch.float64), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("kind", ["random", "near", "mixed"])
def test_isometry_equivariance_and_permutation_invariance(kind):
    M = Lorentz(-2.0)
    x, w = cloud(kind, 1.0, 5)
    assert_isometry_equivariant(lambda *points: M.centroid(torch.stack(points, -2), w), M, *x.unbind(-2))
    order = torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(M.centroid(x[:, order], w[:, order]), M.centroid(x, w), rtol=1e-14, atol=1e-14)


def test_only_the_ratios_of_the_weights_matter():
    M = Lorentz(-1.0)
    x, w = (t.float() for t in cloud("random", 2.0, 5))
    expected = M.centroid(x, w)
    for scale in (1e-37, 1e-25, 1e-10, 1e10, 1e25, 1e37):
        torch.testing.assert_close(M.centroid(x, w * scale), expected, rtol=1e-6, atol=1e-6)
    assert_finite_gradients(lambda x, w: M.centroid(x, w), x, w * 1e-25)
    assert_finite_gradients(lambda x, w: M.centroid(x, w), x, w * 1e25)


def test_points_of_weight_zero_are_ignored():
    M = Lorentz(-1.0)
    x, w = (t.float() for t in cloud("random", 2.0, 5))
    w[:, 2:] = 0
    torch.testing.assert_close(M.centroid(x, w), M.centroid(x[:, :2], w[:, :2]))
    w[:, 1:] = 0
    assert torch.equal(M.centroid(x, w), x[:, 0])
    assert torch.equal(M.centroid(x[:, :1]), x[:, 0])


def test_all_weights_zero_gives_the_origin():
    M = Lorentz(-1.0, learnable=True)
    x = torch.randn(3, 5, 2, requires_grad=True)
    w = torch.zeros(3, 5, requires_grad=True)
    c = M.centroid(x, w)
    assert torch.equal(c, torch.zeros(3, 2))
    first = torch.autograd.grad(c.sum(), (x, w, M.log_kappa), create_graph=True)
    second = torch.autograd.grad(sum(t.sum() for t in first), (x, w), allow_unused=True)
    for t in (*first, *(s for s in second if s is not None)):
        assert torch.isfinite(t).all()
    assert torch.equal(M.centroid(torch.zeros(4, 0, 2)), torch.zeros(4, 2))


def test_opposite_points_give_the_origin():
    x = torch.tensor([[3.0, -4.0], [-3.0, 4.0]])
    assert torch.equal(Lorentz(-1.0).centroid(x), torch.zeros(2))
    assert_finite_gradients(Lorentz(-1.0).centroid, x)


def test_axes_and_shapes():
    M = Lorentz(-1.0)
    x, w = torch.randn(4, 5, 6, 3), torch.rand(4, 5, 6)
    for dim in (0, 1, 2, -2, -3, -4):
        axis = dim % 4
        expected = M.centroid(x.movedim(axis, -2), w.movedim(axis, -1))
        got = M.centroid(x, w, dim=dim)
        assert got.shape == torch.Size([s for i, s in enumerate(x.shape) if i != axis])
        assert torch.equal(got, expected)
    torch.testing.assert_close(M.centroid(x, w[0, 0]), M.centroid(x, w[0, 0].expand(4, 5, 6)))
    torch.testing.assert_close(M.centroid(x, w.unsqueeze(-1)), M.centroid(x, w))
    torch.testing.assert_close(M.centroid(x, torch.tensor(0.3)), M.centroid(x))
    assert M.centroid(torch.randn(0, 5, 3)).shape == (0, 3)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["generic", "far", "coincident", "one at the origin", "all at the origin", "zero weight"]
)
def test_first_and_second_derivatives(where):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 3, generator=g, dtype=torch.float64)
    w = 0.2 + torch.rand(2, 3, 1, generator=g, dtype=torch.float64)
    if where == "far":
        x = 20 * x
    elif where == "coincident":
        x = x[:, :1].repeat(1, 3, 1)
    elif where == "one at the origin":
        x[:, 0] = 0
    elif where == "all at the origin":
        x.zero_()
    elif where == "zero weight":
        w[:, 1] = 0
    kappa = torch.tensor(0.7, dtype=torch.float64)
    args = tuple(t.requires_grad_() for t in (x, w, kappa))
    assert torch.autograd.gradcheck(centroid, args)
    assert torch.autograd.gradgradcheck(centroid, args, fast_mode=True, atol=1e-4)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("kind", [kind for kind in CLOUDS if kind != "equal"])
def test_float32_gradients(kind, K):
    """Required: within 1e-4 of float64 for near points, norms to 1e3. Measured: 1e-6 for every cloud and argument."""
    g = torch.Generator().manual_seed(1)
    norms = tuple(norm for norm in NORMS if norm <= 1e3)
    for N in (2, 5, 50):
        x, w = clouds(kind, N, norms)
        kappa = torch.full((len(x), 1, 1), -K).double()  # a float32 number, as the points are
        out = torch.randn(len(x), x.shape[-1], generator=g)

        args = (x, w.unsqueeze(-1), kappa)

        def gradients(dtype, args=args, out=out):
            leaves = [t.to(dtype).requires_grad_() for t in args]
            return torch.autograd.grad(centroid(*leaves), leaves, out.to(dtype))

        for exact, got in zip(gradients(torch.float64), gradients(torch.float32), strict=True):
            error, scale = ((t.flatten(1).norm(dim=1)).view(len(norms), -1).amax(1) for t in (got - exact, exact))
            assert (error <= 3e-6 * scale).all()


def test_gradients_at_coincident_points():
    # d c / d x_i is w_i / sum(w) times the identity there.
    x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64).expand(4, 3).clone()
    w = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: Lorentz(-2.0).centroid(x, w), x)
    expected = torch.einsum("i,ab->aib", w / w.sum(), torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(jacobian, expected, rtol=1e-12, atol=1e-12)


def test_finite_for_zeros_and_subnormals():
    M = Lorentz(-1.0)
    special = torch.tensor([0.0, 1e-45, 1.2e-38, 1e-30, 1e-20, -1e-10, 1.0])
    x = torch.stack(torch.meshgrid(special, special, special, special, indexing="ij"), -1).view(-1, 2, 2)
    assert_finite_gradients(M.centroid, x)
    weight = x[..., 0].abs()
    assert_finite_gradients(lambda x: M.centroid(x, weight), x)
    # The gradient of a weight of 1e-45 is of order 1e45 and overflows in float32; from 1e-30 on it is finite.
    assert_finite_gradients(lambda x, w: M.centroid(x, w), x, torch.where(weight < 1e-30, 0.0, weight))


def test_gradient_of_the_curvature():
    M = Lorentz(-0.5, learnable=True)
    x, w = (t.float() for t in cloud("random", 2.0, 5))
    M.centroid(x, w).square().sum().backward()
    h = 1e-4
    high, low = (Lorentz(-0.5 * f).centroid(x.double(), w.double()).square().sum() for f in (1 + h, 1 - h))
    torch.testing.assert_close(M.log_kappa.grad.double(), ((high - low) / (2 * h)).reshape(1), rtol=1e-5, atol=0)


# --- forward-mode derivatives -----------------------------------------------------------------------------------------


def small_cloud(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Points [2, 4, 3], weights [2, 4, 1] and a curvature."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 3, generator=g, dtype=torch.float64)
    weight = 0.1 + torch.rand(2, 4, 1, generator=g, dtype=torch.float64)
    if kind == "equal":
        x = x[:, :1].repeat(1, 4, 1)
    if kind == "zeros":
        x[:, 1:] = 0.0
    if kind == "single":
        weight[:, 1:] = 0.0
    if kind == "light":
        weight = 1e-30 * weight
    return x, weight, torch.tensor(0.7, dtype=torch.float64)


every_cloud = pytest.mark.parametrize("kind", ["random", "equal", "zeros", "single", "light"])


@every_cloud
def test_forward_and_reverse_mode_jacobians_agree(kind):
    argnums = (0, 1, 2)
    expected = jacrev(centroid, argnums)(*small_cloud(kind))
    torch.testing.assert_close(jacfwd(centroid, argnums)(*small_cloud(kind)), expected, rtol=1e-9, atol=1e-12)


@every_cloud
def test_forward_mode_does_not_change_the_value(kind):
    arguments = small_cloud(kind)
    value, _ = jvp(centroid, arguments, tuple(torch.ones_like(a) for a in arguments))
    assert torch.equal(value, centroid(*arguments))


@pytest.mark.parametrize("kind", ["random", "equal", "zeros"])
def test_forward_mode_second_derivatives(kind):
    def loss(x: Tensor, weight: Tensor, kappa: Tensor) -> Tensor:
        return centroid(x, weight, kappa).sin().sum()

    arguments, argnums = small_cloud(kind), (0, 1, 2)
    expected = jacrev(jacrev(loss, argnums), argnums)(*arguments)
    for found in (hessian(loss, argnums), jacfwd(jacfwd(loss, argnums), argnums)):
        torch.testing.assert_close(found(*arguments), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["random", "equal", "zeros"])
def test_forward_mode_finite_differences(kind):
    leaves = tuple(a.requires_grad_() for a in small_cloud(kind))
    assert gradcheck(centroid, leaves, check_forward_ad=True)
    assert gradgradcheck(centroid, leaves, check_fwd_over_rev=True)


def test_all_weights_zero_gives_zero_derivatives_in_both_modes():
    x, _, kappa = small_cloud("random")
    nothing = torch.zeros(2, 4, 1, dtype=torch.float64)
    for jacobian in (jacfwd, jacrev):
        assert not any(part.any() for part in jacobian(centroid, (0, 1, 2))(x, nothing, kappa))
