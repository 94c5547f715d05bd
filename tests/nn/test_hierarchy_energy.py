"""Energies of directed pairs: definitions, accuracy of all-pairs cones against 60 digits, gradients, memory."""

import math

import mpmath
import pytest
import torch

from lresnet import Lorentz
from lresnet.geometry import pairwise
from lresnet.nn import (
    ancestor_energy,
    cone_aperture,
    exterior_angle,
    hierarchy_energy,
    pairwise_ancestor_energy,
    pairwise_entailment_energy,
)
from tests.families import pairs
from tests.nn.test_entailment import meru_angle


@pytest.fixture(autouse=True)
def same_points_in_every_run() -> None:
    torch.manual_seed(0)


def test_ancestors_in_a_tree_rank_by_steps():
    """Points on two rays are a tree with its root at the origin, if the rays are nearly opposite."""
    steps = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64).sinh()
    ray = torch.stack([steps, torch.zeros(4, dtype=torch.float64)], 1)
    energy = pairwise_ancestor_energy(ray[3:], torch.cat([ray, -ray[1:]]), alpha=0.25)
    expected = [0.75 * 3, 0.75 * 2, 0.75, 0.0, 4 - 0.5, 5 - 0.25, 6.0]
    torch.testing.assert_close(energy[0], torch.tensor(expected, dtype=torch.float64))
    excess = pairwise_ancestor_energy(ray[3:], ray, alpha=1.0)
    assert float(excess.abs().max()) < 1e-13
    down = ancestor_energy(ray[1], ray[3], alpha=0.25)
    assert float(down) == pytest.approx(1.25 * 2)


@pytest.mark.parametrize("K", [-0.7, None])
def test_energies_agree_with_their_definitions(K):
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    M, zero = Lorentz(-0.7), torch.zeros(3, dtype=torch.float64)
    d = torch.tensor([[float((a - b).norm() if K is None else M.dist(a, b)) for b in y] for a in x]).double()
    rho = [t.norm(dim=1) if K is None else M.dist(zero, t) for t in (x, y)]
    ball = [t.norm(dim=1) if K is None else M.to_poincare(t).norm(dim=1) * 0.7**0.5 for t in (x, y)]
    total = d + 0.3 * (rho[1] - rho[0].unsqueeze(1))
    product = (1 + 1000.0 * (ball[1] - ball[0].unsqueeze(1))) * d
    for form, alpha, expected in (("sum", 0.3, total), ("product", 1000.0, product)):
        got = pairwise_ancestor_energy(x, y, K=K, alpha=alpha, form=form)
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
        single = ancestor_energy(x.unsqueeze(1), y, K=K, alpha=alpha, form=form)
        torch.testing.assert_close(got, single, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("K", [-0.7, None])
@pytest.mark.parametrize("form", ["sum", "product"])
def test_distance_energies_pass_gradcheck_and_are_finite_at_the_origin(K, form):
    x, y = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (3, 2))
    assert torch.autograd.gradcheck(lambda a, b: pairwise_ancestor_energy(a, b, K=K, form=form), (x, y))
    assert torch.autograd.gradcheck(lambda a, b: ancestor_energy(a[:2], b, K=K, form=form), (x, y))
    points = torch.tensor([[0.0, 0.0], [1.0, 2.0], [1.0, 2.0], [1e4, 0.0]], requires_grad=True)
    for energy in (
        pairwise_ancestor_energy(points, points.detach(), K=K, form=form),
        ancestor_energy(points, points.detach(), K=K, form=form),
    ):
        (g,) = torch.autograd.grad(energy.sum(), points)
        assert g.isfinite().all()


