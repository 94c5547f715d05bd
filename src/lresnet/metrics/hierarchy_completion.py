"""Metrics of hierarchy completion: the held-out pairs of a task, ranked by any score, and the order of ancestors."""

from __future__ import annotations

from torch import Tensor

from lresnet.data.hierarchy import HierarchyTask
from lresnet.metrics.ancestor_order import AncestorOrder, ScoreRows, ancestor_order
from lresnet.metrics.hierarchy_ranking import RankedAnswers, rank_answers, ranking_metric, ranking_metrics

__all__ = ["completion_metric", "completion_metrics"]


def completion_metric(task: HierarchyTask, score: ScoreRows, held_out: Tensor) -> Tensor:
    """Return the task's metric of held-out pairs, between 0 and 1; see :class:`lresnet.data.HierarchyTask`.

    Args:
        task: The taxonomy and its split.
        score: Function from nodes ``[b]`` to the scores of all nodes as their ancestors ``[b, N]``.
        held_out: ``task.val_pairs`` or ``task.test_pairs``.
    """
    if task.metric != "ordered_mrr":
        return ranking_metric(_ranked(task, score, held_out), task.metric)
    if task.split == "leaves":
        return _among_ancestors(task, score, held_out)
    return ranking_metric(_ranked(task, score, held_out), "ordered_mrr", _order(task, score, held_out))


def completion_metrics(task: HierarchyTask, score: ScoreRows, held_out: Tensor) -> dict[str, float]:
    """Return all metrics of held-out pairs, the task's first, in percent but the mean rank."""
    found = ranking_metrics(_ranked(task, score, held_out), task.metric, _order(task, score, held_out))
    if task.split == "leaves":
        found["ordered_mrr"] = 100 * float(_among_ancestors(task, score, held_out))
    return found


def _ranked(task: HierarchyTask, score: ScoreRows, held_out: Tensor) -> RankedAnswers:
    return rank_answers(score, held_out, task.num_nodes, known=task.closure)


def _among_ancestors(task: HierarchyTask, score: ScoreRows, held_out: Tensor) -> Tensor:
    """Return the mean reciprocal rank of parents, with the other ancestors of a node as competitors."""
    return rank_answers(score, held_out, task.num_nodes).mean_reciprocal_rank()


def _order(task: HierarchyTask, score: ScoreRows, held_out: Tensor) -> AncestorOrder:
    return ancestor_order(score, *task.ancestors_in_order(held_out), task.num_nodes)
