"""Scores of hierarchy completion that need no training: the figures that a trained embedding should exceed."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from lresnet.data.hierarchy import HierarchyTask
from lresnet.metrics.ancestor_order import ScoreRows
from lresnet.metrics.hierarchy_completion import completion_metric, completion_metrics
from lresnet.metrics.untrained_links import UntrainedScore

__all__ = ["UNTRAINED_HIERARCHY_SCORES", "untrained_hierarchy_scores"]

UNTRAINED_HIERARCHY_SCORES = {
    "descendants": "most descendants",
    "text_cosine": "cosine of the features",
    "similar_child": "parent of the node with the most similar features",
}
"""Scores by name, and what they are called."""


def untrained_hierarchy_scores(task: HierarchyTask, *, test: bool = True) -> list[UntrainedScore]:
    """Return the results of all untrained scores on a task, best first by validation.

    ``"descendants"`` ranks candidates by the number of training nodes below them, the same for every node. With
    features of texts, ``"text_cosine"`` ranks them by the cosine of the features, and ``"similar_child"`` by the
    largest cosine of one of their training children.

    Args:
        task: hierarchy completion.
        test: read the test pairs, once per score.

    Example:
        >>> from lresnet.data import hierarchy_task
        >>> task = hierarchy_task([(str(i), str((i - 1) // 2)) for i in range(1, 127)])
        >>> [one.label for one in untrained_hierarchy_scores(task)]
        ['most descendants']
    """
    task = task.to("cpu")
    found = []
    scores = _scores(task)
    for name, score in scores.items():
        found.append(UntrainedScore(name, 100 * float(completion_metric(task, score, task.val_pairs))))
    found.sort(key=lambda one: -one.validation)
    if not test:
        return found
    return [
        dataclasses.replace(one, metrics=completion_metrics(task, scores[one.name], task.test_pairs)) for one in found
    ]


def _scores(task: HierarchyTask) -> dict[str, ScoreRows]:
    descendants = torch.bincount(task.train_pairs[1], minlength=task.num_nodes).double()
    found: dict[str, ScoreRows] = {"descendants": lambda queries: descendants.expand(queries.numel(), -1)}
    features = None if task.graph is None else task.graph.features
    if features is None:
        return found
    x = sparse.csr_array(features)
    length = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).reshape(-1))
    x = (sparse.diags_array(np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)) @ x).tocsr()
    low, high = task.edge_index
    code, n = task.parents[0] * task.num_nodes + task.parents[1], task.num_nodes
    child, parent = task.parents[:, torch.isin(code, low * n + high)]  # edges of the training graph

    def cosine(queries: Tensor) -> Tensor:
        return torch.from_numpy((x[queries.numpy()] @ x.T).toarray())

    def of_children(queries: Tensor) -> Tensor:
        near = cosine(queries)
        near[torch.arange(queries.numel()), queries] = -1.0  # a node is not its own child's likeness
        empty = torch.full_like(near, -2.0)
        return empty.scatter_reduce(1, parent.expand(queries.numel(), -1), near[:, child], "amax")

    return found | {"text_cosine": cosine, "similar_child": of_children}
