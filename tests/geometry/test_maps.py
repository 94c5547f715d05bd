"""The maps against 50 digits, their round trips, and their derivatives. The tolerances are in accuracy.py."""

from itertools import product

import pytest
import torch

from lresnet import Lorentz
from lresnet.geometry import distance, maps
from lresnet.testing import assert_finite_gradients
from tests.families import CURVATURES, FAMILIES, NORMS, pairs
from tests.geometry.accuracy import HALF_UNIT, MAPS, arguments, float32_error_and_floor, float64_error_and_floor

# The tolerance where the floor is 0 (the exact result is a number of the dtype): a few roundings.
UNITS = 8


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("m", MAPS.values(), ids=MAPS)
def test_float32_against_float64(m, family, K):
    M = Lorentz(K)
    for args in arguments(m, M, family, torch.float32):
        error, floor = float32_error_and_floor(m, M, args)
        assert (error <= m.bar * floor + UNITS * HALF_UNIT[torch.float32]).all(), error / floor


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("m", MAPS.values(), ids=MAPS)
def test_float64_against_50_digits(m, family, K):
    M = Lorentz(K)
    for args in arguments(m, M, family, torch.float64, norms=(1e-3, 1.0, 100.0, 1e4), count=4, n=4):
        error, floor = float64_error_and_floor(m, M, args)
        assert (error <= m.bar * floor + UNITS * HALF_UNIT[torch.float64]).all(), error / floor


class Textbook(Lorentz):
    """The printed formulas, for curvature -1."""

    def dist(self, x, y):
        p, q = self.lift(x), self.lift(y)
        return torch.acosh((p[..., 0] * q[..., 0] - (p * q)[..., 1:].sum(-1)).clamp(min=1))

    def transp(self, x, y, u):
        x_t, y_t = self.time(x).unsqueeze(-1), self.time(y).unsqueeze(-1)
        pairing = (y * u).sum(-1, keepdim=True) - y_t * (x * u).sum(-1, keepdim=True) / x_t
        return u + pairing / (1 + x_t * y_t - (x * y).sum(-1, keepdim=True)) * (x + y)


