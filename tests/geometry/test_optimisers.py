"""geoopt's optimisers on our manifold find a Frechet mean."""

import copy

import geoopt
import pytest
import torch

from lresnet import Lorentz

CURVATURES = (-0.5, -1.0, -4.0)


def problem(K: float) -> tuple[Lorentz, torch.Tensor, geoopt.ManifoldParameter]:
    """A cloud away from the origin, and an initial point on the opposite side of the origin."""
    M = Lorentz(K)
    g = torch.Generator().manual_seed(0)
    cloud = M.random(20, 3, std=0.5, generator=g, dtype=torch.float64)
    cloud = M.boost(torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64).expand_as(cloud), cloud)
    start = torch.tensor([-1.0, 1.0, 0.5], dtype=torch.float64)
    return M, cloud, geoopt.ManifoldParameter(start, manifold=M)


def gradient_norm(M: Lorentz, cloud: torch.Tensor, x: torch.Tensor) -> float:
    """Riemannian gradient of half the mean squared distance: minus the mean logarithm."""
    point = x.detach().as_subclass(torch.Tensor)
    return float(M.norm(point, M.logmap(point.expand_as(cloud), cloud).mean(0)))


def minimise(M, cloud, x, optimiser, steps):
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = M.dist2(x, cloud).mean() / 2
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def check_mean(M, cloud, x, losses):
    assert losses[-1] < losses[0]
    assert gradient_norm(M, cloud, x) < 1e-6
    assert isinstance(x, geoopt.ManifoldParameter)
    # It is the Frechet mean: its mean squared distance is smaller than that of the Lorentzian centroid.
    assert M.dist2(x, cloud).mean() <= M.dist2(M.centroid(cloud), cloud).mean()


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("options", [{}, {"stabilize": 10}, {"momentum": 0.5}, {"momentum": 0.5, "nesterov": True}])
def test_riemannian_sgd(K, options):
    M, cloud, x = problem(K)
    assert gradient_norm(M, cloud, x) > 0.1
    losses = minimise(M, cloud, x, geoopt.optim.RiemannianSGD([x], lr=0.2, **options), 120)
    check_mean(M, cloud, x, losses)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"stabilize": 10}])
def test_riemannian_adam(K, options):
    M, cloud, x = problem(K)
    losses = minimise(M, cloud, x, geoopt.optim.RiemannianAdam([x], lr=0.1, **options), 350)
    check_mean(M, cloud, x, losses)


@pytest.mark.parametrize("optimiser", [geoopt.optim.RiemannianSGD, geoopt.optim.RiemannianAdam])
def test_weight_decay_pulls_to_the_origin(optimiser):
    M, cloud, x = problem(-1.0)
    losses = minimise(M, cloud, x, optimiser([x], lr=0.05, weight_decay=0.1), 100)
    assert losses[-1] < losses[0]
    assert torch.isfinite(x).all()
    _, _, free = problem(-1.0)
    minimise(M, cloud, free, optimiser([free], lr=0.05), 100)
    assert M.dist0(x) < M.dist0(free)


def test_points_of_a_batch_are_optimised_independently():
    M, cloud, x = problem(-1.0)
    rows = geoopt.ManifoldParameter(torch.stack([x.data, -x.data, 3 * x.data]), manifold=M)
    optimiser = geoopt.optim.RiemannianSGD([rows], lr=0.2)
    for _ in range(150):
        optimiser.zero_grad()
        (M.dist2(rows.unsqueeze(1), cloud).mean(1).sum() / 2).backward()
        optimiser.step()
    assert M.dist(rows[0], rows[1]).item() < 1e-6
    assert M.dist(rows[0], rows[2]).item() < 1e-6


def test_curvature_and_points_are_learned_together():
    # A regular tree does not embed in flat space: fitting its distances increases the curvature.
    M = Lorentz(-0.1, learnable=True)
    g = torch.Generator().manual_seed(0)
    target = torch.full((6, 6), 2.0).fill_diagonal_(0.0)
    points = geoopt.ManifoldParameter(0.5 * torch.randn(6, 2, generator=g), manifold=M)
    optimiser = geoopt.optim.RiemannianAdam([points, M.log_kappa], lr=0.03)
    before = None
    for _ in range(150):
        optimiser.zero_grad()
        loss = (M.dist(points.unsqueeze(0), points.unsqueeze(1)) - target).square().mean()
        loss.backward()
        optimiser.step()
        before = before if before is not None else loss.item()
    assert loss.item() < 0.2 * before
    assert float(M.K.detach()) < -0.2


@pytest.mark.slow
def test_float32_far_from_the_origin_stays_finite():
    M = Lorentz(-1.0)
    x = geoopt.ManifoldParameter(torch.tensor([9e3, -4e3]), manifold=M)
    target = torch.tensor([0.3, 0.2])
    for optimiser in (geoopt.optim.RiemannianSGD([x], lr=0.1, momentum=0.9), geoopt.optim.RiemannianAdam([x], lr=0.1)):
        for _ in range(200):
            optimiser.zero_grad()
            (M.dist2(x, target) / 2).backward()
            optimiser.step()
            assert torch.isfinite(x).all()
    assert M.dist(x, target).item() < 0.1


def test_deepcopy_of_manifold_parameters():
    M = Lorentz(-1.0, learnable=True)
    module = torch.nn.Module()
    module.manifold = M
    module.points = geoopt.ManifoldParameter(torch.randn(3, 2), manifold=M)
    twin = copy.deepcopy(module)
    assert twin.points.manifold is twin.manifold
    assert twin.manifold is not M
    assert torch.equal(twin.points, module.points)
