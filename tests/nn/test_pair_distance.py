"""Tests of squared Lorentzian distances of pairs of nodes, and of the margin loss."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.nn.pair_distance import lorentz_distance2, margin_loss

PAIRS = torch.tensor([[0, 1, 2, 5, 5, 0], [1, 2, 0, 5, 3, 1]])


def normals(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("K", [-0.1, -1.0, -2.0, -10.0])
def test_distance_is_the_squared_norm_of_the_ambient_difference(K):
    M, z = Lorentz(K), 2 * normals(6, 3)
    got = lorentz_distance2(z, PAIRS, -K)
    p, q = M.lift(z)[PAIRS[0]], M.lift(z)[PAIRS[1]]
    product = -p[:, 0] * q[:, 0] + (p[:, 1:] * q[:, 1:]).sum(-1)
    torch.testing.assert_close(got, 2 / K - 2 * product)
    torch.testing.assert_close(got, 2 / -K * ((-K) ** 0.5 * M.dist(z[PAIRS[0]], z[PAIRS[1]])).cosh().sub(1))
    assert float(got[3]) == 0.0  # a node and itself


def test_without_curvature_the_distance_is_euclidean():
    z = normals(6, 3)
    torch.testing.assert_close(lorentz_distance2(z, PAIRS, None), (z[PAIRS[0]] - z[PAIRS[1]]).square().sum(-1))


def test_first_and_second_derivatives_in_points_and_curvature():
    z, kappa = normals(6, 3).requires_grad_(), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def f(z: Tensor, kappa: Tensor) -> Tensor:
        return lorentz_distance2(z, PAIRS, kappa)

    assert gradcheck(f, (z, kappa))
    assert gradgradcheck(f, (z, kappa))


def test_distances_of_near_pairs_are_accurate_in_float32():
    """Computed as 2/K - 2 <x, y> they would be differences of numbers near 100."""
    z = 5 * normals(100, 8, dtype=torch.float32)
    near = z + 1e-3 * normals(100, 8, seed=1, dtype=torch.float32)
    pairs = torch.stack([torch.arange(100), torch.arange(100, 200)])
    both = torch.cat([z, near])
    torch.testing.assert_close(
        lorentz_distance2(both, pairs, 1.0).double(), lorentz_distance2(both.double(), pairs, 1.0), rtol=0.05, atol=0.0
    )


def test_margin_loss_is_the_mean_hinge():
    positive, negative = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([4.0, 5.5, 2.0])
    # margin 2: relu(2 + 1 - 4) = 0, relu(2 + 5 - 5.5) = 1.5, relu(2 + 2 - 2) = 2
    assert margin_loss(positive, negative, 2.0) == pytest.approx(3.5 / 3)
    assert margin_loss(positive, negative, torch.tensor(2.0)) == pytest.approx(3.5 / 3)
