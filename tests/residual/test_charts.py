"""The Lorentz residual in the Poincare ball and in the Klein model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.functional import klein_residual, lorentz_residual, poincare_residual
from lresnet.testing import assert_commutative, assert_finite_gradients
from tests.families import CURVATURES
from tests.residual.common import WEIGHTS, normals, per_point

MODELS = {
    "poincare": (poincare_residual, Lorentz.to_poincare, Lorentz.from_poincare),
    "klein": (klein_residual, Lorentz.to_klein, Lorentz.from_klein),
}


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("model", MODELS)
def test_agrees_with_the_lorentz_residual_of_mapped_points(model, K):
    residual, to, _ = MODELS[model]
    M = Lorentz(K)
    for norm in (1e-3, 0.1, 1.0, 10.0):
        x, y = (norm * normals(64, 5, seed=s, dtype=torch.float64) for s in (0, 1))
        for weight in (*WEIGHTS, -2.0, per_point(64).double()):
            got = residual(to(M, x), to(M, y), weight, K=K)
            expected = to(M, lorentz_residual(x, y, weight, K=K))
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_special_pairs(model):
    residual, to, _ = MODELS[model]
    M = Lorentz(-1.0)
    x = to(M, normals(32, 5, dtype=torch.float64))
    zero = torch.zeros_like(x)
    torch.testing.assert_close(residual(x, x.clone(), 0.37), x, rtol=1e-13, atol=0.0)
    torch.testing.assert_close(residual(x, x.flip(0), 0.0), x, rtol=1e-13, atol=0.0)
    torch.testing.assert_close(residual(x, -x), zero)
    assert torch.equal(residual(zero, zero), zero)


@pytest.mark.parametrize("model", MODELS)
def test_bitwise_commutative_at_equal_weights(model):
    residual, to, _ = MODELS[model]
    for K in CURVATURES:
        p, q = (to(Lorentz(K), normals(256, 8, seed=s)) for s in (0, 1))
        assert_commutative(lambda a, b, K=K: residual(a, b, K=K), p, q)


def test_klein_result_lies_on_the_line_between_the_points():
    p, q = (Lorentz().to_klein(normals(32, 5, seed=s, dtype=torch.float64)) for s in (0, 1))
    z = klein_residual(p, q, 0.37)
    t = ((z - p) * (q - p)).sum(-1, keepdim=True) / (q - p).square().sum(-1, keepdim=True)
    assert ((t > 0) & (t < 1)).all()
    torch.testing.assert_close(z, p + t * (q - p), rtol=1e-12, atol=1e-14)


def test_klein_model_does_not_depend_on_the_curvature():
    p, q = (Lorentz().to_klein(normals(32, 5, seed=s)) for s in (0, 1))
    for K in CURVATURES:
        assert torch.equal(klein_residual(p, q, 0.37, K=K), klein_residual(p, q, 0.37))


inside = st.lists(st.floats(-0.55, 0.55), min_size=3, max_size=3)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(inside, inside, st.floats(0, 10), st.floats(0.05, 10))
def test_the_two_charts_agree(a, b, weight, kappa):
    M = Lorentz(-kappa)
    p, q = (M.from_klein(torch.tensor(c, dtype=torch.float64)) for c in (a, b))
    klein = M.from_klein(klein_residual(M.to_klein(p), M.to_klein(q), weight, K=-kappa))
    ball = M.from_poincare(poincare_residual(M.to_poincare(p), M.to_poincare(q), weight, K=-kappa))
    torch.testing.assert_close(klein, ball, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_images(model):
    residual, to, _ = MODELS[model]
    p, q = (to(Lorentz(-2.0), normals(2, 3, 4, 5, seed=s)) for s in (0, 1))
    weight = per_point(24).reshape(2, 3, 4)
    last = residual(p, q, weight, K=-2.0)
    images = residual(p.movedim(-1, 1), q.movedim(-1, 1), weight, K=-2.0, dim=1)
    torch.testing.assert_close(images.movedim(1, -1), last, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", ["random", "equal", "zero"])
def test_gradcheck_in_every_argument(model, case):
    residual, _, _ = MODELS[model]
    p, q = (0.2 * normals(2, 3, seed=s, dtype=torch.float64) for s in (0, 1))
    if case == "equal":
        q = p.clone()
    elif case == "zero":
        q = torch.zeros_like(p)
    weight, K = torch.tensor([0.7, -2.0]), torch.tensor([[-1.0], [-0.5]])
    leaves = [t.double().requires_grad_() for t in (p, q, weight, K)]
    assert gradcheck(lambda p, q, w, K: residual(p, q, w, K=K), leaves)
    assert gradgradcheck(lambda p, q, w, K: residual(p, q, w, K=K), leaves)


@pytest.mark.parametrize("model", MODELS)
def test_gradcheck_of_images(model):
    residual, _, _ = MODELS[model]
    leaves = [0.2 * normals(1, 3, 1, 2, seed=s, dtype=torch.float64) for s in (0, 1)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    assert gradcheck(lambda p, q: residual(p, q, 0.7, K=-2.0, dim=1), leaves)
    assert gradgradcheck(lambda p, q: residual(p, q, 0.7, K=-2.0, dim=1), leaves)


@pytest.mark.parametrize("model", MODELS)
def test_finite_at_zeros_and_subnormals(model):
    residual, _, _ = MODELS[model]
    for a in (0.0, 1e-45, 1e-40, 1e-20, 1e-3):
        for b in (0.0, 1e-40, 1e-20, 0.2):
            p, q = a * normals(8, 3), b * normals(8, 3, seed=1)
            rows = torch.ones(8, 1)
            assert_finite_gradients(lambda p, q, w, K: residual(p, q, w, K=K), p, q, 0.5 * rows, -rows)


def test_points_outside_are_an_error():
    inside, outside = torch.tensor([0.1, 0.2]), torch.tensor([0.9, 0.9])
    with pytest.raises(ValueError, match="inside the Poincare ball: 1 of 1 points do not"):
        poincare_residual(inside, outside)
    with pytest.raises(ValueError, match="inside the Poincare ball"):
        poincare_residual(inside, torch.tensor([0.4, 0.0]), K=-10.0)  # radius 0.316
    with pytest.raises(ValueError, match="inside the Klein model"):
        klein_residual(torch.tensor([1.0, 0.0]), inside)
