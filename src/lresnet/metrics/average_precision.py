"""Average precision, ties included."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.metrics.checks import require_ranking

__all__ = ["average_precision"]


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
