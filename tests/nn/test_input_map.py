"""Tests of the map from features to points, dense and sparse, of dropout of points, and of bounded_exp."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.nn import SparseMatrix
from lresnet.nn.input_map import Points, bounded_exp, dropout_points, features_to_points
from lresnet.testing import assert_finite_gradients

CURVATURES = (-0.1, -1.0, -2.0, -10.0)


def bag(rows: int = 20, columns: int = 9, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return sparse features with a zero row."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=g, dtype=torch.float64)
    x = x * (torch.rand(rows, columns, generator=g) < 0.4)
    x[3] = 0
    return x.to(dtype)


def dense(x: Tensor | SparseMatrix) -> Tensor:
    return x @ torch.eye(x.shape[1], dtype=x.values.dtype) if isinstance(x, SparseMatrix) else x


def both_kinds(features: Tensor) -> tuple[Tensor, SparseMatrix]:
    return features, SparseMatrix.from_dense(features)


@pytest.mark.parametrize("K", CURVATURES)
def test_points_equal_the_exponential_map_and_have_its_time(K):
    M, features = Lorentz(K), bag()
    for kind in both_kinds(features):
        x, time = features_to_points(kind, -K, max_radius=100.0)
        torch.testing.assert_close(dense(x), M.expmap0(features))
        torch.testing.assert_close(time.squeeze(-1), M.time(dense(x)))
    assert not dense(x)[3].any()
    assert float(time[3]) == pytest.approx((-K) ** -0.5)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("max_radius", [0.5, 10.0])
def test_rows_are_shortened_to_max_radius_in_radii_of_curvature(K, max_radius):
    M = Lorentz(K)
    scale = torch.logspace(-3, 3, 20, dtype=torch.float64).unsqueeze(1)
    features = scale * torch.nn.functional.normalize(bag() + 1e-3, dim=-1)
    expected = scale.squeeze(1).clamp(max=max_radius / (-K) ** 0.5)
    for kind in both_kinds(features):
        x = dense(features_to_points(kind, -K, max_radius).x)
        torch.testing.assert_close(M.dist0(x), expected)
        torch.testing.assert_close(torch.nn.functional.normalize(x, dim=-1), features / scale)


def test_float32_features_of_any_size_stay_finite():
    features = bag(dtype=torch.float32) * torch.logspace(-12, 12, 20).unsqueeze(1)
    for kind in both_kinds(features):
        x, time = features_to_points(kind, 1.0)
        assert dense(x).isfinite().all()
        assert time.isfinite().all()
        assert time.max() == pytest.approx(math.cosh(10), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_features_are_squared_in_float32(dtype):
    """The square of 300 overflows float16."""
    features = torch.tensor([[300.0, 400.0], [3.0, 4.0]], dtype=dtype)
    x, time = features_to_points(features, 1.0)
    wide = features_to_points(features.float(), 1.0)
    assert x.dtype == dtype
    assert torch.equal(x, wide.x.to(dtype))
    assert torch.equal(time, wide.time)


@pytest.mark.parametrize("max_radius", [0.8, 10.0])
def test_first_and_second_derivatives_in_the_curvature(max_radius):
    """Of points and time, with and without rows that are shortened."""

    def f(kappa: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        x, time = features_to_points(features, kappa, max_radius)
        return x, time

    def g(kappa: Tensor) -> tuple[Tensor, Tensor]:
        x, time = features_to_points(SparseMatrix.from_dense(features.detach()), kappa, max_radius)
        return x.values, time

    kappa = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    features = bag(6, 4).requires_grad_()
    assert gradcheck(f, (kappa, features))
    assert gradgradcheck(f, (kappa, features))
    assert gradcheck(g, (kappa,))
    assert gradgradcheck(g, (kappa,))


@pytest.mark.parametrize("sparse", [False, True])
def test_dropout_gives_points_with_their_time(sparse):
    K = -2.0
    points = features_to_points(both_kinds(bag(200))[sparse], -K)
    torch.manual_seed(0)
    x, time = dropout_points(points, 0.75, -K, training=True)
    torch.testing.assert_close(time.squeeze(-1), Lorentz(K).time(dense(x)))
    before, after = dense(points.x), dense(x)
    kept = after != 0
    torch.testing.assert_close(after[kept], 4 * before[kept])
    share = kept.sum() / (before != 0).sum()
    assert float(share) == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("sparse", [False, True])
def test_dropout_changes_nothing_in_evaluation_or_at_rate_zero(sparse):
    points = features_to_points(both_kinds(bag())[sparse], 1.0)
    assert dropout_points(points, 0.5, 1.0, training=False) is points
    assert dropout_points(points, 0.0, 1.0, training=True) is points


@pytest.mark.parametrize("sparse", [False, True])
def test_dropout_of_all_coordinates_gives_the_origin(sparse):
    points = features_to_points(both_kinds(bag())[sparse], 4.0)
    x, time = dropout_points(points, 1 - 1e-12, 4.0, training=True)
    assert not dense(x).any()
    torch.testing.assert_close(time, torch.full_like(time, 0.5))


def test_derivative_in_the_curvature_after_dropout():
    kappa = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    features = SparseMatrix.from_dense(bag())

    def f(kappa: Tensor) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        x, time = dropout_points(features_to_points(features, kappa), 0.5, kappa, training=True)
        return x.values, time

    assert gradcheck(f, (kappa,))


def test_points_unpack_to_coordinates_and_time():
    x, time = Points(torch.zeros(2, 3), torch.ones(2, 1))
    assert x.shape == (2, 3)
    assert time.shape == (2, 1)


# --- bounded_exp ------------------------------------------------------------------------------------------------------


def tangent_vectors() -> Tensor:
    """Return random vectors, one of them zero and one small."""
    v = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    v[0], v[6] = 0, 1e-3 * v[6]
    return v


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("max_radius", [0.9, 10.0])
def test_bounded_exp_equals_features_to_points(K, max_radius):
    v = tangent_vectors()
    torch.testing.assert_close(
        bounded_exp(v, -K, max_radius), features_to_points(v, -K, max_radius).x, rtol=1e-14, atol=0
    )
    v = v.requires_grad_()
    kappa = torch.tensor(-K, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda v, kappa: bounded_exp(v, kappa, max_radius), (v, kappa))
    assert gradgradcheck(lambda v, kappa: bounded_exp(v, kappa, max_radius), (v, kappa), atol=1e-4)


def test_gradients_of_bounded_exp_are_finite_for_zeros_subnormals_and_long_vectors():
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e12])
    assert_finite_gradients(lambda v: bounded_exp(v, 0.7, 10.0), torch.cartesian_prod(special, special))


def test_an_overflowing_norm_gives_nan():
    assert bounded_exp(torch.tensor([[1e30, 1e30]]), 1.0, 10.0).isnan().all()