@pytest.mark.parametrize("K", [-0.1, -1.0, -10.0])
@pytest.mark.parametrize("family", ["random", "near", "radial"])
def test_angles_of_all_pairs_are_accurate(family, K):
    for norm in (1e-3, 1.0, 100.0, 1e4):
        for dtype, eps in ((torch.float32, 2.0**-24), (torch.float64, 2.0**-53)):
            x, y = (t.to(dtype) for t in pairs(family, norm, count=3, n=4))
            energy = pairwise_entailment_energy(x, y, K=K) + cone_aperture(y, K=K)
            for i in range(3):
                for j in range(3):
                    got, right = float(energy[i, j]), meru_angle(y[j].tolist(), x[i].tolist(), -K)
                    # On one ray, rounding float64 coordinates by eps turns the geodesic by eps T.
                    ray = dtype == torch.float64 and family == "radial" and i == j
                    assert abs(got - right) <= 8 * eps * (1 + (norm * (-K) ** 0.5 if ray else 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_angles_are_accurate_on_both_sides_of_the_threshold(dtype):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(1, 6, generator=g, dtype=torch.float64)
    steps = 10.0 ** -torch.arange(0.0, 7.0, 0.5, dtype=torch.float64)
    y = (x + steps.unsqueeze(1) * torch.randn(len(steps), 6, generator=g, dtype=torch.float64)).to(dtype)
    x = x.to(dtype)
    energy = pairwise_entailment_energy(x, y) + cone_aperture(y)
    for j in range(len(y)):
        with mpmath.workdps(60):
            error = abs(float(energy[0, j]) - meru_angle(y[j].tolist(), x[0].tolist(), 1.0))
        assert error <= (4e-7 if dtype == torch.float32 else 1e-10)


def test_angles_of_opposite_points_are_accurate():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for turn in (0.0, 1e-9, 1e-5, 1e-3):
        y = -2 * x + turn * x.roll(1, dims=1)
        energy = pairwise_entailment_energy(x, y, K=-10.0) + cone_aperture(y, K=-10.0)
        for i in range(3):
            assert abs(float(energy[i, i]) - meru_angle(y[i].tolist(), x[i].tolist(), 10.0)) <= 4e-15


def test_special_positions_agree_with_the_single_pair_form():
    rows = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [1.0, 1e-6], [3.0, 4.0], [1e4, 1.0]]
    x = torch.tensor(rows, requires_grad=True)
    got = pairwise_entailment_energy(x, x)
    expected = exterior_angle(x, x.unsqueeze(1)) - cone_aperture(x)
    torch.testing.assert_close(got, expected, atol=4e-7, rtol=1e-6)
    (g,) = torch.autograd.grad(got.sum(), x)
    assert g.isfinite().all()
    assert (pairwise_entailment_energy(x, x, clamp=True) == torch.relu(got)).all()


@pytest.mark.parametrize("block", [1, 7, 2**19])
def test_gradients_agree_with_the_single_pair_form_in_any_blocks(monkeypatch, block):
    monkeypatch.setitem(pairwise._BLOCK, "cpu", block)
    g = torch.Generator().manual_seed(1)
    y, x = (torch.randn(2, n, 3, generator=g, dtype=torch.float64).requires_grad_() for n in (5, 4))
    near = torch.cat([x[:, :2] * 1.5, y[:, 2:]], 1)  # children on the rays of two candidates
    K = torch.tensor(-0.7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 5, 4, generator=g, dtype=torch.float64)
    got = pairwise_entailment_energy(near, x, K=K)
    expected = exterior_angle(x.unsqueeze(1), near.unsqueeze(2), K=K) - cone_aperture(x, K=K).unsqueeze(1)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)
    for one, other in zip(
        torch.autograd.grad((got * weight).sum(), [y, x, K], retain_graph=True),
        torch.autograd.grad((expected * weight).sum(), [y, x, K]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


def test_cone_energy_passes_gradcheck_to_second_order_with_curvature():
    y, x = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (3, 2))
    K = torch.tensor(-1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b, k: pairwise_entailment_energy(a, b, K=k), (y, x, K))
    assert torch.autograd.gradgradcheck(lambda a, b, k: pairwise_entailment_energy(a, b, K=k), (y, x, K))


def test_float32_gradients_agree_with_float64():
    for family in ("random", "near"):
        x, y = (t.float().requires_grad_() for t in pairs(family, 3.0, count=8, n=4))
        a, b = (t.detach().double().requires_grad_() for t in (x, y))
        got = torch.autograd.grad(pairwise_entailment_energy(y, x).sum(), [x, y])
        expected = torch.autograd.grad((exterior_angle(a, b.unsqueeze(1)) - cone_aperture(a)).sum(), [a, b])
        for one, other in zip(got, expected, strict=True):
            assert float((one - other).norm() / other.norm()) < 1e-5


def test_vmap_and_autocast_agree():
    y, x = torch.randn(3, 4, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    expected = torch.stack([pairwise_entailment_energy(one, x) for one in y])
    torch.testing.assert_close(torch.vmap(lambda one: pairwise_entailment_energy(one, x))(y), expected)
    torch.testing.assert_close(pairwise_entailment_energy(y, x), expected)
    half = x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        inside = pairwise_entailment_energy(half, half), pairwise_ancestor_energy(half, half)
    for one, energy in zip(inside, (pairwise_entailment_energy, pairwise_ancestor_energy), strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, energy(half.float(), half.float()))


def test_no_tensor_of_differences_is_formed():
    y, x = torch.randn(60, 50, requires_grad=True), torch.randn(70, 50, requires_grad=True)
    largest = 0

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    with Largest():
        (pairwise_entailment_energy(y, x).sum() + pairwise_ancestor_energy(y, x).sum()).backward()
    assert largest == 60 * 70


def test_wrong_arguments_are_reported():
    x = torch.randn(2, 3)
    for wrong, message in (
        (lambda: pairwise_entailment_energy(x, torch.randn(2, 4)), "sets of points"),
        (lambda: pairwise_entailment_energy(x, x, min_radius=0.0), "min_radius"),
        (lambda: pairwise_entailment_energy(x, x, K=-torch.ones(2)), "one curvature"),
        (lambda: ancestor_energy(x, x, alpha=-1.0), "alpha"),
        (lambda: ancestor_energy(x, x, alpha=math.inf), "alpha"),
        (lambda: pairwise_ancestor_energy(x, x, form="ratio"), "form"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
    assert 0 <= hierarchy_energy.DEFAULT_ALPHA < 1
