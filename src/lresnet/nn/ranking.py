r"""Ranking losses of hierarchies: the ancestors of a node should score higher than other nodes, near ones highest.

Scores may be of any kind, higher is better: minus a distance, or minus an energy of
:mod:`lresnet.nn.hierarchy_energy`. Let :math:`p_1, \dots, p_P` be the scores of the positives of one node (its
ancestors) and :math:`O_j` the scores that positive j should exceed. Both losses are means over the positives of

.. math:: \ell_j = -\log \frac{\exp p_j}{\exp p_j + \sum_{s \in O_j} \exp(s + m)}
    = \operatorname{softplus}\Big(m + \operatorname{logsumexp}_{s \in O_j} s - p_j\Big)

with a margin m. They differ in :math:`O_j`:

- :func:`ranking_loss`: the negatives. With m = 0 this is the loss of Nickel and Kiela.
- :func:`ordered_ranking_loss`: the negatives, and the positives that are farther from the node than positive j. With
  m = 0 it is minus the log-probability of the true order under the model of Plackett and Luce.

The softplus of the difference is used, not the difference of two logarithms: a loss of 1e-10 keeps its digits.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule, pairwise_dist
from lresnet.geometry.checks import checks_values, require_nonnegative
from lresnet.nn.entailment import DEFAULT_MIN_RADIUS
from lresnet.nn.hierarchy_energy import DEFAULT_ALPHA, pairwise_ancestor_energy, pairwise_entailment_energy

__all__ = ["HierarchyRankingLoss", "ordered_ranking_loss", "ranking_loss", "split_candidates"]


def ranking_loss(
    positive: Tensor,
    negative: Tensor,
    *,
    positive_mask: Tensor | None = None,
    negative_mask: Tensor | None = None,
    weight: Tensor | None = None,
    margin: float = 0.0,
) -> Tensor:
    r"""Return the softmax ranking loss of positives against negatives.

    The loss of Nickel and Kiela (NeurIPS 2017, `arXiv 1705.08039 <https://arxiv.org/abs/1705.08039>`_) for scores
    :math:`-d(u, v)`:

    .. math:: L = -\operatorname{mean}_j \log \frac{\exp p_j}{\exp p_j + \sum_i \exp (n_i + m)}

    A positive competes with the negatives only, not with other positives. Divide the scores by a temperature to weight
    hard negatives more.

    Args:
        positive: Scores of P positives of each node, higher is better.
        negative: Scores of M negatives of each node, sampled or all others; :func:`split_candidates` makes both from
            the scores of all candidates. Nodes may share their negatives: the leading axes broadcast.
        positive_mask: False for padding; None: all P are positives. Masked scores may be anything, with gradient 0.
        negative_mask: False for candidates that are no negatives. A positive without negatives has loss 0.
        weight: Weights of the positives, 0 or more, for a weighted mean. None: all 1.
        margin: :math:`m \ge 0`, by which the score of a positive should exceed others.

    Shapes:
        positive [..., P], negative [..., M], masks and weight broadcast to them -> [], 0 if there are no positives

    Example:
        >>> ranking_loss(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, -1.0, -1.0]]))
        tensor(0.3524)
    """
    return _loss(positive, negative, None, positive_mask, negative_mask, weight, margin)


def ordered_ranking_loss(
    positive: Tensor,
    negative: Tensor,
    *,
    levels: Tensor | None = None,
    positive_mask: Tensor | None = None,
    negative_mask: Tensor | None = None,
    weight: Tensor | None = None,
    margin: float = 0.0,
) -> Tensor:
    r"""Return the listwise ranking loss: nearer positives above farther ones, and all positives above the negatives.

    .. math:: L = -\operatorname{mean}_j \log \frac{\exp p_j}
        {\exp p_j + \sum_{k: l_k > l_j} \exp (p_k + m) + \sum_i \exp (n_i + m)}

    With levels 1, 2, 3, ... this is ListMLE (Xia et al., ICML 2008) on the ancestors of a node, the likelihood of their
    order in the model of Plackett and Luce. Positives of one level, such as the parents of a node with several parents,
    do not compete. With equal levels everywhere it is :func:`ranking_loss`.

    Args:
        positive: Scores of P positives of each node, higher is better.
        negative: Scores of M negatives of each node; the leading axes broadcast.
        levels: Steps from the node to each positive, in any order. None: the positives are sorted, the nearest first,
            and no two are equally near.
        positive_mask: False for padding; None: all P are positives. Masked scores may be anything, with gradient 0.
        negative_mask: False for candidates that are no negatives.
        weight: Weights of the positives, 0 or more, for a weighted mean; e.g. ``0.5 ** levels`` for the near ones to
            matter more. None: all 1.
        margin: :math:`m \ge 0`, by which the score of a positive should exceed others.

    Shapes:
        positive [..., P], negative [..., M], levels, masks and weight broadcast to them -> [], 0 if there are no
        positives. Memory: [..., P, P] for the positives.

    Example:
        >>> negative = torch.tensor([[0.0]])
        >>> ordered_ranking_loss(torch.tensor([[2.0, 1.0]]), negative)  # the parent above the grandparent
        tensor(0.3604)
        >>> ordered_ranking_loss(torch.tensor([[1.0, 2.0]]), negative)
        tensor(0.7673)
    """
    if levels is None:
        levels = torch.arange(positive.shape[-1], device=positive.device)
    return _loss(positive, negative, levels, positive_mask, negative_mask, weight, margin)


def _loss(
    positive: Tensor,
    negative: Tensor,
    levels: Tensor | None,
    positive_mask: Tensor | None,
    negative_mask: Tensor | None,
    weight: Tensor | None,
    margin: float,
) -> Tensor:
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be 0 or more and finite, got {margin}")
    dtype = torch.promote_types(torch.promote_types(positive.dtype, negative.dtype), torch.float32)
    positive, known = _masked(positive.to(dtype), positive_mask, "positive")
    negative, others = _masked(negative.to(dtype), negative_mask, "negative")
    rivals = _logsumexp(negative, others).unsqueeze(-1)
    if levels is not None:
        levels = levels.expand(positive.shape)
        farther = (levels.unsqueeze(-2) > levels.unsqueeze(-1)) & known.unsqueeze(-2)
        ahead = _logsumexp(positive.unsqueeze(-2).expand(farther.shape), farther)
        both = torch.stack(torch.broadcast_tensors(rivals, ahead), -1)
        rivals = _logsumexp(both, both > -torch.inf)
    each = -torch.nn.functional.logsigmoid(positive - rivals - margin)
    weights = known.to(dtype)
    if weight is not None:
        require_nonnegative(weight, "weight")
        weights = weights * weight.to(dtype)
    each, weights = torch.broadcast_tensors(each, weights)
    total = weights.sum()
    # A masked positive has weight 0, and the loss of a finite stand-in.
    mean: Tensor = (each * weights).sum() / torch.where(total > 0, total, 1.0)
    return mean


def _masked(scores: Tensor, mask: Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    """Return the scores with 0 in masked places, and the mask in their shape."""
    if mask is None:
        return scores, torch.ones_like(scores, dtype=torch.bool)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name}_mask must be a boolean tensor, got {mask.dtype}; e.g. {name}_mask != 0")
    scores, mask = torch.broadcast_tensors(scores, mask)
    return scores.masked_fill(~mask, 0.0), mask


def _logsumexp(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the log of the sum of exponentials over the last axis; minus infinity, with gradient 0, of no scores."""
    if scores.shape[-1] == 0:
        return scores.new_full(scores.shape[:-1], -torch.inf)
    none = ~mask.any(-1, keepdim=True)
    total = scores.masked_fill(~mask & ~none, -torch.inf).masked_fill(none, 0.0).logsumexp(-1)
    return total.masked_fill(none.squeeze(-1), -torch.inf)


