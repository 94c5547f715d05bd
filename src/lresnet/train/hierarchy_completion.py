"""Hierarchy completion: rank the ancestors of a node above all other nodes."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lresnet.data import HierarchyTask
from lresnet.geometry.curvature import Curvature
from lresnet.metrics.ancestor_order import ScoreRows
from lresnet.metrics.hierarchy_completion import completion_metric, completion_metrics
from lresnet.metrics.hierarchy_ranking import (
    RankedAnswers,
    average_distortion,
    norm_depth_correlation,
    rank_answers,
)
from lresnet.models.graph_model import GraphModel
from lresnet.nn import (
    ordered_ranking_loss,
    pairwise_ancestor_energy,
    pairwise_entailment_energy,
    ranking_loss,
    split_candidates,
)
from lresnet.nn.hierarchy_energy import DEFAULT_ALPHA
from lresnet.train.config import Augment, TrainConfig
from lresnet.train.distributed import Processes
from lresnet.train.graph_inputs import GraphInputs
from lresnet.train.link_prediction import kappa_of_model
from lresnet.train.objective import Objective, given_options

__all__ = ["HierarchyCompletion", "HierarchyLoss", "ancestor_scores"]

HierarchyLoss = Literal["ranking", "cones"]

_BATCH = 256  # nodes whose ancestors are ranked in a step
_CANDIDATES = 4096  # a larger taxonomy is ranked among this many nodes, drawn at every step
_TEMPERATURE: dict[HierarchyLoss, float] = {"ranking": 0.1, "cones": 0.1}
_MOST_ORDERED = 128  # ancestors of a node whose order is learned; it takes the square of their number
_TIE, _TIE_PAIRS = 1e-6, 500  # weight and number of training pairs that break ties of the validation metric
_ROWS = 2**22  # scores that the validation computes at once
_SOURCES = 100  # nodes from which distances in the taxonomy are measured for the distortion


class HierarchyCompletion(Objective[GraphModel]):
    """Objective of hierarchy completion for a model whose output is the node embedding.

    In a step, the training ancestors of some nodes are ranked above all other nodes, and nearer ancestors above farther
    ones (:func:`lresnet.nn.ordered_ranking_loss`; entailment cones have no order among ancestors:
    :func:`lresnet.nn.ranking_loss`). The validation score is the task's metric, by default the filtered mean reciprocal
    rank times the share of ancestors in the right order (see :class:`lresnet.data.HierarchyTask`). A few validation
    pairs are soon ranked perfectly, so the reciprocal ranks of 500 training pairs, with a weight of 1e-6, break ties.

    Args:
        task: the taxonomy and its split.
        loss: what is ranked: ``"ranking"``, the distance with a preference for points nearer to the origin
            (:func:`lresnet.nn.ancestor_energy`), or ``"cones"``, how far a node lies outside the entailment cone of its
            ancestor (:func:`lresnet.nn.pairwise_entailment_energy`; not for the Euclidean baseline).
        batch_size: nodes whose ancestors are ranked in a step.
        candidates: a larger taxonomy is ranked among this many nodes, which are drawn at every step, and the ancestors
            of the batch.
        temperature: the energies are divided by it; None: 0.1.
        seed: seed of the batches and candidates.
        device: where the task is kept.
    """

    captures = False  # the last batch of an epoch is smaller

    def __init__(
        self,
        task: HierarchyTask,
        *,
        loss: HierarchyLoss = "ranking",
        batch_size: int = _BATCH,
        candidates: int = _CANDIDATES,
        temperature: float | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        if loss not in get_args(HierarchyLoss):
            raise ValueError(f"loss={loss} is not for a hierarchy; choose {' or '.join(get_args(HierarchyLoss))}")
        self.task, self.kind = task.to(device), loss
        self.inputs = GraphInputs(self.task.x, self.task.edge_index, self.task.num_nodes, self.task.edge_weight)
        self.batch_size, self.candidates = batch_size, candidates
        self.temperature = _TEMPERATURE[loss] if temperature is None else temperature
        self.generator = torch.Generator().manual_seed(seed)
        self.nodes, self.ancestors = _padded(self.task.train_pairs)
        self.levels = self._levels() if loss == "ranking" and self.ancestors.shape[1] <= _MOST_ORDERED else None
        every = -(-self.task.train_pairs.shape[1] // _TIE_PAIRS)
        self._tie_pairs = self.task.train_pairs[:, ::every]
        self._order = torch.arange(self.nodes.numel())
        self._batch = self._order[:0]

    @classmethod
    def from_config(
        cls, task: HierarchyTask, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> HierarchyCompletion:
        for name, value in given_options(config, "neighbours", "margin").items():
            raise ValueError(f"{name}={value!r} is not for a hierarchy, as {task.name} is one; leave it out")
        if config.augment != Augment() or processes.size > 1:
            raise ValueError(f"{task.name} is a hierarchy, which has no augmentation and trains in one process")
        return cls(task, seed=config.seed, device=device, **given_options(config, "batch_size", "loss"))

    def require_model(self, model: GraphModel) -> None:
        if self.kind == "cones" and model.euclidean:
            raise ValueError("the loss cones needs a hyperbolic space; use loss ranking for the Euclidean baseline")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.nodes.numel() // self.batch_size)

    @property
    def generators(self) -> list[torch.Generator]:
        return [self.generator]

    def start_epoch(self) -> None:
        self._order = torch.randperm(self.nodes.numel(), generator=self.generator)

    def advance(self, step: int) -> None:
        self._batch = self._order[step * self.batch_size : (step + 1) * self.batch_size].to(self.nodes.device)

    def loss(self, model: GraphModel) -> Tensor:
        z = self.inputs.apply(model)  # type: ignore[arg-type]
        nodes, ancestors = self.nodes[self._batch], self.ancestors[self._batch]
        if self.task.num_nodes > self.candidates:
            chosen, ancestors, own = self._drawn(nodes, ancestors)
            candidates = z[chosen]
        else:
            candidates, own = z, nodes.unsqueeze(1)
        scores = self.scores(model, z[nodes], candidates) / self.temperature
        positive, known, others = split_candidates(scores, ancestors, own)
        masks: dict[str, Any] = {"positive_mask": known, "negative_mask": others}
        if self.levels is None:
            return ranking_loss(positive, scores, **masks)
        return ordered_ranking_loss(positive, scores, levels=self.levels[self._batch], **masks)

    def scores(self, model: GraphModel, nodes: Tensor, candidates: Tensor, alpha: float = DEFAULT_ALPHA) -> Tensor:
        """Return the scores of candidates ``[M, n]`` as ancestors of nodes ``[B, n]``, ``[B, M]``; higher is better."""
        kappa = kappa_of_model(model, nodes)  # type: ignore[arg-type]
        return ancestor_scores(nodes, candidates, kappa, self.kind, alpha)

    def ranked(self, model: GraphModel, pairs: Tensor) -> RankedAnswers:
        """Rank the ancestors of pairs (node, ancestor), without the other true ancestors of each node."""
        z = self.inputs.apply(model)  # type: ignore[arg-type]
        rows = self._rows(z, model, self._alpha(z, model)[0])
        return rank_answers(rows, pairs, self.task.num_nodes, known=self.task.closure)

    def forward_training_data(self, model: GraphModel) -> None:
        self.inputs.apply(model)  # type: ignore[arg-type]  # the whole graph is one batch

    @torch.no_grad()
    def validation(self, model: GraphModel) -> Tensor:
        z = self.inputs.apply(model)  # type: ignore[arg-type]
        _, found = self._alpha(z, model)
        ties = rank_answers(self._rows(z, model), self._tie_pairs, self.task.num_nodes, known=self.task.closure)
        return found + _TIE * ties.mean_reciprocal_rank()

    @torch.no_grad()
    def test(self, model: GraphModel) -> dict[str, float]:
        z = self.inputs.apply(model)  # type: ignore[arg-type]
        rows = self._rows(z, model, self._alpha(z, model)[0])
        found = completion_metrics(self.task, rows, self.task.test_pairs)
        kappa = kappa_of_model(model, z)  # type: ignore[arg-type]
        return found | _geometry(z, None if kappa is None else float(kappa), self.task)

    @torch.no_grad()
    def new_term_alpha(self, model: GraphModel) -> float:
        """Return the preference for general nodes that ranks the parents of nodes that training has not seen.

        In the split ``"leaves"`` it is the one of ``new_term_alphas`` with the best validation metric, the first of
        equals; in ``"closure"`` the one of training. A node that training has not seen is placed with errors, and with
        the preference of training general nodes may come before its parent.
        """
        return self._alpha(self.inputs.apply(model), model)[0]  # type: ignore[arg-type]

    def _alpha(self, z: Tensor, model: GraphModel) -> tuple[float, Tensor]:
        """Return the preference for general nodes that ranks held-out pairs, and the validation metric with it."""
        is_chosen = self.task.split == "leaves" and self.kind == "ranking"
        found = {
            alpha: completion_metric(self.task, self._rows(z, model, alpha), self.task.val_pairs)
            for alpha in (self.task.new_term_alphas if is_chosen else (DEFAULT_ALPHA,))
        }
        return max(found.items(), key=lambda one: float(one[1]))

    def _rows(self, z: Tensor, model: GraphModel, alpha: float = DEFAULT_ALPHA) -> ScoreRows:
        def score(queries: Tensor) -> Tensor:
            rows = queries.split(max(1, _ROWS // self.task.num_nodes))
            return torch.cat([self.scores(model, z[some], z, alpha) for some in rows])

        return score

    def _levels(self) -> Tensor:
        """Return the steps up to the ancestors: 1 to a parent, otherwise the difference of the depths, at least 2."""
        n, ancestors = self.task.num_nodes, self.ancestors.clamp(min=0)
        steps = (self.task.depths[self.nodes].unsqueeze(1) - self.task.depths[ancestors]).clamp(min=2)
        edges = self.task.parents[0] * n + self.task.parents[1]
        return torch.where(torch.isin(self.nodes.unsqueeze(1) * n + ancestors, edges), 1, steps)

    def _drawn(self, nodes: Tensor, ancestors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the candidates of a step, and the places of ancestors and nodes among them (-1: absent)."""
        n, device = self.task.num_nodes, nodes.device
        drawn = torch.randint(n, (self.candidates,), generator=self.generator).to(device)
        chosen = torch.cat([drawn, ancestors[ancestors >= 0]]).unique()
        place = torch.full((n + 1,), -1, dtype=torch.int64, device=device)
        place[chosen] = torch.arange(chosen.numel(), device=device)
        return chosen, place[ancestors], place[nodes].unsqueeze(1)  # an ancestor -1 reads the last place, which is -1


