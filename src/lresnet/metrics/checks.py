"""What the metrics check of their input: shapes always, values only where reading them stalls nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.checks import checks_values

__all__ = ["NonFiniteScores", "require_classification", "require_ranking"]


class NonFiniteScores(ValueError):
    """Scores or logits that are NaN or infinite: of the right form, so it is the network that is at fault."""


def require_ranking(scores: Tensor, labels: Tensor) -> None:
    """Refuse scores ``[m]`` and labels ``[m]`` that cannot be ranked.

    Raises:
        ValueError: other shapes, nothing to rank, labels other than 0 and 1, or one class only.
        NonFiniteScores: a NaN among the scores.
    """
    if scores.dim() != 1 or scores.shape != labels.shape:
        raise ValueError(f"scores {list(scores.shape)} and labels {list(labels.shape)} must both have shape [m]")
    if scores.numel() == 0:
        raise ValueError("there is nothing to rank: no scores were given")
    if not checks_values(scores):
        return
    if scores.isnan().any():
        raise NonFiniteScores(f"score {int(scores.isnan().int().argmax())} is NaN; NaNs cannot be ranked")
    if not ((labels == 0) | (labels == 1)).all():
        raise ValueError("labels must be 0 (negative) or 1 (positive)")
    if (labels == labels[0]).all():
        raise ValueError(f"all labels are {int(labels[0])}; a ranking is judged by positives against negatives")


def require_classification(logits: Tensor, y: Tensor) -> None:
    """Refuse logits ``[m, classes]`` and labels ``[m]`` that do not belong together.

    Raises:
        ValueError: other shapes, no rows, or a label that is not a class.
        NonFiniteScores: a NaN among the logits.
    """
    if logits.dim() != 2 or y.shape != logits.shape[:1] or y.dtype != torch.int64:
        raise ValueError(
            f"logits {list(logits.shape)} must have shape [m, classes] and y, {y.dtype} {list(y.shape)}, be int64 [m]"
        )
    if logits.numel() == 0:
        raise ValueError(f"there is nothing to judge: logits of shape {list(logits.shape)}")
    if not checks_values(logits):
        return
    if logits.isnan().any():
        raise NonFiniteScores(f"the logits of row {int(logits.isnan().any(dim=1).int().argmax())} hold NaN")
    if ((y < 0) | (y >= logits.shape[1])).any():
        raise ValueError(f"labels are {int(y.min())} to {int(y.max())}, but the logits have {logits.shape[1]} classes")
