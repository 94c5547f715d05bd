"""Pairwise distances: accuracy against 50 digits, gradients, blocks of rows, transforms, autocast."""

import subprocess
import sys

import mpmath
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lresnet import Lorentz
from lresnet.geometry import pairwise, pairwise_dist
from tests.families import FAMILIES, pairs
from tests.geometry import oracle


def exact(x: Tensor, y: Tensor, K: float | None) -> Tensor:
    """All distances in 50 digits, as float64; equal points have the distance 0."""
    rows = []
    with mpmath.workdps(50):
        a, b = ([[mpmath.mpf(c) for c in row] for row in t.tolist()] for t in (x, y))
        for p in a:
            for q in b:
                if p == q:
                    rows.append(0.0)
                elif K is None:
                    rows.append(float(mpmath.sqrt(mpmath.fsum((s - t) ** 2 for s, t in zip(p, q, strict=True)))))
                else:
                    rows.append(float(oracle.dist(mpmath.mpf(-K), p, q)[0]))
    return torch.tensor(rows, dtype=torch.float64).view(len(x), len(y))


def worst(got: Tensor, expected: Tensor) -> float:
    zero = expected == 0
    assert (got[zero] == 0).all()
    return float(((got.double() - expected).abs() / expected)[~zero].max()) if not zero.all() else 0.0


