"""Metrics of a scored hierarchy: filtered rankings of all candidates, and rankings among sampled hard negatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from lresnet.metrics import rank_answers
from lresnet_paper.completion.data import NEGATIVE_KINDS, Queries, Side

__all__ = ["Scorer", "completion_metrics", "mean_reciprocal_rank"]

_QUERIES_AT_ONCE = 2**23  # scores in memory


class Scorer(Protocol):
    """Anything that scores all candidates of a query; higher is more likely true."""

    def __call__(self, queries: Tensor, side: Side) -> Tensor:
        """Return the scores ``[b, n]`` of all nodes as the ``side`` end of a pair whose other end is the query."""
        ...


def mean_reciprocal_rank(scorer: Scorer, parts: Sequence[Queries], num_nodes: int) -> float:
    """Return the filtered mean reciprocal rank in percent, over the pairs of all parts together: what selects."""
    ranks = torch.cat([_ranks(scorer, one, num_nodes) for one in parts])
    return 100 * float((1 / ranks).mean())


def completion_metrics(scorer: Scorer, parts: Sequence[Queries], num_nodes: int) -> dict[str, float]:
    """Return all metrics: filtered ones of the full ranking, and those of the sampled rankings.

    ``mrr``, ``hits@1`` and ``hits@10`` are in percent and over the pairs of all parts together; ``mrr_ancestor`` and
    ``mrr_node`` are those of one ranked end, if both are ranked. ``mrr_<kind>`` and ``auc_<kind>`` rank the true
    candidate among 100 sampled ones; pairs for which fewer than 100 could be drawn are left out. A tie has the mean
    rank.
    """
    ranks = {one.side: _ranks(scorer, one, num_nodes) for one in parts}
    together = torch.cat(list(ranks.values()))
    found = {
        "mrr": 100 * float((1 / together).mean()),
        "hits@1": 100 * float((together <= 1).double().mean()),
        "hits@10": 100 * float((together <= 10).double().mean()),
        "mean_rank": float(together.mean()),
    }
    if len(ranks) > 1:
        found |= {f"mrr_{side}": 100 * float((1 / own).mean()) for side, own in ranks.items()}
    above = [_above_among_negatives(scorer, one, num_nodes) for one in parts]
    for kind in NEGATIVE_KINDS:
        own = torch.cat([one[kind] for one in above])
        if own.numel():
            count = parts[0].negatives[kind].shape[1]
            found[f"mrr_{kind}"] = 100 * float((1 / (1 + own)).mean())
            found[f"auc_{kind}"] = 100 * float((1 - own / count).mean())
    return found


def _ranks(scorer: Scorer, part: Queries, num_nodes: int) -> Tensor:
    ranked = rank_answers(lambda rows: scorer(rows, part.side), part.answers, num_nodes, known=part.known)
    return ranked.ranks.cpu()


@torch.no_grad()
def _above_among_negatives(scorer: Scorer, part: Queries, num_nodes: int) -> dict[str, Tensor]:
    """Return, by kind, how many sampled candidates score higher than the true one; a tie counts one half."""
    found: dict[str, list[Tensor]] = {kind: [] for kind in part.negatives}
    order = part.answers[0].argsort(stable=True)
    for block in order.split(max(1, _QUERIES_AT_ONCE // num_nodes)):
        queries, row = part.answers[0, block].unique(return_inverse=True)
        scores = scorer(queries, part.side)
        true = scores[row, part.answers[1, block]][:, None]
        for kind, negatives in part.negatives.items():
            drawn = negatives[block]
            complete = (drawn >= 0).all(dim=1)
            other = scores[row[:, None], drawn.clamp(min=0)]
            above = (other > true).double().sum(1) + (other == true).double().sum(1) / 2
            found[kind].append(above[complete].cpu())
    return {kind: torch.cat(own) for kind, own in found.items()}
