r"""Metrics of classifiers over a class tree: how severe the mistakes are, and how near the top classes.

The cost of predicting class c for the label y is the height of their lowest common ancestor
(:meth:`lresnet.geometry.ClassTree.lca_height`), as in Bertinetto et al. (CVPR 2020, `arXiv 1912.09393
<https://arxiv.org/abs/1912.09393>`_): 0 for the right class, and in a tree of two levels 1 for another class of the
right superclass and 2 for a class of another superclass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lresnet.geometry import ClassTree
from lresnet.metrics.checks import require_classification

__all__ = ["hierarchical_distance", "hierarchy_metrics", "mistake_severity", "superclass_accuracy"]


def mistake_severity(logits: Tensor, y: Tensor, tree: ClassTree) -> Tensor:
    """Return the mean height of the lowest common ancestor of prediction and label over the mistakes.

    Lower is better. It is 0 if there are no mistakes. A classifier that makes fewer mild mistakes has a higher
    severity, even if nothing else changes; report it together with the accuracy or with :func:`hierarchical_distance`,
    which averages over all samples.

    Shapes:
        logits [m, C], y [m] -> [], float64

    Example:
        >>> tree = ClassTree.from_groups([0, 0, 1])
        >>> logits = torch.eye(3)[[0, 1, 2, 2]]  # predictions 0, 1, 2, 2
        >>> mistake_severity(logits, torch.tensor([0, 0, 0, 2]), tree)
        tensor(1.5000, dtype=torch.float64)
    """
    height = _heights(logits, y, tree, 1).squeeze(1)
    wrong = (logits.argmax(dim=1) != y).double()
    return (height * wrong).sum() / wrong.sum().clamp(min=1)


def hierarchical_distance(logits: Tensor, y: Tensor, tree: ClassTree, k: int = 1) -> Tensor:
    """Return the mean height of the lowest common ancestor of the label and each of the k top classes.

    Lower is better. For k = 1 it is the error rate times the :func:`mistake_severity`, if all classes are leaves. For
    larger k it also counts the label itself, with cost 0, and cannot be 0.

    Shapes:
        logits [m, C], y [m] -> [], float64

    Example:
        >>> tree = ClassTree.from_groups([0, 0, 1])
        >>> hierarchical_distance(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([0]), tree, k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    return _heights(logits, y, tree, k).mean()


def superclass_accuracy(logits: Tensor, y: Tensor, tree: ClassTree, depth: int = 1) -> Tensor:
    """Return the share of samples whose predicted class has the right ancestor at ``depth``; between 0 and 1.

    Args:
        logits: Scores of the classes.
        y: Labels.
        tree: The tree of the classes.
        depth: Depth of the ancestor; 1 are the coarsest superclasses. A class that is not deeper is its own ancestor.

    Shapes:
        logits [m, C], y [m] -> [], float64

    Example:
        >>> tree = ClassTree.from_groups([0, 0, 1])
        >>> superclass_accuracy(torch.eye(3), torch.tensor([1, 1, 0]), tree)
        tensor(0.6667, dtype=torch.float64)
    """
    if depth < 1:
        raise ValueError(f"depth must be 1 or more, got {depth}; the root, at depth 0, is everyone's ancestor")
    _require_classes(logits, y, tree)
    return (tree.ancestor(logits.argmax(dim=1), depth) == tree.ancestor(y, depth)).double().mean()


def hierarchy_metrics(logits: Tensor, y: Tensor, tree: ClassTree, ks: Sequence[int] = (1, 5, 20)) -> dict[str, float]:
    """Return the superclass accuracy in percent, the mistake severity and the hierarchical distances at ``ks``.

    A k above the number of classes is left out.

    Example:
        >>> tree = ClassTree.from_groups([0, 0, 1])
        >>> hierarchy_metrics(torch.eye(3)[[0, 1, 2, 2]], torch.tensor([0, 0, 0, 2]), tree, ks=(1,))
        {'superclass_accuracy': 75.0, 'mistake_severity': 1.5, 'hierarchical_distance@1': 0.75}
    """
    found = {
        "superclass_accuracy": 100 * float(superclass_accuracy(logits, y, tree)),
        "mistake_severity": float(mistake_severity(logits, y, tree)),
    }
    for k in ks:
        if k <= logits.shape[1]:
            found[f"hierarchical_distance@{k}"] = float(hierarchical_distance(logits, y, tree, k))
    return found


def _heights(logits: Tensor, y: Tensor, tree: ClassTree, k: int) -> Tensor:
    """Return the heights for the k top classes of every sample, [m, k]."""
    _require_classes(logits, y, tree)
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"k must be 1 to {logits.shape[1]} (the number of classes), got {k}")
    # argmax and topk may choose different classes among equal logits; all metrics of the first class use argmax.
    top = logits.argmax(dim=1, keepdim=True) if k == 1 else logits.topk(k, dim=1).indices
    own = y.unsqueeze(1)
    # A class that is an inner node of the tree has a positive height, but predicting it rightly costs nothing.
    return torch.where(top == own, 0, tree.lca_height(top, own)).double()


def _require_classes(logits: Tensor, y: Tensor, tree: ClassTree) -> None:
    require_classification(logits, y)
    if logits.shape[1] != tree.num_classes:
        raise ValueError(f"logits have {logits.shape[1]} classes, but the tree has {tree.num_classes}")
