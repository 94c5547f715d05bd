"""Space addition and Euclidean addition."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz, make_residual
from lresnet.functional import space_residual
from lresnet.testing import (
    assert_commutative,
    assert_finite_gradients,
    assert_isometry_equivariant,
    assert_on_manifold,
)
from tests.families import CURVATURES, NORMS
from tests.residual.common import MORE_FAMILIES, more_pairs, normals


def test_is_the_papers_formula_on_lifted_points():
    for K in CURVATURES:
        M = Lorentz(K)
        x, y = (normals(20, 4, seed=s, dtype=torch.float64) for s in (0, 1))
        got = M.lift(space_residual(x, y))
        space = (M.lift(x) + M.lift(y))[..., 1:]
        time = (space.square().sum(-1, keepdim=True) - 1 / K).sqrt()
        torch.testing.assert_close(got, torch.cat([time, space], dim=-1), rtol=1e-15, atol=0.0)
        assert_on_manifold(space_residual(x, y), M)


@pytest.mark.parametrize("family", MORE_FAMILIES)
def test_bitwise_commutative(family):
    for norm in (*NORMS, 1e15):
        assert_commutative(space_residual, *(t.float() for t in more_pairs(family, norm)))


def test_is_not_equivariant_under_isometries():
    x, y = (normals(20, 3, seed=s, dtype=torch.float64) for s in (0, 1))
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_isometry_equivariant(space_residual, Lorentz(-1.0), x, y, tolerance=1e-2)


def test_gradcheck():
    leaves = [normals(2, 3, seed=s, dtype=torch.float64).requires_grad_() for s in (0, 1)]
    assert gradcheck(space_residual, leaves)
    assert gradgradcheck(space_residual, leaves)


def test_finite_for_zeros_subnormals_and_norms_up_to_1e15():
    magnitudes = (0.0, 1e-45, 1e-40, 1e-20, 1.0, 1e8, 1e15)
    for a, b in itertools.product(magnitudes, repeat=2):
        assert_finite_gradients(space_residual, a * normals(8, 4), b * normals(8, 4, seed=1))


@pytest.mark.parametrize("kind", ["space", "euclidean"])
def test_the_module_checks_its_coordinate_axis(kind):
    residual = make_residual(kind, Lorentz(-1.0), dim=1)
    x, y = normals(2, 3, 4, 5), normals(2, 3, 1, 1, seed=1)
    assert torch.equal(residual(x, y), x + y)
    assert residual(x[..., :0], x[..., :0]).shape == (2, 3, 4, 0)
    with pytest.raises(ValueError, match=r"coordinate axis \(1\)"):
        residual(x, x[:, :1])
    with pytest.raises(ValueError, match="dim=1 is not an axis"):
        residual(normals(3), normals(3))
    assert torch.equal(space_residual(x, y, dim=1), x + y)
