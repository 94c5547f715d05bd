"""Metrics of rankings: area under the ROC curve and average precision, with exact treatment of ties."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.metrics.checks import require_ranking

__all__ = ["average_precision", "link_scores", "roc_auc"]


def roc_auc(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the area under the ROC curve: how often a positive has a higher score than a negative.

    A tie counts one half. The pairs are counted in integers after one sort, so the result is exact up to one final
    division and equals ``roc_auc_score`` of scikit-learn. Nothing is copied to the host.

    Args:
        scores: ``[m]``, of any floating-point type.
        labels: ``[m]``, 1 (or True) for positives, 0 for negatives.

    Returns:
        0-d, float64, between 0 and 1. If values are not checked (on a GPU, under compile), a single class gives NaN.

    Raises:
        ValueError: Shapes differ or, for eager CPU tensors, a score is NaN or there is a single class.

    Example:
        >>> roc_auc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
        tensor(0.7500, dtype=torch.float64)
    """
    require_ranking(scores, labels)
    ordered, order = scores.detach().sort()
    positive = labels[order].to(torch.int64)
    negatives_before = torch.nn.functional.pad((1 - positive).cumsum(0), (1, 0))
    first = torch.searchsorted(ordered, ordered)
    last = torch.searchsorted(ordered, ordered, right=True)
    # Negatives before the first and before the last tied score sum to twice the negatives below plus the tied ones.
    twice_won = positive * (negatives_before[first] + negatives_before[last])
    positives = positive.sum()
    return twice_won.sum().double() / (2 * positives * (positive.numel() - positives)).double()


def link_scores(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores and labels, both ``[p + q]``, from the scores of ``p`` edges and of ``q`` pairs without an edge.

    Example:
        >>> roc_auc(*link_scores(torch.tensor([0.9, 0.8]), torch.tensor([0.1])))
        tensor(1., dtype=torch.float64)
    """
    scores = torch.cat([positive, negative])
    labels = torch.cat([torch.ones_like(positive, dtype=torch.int64), torch.zeros_like(negative, dtype=torch.int64)])
    return scores, labels


def average_precision(scores: Tensor, labels: Tensor) -> Tensor:
    r"""Return the average precision: the mean, over the positives, of the precision at their score.

    .. math:: \sum_k (R_k - R_{k-1}) P_k

    Here :math:`P_k` and :math:`R_k` are precision and recall at the k-th distinct score. The result equals
    ``average_precision_score`` of scikit-learn. Equal scores form one threshold, so the order of the input does not
    matter. Nothing is copied to the host.

    Args:
        scores: ``[m]``, of any floating-point type.
        labels: ``[m]``, 1 (or True) for positives, 0 for negatives.

    Returns:
        0-d, float64, between 0 and 1.

    Raises:
        ValueError: Shapes differ or, for eager CPU tensors, a score is NaN or there is a single class.

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
