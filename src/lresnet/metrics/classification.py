"""The share of right answers."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lresnet.metrics.checks import require_classification

__all__ = [
    "accuracy",
    "f1",
]


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """The share of rows whose largest logit is that of their class.

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
    """The harmonic mean of precision and recall of the classes with the largest logits; as scikit-learn's ``f1_score``.

    Args:
        logits: ``[m, classes]``.
        y: ``[m]``, int64.
        average: ``"binary"``: of class 1, for two classes. ``"macro"``: the mean over the classes that occur in ``y``
            or among the answers. ``"micro"``: over all answers together, which is the accuracy.

    Returns:
        0-d, float64, between 0 and 1; a class that is neither there nor predicted counts 0.

    Example:
        >>> f1(torch.tensor([[2.0, 1.0], [0.0, 3.0], [0.0, 1.0]]), torch.tensor([0, 0, 1]), average="binary")
        tensor(0.6667, dtype=torch.float64)
    """
    require_classification(logits, y)
    classes = logits.shape[1]
    if average not in ("micro", "binary", "macro"):
        raise ValueError(f'average={average!r}; choose "micro", "binary" or "macro"')
    if average == "binary" and classes != 2:
        raise ValueError(f'average="binary" is for two classes, the logits have {classes}; take "micro" or "macro"')
    answer = logits.argmax(dim=1)
    right = (answer == y).long()
    if average == "micro":
        return right.double().mean()
    # bincount would wait for the device to learn its size; these sums do not.
    zeros = torch.zeros(classes, dtype=torch.int64, device=logits.device)
    hits = zeros.scatter_add(0, y, right)
    present = zeros.scatter_add(0, y, torch.ones_like(y)) + zeros.scatter_add(0, answer, torch.ones_like(answer))
    score = 2 * hits.double() / present.clamp_min(1).double()
    if average == "binary":
        return score[1]
    return score.sum() / (present > 0).sum()