def ancestor_scores(
    nodes: Tensor, candidates: Tensor, kappa: Curvature | None, loss: HierarchyLoss, alpha: float = DEFAULT_ALPHA
) -> Tensor:
    """Return how well candidates ``[M, n]`` are ancestors of nodes ``[B, n]``: minus an energy, ``[B, M]``.

    Args:
        kappa: -K > 0; None: Euclidean space.
        loss: what was trained, see :class:`HierarchyCompletion`.
        alpha: preference for general candidates, see :func:`lresnet.nn.ancestor_energy`; cones have none.
    """
    K = None if kappa is None else -kappa
    if loss == "cones":
        assert K is not None
        return -pairwise_entailment_energy(nodes, candidates, K=K)
    return -pairwise_ancestor_energy(nodes, candidates, K=K, alpha=alpha)


def _geometry(z: Tensor, kappa: float | None, task: HierarchyTask) -> dict[str, float]:
    """Return the distortion of distances in the taxonomy, and the rank correlation of norm and depth."""
    from scipy import sparse
    from scipy.sparse import csgraph

    from lresnet.geometry import pairwise_dist

    n = task.num_nodes
    sources = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:_SOURCES]
    child, parent = task.parents.cpu().numpy()
    graph = sparse.csr_array((torch.ones(child.size).numpy(), (child, parent)), shape=(n, n))
    hops = torch.from_numpy(csgraph.dijkstra(graph, directed=False, indices=sources.numpy(), unweighted=True))
    near = pairwise_dist(z[sources.to(z.device)], z, K=None if kappa is None else -kappa).cpu()
    connected = (hops > 0) & hops.isfinite()
    return {
        "distortion": float(average_distortion(near[connected], hops[connected])),
        "norm_depth_correlation": norm_depth_correlation(z.norm(dim=-1), task.depths),
    }


def _padded(pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the different nodes of pairs (node, ancestor), ``[q]``, and their ancestors ``[q, p]``, padded with -1."""
    order = pairs[0].argsort(stable=True)
    nodes, counts = pairs[0].unique(return_counts=True)
    row = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), counts)
    place = torch.arange(row.numel(), device=nodes.device) - (counts.cumsum(0) - counts)[row]
    ancestors = pairs.new_full((nodes.numel(), int(counts.max())), -1)
    ancestors[row, place] = pairs[1, order]
    return nodes, ancestors
