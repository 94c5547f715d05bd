"""Proposition 4.2: with suitable weights and scale the Lorentz residual equals each of the other methods."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from lresnet import Lorentz
from lresnet.functional import (
    EquivalentWeights,
    equivalent_weights,
    lorentz_residual,
    lorentz_residual_many,
    parallel_transport_residual,
    space_residual,
    tangent_residual,
)
from tests.families import CURVATURES, NORMS
from tests.residual.common import more_pairs, normals

METHODS = {
    "parallel_transport": lambda x, y, K: parallel_transport_residual(x, y, K=K),
    "parallel_transport_reversed": lambda x, y, K: parallel_transport_residual(y, x, K=K),
    "tangent": lambda x, y, K: tangent_residual(x, y, K=K),
    "space": lambda x, y, K: space_residual(x, y),
}


def with_weights(x: Tensor, y: Tensor, w: EquivalentWeights, K: float) -> Tensor:
    """The Lorentz residual with w_x = 1: it depends on the ratio of the weights only."""
    return lorentz_residual(x, y, w.w_y / w.w_x, w.gamma, K=K)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("method", METHODS)
def test_reproduces_the_method(method, K):
    for norm in NORMS:
        for family in ("random", "near", "equal", "radial", "zero", "zero skip", "unequal norms"):
            x, y = more_pairs(family, norm)
            weights = equivalent_weights(x, y, method, K=K)
            expected = METHODS[method](x, y, K)
            got = with_weights(x, y, weights, K)
            error = (got - expected).norm(dim=-1) / expected.norm(dim=-1)
            assert error.max() <= 1e-14, (norm, family, float(error.max()))


@pytest.mark.parametrize("method", METHODS)
def test_weights_are_positive_and_one_per_point(method):
    x, y = normals(4, 5, 3), normals(4, 5, 3, seed=1)
    for w in equivalent_weights(10 * x, -10 * y, method):
        assert w.shape == (4, 5)
        assert (w > 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_unnormalised_sum_is_the_method(method):
    # gamma is proportional to n, so n cancels in gamma (w_x x + w_y y)/n.
    x, y = (normals(20, 4, seed=s, dtype=torch.float64) for s in (0, 1))
    w = equivalent_weights(x, y, method, K=-2.0)
    got = lorentz_residual_many([x, y], [w.w_x, w.w_y], w.gamma, K=-2.0)
    torch.testing.assert_close(got, METHODS[method](x, y, -2.0), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_the_output_without_scale_lies_on_the_methods_geodesic(method):
    M = Lorentz(-2.0)
    x, y = (normals(20, 4, seed=s, dtype=torch.float64) for s in (0, 1))
    w = equivalent_weights(x, y, method, K=-2.0)
    m, z = lorentz_residual(x, y, w.w_y / w.w_x, K=-2.0), METHODS[method](x, y, -2.0)
    near, far = M.dist0(m), M.dist0(z)
    torch.testing.assert_close(M.dist(m, z), (far - near).abs(), rtol=1e-9, atol=1e-12)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=5), st.floats(0.05, 10), st.integers(0, 2**16))
def test_transport_weight_is_the_closed_form(a, kappa, seed):
    x = torch.tensor(a, dtype=torch.float64)
    y = normals(len(a), seed=seed, dtype=torch.float64)
    M = Lorentz(-kappa)
    root = kappa**0.5
    closed = root * M.time(y) + kappa * x.dot(y) / (1 + root * M.time(x))
    w = equivalent_weights(x, y, "parallel_transport", K=-kappa)
    torch.testing.assert_close(w.w_x, closed, rtol=1e-11, atol=0.0)
    assert w.w_y == 1


def test_the_printed_weight_of_the_paper_is_wrong():
    K, kappa = -1.0, 1.0
    M = Lorentz(K)
    x, y = (3 * torch.nn.functional.normalize(normals(64, 4, seed=s, dtype=torch.float64), dim=-1) for s in (0, 1))
    # The quantities of the proof: u = log_o y, v its transport to x, alpha the length of v.
    c_u = torch.acosh(kappa**0.5 * M.time(y)) / (kappa * M.time(y).square() - 1).sqrt()
    c_v = (x * (c_u[:, None] * y)).sum(-1) / (1 / kappa + M.time(x) / kappa**0.5)
    v = c_u[:, None] * y + c_v[:, None] * x
    alpha = (kappa * M.inner(x, v, v)).sqrt()
    w_y = torch.sinh(alpha) / alpha * c_u
    printed = torch.cosh(alpha) + c_v
    corrected = torch.cosh(alpha) + torch.sinh(alpha) / alpha * c_v

    def direction_error(w_x: Tensor) -> float:
        m, z = lorentz_residual(x, y, w_y / w_x, K=K), parallel_transport_residual(x, y, K=K)
        unit = torch.nn.functional.normalize
        return float((unit(m, dim=-1) - unit(z, dim=-1)).norm(dim=-1).max())

    assert direction_error(corrected) < 1e-14
    assert direction_error(printed) > 1e-2
    ours = equivalent_weights(x, y, "parallel_transport", K=K)
    torch.testing.assert_close(ours.w_x / ours.w_y, corrected / w_y, rtol=1e-12, atol=0.0)


def test_the_needed_scale_grows_with_the_norm():
    # For this reason trained scalar weights do not make the Lorentz residual equal to the other methods.
    gammas = []
    for norm in (1.0, 100.0, 1e4):
        x, y = more_pairs("random", norm)
        gammas.append(float(equivalent_weights(x, y, "parallel_transport").gamma.median()))
    assert gammas[0] < 5 < 100 < gammas[1] < 1e4 < gammas[2]


@pytest.mark.parametrize("method", METHODS)
def test_gradcheck(method):
    x, y = (normals(2, 3, seed=s, dtype=torch.float64).requires_grad_() for s in (0, 1))
    K = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
    assert gradcheck(
        lambda x, y, K: tuple(w + 0 * x.sum() + 0 * K for w in equivalent_weights(x, y, method, K=K)), (x, y, K)
    )


@pytest.mark.parametrize("method", METHODS)
def test_finite_at_the_origin(method):
    zero = torch.zeros(1, 3)
    for w in equivalent_weights(zero, zero, method):
        assert w.isfinite().all()
    assert torch.equal(with_weights(zero, zero, equivalent_weights(zero, zero, method), -1.0), zero)


def test_error_for_an_unknown_method_lists_the_known_ones():
    x = normals(2, 3)
    with pytest.raises(ValueError, match="known for the method 'moebius'; they are for 'parallel_transport', "):
        equivalent_weights(x, x, "moebius")
