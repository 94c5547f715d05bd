"""Node classification: predict the classes of some nodes from those of others."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lresnet.data import NodeTask
from lresnet.metrics import node_metric
from lresnet.models import LorentzGCN
from lresnet.train.config import TrainConfig
from lresnet.train.distributed import Processes
from lresnet.train.graph_inputs import GraphInputs
from lresnet.train.objective import Objective, given_loss, sampling_options

__all__ = ["NodeClassification", "class_hinges", "class_margin", "class_margin_loss"]


def class_margin_loss(logits: Tensor, y: Tensor, margin: float | Tensor) -> Tensor:
    """Return the mean of ``relu(margin - logit of the true class + logit)`` over nodes and all classes (HyboNet)."""
    return class_hinges(logits, y, margin).mean()


def class_hinges(logits: Tensor, y: Tensor, margin: float | Tensor) -> Tensor:
    """Return the terms whose mean is :func:`class_margin_loss`: logits [..., C] and classes [...] -> [..., C]."""
    true = logits.gather(-1, y.unsqueeze(-1))
    return torch.relu(margin - true + logits)


def class_margin(model: LorentzGCN, margin: float, logits: Tensor) -> float | Tensor:
    """Return the margin in the unit of the logits, a squared length: ``margin`` / kappa, or unscaled if Euclidean."""
    K = model.manifold.curvature
    if model.euclidean:
        return margin
    return margin / -K.to(logits.dtype) if isinstance(K, Tensor) else margin / -K


class NodeClassification(Objective[LorentzGCN]):
    """Objective of node classification for a model whose output is logits.

    Args:
        task: the graph, its labels and the three index sets.
        loss: ``"cross_entropy"`` or ``"margin"``.
        margin: margin of the margin loss, in units of 1/kappa. The Euclidean baseline takes it as it is.
        device: where the task is kept.
    """

    def __init__(
        self,
        task: NodeTask,
        *,
        loss: Literal["margin", "cross_entropy"] = "cross_entropy",
        margin: float = 1.0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.task, self.kind, self.margin = task.to(device), loss, margin
        self.inputs = GraphInputs.of(self.task)

    @classmethod
    def from_config(
        cls, task: NodeTask, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> NodeClassification:
        sampling = sampling_options(task, config, processes)
        if sampling is None:
            return NodeClassification(task, device=device, **given_loss(task, config))
        from lresnet.train.sampled import SampledNodeClassification

        return SampledNodeClassification(task, device=device, **sampling, **given_loss(task, config))

    def loss(self, model: LorentzGCN) -> Tensor:
        return self.loss_of_nodes(model, *self._select(model, self.task.train_index))

    def loss_of_nodes(self, model: LorentzGCN, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of nodes, given their logits ``[m, C]`` and classes ``[m]``."""
        if self.kind == "cross_entropy":
            return torch.nn.functional.cross_entropy(logits, y)
        return class_margin_loss(logits, y, class_margin(model, self.margin, logits))

    def forward_training_data(self, model: LorentzGCN) -> None:
        self.inputs.apply(model)  # the whole graph is one batch

    def validation(self, model: LorentzGCN) -> Tensor:
        return self.metric(*self._select(model, self.task.val_index))

    def validation_with_loss(self, model: LorentzGCN) -> tuple[Tensor, Tensor]:
        logits, y = self._select(model, self.task.val_index)
        return self.metric(logits, y), self.loss_of_nodes(model, logits, y)

    @torch.no_grad()
    def test(self, model: LorentzGCN) -> dict[str, float]:
        logits, y = self._select(model, self.task.test_index)
        names = dict.fromkeys([self.task.metric, "accuracy"])
        return {name: 100 * float(node_metric(name)(logits, y)) for name in names}

    def _select(self, model: LorentzGCN, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs.apply(model).index_select(0, index), self.task.y.index_select(0, index)

    def metric(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the task's metric, between 0 and 1."""
        return node_metric(self.task.metric)(logits, y)
