"""Tests of RiemannianAdam against geoopt's, step by step."""

from __future__ import annotations

import geoopt
import pytest
import torch
from torch import Tensor

from lresnet import Lorentz
from lresnet.optim import Optimizers, RiemannianAdam


def cloud(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return 1.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def descend(M: Lorentz, points: Tensor, optimizer: torch.optim.Optimizer, steps: int = 40) -> list[Tensor]:
    """Descend towards a moving target and return the points after every step."""
    path = []
    for step in range(steps):
        optimizer.zero_grad()
        (M.dist2(points, cloud(*points.shape, seed=step % 7, dtype=points.dtype)).sum() * (1 + step % 3)).backward()
        optimizer.step()
        path.append(points.detach().clone())
    return path


@pytest.mark.parametrize("K", [-0.5, -1.0, -4.0])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_steps_equal_geoopt_s(K, dtype, rtol):
    M, start = Lorentz(K), cloud(5, 3, seed=99, dtype=dtype)
    theirs = geoopt.ManifoldParameter(start.clone(), manifold=M)
    expected = descend(M, theirs, geoopt.optim.RiemannianAdam([theirs], lr=0.05))
    ours = start.clone().requires_grad_()
    got = descend(M, ours, RiemannianAdam([ours], lambda: K, lr=0.05))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)
    assert (got[-1] - got[0]).norm() > 1


def test_members_of_a_stack_may_have_their_own_curvature():
    K, start = torch.tensor([-0.5, -2.0], dtype=torch.float64), cloud(2, 5, 3, seed=99)
    ours = start.clone().requires_grad_()
    optimizer = RiemannianAdam([ours], lambda: K.view(2, 1, 1), lr=0.05)
    rows = [start[s].clone().requires_grad_() for s in range(2)]
    singles = [RiemannianAdam([row], lambda s=s: float(K[s]), lr=0.05) for s, row in enumerate(rows)]
    for seed in range(6):
        g = cloud(2, 5, 3, seed=seed)
        for points, gradient, own in zip((ours, *rows), (g, *g), (optimizer, *singles), strict=True):
            points.grad = gradient.clone()
            own.step()
    torch.testing.assert_close(ours.detach(), torch.stack(rows).detach(), rtol=1e-13, atol=1e-13)


def test_the_rate_may_be_a_tensor_and_the_state_consists_of_tensors():
    points = cloud(5, 3).requires_grad_()
    optimizers = Optimizers([RiemannianAdam([points], lambda: -1.0, lr=torch.tensor(0.1))])
    assert optimizers.capturable
    points.grad = cloud(5, 3, seed=1)
    before = points.detach().clone()
    optimizers.scale_lr(0.0)
    optimizers.step()
    torch.testing.assert_close(points.detach(), before)
    optimizers.scale_lr(1.0)
    optimizers.step()
    assert not torch.equal(points.detach(), before)
    assert all(isinstance(value, Tensor) for value in optimizers.optimizers[0].state[points].values())


def test_points_without_a_gradient_do_not_move_and_closures_are_rejected():
    points, other = cloud(2, 3).requires_grad_(), cloud(2, 3).requires_grad_()
    optimizer = RiemannianAdam([points, other], lambda: -1.0)
    points.grad = cloud(2, 3, seed=1)
    optimizer.step()
    assert torch.equal(other, cloud(2, 3))
    with pytest.raises(ValueError, match="takes no closure"):
        optimizer.step(lambda: 0.0)


def test_a_saved_state_resumes_bit_identically_with_the_counter_in_float64():
    torch.manual_seed(0)
    start = torch.randn(4, 3)
    whole, first, second = (start.clone().requires_grad_() for _ in range(3))
    one, two = (RiemannianAdam([x], lambda: -2.0, lr=0.1) for x in (whole, first))
    gradients = torch.randn(6, 4, 3)
    for i, g in enumerate(gradients):
        whole.grad = g.clone()
        one.step()
        if i < 3:
            first.grad = g.clone()
            two.step()
    with torch.no_grad():
        second.copy_(first)
    three = RiemannianAdam([second], lambda: -2.0, lr=0.1)
    three.load_state_dict(two.state_dict())
    assert three.state[second]["step"].dtype == torch.float64
    for g in gradients[3:]:
        second.grad = g.clone()
        three.step()
    assert torch.equal(second, whole)