@pytest.mark.parametrize(("name", "family"), [("dist", "near"), ("dist", "radial"), ("transp", "near")])
def test_textbook_forms_exceed_the_tolerances(name, family):
    m, M = MAPS[name], Lorentz(-1.0)
    for args in arguments(m, M, family, torch.float32):
        _, floor = float32_error_and_floor(m, M, args)
        got = m(Textbook(-1.0), *(a.float() for a in args)).double()
        error = m.error(M, args, m(M, *args), got).amax(-1)
        assert not (error <= m.bar * floor + UNITS * HALF_UNIT[torch.float32]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("K", CURVATURES)
def test_equal_points_are_at_distance_zero_exactly(K, dtype):
    M = Lorentz(K)
    for norm in NORMS:
        x = pairs("equal", norm)[0].to(dtype)
        for zero in (M.dist(x, x.clone()), M.dist2(x, x.clone()), M.logmap(x, x.clone())):
            assert torch.equal(zero, torch.zeros_like(zero))
        assert torch.equal(M.expmap(x, torch.zeros_like(x)), x)


@pytest.mark.parametrize("K", CURVATURES)
def test_expmap_inwards_along_the_radius_does_not_cancel(K):
    # In one dimension there is no direction: sinh(rho - alpha) must be accurate from 1e4 to the origin.
    M = Lorentz(K)
    root = (-K) ** 0.5
    x = torch.tensor(NORMS).unsqueeze(-1)
    for share in (0.5, 0.99, 1.0, 1.01, 1.5):
        u = (M.logmap(x.double(), torch.zeros_like(x).double()) * share).float()
        exact, got = M.expmap(x.double(), u.double()), M.expmap(x, u).double()
        path = root * (M.dist0(x.double()) * (1 + share))
        assert (root * M.dist(exact, got) <= 4 * 2.0**-24 * path).all()


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_expmap_of_logmap(family, K):
    M, m = Lorentz(K), MAPS["expmap"]
    (x, u), *_ = arguments(m, M, family, torch.float32)
    _, floor = float32_error_and_floor(m, M, [x, u])
    y = torch.stack([pairs(family, norm, count=x.shape[1])[1] for norm in NORMS]).float()
    back = M.expmap(x.float(), M.logmap(x.float(), y))
    error = (-K) ** 0.5 * M.dist(y.double(), back.double()).amax(-1)
    assert (error <= 2 * m.bar * floor + 16 * 2.0**-24).all()


@pytest.mark.parametrize("K", CURVATURES)
def test_logmap_of_expmap(K):
    M, m = Lorentz(K), MAPS["logmap"]
    for x, u in arguments(MAPS["expmap"], M, "random", torch.float32):
        z = M.expmap(x.float(), u.float())
        _, floor = float32_error_and_floor(m, M, [x, z.double()])
        error = m.error(M, [x], u, M.logmap(x.float(), z).double()).amax(-1)
        _, there = float32_error_and_floor(MAPS["expmap"], M, [x, u])
        # log does not increase distances, so the error of expmap is not magnified.
        assert (error <= m.bar * floor + MAPS["expmap"].bar * there + 16 * 2.0**-24).all()


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_transport_preserves_inner_products(family, K):
    M, m = Lorentz(K), MAPS["transp"]
    (x, y, u), (_, _, v), (_, _, w) = arguments(m, M, family, torch.float32)
    for a, b in ((u, u), (u, v), (v, w)):
        floor = torch.maximum(*(float32_error_and_floor(m, M, [x, y, c])[1] for c in (a, b)))
        for dtype, half in HALF_UNIT.items():
            e = m.bar * floor * (half / 2.0**-24) + UNITS * half
            moved = [M.transp(x.to(dtype), y.to(dtype), c.to(dtype)).double() for c in (a, b)]
            gap = -K * (M.inner(y, *moved) - M.inner(x, a, b)).abs().amax(-1)
            assert (gap <= 2 * e + e.square()).all()


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_transport_back_is_the_inverse(family, K):
    M, m = Lorentz(K), MAPS["transp"]
    for x, y, u in arguments(m, M, family, torch.float64, count=16):
        there = M.transp(x, y, u)
        floor = float32_error_and_floor(m, M, [x, y, u])[1] + float32_error_and_floor(m, M, [y, x, there])[1]
        error = m.error(M, [y, x], u, M.transp(y, x, there)).amax(-1)
        assert (error <= 2.0**-29 * m.bar * floor + 2 * UNITS * 2.0**-53).all()


def test_transport_of_the_velocity_of_a_geodesic():
    M = Lorentz(-2.0)
    x, y = pairs("random", 3.0, count=32)
    torch.testing.assert_close(M.transp(x, y, M.logmap(x, y)), -M.logmap(y, x), rtol=1e-9, atol=1e-9)


def test_maps_at_the_origin_agree_with_the_general_maps():
    M = Lorentz(-0.7)
    u = pairs("random", 2.0, count=16)[0]
    o = torch.zeros_like(u)
    for a, b in (
        (M.expmap0(u), M.expmap(o, u)),
        (M.logmap0(u), M.logmap(o, u)),
        (M.dist0(u), M.dist(o, u)),
        (M.dist0(u), M.inner(o, M.logmap0(u)).sqrt()),
    ):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_small_steps_do_not_underflow():
    # The square of 1e-25 is 0 in float32; the step itself is not.
    M = Lorentz(-1.0)
    u = torch.tensor([1e-25, -2e-25])
    assert torch.equal(M.expmap(torch.zeros(2), u), u)
    assert torch.equal(M.expmap0(u), u)


def test_expmap_far_out_stays_finite_in_float32():
    # Computed by subtraction, |u|^2 - (x.u/x_t)^2 is off by thousands here, and its sinh overflows.
    for K in CURVATURES:
        M = Lorentz(K)
        x, y = (t.float() for t in pairs("random", 1e4))
        u = M.logmap(x, y)
        assert_finite_gradients(M.expmap, x, u)


# --- derivatives -----------------------------------------------------------------------------------------------------

UNARY = (maps.expmap0, maps.logmap0)
BINARY = (distance.dist2, maps.logmap, maps.expmap, maps.boost, maps.egrad2rgrad)
TERNARY = (maps.transp, maps.inner)
ARITY = {**dict.fromkeys(UNARY, 1), **dict.fromkeys(BINARY, 2), **dict.fromkeys(TERNARY, 3)}
ids = {"ids": lambda f: f.__name__}


def vectors(seed: int, norm: float = 1.0) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [norm * torch.randn(2, 3, generator=g, dtype=torch.float64) for _ in range(3)]


def special_arguments() -> dict[str, list[torch.Tensor]]:
    a, b, c = vectors(0)
    o = torch.zeros_like(a)
    return {
        "generic": [a, b, c],
        "first zero": [o, b, c],
        "second zero": [a, o, c],
        "all zero": [o, o, o],
        "coincident": [a, a.clone(), c],
        "far": [20 * a, 20 * b, c],
        "small": [0.05 * a, 0.05 * b, 0.05 * c],
    }


@pytest.mark.parametrize("where", special_arguments())
@pytest.mark.parametrize("f", ARITY, **ids)
def test_first_and_second_derivatives(f, where):
    args = [a.clone().requires_grad_() for a in special_arguments()[where][: ARITY[f]]]
    kappa = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def g(*tensors):
        return f(*tensors, -1)

    assert torch.autograd.gradcheck(g, (*args, kappa))
    assert torch.autograd.gradgradcheck(g, (*args, kappa), fast_mode=True, atol=1e-4)


@pytest.mark.parametrize("norm", [1e-3, 1.0, 30.0])
def test_derivatives_of_dist(norm):
    x, y, _ = (v.requires_grad_() for v in vectors(1, norm))
    kappa = torch.tensor([[0.7], [2.0]], dtype=torch.float64, requires_grad=True)
    scale = 1 / norm  # finite differences need numbers of order 1

    def g(x, y, kappa):
        return scale * distance.dist(norm * x, norm * y, kappa, -1)

    args = ((x / norm).detach().requires_grad_(), (y / norm).detach().requires_grad_(), kappa)
    assert torch.autograd.gradcheck(g, args)
    assert torch.autograd.gradgradcheck(g, args, fast_mode=True, atol=1e-4)


def test_gradient_of_dist_at_equal_points_is_zero():
    x = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    y = x.detach().clone().requires_grad_()
    Lorentz(-1.0).dist(x, y).sum().backward()
    assert torch.equal(x.grad, torch.zeros(2, 2))
    assert torch.equal(y.grad, torch.zeros(2, 2))


def test_second_derivative_of_the_metric_at_the_origin():
    # -K (u.v) to second order in x: the Hessian at 0 is K (u v^T + v u^T), and depends on K.
    x = torch.zeros(2, dtype=torch.float64)
    u, v = torch.tensor([1.0, 2.0]).double(), torch.tensor([-1.0, 0.5]).double()
    hessian = torch.autograd.functional.hessian(lambda x: Lorentz(-4.0).inner(x, u, v), x)
    torch.testing.assert_close(hessian, -4 * (torch.outer(u, v) + torch.outer(v, u)))


@pytest.mark.parametrize("f", [*ARITY, distance.dist], **ids)
def test_finite_for_every_pattern_of_zeros_and_subnormals(f):
    tiny = torch.finfo(torch.float32).tiny
    special = [0.0, 1e-45, -1e-45, tiny, 1e-30, 1e-20, -1e-10, 1.0]
    rows = torch.tensor([[a, b] for a in special for b in (0.0, a, 1e-45, -2.0)])
    arity = ARITY.get(f, 2)
    if arity == 3:
        rows = rows[::3]
    args = [torch.stack(column) for column in zip(*product(rows, repeat=arity), strict=True)]
    assert_finite_gradients(lambda *t: f(*t[:-1], t[-1], -1), *args, torch.tensor(0.7))


@pytest.mark.parametrize("f", [distance.dist, distance.dist2, maps.logmap, maps.boost, maps.transp, maps.inner], **ids)
def test_float32_gradients_of_near_pairs(f):
    """Within 1e-4 of float64, in all arguments and in K (measured 5e-5; dist and dist2 2e-5)."""
    g = torch.Generator().manual_seed(2)
    for K, norm in product(CURVATURES, (n for n in NORMS if n <= 1e3)):
        x, y = (t.float() for t in pairs("near", norm, count=64))
        args = [x, y, torch.randn(x.shape, generator=g)][: ARITY.get(f, 2)]
        kappa = torch.full((len(x), 1), -K)
        weight = torch.randn(f(*args, kappa, -1).shape, generator=g)

        def gradients(dtype, args=args, kappa=kappa, weight=weight):
            leaves = [t.to(dtype).requires_grad_() for t in (*args, kappa)]
            return torch.autograd.grad(f(*leaves, -1), leaves, weight.to(dtype))

        for exact, got in zip(gradients(torch.float64), gradients(torch.float32), strict=True):
            error, scale = (got - exact).norm(dim=-1).max(), exact.norm(dim=-1).max()
            assert error <= 1e-4 * scale
