"""Cross entropy along the path of a class tree, for classifiers whose mistakes should be mild."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lresnet.geometry import ClassTree

__all__ = ["hierarchical_cross_entropy", "path_log_probabilities"]


def path_log_probabilities(logits: Tensor, labels: Tensor, tree: ClassTree) -> Tensor:
    r"""Return the log-probability of every ancestor of the label, below the root.

    The probability of a node is the sum of the probabilities of its classes:
    :math:`\log p(v) = \operatorname{logsumexp}_{c \le v} \log p(c)`. Minus the first column is the cross entropy of the
    coarsest superclasses.

    Shapes:
        logits [N, C], labels [N] -> [N, D], column j is the ancestor at depth j + 1; D is the depth of the tree. A
        label that is less deep repeats its own log-probability.

    Example:
        >>> tree = ClassTree.from_groups([0, 0, 1])
        >>> path_log_probabilities(torch.zeros(1, 3), torch.tensor([0]), tree).exp()
        tensor([[0.6667, 0.3333]])
    """
    if logits.dim() != 2 or logits.shape[1] != tree.num_classes or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)} must be [N, {tree.num_classes}] and [N], "
            f"with one column for each of the tree's {tree.num_classes} classes"
        )
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    own, columns = tree.paths[: tree.num_classes], []
    for depth in range(1, own.shape[1]):
        ancestor = tree.ancestor(labels, depth).unsqueeze(1)
        # A class that is not deep enough belongs to itself only.
        below = tree.ancestor(torch.arange(tree.num_classes, device=labels.device), depth) == ancestor
        columns.append(log_p.masked_fill(~below, -torch.inf).logsumexp(-1))
    return torch.stack(columns, -1)


def hierarchical_cross_entropy(logits: Tensor, labels: Tensor, tree: ClassTree, alpha: float = 0.5) -> Tensor:
    r"""Return the cross entropy of the path from the root to the label, with information discounted on the way down.

    After Bertinetto et al. (CVPR 2020, `arXiv 1912.09393 <https://arxiv.org/abs/1912.09393>`_). Let
    :math:`v_1, \dots, v_h` be the ancestors of the label from the coarsest superclass to the label itself:

    .. math:: L = -\sum_{j=1}^{h} e^{-\alpha (j - 1)} \log p(v_j \mid v_{j-1})

    With :math:`\alpha = 0` the conditional probabilities multiply to p(label), and the loss is the cross entropy. A
    larger value makes a mistake inside the right superclass cheaper. The discount starts at the root, so that the
    coarsest level always has weight 1.

    Args:
        logits: Scores of the classes.
        labels: Classes.
        tree: The tree of the classes, on the same device.
        alpha: Discount for each level, 0 or more.

    Shapes:
        logits [N, C], labels [N] -> [], the mean over N

    Example:
        >>> tree, logits = ClassTree.from_groups([0, 0, 1]), torch.tensor([[2.0, 1.0, 0.0]])
        >>> hierarchical_cross_entropy(logits, torch.tensor([0]), tree, alpha=0.0)
        tensor(0.4076)
        >>> torch.nn.functional.cross_entropy(logits, torch.tensor([0]))
        tensor(0.4076)
    """
    if not 0 <= alpha < math.inf:
        raise ValueError(f"alpha must be 0 or more and finite, got {alpha}")
    path = path_log_probabilities(logits, labels, tree)
    conditional = path.diff(dim=-1, prepend=torch.zeros_like(path[:, :1]))
    discount = torch.exp(-alpha * torch.arange(path.shape[1], device=path.device, dtype=path.dtype))
    return -(conditional * discount).sum(-1).mean()
