"""OOD scores against their definitions; distances against reflections and the distances of the manifold."""

import math

import pytest
import torch
from torch import Tensor

import lresnet
from lresnet.metrics import ood_scores
from lresnet.nn import LorentzMLR, Prototypes

CURVATURES = (-0.02, -1.0, -10.0)


def points(count: int = 40, n: int = 6, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(count, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_energy_is_the_log_of_a_sum_of_exponentials(temperature: float) -> None:
    logits = points()
    expected = [temperature * math.log(sum(math.exp(v / temperature) for v in row)) for row in logits.tolist()]
    assert ood_scores.energy_score(logits, temperature).tolist() == pytest.approx(expected, abs=1e-12)


def test_energy_of_large_logits_is_finite_and_near_the_largest() -> None:
    logits = torch.tensor([[1e4, 0.0], [-1e4, -2e4]])
    assert torch.equal(ood_scores.energy_score(logits), torch.tensor([1e4, -1e4]))
    assert torch.allclose(ood_scores.energy_score(points(), 1e-4), ood_scores.logit_score(points()), atol=1e-3)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_invalid_temperatures_are_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be a positive number, got"):
        ood_scores.energy_score(torch.zeros(2), temperature)


def test_softmax_score_distinguishes_confident_predictions() -> None:
    logits = torch.tensor([[20.0, 0.0], [25.0, 0.0], [30.0, 0.0]])
    assert (logits.softmax(-1).amax(-1) == 1).all()  # float32 does not distinguish them
    score = ood_scores.softmax_score(logits)
    assert (score.diff() > 0).all()
    assert score.tolist() == pytest.approx([1 / (1 + math.exp(-gap)) for gap in (20, 25, 30)], abs=1e-16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_score_is_narrower_than_float32(dtype: torch.dtype) -> None:
    x, weight, bias = points().to(dtype), points(3).to(dtype), torch.zeros(3, dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    assert ood_scores.energy_score(x).dtype == ood_scores.logit_score(x).dtype == wide
    assert ood_scores.origin_distance_score(x).dtype == ood_scores.euclidean_norm(x).dtype == wide
    assert ood_scores.boundary_distance(x, weight, bias).dtype == wide
    assert ood_scores.prototype_distance(x, weight).dtype == wide
    assert ood_scores.euclidean_boundary_distance(x, weight, bias).dtype == wide


@pytest.mark.parametrize("K", CURVATURES)
def test_origin_distance_equals_the_manifold_and_ranks_as_the_norm(K: float) -> None:
    x = points()
    found = ood_scores.origin_distance_score(x, K)
    assert torch.allclose(found, lresnet.Lorentz(K).dist0(x), rtol=1e-12)
    assert torch.equal(found.argsort(), ood_scores.euclidean_norm(x).argsort())


@pytest.mark.parametrize("K", CURVATURES)
def test_boundary_distance_is_half_the_distance_to_the_mirror_image(K: float) -> None:
    M = lresnet.Lorentz(K)
    x, z, r = points(scale=0.5), points(4), torch.tensor([0.0, 0.3, -0.2, 0.1], dtype=torch.float64)
    k, p = math.sqrt(-K), M.lift(x)
    distances = []
    for direction, offset in zip(z / z.norm(dim=1, keepdim=True), r.tolist(), strict=True):
        # The plane <p, w> = 0 with the unit space-like normal w; the reflection is p - 2 <p, w> w.
        angle = 2 * k * offset
        w = torch.cat([direction.new_tensor([math.sinh(angle)]), math.cosh(angle) * direction])
        product = p[:, 1:] @ w[1:] - p[:, 0] * w[0]
        mirrored = p - 2 * product[:, None] * w
        distances.append(product.sign() * M.dist(x, mirrored[:, 1:]) / 2)
    expected = torch.stack(distances).amax(0)
    assert torch.allclose(ood_scores.boundary_distance(x, z, r, K=K), expected, rtol=1e-9, atol=1e-12)
    assert (expected > 0).any()


def test_boundary_distance_is_the_logit_without_the_length_of_the_normal() -> None:
    M = lresnet.Lorentz(-0.5)
    head = LorentzMLR(6, 4, manifold=M, dtype=torch.float64)
    x, lengths = points(), head.weight.norm(dim=1)
    expected = (head(x) / (2 * lengths)).amax(-1)
    assert torch.allclose(ood_scores.boundary_distance(x, head.weight, head.bias, K=-0.5), expected)
    longer = head.weight * torch.tensor([[1.0], [5.0], [0.1], [2.0]], dtype=torch.float64)
    assert torch.allclose(ood_scores.boundary_distance(x, longer, head.bias, K=-0.5), expected)


@pytest.mark.parametrize("K", CURVATURES)
def test_prototype_distance_equals_the_manifold(K: float) -> None:
    M = lresnet.Lorentz(K)
    head = Prototypes(6, 5, manifold=M, dtype=torch.float64)
    x = points()
    expected = -torch.stack([M.dist(x, point) for point in head.points.detach()]).amin(0)
    found = ood_scores.prototype_distance(x, head.points.detach(), K=K)
    assert torch.allclose(found, expected, rtol=1e-9)
    on_prototypes = ood_scores.prototype_distance(head.points.detach(), head.points.detach(), K=K)
    assert (on_prototypes.abs() < 1e-6).all()


def test_euclidean_boundary_distance_is_the_distance_to_the_foot_of_the_perpendicular() -> None:
    x, w, b = points(), points(3), torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    signed = []
    for normal, offset in zip(w, b, strict=True):
        foot = x - ((x @ normal + offset) / normal.square().sum())[:, None] * normal
        assert torch.allclose(foot @ normal, -offset.expand(len(x)))
        signed.append((x @ normal + offset).sign() * (x - foot).norm(dim=1))
    assert torch.allclose(ood_scores.euclidean_boundary_distance(x, w, b), torch.stack(signed).amax(0))


def test_autocast_does_not_change_the_distances() -> None:
    x, weight, bias = points().float(), points(3).float(), torch.full((3,), 0.1)

    def all_scores() -> list[Tensor]:
        return [
            ood_scores.boundary_distance(x, weight, bias),
            ood_scores.prototype_distance(x, weight),
            ood_scores.euclidean_boundary_distance(x, weight, bias),
        ]

    plain = all_scores()
    with torch.autocast("cpu", torch.bfloat16):
        assert all(torch.equal(first, second) for first, second in zip(plain, all_scores(), strict=True))
