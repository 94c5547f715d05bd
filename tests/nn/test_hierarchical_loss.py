"""Hierarchical cross entropy: against its definition on a tree of three levels, its limits, its stability."""

import math

import pytest
import torch

from lresnet.geometry import ClassTree
from lresnet.nn import hierarchical_cross_entropy, path_log_probabilities

# root 8 with the children 6 and 7; 6 has 4 and the class 2, 4 has the classes 0 and 1; 7 has the class 3
TREE = ClassTree([4, 4, 6, 7, 6, 6, 8, 8, -1], num_classes=4)


def test_loss_agrees_with_its_definition():
    logits = torch.randn(1, 4, dtype=torch.float64)
    p = logits.softmax(-1)[0].tolist()
    under = {4: p[0] + p[1], 6: p[0] + p[1] + p[2], 7: p[3]}
    steps = {
        0: [under[6], under[4] / under[6], p[0] / under[4]],
        2: [under[6], p[2] / under[6]],
        3: [under[7], 1.0],
    }
    for label, conditional in steps.items():
        expected = -sum(math.exp(-0.7 * j) * math.log(q) for j, q in enumerate(conditional))
        got = hierarchical_cross_entropy(logits, torch.tensor([label]), TREE, alpha=0.7)
        assert float(got) == pytest.approx(expected, rel=1e-12)


def test_without_discount_it_is_the_cross_entropy():
    logits, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 3, 1])
    plain = torch.nn.functional.cross_entropy(logits, labels)
    torch.testing.assert_close(hierarchical_cross_entropy(logits, labels, TREE, alpha=0.0), plain)


def test_mistakes_inside_the_superclass_are_cheaper_with_a_discount():
    tree, labels = ClassTree.from_groups([0, 0, 1]), torch.tensor([0])
    near, far = torch.tensor([[0.0, 5.0, 0.0]]), torch.tensor([[0.0, 0.0, 5.0]])
    plain = hierarchical_cross_entropy(near, labels, tree, 0.0) - hierarchical_cross_entropy(far, labels, tree, 0.0)
    assert float(plain) == pytest.approx(0.0, abs=1e-6)
    assert hierarchical_cross_entropy(near, labels, tree, 1.0) < hierarchical_cross_entropy(far, labels, tree, 1.0)


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[1e4, 0.0, -1e4, 0.0]], requires_grad=True)
    loss = hierarchical_cross_entropy(logits, torch.tensor([3]), TREE)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert path_log_probabilities(logits.bfloat16(), torch.tensor([3]), TREE).dtype == torch.float32


def test_wrong_arguments_are_reported():
    with pytest.raises(ValueError, match="4 classes"):
        hierarchical_cross_entropy(torch.randn(2, 3), torch.tensor([0, 1]), TREE)
    with pytest.raises(ValueError, match="alpha must be 0 or more"):
        hierarchical_cross_entropy(torch.randn(2, 4), torch.tensor([0, 1]), TREE, alpha=-0.1)
