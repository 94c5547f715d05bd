"""Link prediction: separate held-out edges from unconnected pairs by their distance."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lresnet.data import LinkTask, NegativeSampler
from lresnet.geometry.curvature import Curvature
from lresnet.metrics import average_precision, link_metric, roc_auc
from lresnet.models import LorentzGCN
from lresnet.nn.fermi_dirac import FermiDirac
from lresnet.nn.pair_distance import lorentz_distance2, margin_loss
from lresnet.train.config import TrainConfig
from lresnet.train.distributed import Processes
from lresnet.train.graph_inputs import GraphInputs
from lresnet.train.objective import Objective, given_loss, sampling_options

__all__ = ["LinkPrediction", "kappa_of_model"]


class LinkPrediction(Objective[LorentzGCN]):
    """Objective of link prediction for a model whose output is the node embedding.

    The validation score is the task's metric; without one, the mean of ROC AUC and average precision.

    Args:
        task: the graph and its split.
        margin: margin of the margin loss in units of 1/kappa, the squared length scale of the space. The Euclidean
            baseline takes it as it is.
        loss: ``"margin"``, a hinge loss on squared Lorentzian distances, or ``"cross_entropy"`` of Fermi-Dirac
            probabilities.
        seed: seed of the training negatives, which are drawn anew at every step.
        device: where the task is kept.
    """

    def __init__(
        self,
        task: LinkTask,
        *,
        margin: float = 2.0,
        loss: Literal["margin", "cross_entropy"] = "margin",
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.task, self.margin, self.kind = task.to(device), margin, loss
        self.inputs = GraphInputs.of(self.task)
        self.sampler = NegativeSampler(self.task, seed=seed)

    @classmethod
    def from_config(
        cls, task: LinkTask, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> LinkPrediction:
        sampling = sampling_options(task, config, processes)
        if sampling is None:
            return LinkPrediction(task, seed=config.seed, device=device, **given_loss(task, config))
        from lresnet.train.sampled import SampledLinkPrediction

        return SampledLinkPrediction(task, device=device, **sampling, **given_loss(task, config))

    def loss(self, model: LorentzGCN) -> Tensor:
        positive = self.task.train_edges
        negative = self.sampler()
        return self.loss_of_pairs(model, self.inputs.apply(model), positive, negative)

    def loss_of_pairs(self, model: LorentzGCN, z: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the mean loss of edges and as many other pairs, ``[2, m]`` each, given the points of the nodes."""
        if self.kind == "cross_entropy":
            return self._cross_entropy(model, z, positive, negative)
        kappa = kappa_of_model(model, z)
        d2 = lorentz_distance2(z, torch.cat([positive, negative], dim=1), kappa)
        margin = self.margin if kappa is None else self.margin / kappa
        return margin_loss(d2[: positive.shape[1]], d2[positive.shape[1] :], margin)

    def forward_training_data(self, model: LorentzGCN) -> None:
        self.inputs.apply(model)  # the whole graph is one batch

    def validation(self, model: LorentzGCN) -> Tensor:
        scores, labels = self._scores(model, self.task.val_edges, self.task.val_negatives)
        if self.task.metric is not None:
            return link_metric(self.task.metric)(scores[labels], scores[~labels])
        return (roc_auc(scores, labels) + average_precision(scores, labels)) / 2

    @torch.no_grad()
    def test(self, model: LorentzGCN) -> dict[str, float]:
        scores, labels = self._scores(model, self.task.test_edges, self.task.test_negatives)
        names = dict.fromkeys([self.task.metric or "roc_auc", "roc_auc", "average_precision"])
        return {name: 100 * float(link_metric(name)(scores[labels], scores[~labels])) for name in names}

    @property
    def generators(self) -> list[torch.Generator]:
        return [self.sampler.generator]

    def _scores(self, model: LorentzGCN, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of edges and of pairs without an edge, and which are edges."""
        z = self.inputs.apply(model)
        scores = -lorentz_distance2(z, torch.cat([positive, negative], dim=1), kappa_of_model(model, z))
        return scores, torch.arange(scores.numel(), device=scores.device) < positive.shape[1]

    def _cross_entropy(self, model: LorentzGCN, z: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        decoder = FermiDirac(model.manifold)
        pairs = torch.cat([positive, negative], dim=1)
        if model.euclidean:
            logits = (decoder.radius - lorentz_distance2(z, pairs, None)) / decoder.temperature
        else:
            logits = decoder.logits(z[pairs[0]], z[pairs[1]])
        labels = (torch.arange(logits.numel(), device=logits.device) < positive.shape[1]).to(logits.dtype)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


def kappa_of_model(model: LorentzGCN, z: Tensor) -> Curvature | None:
    """Return kappa = -K in the dtype of ``z``; None for the Euclidean baseline."""
    if model.euclidean:
        return None
    K = model.manifold.curvature
    return -K.to(z.dtype) if isinstance(K, Tensor) else -K
