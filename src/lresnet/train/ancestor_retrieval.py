"""k-hop ancestor retrieval: classify nodes by the random code of their ancestor, with new codes at every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.data import AncestorTask
from lresnet.models.graph_model import GraphModel
from lresnet.train.config import Augment, TrainConfig
from lresnet.train.distributed import Processes
from lresnet.train.objective import Objective

__all__ = ["AncestorForest", "AncestorRetrieval"]


class AncestorForest:
    """The trees of one part of a task, several copies of them, as one graph.

    Args:
        task: the task.
        index: query nodes of the part ``[b]``; the other trees are left out.
        copies: number of copies, one for each draw of codes.
    """

    def __init__(self, task: AncestorTask, index: Tensor, copies: int = 1) -> None:
        inside = torch.zeros(task.anchors.numel(), dtype=torch.bool, device=index.device)
        inside[task.anchor[index]] = True
        chosen, edges = inside[task.anchor], task.edge_index[:, inside[task.anchor[task.edge_index[0]]]]
        number, nodes = chosen.cumsum(0) - 1, int(chosen.sum())
        copy = torch.arange(copies, device=index.device)
        self.codes, self.num_nodes = task.num_codes, copies * nodes
        self.trees = inside.nonzero().squeeze(1)
        """Numbers of the anchors among those of the task."""
        tree = inside.cumsum(0) - 1
        self._anchors = (number[task.anchors[self.trees]] + nodes * copy.unsqueeze(1)).flatten()
        self._edges = (number[edges].unsqueeze(1) + nodes * copy.view(-1, 1)).flatten(1)
        self._queries = (number[index] + nodes * copy.unsqueeze(1)).flatten()
        self._tree_of_query = (tree[task.anchor[index]] + self.trees.numel() * copy.unsqueeze(1)).flatten()
        self._values = torch.arange(task.num_codes, device=index.device)
        counts = torch.bincount(self._tree_of_query)
        self.weight = 1 / (counts[self._tree_of_query] * counts.numel()).double()
        """Weight of each query ``[copies b]``; they sum to 1, and every tree has the same share."""
        self._graph: Any = None
        self._graph_of: Any = None

    def logits(self, model: Any, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the query nodes and their answers.

        Args:
            model: a graph network with as many layers as hops.
            codes: codes of the anchors ``[copies a]``, or ``[copies a, S]`` for a stack of S models.

        Returns:
            ``[copies b, C]`` and ``[copies b]``, for a stack ``[copies b, S, C]`` and ``[copies b, S]``.
        """
        if self._graph_of != (key := (model.self_loops, model.euclidean)):
            self._graph, self._graph_of = model.graph(self._edges, self.num_nodes), key
        dtype = next((parameter.dtype for parameter in model.parameters()), torch.float32)
        one_hot = (codes.unsqueeze(-1) == self._values).to(dtype)
        x = one_hot.new_zeros(self.num_nodes, *one_hot.shape[1:]).index_copy(0, self._anchors, one_hot)
        output: Tensor = model(model.input_points(x), self._graph)
        return output.index_select(0, self._queries), codes.index_select(0, self._tree_of_query)


class AncestorRetrieval(Objective[GraphModel]):
    """Objective of ancestor retrieval: cross entropy of the codes, and accuracy over fixed draws for evaluation.

    Both are means over trees of the mean over the query nodes of a tree.

    Args:
        task: the forest, its anchors and query nodes.
        seed: seed of the codes of the training steps.
        device: where the task is kept.
    """

    def __init__(self, task: AncestorTask, *, seed: int = 0, device: torch.device | str = "cpu") -> None:
        self.task = task.to(device)
        self._generator = torch.Generator(device).manual_seed(seed)
        self.train_forest = AncestorForest(self.task, self.task.train_index)
        draws = self.task.val_codes.shape[0]
        self.val_forest = AncestorForest(self.task, self.task.val_index, draws)
        self._test_forest = AncestorForest(self.task, self.task.test_index, draws)

    @classmethod
    def from_config(
        cls, task: AncestorTask, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> AncestorRetrieval:
        wrong: dict[str, Any] = {name: getattr(config, name) for name in ("batch_size", "neighbours", "margin")}
        wrong["loss"] = None if config.loss == "cross_entropy" else config.loss
        wrong["augment"] = None if config.augment == Augment() else config.augment
        for name, value in wrong.items():
            if value is not None:
                raise ValueError(f"{task.name} is trained on cross entropy as one batch; leave out {name}={value!r}")
        if processes.size > 1:
            raise ValueError(f"{task.name} cannot be shared among {processes.size} processes")
        return cls(task, seed=config.seed, device=device)

    @property
    def generators(self) -> list[torch.Generator]:
        return [self._generator]

    def draw(self) -> Tensor:
        """Return new codes of the training anchors ``[a]``: a random order, in which every code is equally frequent.

        If their number is no multiple of the number of codes, some codes, which differ from step to step, occur once
        more. Unbalanced codes would train the biases on noise, many hops before the messages are strong enough.
        """
        count, generator = self.train_forest.trees.numel(), self._generator
        numbers = torch.rand(count + 1, generator=generator, device=generator.device)
        shift = (numbers[-1] * self.task.num_codes).long()
        return (numbers[:-1].argsort() + shift) % self.task.num_codes

    def loss(self, model: GraphModel) -> Tensor:
        logits, answers = self.train_forest.logits(model, self.draw())
        losses = torch.nn.functional.cross_entropy(logits, answers, reduction="none")
        return self.train_forest.weight.to(losses.dtype) @ losses

    def forward_training_data(self, model: GraphModel) -> None:
        self.train_forest.logits(model, self.task.val_codes[0, self.train_forest.trees])

    def validation(self, model: GraphModel) -> Tensor:
        return self._accuracy(model, self.val_forest, self.task.val_codes)

    @torch.no_grad()
    def test(self, model: GraphModel) -> dict[str, float]:
        return {"accuracy": 100 * float(self._accuracy(model, self._test_forest, self.task.test_codes))}

    def _accuracy(self, model: GraphModel, forest: AncestorForest, codes: Tensor) -> Tensor:
        logits, answers = forest.logits(model, codes[:, forest.trees].flatten())
        return forest.weight @ (logits.argmax(-1) == answers).to(forest.weight.dtype)
