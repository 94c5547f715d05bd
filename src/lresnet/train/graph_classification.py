"""Classification of whole graphs, all at once or in batches of graphs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lresnet.data import GraphLevelTask
from lresnet.metrics import node_metric
from lresnet.train.config import TrainConfig
from lresnet.train.distributed import Processes
from lresnet.train.graph_inputs import in_precision_of
from lresnet.train.node_classification import class_margin, class_margin_loss
from lresnet.train.objective import Objective, given_loss, given_options

__all__ = ["GraphBatch", "GraphClassification", "graph_logits", "graphs_of"]

# Graphs are one batch up to this number of nodes; a batch of more graphs would take more memory than it saves time.
_NODES_IN_ONE_BATCH = 50_000
_GRAPHS_PER_BATCH = 128


class GraphBatch:
    """Some graphs of a task as one graph of unconnected parts.

    Args:
        x: features of their nodes ``[n, f]``.
        edge_index: their edges ``[2, m]``, renumbered.
        edge_weight: weights ``[m]`` or None.
        batch: number of each node's graph, from 0, ``[n]``.
    """

    def __init__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, batch: Tensor) -> None:
        self.x, self.edge_index, self.edge_weight, self.batch = x, edge_index, edge_weight, batch

    def logits(self, model: Any) -> Tensor:
        """Return the logits of the graphs ``[graphs, classes]``."""
        weight = None if self.edge_weight is None else in_precision_of(model, self.edge_weight, at_least=torch.float32)
        logits: Tensor = model(in_precision_of(model, self.x), self.edge_index, weight, batch=self.batch)
        return logits


def graphs_of(task: GraphLevelTask, index: Tensor) -> GraphBatch:
    """Return the graphs with the numbers ``index`` ``[g]``, in increasing order of their numbers.

    Example:
        >>> from lresnet.data import graph_task
        >>> path = torch.tensor([[0, 1], [1, 2]])
        >>> task = graph_task([(path, 3), (path, 4)] * 20, [0, 1] * 20)
        >>> graphs_of(task, torch.tensor([1, 3])).batch
        tensor([0, 0, 0, 0, 1, 1, 1, 1])
    """
    chosen = torch.zeros(task.num_graphs, dtype=torch.bool, device=task.y.device)
    chosen[index] = True
    nodes = chosen[task.batch]
    number, place = chosen.cumsum(0) - 1, nodes.cumsum(0) - 1
    edges = nodes[task.edge_index[0]]
    weight = None if task.edge_weight is None else task.edge_weight[edges]
    return GraphBatch(task.x[nodes], place[task.edge_index[:, edges]], weight, number[task.batch[nodes]])


def graph_logits(model: Any, task: GraphLevelTask, index: Tensor | None = None) -> Tensor:
    """Return the logits of graphs, computed in batches of 128, in increasing order of their numbers.

    Args:
        model: a model that takes ``batch``.
        task: the graphs.
        index: numbers of graphs ``[g]``; None: all graphs.

    Returns:
        ``[g, classes]``.
    """
    ordered = torch.arange(task.num_graphs, device=task.y.device) if index is None else index.sort().values
    return torch.cat([graphs_of(task, part).logits(model) for part in ordered.split(_GRAPHS_PER_BATCH)])


class GraphClassification(Objective[Any]):
    """Objective of graph classification for a model whose output is the logits of each graph.

    Args:
        task: the graphs, their labels and the three index sets.
        loss: ``"cross_entropy"`` or ``"margin"``.
        margin: margin of the margin loss, in units of 1/kappa. The Euclidean baseline takes it as it is.
        batch_size: graphs per step; None: all training graphs if all graphs have at most 50,000 nodes, otherwise 128.
        seed: seed of the order of the graphs.
        device: where the task is kept.
    """

    captures: ClassVar[bool] = False  # batches differ in their numbers of nodes

    def __init__(
        self,
        task: GraphLevelTask,
        *,
        loss: Literal["margin", "cross_entropy"] = "cross_entropy",
        margin: float = 1.0,
        batch_size: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.task, self.kind, self.margin = task.to(device), loss, margin
        graphs = task.train_index.numel()
        default = graphs if task.num_nodes <= _NODES_IN_ONE_BATCH else _GRAPHS_PER_BATCH
        self.batch_size = min(graphs, batch_size or default)
        self._generator = torch.Generator().manual_seed(seed)
        self._order = task.train_index
        self._current: tuple[GraphBatch, Tensor] | None = None

    @classmethod
    def from_config(
        cls, task: GraphLevelTask, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> GraphClassification:
        loss = given_loss(task, config)
        if config.neighbours is not None or processes.size > 1:
            raise ValueError(f"{task.name} classifies whole graphs, which are not sampled or shared among processes")
        return cls(task, seed=config.seed, device=device, **given_options(config, "batch_size"), **loss)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.task.train_index.numel() // self.batch_size)

    @property
    def generators(self) -> list[torch.Generator]:
        return [self._generator]

    def start_epoch(self) -> None:
        if self.steps_per_epoch > 1:
            index = self.task.train_index
            self._order = index[torch.randperm(index.numel(), generator=self._generator).to(index.device)]

    def advance(self, step: int) -> None:
        if self._current is None or self.steps_per_epoch > 1:  # a single batch stays
            index = self._order[step * self.batch_size : (step + 1) * self.batch_size].sort().values
            self._current = graphs_of(self.task, index), self.task.y[index]

    def loss(self, model: Any) -> Tensor:
        assert self._current is not None, "advance puts the batch in place"
        graphs, y = self._current
        return self._loss_of_graphs(model, graphs.logits(model), y)

    def _loss_of_graphs(self, model: Any, logits: Tensor, y: Tensor) -> Tensor:
        if self.kind == "cross_entropy":
            return torch.nn.functional.cross_entropy(logits, y)
        return class_margin_loss(logits, y, class_margin(model, self.margin, logits))

    def forward_training_data(self, model: Any) -> None:
        """Run the model on all training graphs, in batches of about the size of those in training."""
        index = self.task.train_index
        order = torch.randperm(index.numel(), generator=torch.Generator().manual_seed(0)).to(index.device)
        for part in index[order].tensor_split(self.steps_per_epoch):
            graphs_of(self.task, part).logits(model)

    def validation(self, model: Any) -> Tensor:
        return node_metric(self.task.metric)(*self._evaluate(model, self.task.val_index))

    def validation_with_loss(self, model: Any) -> tuple[Tensor, Tensor]:
        logits, y = self._evaluate(model, self.task.val_index)
        return node_metric(self.task.metric)(logits, y), self._loss_of_graphs(model, logits, y)

    @torch.no_grad()
    def test(self, model: Any) -> dict[str, float]:
        logits, y = self._evaluate(model, self.task.test_index)
        names = dict.fromkeys([self.task.metric, "accuracy"])
        return {name: 100 * float(node_metric(name)(logits, y)) for name in names}

    def _evaluate(self, model: Any, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and labels of some graphs, in the order of their numbers."""
        return graph_logits(model, self.task, index), self.task.y[index.sort().values]