@pytest.mark.parametrize(("dtype", "left"), [(torch.bfloat16, 0.15), (torch.float16, 0.005), (torch.float32, 0.004)])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_points_in_half_precision_converge(size, dtype, left):
    """Squares of small gradients, and eps, underflow in half precision, so the moments are float32."""
    M, target = Lorentz(-1.0), cloud(5, 8, dtype=torch.float32)
    points = (0.3 * cloud(6, 8, seed=1)).to(dtype).requires_grad_()
    last = points[5].detach().clone()  # never has a gradient
    optimizer = RiemannianAdam([points], lambda: -1.0, lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        distance = M.dist2(points[:5].float(), target).sum()
        (size * distance).backward()
        optimizer.step()
    assert distance <= left
    assert torch.equal(points[5], last)
    assert optimizer.state[points]["mean"].dtype == torch.float32


def test_the_state_of_half_precision_points_is_loaded_exactly():
    points = cloud(4, 3).to(torch.bfloat16).requires_grad_()
    first, second = (RiemannianAdam([points], lambda: -1.0, lr=0.1) for _ in range(2))
    points.grad = cloud(4, 3, seed=1).to(torch.bfloat16)
    first.step()
    second.load_state_dict(first.state_dict())
    for name, value in first.state[points].items():
        assert torch.equal(second.state[points][name], value), name
        assert second.state[points][name].data_ptr() != value.data_ptr(), name


def test_a_state_of_geoopt_s_optimiser_can_be_loaded():
    M, start = Lorentz(-2.0), cloud(5, 3, seed=99)
    theirs = geoopt.ManifoldParameter(start.clone(), manifold=M)
    optimizer = geoopt.optim.RiemannianAdam([theirs], lr=0.05)
    descend(M, theirs, optimizer, steps=5)
    ours = theirs.detach().clone().requires_grad_()
    resumed = RiemannianAdam([ours], lambda: -2.0, lr=0.05)
    resumed.load_state_dict(optimizer.state_dict())
    for a, b in zip(descend(M, ours, resumed), descend(M, theirs, optimizer), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_the_state_of_points_with_another_memory_layout_is_loaded_contiguously():
    transposed = cloud(3, 4).mT.requires_grad_()
    first = RiemannianAdam([transposed], lambda: -1.0, lr=0.1)
    transposed.grad = cloud(4, 3, seed=1)
    first.step()
    points = transposed.detach().contiguous().requires_grad_()
    second = RiemannianAdam([points], lambda: -1.0, lr=0.1)
    second.load_state_dict(first.state_dict())
    assert all(value.is_contiguous() for value in second.state[points].values())
    assert torch.equal(second.state[points]["mean"], first.state[transposed]["mean"])


def test_points_count_their_own_steps():
    early, late, alone = cloud(2, 3).requires_grad_(), *(cloud(2, 3, seed=1).requires_grad_() for _ in range(2))
    both, one = (RiemannianAdam(points, lambda: -1.0, lr=0.1) for points in ([early, late], [alone]))
    early.grad = cloud(2, 3, seed=2)
    both.step()
    late.grad, alone.grad = (cloud(2, 3, seed=3) for _ in range(2))
    both.step()
    one.step()
    assert torch.equal(late, alone)
    assert [float(both.state[x]["step"].max()) for x in (early, late)] == [2.0, 1.0]


def test_groups_may_have_their_own_rates():
    fast, slow = (cloud(2, 3).requires_grad_() for _ in range(2))
    optimizer = RiemannianAdam([{"params": [fast], "lr": 0.1}, {"params": [slow]}], lambda: -1.0, lr=0.0)
    fast.grad = slow.grad = cloud(2, 3, seed=1)
    optimizer.step()
    assert torch.equal(slow, cloud(2, 3))
    torch.testing.assert_close(Lorentz(-1.0).dist(fast.detach(), cloud(2, 3)), torch.full((2,), 0.1).double())