def split_candidates(scores: Tensor, positives: Tensor, exclude: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores of the positives, their mask, and the mask of the negatives, given scores of all candidates.

    Args:
        scores: Scores of M candidates for each node.
        positives: Indices of each node's positives among the candidates, padded with -1.
        exclude: Indices of candidates that are neither positives nor negatives, padded with -1; e.g. the node itself.

    Shapes:
        scores [..., M], positives [..., P], exclude [..., E] -> [..., P], [..., P], [..., M]

    Example:
        >>> scores = -torch.arange(4.0).expand(2, 4)
        >>> positive, mask, others = split_candidates(scores, torch.tensor([[1, 2], [3, -1]]))
        >>> positive[mask], others.sum(-1)
        (tensor([-1., -2., -3.]), tensor([2, 3]))
        >>> ranking_loss(positive, scores, positive_mask=mask, negative_mask=others) > 0
        tensor(True)
    """
    M = scores.shape[-1]
    for name, index in (("positives", positives), ("exclude", exclude)):
        if (
            index is not None
            and checks_values(index)
            and index.numel()
            and not -1 <= int(index.min()) <= int(index.max()) < M
        ):
            wrong = index[(index < -1) | (index >= M)]
            raise ValueError(f"{name} must be from 0 to {M - 1}, or -1 for padding, got {int(wrong[0])}")
    mask = positives >= 0
    positive = scores.gather(-1, positives.clamp(min=0).expand(*scores.shape[:-1], -1))
    # Padding is written to a column of its own, which is dropped.
    others = torch.ones(*scores.shape[:-1], M + 1, dtype=torch.bool, device=scores.device)
    for index in (positives, exclude):
        if index is not None:
            index = torch.where(index < 0, M, index).expand(*scores.shape[:-1], -1)
            others = others.scatter(-1, index, False)
    return positive, mask.expand(positive.shape), others[..., :M]


Score = Literal["distance", "ancestor", "cone"]


class HierarchyRankingLoss(ManifoldModule):
    r"""Ranking loss of points: a node's ancestors against other nodes, by a score of the manifold.

    The score of a candidate v for the node u is minus an energy, divided by the temperature:

    - ``"distance"``: the distance d(u, v), as Nickel and Kiela train.
    - ``"ancestor"``: :func:`lresnet.nn.ancestor_energy`, the distance with a preference for points near the origin.
    - ``"cone"``: how far u lies outside the entailment cone of v, an angle
      (:func:`lresnet.nn.pairwise_entailment_energy`). It hardly orders the ancestors of a node: use it with
      ``ordered=False``.

    No tensor of differences [B, M, n] is formed for shared negatives.

    Args:
        manifold: Owner of the curvature. It is not registered as a submodule.
        score: The energy.
        ordered: Whether nearer ancestors should rank above farther ones (:func:`ordered_ranking_loss`); otherwise
            :func:`ranking_loss`.
        temperature: The energies are divided by it. Angles are at most :math:`\pi`: with ``"cone"`` use 0.1 or less.
        margin: See :func:`ranking_loss`.
        alpha: For ``"ancestor"``, see :func:`lresnet.nn.ancestor_energy`.
        min_radius: For ``"cone"``, see :func:`lresnet.nn.cone_aperture`.

    Shapes:
        nodes [B, n], ancestors [B, P, n], others [M, n] (shared) or [B, M, n]; levels [B, P] or [P], masks [B, P] and
        [B, M] or [M] -> []

    Example:
        >>> loss = HierarchyRankingLoss(Lorentz(-1.0))
        >>> nodes, ancestors, others = torch.randn(4, 3), torch.randn(4, 2, 3), torch.randn(10, 3)
        >>> loss(nodes, ancestors, others).shape
        torch.Size([])
    """

    def __init__(
        self,
        manifold: Lorentz,
        score: Score = "distance",
        *,
        ordered: bool = True,
        temperature: float = 1.0,
        margin: float = 0.0,
        alpha: float = DEFAULT_ALPHA,
        min_radius: float = DEFAULT_MIN_RADIUS,
    ) -> None:
        super().__init__(manifold)
        if score not in get_args(Score):
            raise ValueError(f"score must be one of {', '.join(map(repr, get_args(Score)))}, got {score!r}")
        for name, value in (("temperature", temperature), ("min_radius", min_radius)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        for name, value in (("margin", margin), ("alpha", alpha)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be 0 or more and finite, got {value}")
        self.score: Score = score
        self.ordered = ordered
        self.temperature, self.margin = float(temperature), float(margin)
        self.alpha, self.min_radius = float(alpha), float(min_radius)

    def scores(self, nodes: Tensor, candidates: Tensor) -> Tensor:
        """Return the scores of all candidates for all nodes, higher is better.

        Shapes:
            nodes [..., N, n], candidates [..., M, n] -> [..., N, M]

        Example:
            >>> HierarchyRankingLoss(Lorentz()).scores(torch.zeros(2, 3), torch.ones(5, 3)).shape
            torch.Size([2, 5])
        """
        K = self.manifold.curvature
        if self.score == "distance":
            energy = pairwise_dist(nodes, candidates, K=K)
        elif self.score == "ancestor":
            energy = pairwise_ancestor_energy(nodes, candidates, K=K, alpha=self.alpha)
        else:
            energy = pairwise_entailment_energy(nodes, candidates, K=K, min_radius=self.min_radius)
        return energy / -self.temperature

    def forward(
        self,
        nodes: Tensor,
        ancestors: Tensor,
        others: Tensor,
        *,
        levels: Tensor | None = None,
        ancestor_mask: Tensor | None = None,
        other_mask: Tensor | None = None,
    ) -> Tensor:
        if nodes.dim() != 2 or ancestors.dim() != 3 or others.dim() not in (2, 3):
            raise ValueError(
                f"nodes {tuple(nodes.shape)}, ancestors {tuple(ancestors.shape)} and others {tuple(others.shape)} must "
                "be [B, n], [B, P, n] and [M, n] or [B, M, n]"
            )
        own = nodes.unsqueeze(1)
        positive = self.scores(own, ancestors).squeeze(1)
        negative = self.scores(nodes, others) if others.dim() == 2 else self.scores(own, others).squeeze(1)
        masks = {"positive_mask": ancestor_mask, "negative_mask": other_mask}
        if self.ordered:
            return ordered_ranking_loss(positive, negative, levels=levels, margin=self.margin, **masks)
        return ranking_loss(positive, negative, margin=self.margin, **masks)

    def extra_repr(self) -> str:
        return f"score={self.score!r}, ordered={self.ordered}, {super().extra_repr()}"
