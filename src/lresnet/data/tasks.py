"""What a training run is given: a graph, and which of its edges or nodes to learn from and to be judged by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

__all__ = ["LinkTask", "NodeMetric", "NodeTask", "Task"]

NodeMetric = Literal["f1_binary", "accuracy"]


@dataclass(frozen=True, eq=False)
class LinkTask:
    """Link prediction: tell held-out edges from pairs that are no edges.

    Args:
        name: the cell, e.g. ``"disease/lp"``.
        x: features ``[n, f]``, float32.
        edge_index: the graph to pass messages on, ``[2, 2 e]``: the training edges in both directions, no self loops.
        train_edges: ``[2, e]``, each undirected edge once, as are the following.
        val_edges: ``[2, v]``.
        val_negatives: ``[2, v]``, pairs that are no edges.
        test_edges: ``[2, t]``.
        test_negatives: ``[2, t]``.
        num_nodes: n.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    train_edges: Tensor
    val_edges: Tensor
    val_negatives: Tensor
    test_edges: Tensor
    test_negatives: Tensor
    num_nodes: int

    def to(self, device: torch.device | str) -> LinkTask:
        """The same task with its tensors on ``device``."""
        return replace(self, **_moved(self, device))


@dataclass(frozen=True, eq=False)
class NodeTask:
    """Node classification: tell the class of the test nodes.

    Args:
        name: the cell, e.g. ``"cora/nc"``.
        x: features ``[n, f]``, float32.
        edge_index: the whole graph, ``[2, 2 e]``, both directions, no self loops.
        y: classes ``[n]``, int64.
        train_index: node numbers ``[a]``; with the ``"legacy"`` split of airport a node may occur in several places.
        val_index: ``[b]``.
        test_index: ``[c]``.
        num_classes: classes are 0 to ``num_classes - 1``.
        metric: what the literature reports: ``"f1_binary"`` (class 1 is the positive one) or ``"accuracy"``.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    y: Tensor
    train_index: Tensor
    val_index: Tensor
    test_index: Tensor
    num_classes: int
    metric: NodeMetric

    @property
    def num_nodes(self) -> int:
        """n."""
        return self.x.shape[0]

    def to(self, device: torch.device | str) -> NodeTask:
        """The same task with its tensors on ``device``."""
        return replace(self, **_moved(self, device))


Task = LinkTask | NodeTask


def _moved(task: Task, device: torch.device | str) -> dict[str, Any]:
    return {key: value.to(device) for key, value in vars(task).items() if isinstance(value, Tensor)}
