"""Hierarchy metrics: against loops over a tree, the identity of severity and accuracies, errors."""

import pytest
import torch

from lresnet.geometry import ClassTree
from lresnet.metrics import (
    accuracy,
    hierarchical_distance,
    hierarchy_metrics,
    mistake_severity,
    superclass_accuracy,
)
from tests.geometry.test_class_tree import random_tree


def test_metrics_agree_with_loops_over_a_general_tree():
    # Some classes of this tree are inner nodes.
    tree, g = random_tree(), torch.Generator().manual_seed(1)
    logits, y = torch.randn(60, 25, generator=g), torch.randint(0, 25, (60,), generator=g)
    logits[torch.arange(30), y[:30]] += 5
    costs = [
        [0 if c == label else int(tree.lca_height(torch.tensor(c), torch.tensor(label))) for c in row]
        for row, label in zip(logits.argsort(dim=1, descending=True).tolist(), y.tolist(), strict=True)
    ]
    wrong = [row[0] for row, p, label in zip(costs, logits.argmax(1), y, strict=True) if p != label]
    assert float(mistake_severity(logits, y, tree)) == pytest.approx(sum(wrong) / len(wrong))
    for k in (1, 3, 25):
        mean = sum(sum(row[:k]) / k for row in costs) / 60
        assert float(hierarchical_distance(logits, y, tree, k)) == pytest.approx(mean)
    same = [tree.paths[p, 1] == tree.paths[c, 1] for p, c in zip(logits.argmax(1), y, strict=True)]
    assert float(superclass_accuracy(logits, y, tree)) == pytest.approx(sum(map(float, same)) / 60)


def test_severity_follows_from_both_accuracies_in_a_tree_of_two_levels():
    tree, g = ClassTree.from_groups(torch.arange(20) // 5), torch.Generator().manual_seed(0)
    logits, y = torch.randn(200, 20, generator=g), torch.randint(0, 20, (200,), generator=g)
    wrong = 1 - accuracy(logits, y)
    severity = 1 + (1 - superclass_accuracy(logits, y, tree)) / wrong
    torch.testing.assert_close(mistake_severity(logits, y, tree), severity)
    torch.testing.assert_close(hierarchical_distance(logits, y, tree), wrong * severity)


def test_perfect_predictions_have_severity_zero():
    tree = ClassTree.from_groups([0, 0, 1])
    found = hierarchy_metrics(torch.eye(3), torch.arange(3), tree)
    assert found == {"superclass_accuracy": 100.0, "mistake_severity": 0.0, "hierarchical_distance@1": 0.0}


def test_wrong_arguments_are_reported():
    tree, logits, y = ClassTree.from_groups([0, 0, 1]), torch.eye(3), torch.arange(3)
    with pytest.raises(ValueError, match="but the tree has 3"):
        mistake_severity(torch.eye(4), torch.arange(4), tree)
    with pytest.raises(ValueError, match="k must be 1 to 3"):
        hierarchical_distance(logits, y, tree, k=4)
    with pytest.raises(ValueError, match="depth must be 1 or more"):
        superclass_accuracy(logits, y, tree, depth=0)
