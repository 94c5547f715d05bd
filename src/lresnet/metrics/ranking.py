"""The area under the ROC curve, exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.metrics.checks import require_ranking

__all__ = [
    "average_precision",
    "link_scores",
    "roc_auc",
]


def roc_auc(scores: Tensor, labels: Tensor) -> Tensor:
    """How often a positive has a higher score than a negative; a tie counts one half.

    Counted in integers after one sort, so it is exact up to one final division, and it equals scikit-learn's
    ``roc_auc_score``. Nothing is moved to the host: it can stand in a loop on a GPU.

    Args:
        scores: ``[m]``, any floating point type.
        labels: ``[m]``, 1 (or True) for positives, 0 for negatives.

    Returns:
        0-d, float64, between 0 and 1. Where values are not checked (on a GPU, under compile), one class only gives NaN.

    Raises:
        ValueError: shapes differ or, on eager CPU tensors, a score is NaN or there is one class only.

    Example:
        >>> roc_auc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
        tensor(0.7500, dtype=torch.float64)
    """
    require_ranking(scores, labels)
    ordered, order = scores.detach().sort()
    positive = labels[order].to(torch.int64)
    negatives_before = torch.nn.functional.pad((1 - positive).cumsum(0), (1, 0))
    first = torch.searchsorted(ordered, ordered)
    behind = torch.searchsorted(ordered, ordered, right=True)
    # Twice the negatives below, plus those that tie: negatives before the ties' end and before their start.
    twice_won = positive * (negatives_before[first] + negatives_before[behind])
    positives = positive.sum()
    return twice_won.sum().double() / (2 * positives * (positive.numel() - positives)).double()


def link_scores(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and labels, both ``[p + q]``, from the scores of ``p`` edges and of ``q`` pairs that are none.

    Example:
        >>> roc_auc(*link_scores(torch.tensor([0.9, 0.8]), torch.tensor([0.1])))
        tensor(1., dtype=torch.float64)
    """
    scores = torch.cat([positive, negative])
    labels = torch.cat([torch.ones_like(positive, dtype=torch.int64), torch.zeros_like(negative, dtype=torch.int64)])
    return scores, labels


def average_precision(scores: Tensor, labels: Tensor) -> Tensor:
    r"""The mean, over the positives, of the precision at their score.

    With :math:`P_k` and :math:`R_k` precision and recall at the k-th distinct score this is
    :math:`\sum_k (R_k - R_{k-1}) P_k`, the sum scikit-learn's ``average_precision_score`` computes. Equal scores form
    one threshold, so the order of the input does not matter. Nothing is moved to the host.

    Args:
        scores: ``[m]``, any floating point type.
        labels: ``[m]``, 1 (or True) for positives, 0 for negatives.

    Returns:
        0-d, float64, between 0 and 1.

    Raises:
        ValueError: shapes differ or, on eager CPU tensors, a score is NaN or there is one class only.

    Example:
        >>> average_precision(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
        tensor(0.8333, dtype=torch.float64)
    """
    require_ranking(scores, labels)
    ordered, order = scores.detach().sort()
    positive = labels[order].to(torch.int64)
    positives_before = torch.nn.functional.pad(positive.cumsum(0), (1, 0))
    first = torch.searchsorted(ordered, ordered)
    positives = positive.sum()
    precision = (positives - positives_before[first]).double() / (ordered.numel() - first).double()
    return (positive * precision).sum() / positives
