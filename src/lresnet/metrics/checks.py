"""Checks of the input of metrics: shapes always, values only if reading them does not synchronise with a device."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.checks import checks_values

__all__ = ["NonFiniteScores", "require_classification", "require_ranking"]


class NonFiniteScores(ValueError):
    """Scores or logits are NaN or infinite although their form is right; usually the training has diverged."""


def require_ranking(scores: Tensor, labels: Tensor) -> None:
    """Check that scores ``[m]`` and labels ``[m]`` form a ranking.

    Raises:
        ValueError: The shapes are wrong, there are no scores, a label is not 0 or 1, or there is a single class.
        NonFiniteScores: A score is NaN.
    """
    if scores.dim() != 1 or scores.shape != labels.shape:
        raise ValueError(f"scores {list(scores.shape)} and labels {list(labels.shape)} must both have shape [m]")
    if scores.numel() == 0:
        raise ValueError("scores are empty; a ranking needs at least one positive and one negative")
    if not checks_values(scores):
        return
    if scores.isnan().any():
        raise NonFiniteScores(f"score {int(scores.isnan().int().argmax())} is NaN; a NaN cannot be ranked")
    if not ((labels == 0) | (labels == 1)).all():
        raise ValueError("labels must be 0 (negative) or 1 (positive)")
    if (labels == labels[0]).all():
        raise ValueError(f"all labels are {int(labels[0])}; a ranking needs positives (1) and negatives (0)")


def require_classification(logits: Tensor, y: Tensor) -> None:
    """Check that logits ``[m, classes]`` and labels ``[m]`` belong together.

    Raises:
        ValueError: The shapes are wrong, there are no rows, or a label is not a class.
        NonFiniteScores: A logit is NaN.
    """
    if logits.dim() != 2 or y.shape != logits.shape[:1] or y.dtype != torch.int64:
        raise ValueError(
            f"logits {list(logits.shape)} must have shape [m, classes] and y, {y.dtype} {list(y.shape)}, be int64 [m]"
        )
    if logits.numel() == 0:
        raise ValueError(f"logits of shape {list(logits.shape)} are empty; at least one row and one class are needed")
    if not checks_values(logits):
        return
    if logits.isnan().any():
        raise NonFiniteScores(f"the logits of row {int(logits.isnan().any(dim=1).int().argmax())} contain NaN")
    if ((y < 0) | (y >= logits.shape[1])).any():
        raise ValueError(f"labels are {int(y.min())} to {int(y.max())}, but the logits have {logits.shape[1]} classes")
