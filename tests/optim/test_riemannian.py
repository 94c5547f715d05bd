"""Our Riemannian Adam against geoopt's, step for step."""

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
    """Towards a target that moves about; every step's points."""
    path = []
    for step in range(steps):
        optimizer.zero_grad()
        (M.dist2(points, cloud(*points.shape, seed=step % 7, dtype=points.dtype)).sum() * (1 + step % 3)).backward()
        optimizer.step()
        path.append(points.detach().clone())
    return path


@pytest.mark.parametrize("K", [-0.5, -1.0, -4.0])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_is_geoopt_s_step_for_step(K, dtype, rtol):
    M, start = Lorentz(K), cloud(5, 3, seed=99, dtype=dtype)
    theirs = geoopt.ManifoldParameter(start.clone(), manifold=M)
    expected = descend(M, theirs, geoopt.optim.RiemannianAdam([theirs], lr=0.05))
    ours = start.clone().requires_grad_()
    got = descend(M, ours, RiemannianAdam([ours], lambda: K, lr=0.05))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)
    assert (got[-1] - got[0]).norm() > 1


def test_every_member_of_a_stack_may_have_its_own_curvature():
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


def test_the_rate_may_be_a_tensor_and_nothing_is_counted_on_the_host():
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


def test_points_without_a_gradient_stay_and_closures_are_refused():
    points, other = cloud(2, 3).requires_grad_(), cloud(2, 3).requires_grad_()
    optimizer = RiemannianAdam([points, other], lambda: -1.0)
    points.grad = cloud(2, 3, seed=1)
    optimizer.step()
    assert torch.equal(other, cloud(2, 3))
    with pytest.raises(ValueError, match="takes no closure"):
        optimizer.step(lambda: 0.0)


def test_goes_on_from_a_saved_state_with_all_digits_of_the_counter():
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
