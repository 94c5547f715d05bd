"""The published exp/log forms: equal to ours in float64, less accurate in float32, NaN at the origin."""

from __future__ import annotations

import pytest
import torch

from lresnet.functional import lorentz_residual, parallel_transport_residual, tangent_residual
from lresnet.residual.textbook import lorentz_textbook, parallel_transport_textbook, tangent_textbook
from tests.families import CURVATURES, pairs
from tests.residual.common import geodesic, normals, per_point


@pytest.mark.parametrize("K", CURVATURES)
def test_agreement_in_float64_at_moderate_norms(K):
    for norm in (0.1, 1.0, 10.0):
        x, y = pairs("random", norm)
        weight = per_point(len(x)).double()
        for ours, textbook in (
            (parallel_transport_residual(x, y, K=K), parallel_transport_textbook(x, y, K=K)),
            (tangent_residual(x, y, weight, K=K), tangent_textbook(x, y, weight, K=K)),
            (tangent_residual(x, y, -0.37, K=K), tangent_textbook(x, y, -0.37, K=K)),
            (lorentz_residual(x, y, 0.37, K=K), lorentz_textbook(x, y, 0.37, K=K)),
        ):
            torch.testing.assert_close(textbook, ours, rtol=1e-9, atol=1e-10)


def test_agreement_on_images():
    x, y = (normals(2, 5, 3, 4, seed=s, dtype=torch.float64) for s in (0, 1))
    for ours, textbook in (
        (parallel_transport_residual, parallel_transport_textbook),
        (tangent_residual, tangent_textbook),
        (lorentz_residual, lorentz_textbook),
    ):
        torch.testing.assert_close(textbook(x, y, K=-2.0, dim=1), ours(x, y, K=-2.0, dim=1), rtol=1e-10, atol=1e-11)


def test_nan_at_the_origin_where_ours_is_finite():
    x, zero = normals(4), torch.zeros(4)
    assert parallel_transport_textbook(x, zero).isnan().all()
    assert torch.equal(parallel_transport_residual(x, zero), x)
    for a, b in ((x, zero), (zero, x), (zero, zero)):
        assert tangent_textbook(a, b).isnan().all()
        torch.testing.assert_close(tangent_residual(a, b), a + b)


def test_nan_gradient_at_the_origin():
    zero = torch.zeros(4, requires_grad=True)
    for form in (parallel_transport_textbook, tangent_textbook):
        (g,) = torch.autograd.grad(form(torch.ones(4), zero).sum(), zero)
        assert g.isnan().any()


def test_textbook_forms_are_inaccurate_far_out():
    x, y = (t.float() for t in pairs("near", 1e4))
    for ours, textbook, factor in (
        (lorentz_residual, lorentz_textbook, 1000),
        (parallel_transport_residual, parallel_transport_textbook, 2),
    ):
        exact = ours(x.double(), y.double())
        error = geodesic(ours(x, y), exact, -1.0).max()
        assert not geodesic(textbook(x, y), exact, -1.0).max() <= factor * error, ours.__name__
