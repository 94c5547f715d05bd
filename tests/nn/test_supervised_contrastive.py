"""Supervised contrastive loss: against its definition, hierarchies of labels, edge cases, learned temperature."""

import math

import pytest
import torch

from lresnet import Lorentz
from lresnet.geometry import ClassTree
from lresnet.nn import SupervisedContrastiveLoss, supervised_contrastive_loss
from lresnet.optim import parameter_groups


def definition(x, labels, distance, temperature):
    """Equation 2 of Khosla et al. with loops."""
    terms = []
    for i in range(len(x)):
        others = [a for a in range(len(x)) if a != i]
        s = {a: -float(distance(x[i], x[a])) / temperature for a in others}
        total = math.log(sum(math.exp(value) for value in s.values()))
        positive = [a for a in others if labels[a] == labels[i]]
        if positive:
            terms.append(-sum(s[p] - total for p in positive) / len(positive))
    return sum(terms) / len(terms) if terms else 0.0


@pytest.mark.parametrize("K", [-0.5, None])
def test_loss_agrees_with_its_definition(K):
    x, labels = torch.randn(9, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 0, 3, 2, 1])
    distance = (lambda a, b: (a - b).norm()) if K is None else Lorentz(K).dist
    got = supervised_contrastive_loss(x, labels, K=K, temperature=0.3)
    assert float(got) == pytest.approx(definition(x, labels.tolist(), distance, 0.3), rel=1e-12)


def test_levels_are_averaged_with_their_weights():
    x, labels = torch.randn(8, 3), torch.arange(8) % 4
    levels = ClassTree.from_groups([0, 0, 1, 1]).levels(labels)
    fine, coarse = (supervised_contrastive_loss(x, level) for level in levels.unbind(-1))
    torch.testing.assert_close(supervised_contrastive_loss(x, levels), (fine + coarse) / 2)
    weighted = supervised_contrastive_loss(x, levels, level_weights=[3.0, 1.0])
    torch.testing.assert_close(weighted, 0.75 * fine + 0.25 * coarse)


def test_batch_without_a_positive_pair_has_loss_and_gradient_zero():
    x = torch.randn(4, 3, requires_grad=True)
    loss = supervised_contrastive_loss(x, torch.arange(4))
    loss.backward()
    assert float(loss.detach()) == 0
    assert (x.grad == 0).all()


def test_coinciding_points_have_finite_gradients():
    x = torch.zeros(6, 3, requires_grad=True)
    supervised_contrastive_loss(x, torch.arange(6) % 2).backward()
    assert x.grad.isfinite().all()


def test_descent_separates_classes_and_superclasses():
    torch.manual_seed(0)
    tree, labels = ClassTree.from_groups([0, 0, 1, 1]), torch.arange(16) % 4
    x = torch.nn.Parameter(0.1 * torch.randn(16, 2))
    optimizer = torch.optim.Adam([x], lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        supervised_contrastive_loss(x, tree.levels(labels)).backward()
        optimizer.step()
    d = Lorentz().pairwise_dist(x.detach())
    height = tree.lca_height(labels[:, None], labels)
    means = [float(d[height == level].mean()) for level in (0, 1, 2)]
    assert means[0] < means[1] < means[2]


def test_learned_temperature_is_one_element_without_weight_decay():
    loss = SupervisedContrastiveLoss(Lorentz(-1.0), temperature=0.5, learn_temperature=True)
    assert loss.log_scale.shape == (1,)
    x, labels = torch.randn(6, 3), torch.arange(6) % 2
    torch.testing.assert_close(loss(x, labels), supervised_contrastive_loss(x, labels, temperature=0.5))
    loss(x, labels).backward()
    assert loss.log_scale.grad.isfinite().all()
    assert list(parameter_groups(loss).geometric) == ["log_scale"]
    assert list(SupervisedContrastiveLoss(Lorentz(-1.0)).state_dict()) == []
    assert "euclidean" in repr(SupervisedContrastiveLoss(None))


def test_bfloat16_points_and_autocast_give_a_float32_loss():
    x, labels = torch.randn(6, 3), torch.arange(6) % 2
    with torch.autocast("cpu", torch.bfloat16):
        assert supervised_contrastive_loss(x, labels).dtype == torch.float32
    assert supervised_contrastive_loss(x.bfloat16(), labels).dtype == torch.float32


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, torch.tensor(0.0)])
def test_wrong_temperatures_are_reported(temperature):
    with pytest.raises(ValueError, match="temperature must be positive"):
        supervised_contrastive_loss(torch.randn(2, 3), torch.zeros(2), temperature=temperature)


def test_wrong_labels_and_weights_are_reported():
    with pytest.raises(ValueError, match=r"\[N\] or \[N, L\]"):
        supervised_contrastive_loss(torch.randn(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match="level_weights must be 1 numbers"):
        supervised_contrastive_loss(torch.randn(2, 3), torch.zeros(2), level_weights=[1.0, 2.0])
