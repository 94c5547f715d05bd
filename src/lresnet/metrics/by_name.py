"""Metrics of tasks by name: of classified nodes or graphs, and of ranked links."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lresnet._metric_names import require_link_metric, require_node_metric
from lresnet.metrics.classification import accuracy, f1
from lresnet.metrics.ranking import average_precision, link_scores, roc_auc

__all__ = ["hits_at", "link_metric", "mean_reciprocal_rank", "node_metric"]

ClassMetric = Callable[[Tensor, Tensor], Tensor]
LinkMetric = Callable[[Tensor, Tensor], Tensor]


def node_metric(name: str) -> ClassMetric:
    """Return the metric ``name`` of logits ``[m, classes]`` and labels ``[m]``, between 0 and 1.

    Args:
        name: ``"accuracy"``; ``"f1"`` (micro), ``"f1_macro"`` or ``"f1_binary"`` (of class 1, for two classes);
            ``"roc_auc"`` or ``"average_precision"``, for more than two classes the mean over the classes, each against
            the others.

    Raises:
        ValueError: There is no metric of this name.

    Example:
        >>> node_metric("roc_auc")(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 1]))
        tensor(1., dtype=torch.float64)
    """
    require_node_metric(name)
    if name == "accuracy":
        return accuracy
    if name == "f1":
        return lambda logits, y: f1(logits, y, average="micro")
    if name == "f1_macro":
        return lambda logits, y: f1(logits, y, average="macro")
    if name == "f1_binary":
        return lambda logits, y: f1(logits, y, average="binary")
    ranking = roc_auc if name == "roc_auc" else average_precision
    return lambda logits, y: _against_the_others(ranking, logits, y)


def _against_the_others(ranking: Callable[[Tensor, Tensor], Tensor], logits: Tensor, y: Tensor) -> Tensor:
    if logits.shape[1] == 2:
        return ranking(logits[:, 1] - logits[:, 0], (y == 1).long())
    scores = logits.double().softmax(-1)
    present = [label for label in range(logits.shape[1]) if bool((y == label).any())]
    return torch.stack([ranking(scores[:, label], (y == label).long()) for label in present]).mean()


def link_metric(name: str) -> LinkMetric:
    """Return the metric ``name`` of the scores of edges ``[p]`` and of pairs without an edge ``[q]``, between 0 and 1.

    Args:
        name: ``"roc_auc"``, ``"average_precision"``, ``"mrr"`` (:func:`mean_reciprocal_rank`) or ``"hits@k"`` with a
            number k (:func:`hits_at`), e.g. ``"hits@50"``.

    Raises:
        ValueError: There is no metric of this name.

    Example:
        >>> link_metric("hits@1")(torch.tensor([0.9, 0.2]), torch.tensor([0.5, 0.1]))
        tensor(0.5000, dtype=torch.float64)
    """
    require_link_metric(name)
    if name == "mrr":
        return mean_reciprocal_rank
    if name.startswith("hits@"):
        k = int(name.removeprefix("hits@"))
        return lambda positive, negative: hits_at(positive, negative, k)
    ranking = roc_auc if name == "roc_auc" else average_precision
    return lambda positive, negative: ranking(*link_scores(positive, negative))


def hits_at(positive: Tensor, negative: Tensor, k: int) -> Tensor:
    """Return the share of edges that score higher than the k-th best pair without an edge (as OGB defines hits@k).

    Args:
        positive: Scores of edges ``[p]``.
        negative: Scores of pairs without an edge ``[q]``. With fewer than k of them the result is 1.
        k: At least 1.

    Returns:
        0-d, float64.

    Example:
        >>> hits_at(torch.tensor([0.9, 0.2]), torch.tensor([0.5, 0.1]), 2)
        tensor(1., dtype=torch.float64)
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if negative.numel() < k:
        return torch.ones((), dtype=torch.float64, device=positive.device)
    threshold = negative.topk(k).values[-1]
    return (positive > threshold).double().mean()


def mean_reciprocal_rank(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the mean of 1 / rank, where the rank of an edge is its place among all pairs without an edge.

    A tie counts half: the rank is 1 plus the number of higher scores plus half the number of equal ones.

    Args:
        positive: Scores of edges ``[p]``.
        negative: Scores of pairs without an edge ``[q]``, shared by all edges.

    Returns:
        0-d, float64.

    Example:
        >>> mean_reciprocal_rank(torch.tensor([0.9, 0.2]), torch.tensor([0.5, 0.1]))
        tensor(0.7500, dtype=torch.float64)
    """
    ordered = negative.sort().values
    not_above = torch.searchsorted(ordered, positive.contiguous(), right=True)
    below = torch.searchsorted(ordered, positive.contiguous())
    rank = 1 + negative.numel() - not_above + (not_above - below).double() / 2
    return (1 / rank).mean()