@pytest.mark.parametrize("K", [-0.1, -1.0, -10.0, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_error_is_below_the_last_place_in_every_family(family, K):
    for norm in (1e-3, 1.0, 100.0, 1e4):
        for dtype, bar in ((torch.float32, 1.2e-7), (torch.float64, 1e-12)):
            x, y = (t.to(dtype) for t in pairs(family, norm, count=3, n=4))
            assert worst(pairwise_dist(x, y, K=K), exact(x, y, K)) <= bar


@pytest.mark.parametrize("K", [-1.0, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_near_points_stay_accurate_on_both_sides_of_the_threshold(K, dtype):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(1, 6, generator=g, dtype=torch.float64)
    steps = 10.0 ** -torch.arange(0.0, 7.0, 0.5, dtype=torch.float64)
    y = (x + steps.unsqueeze(1) * torch.randn(len(steps), 6, generator=g, dtype=torch.float64)).to(dtype)
    bar = 1.2e-7 if dtype == torch.float32 else 1e-12
    assert worst(pairwise_dist(x.to(dtype), y, K=K), exact(x.to(dtype), y, K)) <= bar


def test_compiled_code_has_the_documented_absolute_error_for_near_points():
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    y = x + 1e-7 * x.abs()
    both = torch.cat([x, y])
    got, expected = pairwise._plain(both, both, 1.0, False), pairwise_dist(both)
    assert float((got - expected).abs().max()) <= 4e-8 * float(both.norm(dim=1).max())
    assert (pairwise._plain(both, both, 1.0, True).diagonal() == 0).all()


def test_without_float64_distances_of_float32_points_have_five_digits(monkeypatch):
    monkeypatch.setattr(pairwise, "working_dtype", lambda x: torch.float32)
    for family in ("random", "near", "radial"):
        x, y = (t.float() for t in pairs(family, 2.0, count=8, n=4))
        assert worst(pairwise_dist(x, y), exact(x, y, -1.0)) <= 1e-5


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("block", [1, 7, 2**19])
def test_blocks_of_rows_give_the_same_result_and_gradients(monkeypatch, block, own):
    monkeypatch.setitem(pairwise._BLOCK, "cpu", block)
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    y = x if own else torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    d = pairwise_dist(x, None if own else y, K=-0.7)
    torch.testing.assert_close(d, Lorentz(-0.7).dist(x.unsqueeze(2), y.unsqueeze(1)), atol=1e-12, rtol=1e-12)
    weight = torch.randn_like(d)
    got = torch.autograd.grad((d * weight).sum(), [x, y])
    expected = torch.autograd.grad((Lorentz(-0.7).dist(x.unsqueeze(2), y.unsqueeze(1)) * weight).sum(), [x, y])
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("K", [-1.3, None])
def test_gradcheck_to_second_order_with_curvature(K):
    x, y = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (3, 2))
    if K is None:
        assert torch.autograd.gradcheck(lambda a, b: pairwise_dist(a, b, K=None), (x, y))
        assert torch.autograd.gradgradcheck(lambda a, b: pairwise_dist(a, b, K=None), (x, y))
    else:
        k = torch.tensor(K, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda a, b, c: pairwise_dist(a, b, K=c), (x, y, k))
        assert torch.autograd.gradgradcheck(lambda a, b, c: pairwise_dist(a, b, K=c), (x, y, k))


@pytest.mark.parametrize("K", [-1.0, None])
def test_gradients_are_finite_at_coinciding_points_and_at_the_origin(K):
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [3.0, 1.0]], requires_grad=True)
    for d in (pairwise_dist(x, K=K), pairwise_dist(x, x.detach().clone(), K=K)):
        (g,) = torch.autograd.grad(d.sum(), x)
        assert g.isfinite().all()
        assert d[0, 1] == d[2, 3] == 0
    (g,) = torch.autograd.grad(pairwise_dist(x[:2], K=K).sum(), x)
    assert (g == 0).all()


def test_float32_gradients_of_near_points_are_accurate():
    x, y = (t.float().requires_grad_() for t in pairs("near", 3.0, count=8, n=6))
    got = torch.autograd.grad(pairwise_dist(x, y).diagonal().sum(), [x, y])
    a, b = (t.detach().double().requires_grad_() for t in (x, y))
    expected = torch.autograd.grad(Lorentz().dist(a, b).sum(), [a, b])
    for one, other in zip(got, expected, strict=True):
        assert float((one - other).norm() / other.norm()) < 2e-7


def test_autocast_and_half_precision_compute_in_float32():
    x, y = torch.randn(4, 3), torch.randn(5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        inside = pairwise_dist(x, y)
    assert torch.equal(inside, pairwise_dist(x, y))
    half = pairwise_dist(x.bfloat16(), y.bfloat16())
    assert half.dtype == torch.float32
    assert torch.equal(half, pairwise_dist(x.bfloat16().float(), y.bfloat16().float()))


def test_batches_broadcast_and_vmap_agrees():
    x, y = torch.randn(3, 1, 4, 2, dtype=torch.float64), torch.randn(5, 6, 2, dtype=torch.float64)
    d = pairwise_dist(x, y)
    assert d.shape == (3, 5, 4, 6)
    torch.testing.assert_close(d[1, 2], pairwise_dist(x[1, 0], y[2]))
    torch.testing.assert_close(torch.vmap(lambda one: pairwise_dist(one, y[0]))(x[:, 0]), d[:, 0])


def test_manifold_method_uses_the_learned_curvature():
    M = Lorentz(-0.5, learnable=True)
    x = torch.randn(4, 3)
    torch.testing.assert_close(M.pairwise_dist(x), pairwise_dist(x, K=-0.5))
    M.pairwise_dist(x).sum().backward()
    assert M.log_kappa.grad is not None
    assert M.log_kappa.grad.isfinite().all()


class Sizes(TorchDispatchMode):
    """The numbers in the results of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        # A view has no memory of its own.
        if isinstance(result, Tensor) and not (function.is_view or function._schema.is_mutable):
            self.seen.append(result.numel())
        return result


@pytest.mark.parametrize("K", [-1.0, None])
def test_only_the_result_is_as_large_as_the_result(monkeypatch, K):
    block = 2**12
    monkeypatch.setitem(pairwise._BLOCK, "cpu", block)
    x, y = torch.randn(450, 40, requires_grad=True), torch.randn(550, 40, requires_grad=True)
    with Sizes() as sizes:
        d = pairwise_dist(x, y, K=K)
    assert sorted(sizes.seen)[-1] == d.numel() > 50 * block
    assert sorted(sizes.seen)[-2] <= y.numel() + block
    g = torch.ones(()).expand_as(d)
    with Sizes() as sizes:
        torch.autograd.grad(d, [x, y], g)
    assert max(sizes.seen) <= y.numel() + block


@pytest.mark.slow
def test_twenty_thousand_points_squared_need_less_than_three_gigabytes():
    """The result has 1.6 GB; Python and torch have 0.3 GB."""
    code = """
import torch
from lresnet.geometry import pairwise_dist
from lresnet_paper.bench.memory import peak_resident
x, y = torch.randn(2, 20_000, 16, generator=torch.Generator().manual_seed(0))
d = pairwise_dist(x.requires_grad_(), y.requires_grad_())
d.sum().backward()
print(d.shape[0] * d.shape[1], peak_resident())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    numbers, peak = map(int, done.stdout.split())
    assert 4 * numbers < peak < 3e9


@pytest.mark.parametrize("y", [torch.zeros(3), torch.zeros(3, 5)])
def test_wrong_shapes_are_reported(y):
    with pytest.raises(ValueError, match="sets of points"):
        pairwise_dist(torch.zeros(2, 4), y)


def test_empty_sets_have_no_distances():
    assert pairwise_dist(torch.zeros(0, 2), torch.zeros(3, 2)).shape == (0, 3)
    assert pairwise_dist(torch.zeros(3, 2), torch.zeros(0, 2)).shape == (3, 0)
