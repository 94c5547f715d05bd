"""Derivatives of the centroid taken forwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, jvp

from lresnet.geometry.centroid import centroid

CLOUDS = ("random", "equal", "zeros", "single", "light")


def cloud(kind: str) -> tuple[Tensor, Tensor, Tensor]:
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


every_cloud = pytest.mark.parametrize("kind", CLOUDS)


@every_cloud
def test_jacobian_forwards_is_the_one_backwards(kind):
    argnums = (0, 1, 2)
    expected = jacrev(centroid, argnums)(*cloud(kind))
    torch.testing.assert_close(jacfwd(centroid, argnums)(*cloud(kind)), expected, rtol=1e-9, atol=1e-12)


@every_cloud
def test_the_value_is_the_ordinary_one(kind):
    arguments = cloud(kind)
    value, _ = jvp(centroid, arguments, tuple(torch.ones_like(a) for a in arguments))
    assert torch.equal(value, centroid(*arguments))


@pytest.mark.parametrize("kind", ["random", "equal", "zeros"])
def test_second_derivatives(kind):
    def loss(x: Tensor, weight: Tensor, kappa: Tensor) -> Tensor:
        return centroid(x, weight, kappa).sin().sum()

    arguments, argnums = cloud(kind), (0, 1, 2)
    expected = jacrev(jacrev(loss, argnums), argnums)(*arguments)
    for found in (hessian(loss, argnums), jacfwd(jacfwd(loss, argnums), argnums)):
        torch.testing.assert_close(found(*arguments), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["random", "equal", "zeros"])
def test_finite_differences(kind):
    leaves = tuple(a.requires_grad_() for a in cloud(kind))
    assert gradcheck(centroid, leaves, check_forward_ad=True)
    assert gradgradcheck(centroid, leaves, check_fwd_over_rev=True)


def test_without_any_weight_the_derivative_is_zero_both_ways():
    x, _, kappa = cloud("random")
    nothing = torch.zeros(2, 4, 1, dtype=torch.float64)
    for jacobian in (jacfwd, jacrev):
        assert not any(part.any() for part in jacobian(centroid, (0, 1, 2))(x, nothing, kappa))
