"""Tests of WeightedJoin: the two formulas of the paper, with alpha fixed and learned."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.functional import lorentz_residual, parallel_transport_residual, tangent_residual
from lresnet.geometry import Lorentz
from lresnet.nn import WeightedJoin
from lresnet.optim import parameter_groups
from lresnet.residual import RESIDUALS, make_residual
from lresnet.testing import assert_finite_gradients, assert_on_manifold

M = Lorentz(-2.0)
every_kind = pytest.mark.parametrize("kind", RESIDUALS)


@every_kind
def test_a_fixed_weight_is_accurate_in_float64(kind: str) -> None:
    join = WeightedJoin(kind, M, weight=0.1).double()
    assert float(join.weight) == pytest.approx(0.1, rel=1e-15)


def vectors() -> tuple[Tensor, Tensor]:
    z, g = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).unbind()
    return z, g


def expected(kind: str, alpha: float, z: Tensor, g: Tensor) -> Tensor:
    """Return the formulas of the paper, with the library's residuals and exponential map."""
    K, exp = -2.0, M.expmap0
    if kind == "lorentz":
        return lorentz_residual(exp(z), exp(g), alpha / (1 - alpha), K=K)
    if kind == "space":
        return (1 - alpha) * exp(z) + alpha * exp(g)
    if kind == "none":
        return exp(g)
    if kind == "euclidean":
        return (1 - alpha) * z + alpha * g
    z, g = exp((1 - alpha) * z), exp(alpha * g)
    if kind.startswith("tangent"):
        return tangent_residual(z, g, K=K)
    if kind.startswith("parallel_transport"):
        return parallel_transport_residual(*((g, z) if kind.endswith("reversed") else (z, g)), K=K)
    return make_residual(kind, M)(z, g)


@every_kind
@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("learned", [False, True])
def test_join_equals_the_paper_s_formula_for_vectors_and_for_points(kind, alpha, learned):
    z, g = vectors()
    join = WeightedJoin(kind, M, alpha, learn_weight=learned).double()
    y = join.of_vectors(z, g)
    torch.testing.assert_close(y, expected(kind, alpha, z, g), rtol=1e-6, atol=1e-6)
    points = (z, g) if kind == "euclidean" else (M.expmap0(z), M.expmap0(g))
    torch.testing.assert_close(join(*points), y)
    assert float(join.weight.detach()) == pytest.approx(alpha)
    if kind != "euclidean":
        assert_on_manifold(y, M)


@pytest.mark.parametrize("kind", [kind for kind in RESIDUALS if kind != "none"])
def test_a_learned_weight_is_one_geometric_parameter(kind):
    assert not list(WeightedJoin(kind, M).parameters())
    join = WeightedJoin(kind, M, 0.3, learn_weight=True)
    assert len(parameter_groups(join).geometric) == len(list(join.parameters())) == 1
    join.of_vectors(*(t.float() for t in vectors())).square().sum().backward()
    (parameter,) = join.parameters()
    assert parameter.grad.isfinite()
    assert parameter.grad != 0
    with torch.no_grad():
        parameter.fill_(-3.0)  # an optimiser may step across 0
    assert float(join.weight.detach()) == pytest.approx(0.75)


@pytest.mark.parametrize("kind", [kind for kind in RESIDUALS if "textbook" not in kind])
def test_gradients_are_correct_and_finite(kind):
    z, g = (t[:3].requires_grad_() for t in vectors())
    join = WeightedJoin(kind, M, 0.4, learn_weight=True).double()
    assert torch.autograd.gradcheck(join.of_vectors, (z, g))
    assert_finite_gradients(join.of_vectors, torch.zeros(3, 4), torch.zeros(3, 4))
    assert_finite_gradients(join.of_vectors, torch.full((3, 4), 1e4), torch.full((3, 4), -1e4))


def test_long_vectors_are_shortened_to_max_radius():
    z = torch.full((1, 4), 1e6, dtype=torch.float64)
    for kind in ("lorentz", "tangent"):
        join = WeightedJoin(kind, M, max_radius=3.0).double()
        radius = 3 if kind == "lorentz" else 6  # tangent adds both
        assert float(M.dist0(join.of_vectors(z, z))) == pytest.approx(radius / 2**0.5)


def test_options_are_passed_on_and_wrong_weights_rejected():
    assert not list(WeightedJoin("none", M, learn_weight=True).parameters())
    assert float(WeightedJoin("lorentz", M, 0.5, scale=2.0).residual.scale) == pytest.approx(2.0)
    for weight in (0.0, 1.0, -0.5, float("nan")):
        with pytest.raises(ValueError, match=f"must be above 0 and below 1, got {weight}"):
            WeightedJoin("space", M, weight)
    assert "weights=(0.2, 0.8)" in repr(WeightedJoin("tangent", M, 0.8))


@pytest.mark.parametrize("kind", ["lorentz", "euclidean", "space", "tangent", "parallel_transport"])
def test_every_method_has_the_same_scales(kind):
    M, x, y = Lorentz(-0.5), *torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = WeightedJoin(kind, M, 0.8)(x, y)
    torch.testing.assert_close(WeightedJoin(kind, M, 0.8, scale=3.0)(x, y), 3 * plain)
    torch.testing.assert_close(WeightedJoin(kind, M, 0.8, scale="1+w")(x, y), 5 * plain)  # w = 0.8 / 0.2
    learned = WeightedJoin(kind, M, 0.8, scale="learned", initial_scale=2.0).double()
    torch.testing.assert_close(learned(x, y), 2 * plain, rtol=1e-6, atol=1e-6)
    learned(x, y).sum().backward()
    assert [name.rsplit(".", 1)[-1] for name, p in learned.named_parameters() if p.grad.any()] == ["log_scale"]
    for name, options in (("number", {"scale": 3.0}), ("sum", {"scale": "1+w"})):
        join, loaded = WeightedJoin(kind, M, 0.8, **options), WeightedJoin(kind, M, 0.5, **options)
        loaded.load_state_dict(join.state_dict())
        torch.testing.assert_close(loaded(x, y), join(x, y), msg=name)
    with pytest.raises(ValueError, match="scale must be 'learned', a number or '1\\+w'"):
        WeightedJoin(kind, M, 0.8, scale="twice")


def test_without_a_residual_there_is_no_scale():
    with pytest.raises(TypeError, match="no option 'scale'"):
        WeightedJoin("none", Lorentz(-1.0), scale=2.0)
