"""Metrics of classification: accuracy and F1."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lresnet.metrics.checks import require_classification

__all__ = ["accuracy", "f1"]


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the share of rows whose largest logit belongs to their class.

    Args:
        logits: ``[m, classes]``.
        y: ``[m]``, int64.

    Returns:
        0-d, float64, between 0 and 1.

    Example:
        >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0]))
        tensor(0.5000, dtype=torch.float64)
    """
    require_classification(logits, y)
    return (logits.argmax(dim=1) == y).double().mean()


def f1(logits: Tensor, y: Tensor, average: Literal["micro", "binary", "macro"] = "micro") -> Tensor:
    """Return the F1 score, the harmonic mean of precision and recall; equal to ``f1_score`` of scikit-learn.

    Args:
        logits: ``[m, classes]``.
        y: ``[m]``, int64.
        average: ``"binary"``: the score of class 1, for two classes. ``"macro"``: the mean over the classes that occur
            in ``y`` or among the predictions. ``"micro"``: the score over all predictions, which equals the accuracy.

    Returns:
        0-d, float64, between 0 and 1. A class that neither occurs nor is predicted has the score 0.

    Example:
        >>> f1(torch.tensor([[2.0, 1.0], [0.0, 3.0], [0.0, 1.0]]), torch.tensor([0, 0, 1]), average="binary")
        tensor(0.6667, dtype=torch.float64)
    """
    require_classification(logits, y)
    classes = logits.shape[1]
    if average not in ("micro", "binary", "macro"):
        raise ValueError(f'average={average!r}; choose "micro", "binary" or "macro"')
    if average == "binary" and classes != 2:
        raise ValueError(
            f'average="binary" is for two classes, but the logits have {classes}; choose "micro" or "macro"'
        )
    predicted = logits.argmax(dim=1)
    correct = (predicted == y).long()
    if average == "micro":
        return correct.double().mean()
    # bincount would synchronise with the device to learn its size; these sums do not.
    zeros = torch.zeros(classes, dtype=torch.int64, device=logits.device)
    hits = zeros.scatter_add(0, y, correct)
    present = zeros.scatter_add(0, y, torch.ones_like(y)) + zeros.scatter_add(0, predicted, torch.ones_like(predicted))
    score = 2 * hits.double() / present.clamp_min(1).double()
    if average == "binary":
        return score[1]
    return score.sum() / (present > 0).sum()
