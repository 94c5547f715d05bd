"""Node classification: classes of some nodes are given, those of others asked for."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lresnet.data import NodeTask
from lresnet.metrics import accuracy, f1
from lresnet.models import LorentzGCN
from lresnet.train.graph_inputs import GraphInputs
from lresnet.train.objective import Objective

__all__ = ["NodeClassification", "class_margin_loss"]


def class_margin_loss(logits: Tensor, y: Tensor, margin: float | Tensor) -> Tensor:
    """Mean over nodes and all classes of ``relu(margin - logit of the true class + logit)`` (HyboNet)."""
    true = logits.gather(-1, y.unsqueeze(-1))
    return torch.relu(margin - true + logits).mean()


class NodeClassification(Objective[LorentzGCN]):
    """Objective of node classification for a model whose output are logits.

    Args:
        task: graph, labels and the three index sets.
        loss: ``"cross_entropy"`` or ``"margin"``.
        margin: of the margin loss, in units of 1/kappa (1 for the Euclidean twin).
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
        self.inputs = GraphInputs(self.task.x, self.task.edge_index, self.task.x.shape[0])

    def loss(self, model: LorentzGCN) -> Tensor:
        logits, y = self._select(model, self.task.train_index)
        if self.kind == "cross_entropy":
            return torch.nn.functional.cross_entropy(logits, y)
        unit = 1.0 if model.euclidean else 1 / model.manifold.kappa.to(logits)
        return class_margin_loss(logits, y, self.margin * unit)

    def validation(self, model: LorentzGCN) -> Tensor:
        return self._figure(*self._select(model, self.task.val_index))

    @torch.no_grad()
    def test(self, model: LorentzGCN) -> dict[str, float]:
        logits, y = self._select(model, self.task.test_index)
        return {self.task.metric: 100 * float(self._figure(logits, y)), "accuracy": 100 * float(accuracy(logits, y))}

    def _select(self, model: LorentzGCN, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs.apply(model).index_select(0, index), self.task.y.index_select(0, index)

    def _figure(self, logits: Tensor, y: Tensor) -> Tensor:
        return f1(logits, y, average="binary") if self.task.metric == "f1_binary" else accuracy(logits, y)
