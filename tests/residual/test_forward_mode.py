"""Forward-mode derivatives: torch.func's jvp, jacfwd and hessian, and torch.autograd.forward_ad."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, jvp, vmap

from lresnet import Lorentz, make_residual
from lresnet.functional import lorentz_residual, lorentz_residual_many
from tests.residual.common import CONFIGURATIONS, build, name_of
from tests.residual.common import normals as narrow_normals

Function = Callable[..., Tensor]


def normals(*shape: int, seed: int = 0) -> Tensor:
    return narrow_normals(*shape, seed=seed, dtype=torch.float64)


def points() -> tuple[Tensor, Tensor]:
    """Six pairs: random, equal, x = 0, y = 0, both 0, and near."""
    x, y = normals(6, 3), normals(6, 3, seed=1)
    y[1], x[2], y[3], x[4], y[4] = x[1], 0.0, 0.0, 0.0, 0.0
    y[5] = x[5] * (1 + 1e-7)
    return x, y


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


# Arguments given as tensors are differentiated too.
CASES: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "plain": (lorentz_residual, ()),
    "weight": (lambda x, y: lorentz_residual(x, y, 0.37), ()),
    "learned weight": (lambda x, y, w: lorentz_residual(x, y, w), (number(0.37),)),
    "learned weight 1": (lambda x, y, w: lorentz_residual(x, y, w), (number(1.0),)),
    "weights": (lambda x, y, w: lorentz_residual(x, y, w), (0.1 + normals(6, seed=2).abs(),)),
    "scale": (lambda x, y, s: lorentz_residual(x, y, 0.37, s), (number(1.7),)),
    "curvature": (lambda x, y, K: lorentz_residual(x, y, 0.37, K=K), (number(-0.6),)),
    "all": (lambda x, y, w, s, K: lorentz_residual(x, y, w, s, K=K), (number(2.5), number(0.8), number(-2.0))),
    "images": (lambda x, y, s: lorentz_residual(x.T, y.T, 0.37, s, K=-2.0, dim=0), (number(1.7),)),
    "many": (lambda x, y: lorentz_residual_many([x, y, x], [1.0, 0.37, 2.0]), ()),
    "many learned": (
        lambda x, y, w, s, K: lorentz_residual_many([x, y], [1.0, w], s, K=K),
        (number(0.37), number(1.7), number(-0.6)),
    ),
}
every_case = pytest.mark.parametrize(("f", "others"), CASES.values(), ids=CASES)


def arguments(others: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return *points(), *others


@every_case
def test_forward_and_reverse_mode_jacobians_agree(f, others):
    args = arguments(others)
    argnums = tuple(range(len(args)))
    torch.testing.assert_close(jacfwd(f, argnums)(*args), jacrev(f, argnums)(*args), rtol=1e-10, atol=1e-12)


@every_case
def test_forward_mode_does_not_change_the_value(f, others):
    args = arguments(others)
    value, _ = jvp(f, args, tuple(torch.ones_like(a) for a in args))
    assert torch.equal(value, f(*args))


@every_case
def test_second_derivatives(f, others):
    args = arguments(others)
    argnums = tuple(range(len(args)))

    def loss(*args: Tensor) -> Tensor:
        return f(*args).sin().sum()

    expected = jacrev(jacrev(loss, argnums), argnums)(*args)
    for inner, outer in ((jacrev, jacfwd), (jacfwd, jacrev), (jacfwd, jacfwd)):
        found = outer(inner(loss, argnums), argnums)(*args)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


@every_case
def test_finite_differences(f, others):
    leaves = tuple(a.clone().requires_grad_() for a in arguments(others))
    assert gradcheck(f, leaves, check_forward_ad=True, check_batched_forward_grad=True)
    assert gradgradcheck(f, leaves, check_fwd_over_rev=True, fast_mode=True)


@every_case
def test_vmap_of_jvp_and_jvp_of_vmap_agree_with_a_loop(f, others):
    args = tuple(torch.stack([a, 0.5 * a]) for a in arguments(others))
    tangents = tuple(normals(*a.shape, seed=7) for a in args)
    loop = [jvp(f, *members)[1] for members in zip(zip(*args, strict=True), zip(*tangents, strict=True), strict=True)]
    torch.testing.assert_close(vmap(lambda a, t: jvp(f, a, t)[1])(args, tangents), torch.stack(loop))
    torch.testing.assert_close(jvp(vmap(f), args, tangents)[1], torch.stack(loop))


def test_forward_over_reverse_without_a_graph():
    """The tensors that the backward pass reads must carry the tangent."""
    x, y = points()
    tangent = normals(6, 3, seed=3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), tangent)
        (gradient,) = torch.autograd.grad(lorentz_residual(dual, y, 0.37).sin().sum(), dual)
        found = forward_ad.unpack_dual(gradient).tangent
    expected = jvp(grad(lambda x: lorentz_residual(x, y, 0.37).sin().sum()), (x,), (tangent,))[1]
    torch.testing.assert_close(found, expected)


def test_half_precision_keeps_its_dtype():
    x, y = (p.bfloat16() for p in points())
    value, tangent = jvp(lorentz_residual, (x, y), (torch.ones_like(x), torch.ones_like(y)))
    assert value.dtype == tangent.dtype == torch.bfloat16
    assert torch.equal(value, lorentz_residual(x, y))


def test_derivative_of_the_weight_is_accurate_for_near_points():
    """z moves along y - x as the weight grows; a difference of two large vectors would have an error of 3e-3 here."""
    x = (30 * normals(64, 8)).float()
    y = x * (1 + 1e-4 * normals(64, 8, seed=1).float())
    found = jacfwd(lambda w: lorentz_residual(x, y, w))(torch.tensor(0.37))
    exact = jacfwd(lambda w: lorentz_residual(x.double(), y.double(), w))(number(0.37))
    assert ((found - exact).norm(dim=-1) <= 5e-4 * exact.norm(dim=-1)).all()


# The textbook forms are NaN at the origin.
@pytest.mark.parametrize("configuration", [c for c in CONFIGURATIONS if "textbook" not in c[0]], ids=name_of)
def test_every_module(configuration):
    residual = build(configuration, Lorentz(-2.0, learnable=True)).double()
    x, y = points()
    x, y = x[:4], y[:4]
    torch.testing.assert_close(jacfwd(residual, (0, 1))(x, y), jacrev(residual, (0, 1))(x, y))


def test_reverse_mode_after_forward_mode():
    residual = make_residual("lorentz", Lorentz(-2.0))
    x, y = points()
    before = residual(x, y)
    jacfwd(residual)(x, y)
    assert torch.equal(residual(x, y), before)
