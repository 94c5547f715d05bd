"""The kernel of all pairwise distances against 50 digits and float64; interpreted on machines without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet import Lorentz
from lresnet.geometry import pairwise_dist
from lresnet.kernels import disabled, enabled
from lresnet.testing import assert_finite_gradients
from tests.families import FAMILIES, pairs
from tests.geometry.test_pairwise import exact
from tests.kernels.cases import DEVICE, record_launches

kernels = pytest.importorskip("lresnet.kernels.pairwise_distance", reason="triton is not installed")

EPS = 2.0**-24


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def computed(x: Tensor, y: Tensor, K: float | None) -> Tensor:
    with enabled():
        return pairwise_dist(x.float().to(DEVICE), y.float().to(DEVICE), K=K).cpu().double()


def gradients(x: Tensor, y: Tensor, K: float | None, dtype: torch.dtype) -> list[Tensor]:
    leaves = [t.to(dtype).detach().requires_grad_() for t in (x, y)]
    d = pairwise_dist(*leaves, K=K)
    return list(torch.autograd.grad(d, leaves, normals(*d.shape, seed=8).to(dtype)))


@pytest.mark.parametrize("K", [-0.1, -10.0, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_errors_are_a_few_units_in_the_last_place(family, K):
    norms = (1e-3, 1.0, 100.0, 1e4)
    sets = [[t.float() for t in pairs(family, norm, count=3, n=4)] for norm in norms]
    d = computed(*(torch.cat(each) for each in zip(*sets, strict=True)), K)  # one launch
    for i, (norm, (x, y)) in enumerate(zip(norms, sets, strict=True)):
        right, rows = exact(x, y, K), slice(3 * i, 3 * i + 3)
        T = (1 + (-K * norm**2 if K is not None else 0.0)) ** 0.5
        # On one ray, the coordinates of the difference cancel.
        ray = torch.eye(3) * (T if family == "radial" else 0)
        assert ((d[rows, rows] - right).abs() <= (12 * EPS + 4 * EPS * ray) * right).all()


def test_near_points_are_accurate_at_all_steps():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(1, 6, generator=g)
    steps = 10.0 ** -torch.arange(0.0, 6.0, 0.25)
    y = x + steps.unsqueeze(1) * torch.randn(len(steps), 6, generator=g)
    right = exact(x, y, -1.0)
    assert ((computed(x, y, -1.0) - right).abs() <= 12 * EPS * right).all()


@pytest.mark.parametrize("K", [-0.7, None])
@pytest.mark.parametrize(("rows", "columns", "n"), [(1, 1, 1), (3, 70, 5), (65, 66, 3), (4, 7, 33)])
def test_gradients_agree_with_float64(rows, columns, n, K):
    x, y = normals(rows, n), normals(columns, n, seed=1)
    with torch.no_grad():
        y[0] = x[0]
    with enabled():
        found = gradients(x, y, K, torch.float32)
    for got, right in zip(found, gradients(x, y, K, torch.float64), strict=True):
        assert got.shape == right.shape
        assert (got.double() - right).abs().max() <= 2e-6 * right.abs().max()


@pytest.mark.parametrize("norm", [1.0, 100.0])
def test_gradients_of_near_points_are_accurate(norm):
    x, y = (t.float().to(DEVICE) for t in pairs("near", norm, count=8, n=6))
    with enabled():
        found = gradients(x, y, -1.0, torch.float32)
    for got, right in zip(found, gradients(x, y, -1.0, torch.float64), strict=True):
        assert (got.double() - right).norm() <= 2e-6 * right.norm()


def test_one_set_has_a_diagonal_of_zeros_and_symmetric_distances():
    x = 30 * normals(70, 3)
    with enabled():
        d = pairwise_dist(x.requires_grad_())
        (g,) = torch.autograd.grad(d.sum(), x)
    assert (d.diagonal() == 0).all()
    torch.testing.assert_close(d, d.mT, rtol=1e-6, atol=0)
    with disabled():
        torch.testing.assert_close(g, torch.autograd.grad(pairwise_dist(x).sum(), x)[0], rtol=1e-4, atol=1e-4)


def test_finite_at_zeros_subnormals_and_far_points():
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e4], device=DEVICE)
    points = torch.cartesian_prod(special, special)
    with enabled():
        assert_finite_gradients(lambda x, y: pairwise_dist(x, y, K=-0.7), points, points)
        assert pairwise_dist(points, K=-0.7).isfinite().all()


def test_second_derivatives_use_the_formula():
    def second() -> Tensor:
        x, y = normals(5, 3).requires_grad_(), normals(4, 3, seed=1).requires_grad_()
        first = torch.autograd.grad(pairwise_dist(x, y).square().sum(), (x, y), create_graph=True)
        return torch.autograd.grad(first[0].square().sum() + first[1].square().sum(), y)[0]

    with enabled():
        found = second()
    with disabled():
        torch.testing.assert_close(found, second(), rtol=1e-4, atol=1e-3)


def test_only_supported_tensors_use_the_kernel(monkeypatch):
    seen = record_launches(monkeypatch, kernels)
    x, y = normals(5, 3).requires_grad_(), normals(4, 3, seed=1)
    with enabled():
        pairwise_dist(x, y).sum().backward()
        assert seen == ["forward", "backward"]
        for points, others, K in (
            (x.double(), y.double(), -1.0),
            (x, y, Lorentz(-1.0, learnable=True).curvature.to(DEVICE)),
            (x.expand(2, 5, 3), y, -1.0),
            (x[:0], y, -1.0),
            (x, y[:0], -1.0),
        ):
            pairwise_dist(points, others, K=K)
        torch.vmap(lambda one: pairwise_dist(one, y))(x.expand(2, 5, 3))
    with disabled():
        pairwise_dist(x, y)
    assert seen == ["forward", "backward"]
