r"""Metrics of embedded hierarchies: filtered rankings of parents or ancestors, distortion, and norm against depth.

A query is a node, a candidate is a possible parent or ancestor, and an answer is a true one. In a filtered ranking the
other true candidates of a query are left out, so that they do not push an answer down (Bordes et al., 2013; Nickel and
Kiela, 2017, `arXiv 1705.08039 <https://arxiv.org/abs/1705.08039>`_).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from lresnet.geometry.checks import checks_values
from lresnet.metrics.ancestor_order import AncestorOrder, ScoreRows
from lresnet.metrics.checks import NonFiniteScores

__all__ = [
    "RankedAnswers",
    "ScoreRows",
    "average_distortion",
    "norm_depth_correlation",
    "rank_answers",
    "ranking_metric",
    "ranking_metrics",
]

# Scores that are compared at once.
_BLOCK = 2**23


@dataclass(frozen=True, eq=False)
class RankedAnswers:
    """Places of answers in the rankings of their queries; made by :func:`rank_answers`.

    Args:
        ranks: Filtered rank of each answer ``[m]``, float64, 1 is the best. Among equal scores it is the mean rank.
        precisions: Precision at each answer ``[m]``, float64: among the candidates that score at least as high, the
            share of answers of the same query.
        queries: Query of each answer ``[m]``.
    """

    ranks: Tensor
    precisions: Tensor
    queries: Tensor

    def mean_rank(self) -> Tensor:
        """Return the mean of the ranks over the answers; 0-d, float64."""
        found: Tensor = self.ranks.mean()
        return found

    def mean_reciprocal_rank(self) -> Tensor:
        """Return the mean of 1 / rank over the answers; 0-d, float64."""
        found: Tensor = (1 / self.ranks).mean()
        return found

    def hits_at(self, k: int) -> Tensor:
        """Return the share of answers whose rank is at most ``k``; 0-d, float64."""
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        found: Tensor = (self.ranks <= k).double().mean()
        return found

    def mean_average_precision(self) -> Tensor:
        """Return the mean over the queries of their average precision, the mean precision at their answers; float64."""
        _, query, count = self.queries.unique(return_inverse=True, return_counts=True)
        sums = torch.zeros(count.numel(), dtype=torch.float64, device=count.device)
        found: Tensor = (sums.index_add(0, query, self.precisions) / count).mean()
        return found


@torch.no_grad()
def rank_answers(
    score: ScoreRows, answers: Tensor, num_candidates: int, *, known: Tensor | None = None, exclude_self: bool = True
) -> RankedAnswers:
    """Rank the answers of queries among all candidates, without the other true candidates of each query.

    A rank is 1 plus the number of competitors with a higher score, plus half the number of competitors with an equal
    score. Competitors of an answer are all candidates but the answers of its query, its known candidates and, with
    ``exclude_self``, the query. Queries are scored in blocks, so no matrix of all queries and candidates exists.

    Args:
        score: Function from queries ``[b]`` to scores of all candidates ``[b, N]``, see :data:`ScoreRows`. It is called
            with blocks of different queries, in increasing order.
        answers: Pairs (query, candidate) to rank ``[2, m]``, int64. They must differ.
        num_candidates: Number of candidates N; they are numbered from 0.
        known: Pairs (query, candidate) that are true as well ``[2, k]``, e.g. of the training set. They may repeat
            answers and have queries without answers.
        exclude_self: Whether the candidate with the number of the query is left out: queries and candidates are the
            same nodes.

    Raises:
        ValueError: There are no answers, they repeat, or the scores have another shape.
        NonFiniteScores: A score is NaN (eager CPU tensors only).

    Example:
        >>> points = torch.tensor([0.0, 1.0, 3.0, 7.0])
        >>> score = lambda queries: -(points[queries, None] - points).abs()
        >>> ranked = rank_answers(score, torch.tensor([[1, 2], [0, 0]]), num_candidates=4)
        >>> ranked.ranks, ranked.mean_reciprocal_rank()
        (tensor([1., 2.], dtype=torch.float64), tensor(0.7500, dtype=torch.float64))
    """
    if answers.dim() != 2 or answers.shape[0] != 2 or answers.shape[1] == 0:
        raise ValueError(f"answers have shape {list(answers.shape)}; pairs (query, candidate) are [2, m] with m > 0")
    code = answers[0] * num_candidates + answers[1]
    ordered, order = code.sort()
    if bool((ordered[1:] == ordered[:-1]).any()):
        raise ValueError("answers repeat; give every pair (query, candidate) once")
    true = ordered if known is None else torch.cat([ordered, known[0] * num_candidates + known[1]]).unique()
    queries, candidates = answers[:, order]
    higher, equal, own = [], [], []
    for block in torch.arange(order.numel(), device=order.device).split(max(1, _BLOCK // num_candidates)):
        rows, row = queries[block].unique(return_inverse=True)
        scores = score(rows)
        if scores.shape != (rows.numel(), num_candidates):
            wanted = [rows.numel(), num_candidates]
            raise ValueError(f"the scores have shape {list(scores.shape)}; {wanted} are needed: queries, candidates")
        if checks_values(scores) and bool(scores.isnan().any()):
            raise NonFiniteScores(f"a score of query {int(rows[scores.isnan().any(1)][0])} is NaN; it cannot be ranked")
        excluded = _pairs_of(rows, true, num_candidates)
        if exclude_self:
            here = torch.arange(rows.numel(), device=rows.device)
            same = rows < num_candidates
            excluded = torch.cat([excluded, torch.stack([here[same], rows[same]])], dim=1)
        competes = torch.ones_like(scores, dtype=torch.bool)
        competes[excluded[0], excluded[1]] = False
        mine = scores[row, candidates[block]]
        higher.append(((scores[row] > mine[:, None]) & competes[row]).sum(1))
        equal.append(((scores[row] == mine[:, None]) & competes[row]).sum(1))
        own.append(mine.double())
    above, tied = torch.cat(higher).double(), torch.cat(equal).double()
    good = _answers_at_least_as_high(queries, torch.cat(own))
    ranks, precisions = torch.empty_like(above), torch.empty_like(above)
    ranks[order] = 1 + above + tied / 2
    precisions[order] = good / (good + above + tied)
    return RankedAnswers(ranks, precisions, answers[0])


def _pairs_of(rows: Tensor, true: Tensor, num_candidates: int) -> Tensor:
    """Return (place in ``rows``, candidate) of the sorted pairs ``true`` whose queries are ``rows``, [2, p]."""
    first = torch.searchsorted(true, rows * num_candidates)
    last = torch.searchsorted(true, (rows + 1) * num_candidates)
    count = last - first
    place = torch.repeat_interleave(torch.arange(rows.numel(), device=rows.device), count)
    within = torch.arange(place.numel(), device=rows.device) - (count.cumsum(0) - count)[place]
    return torch.stack([place, true[first[place] + within] % num_candidates])


def _answers_at_least_as_high(queries: Tensor, scores: Tensor) -> Tensor:
    """Return how many answers of the same query score at least as high as each, itself included; [m], float64."""
    distinct, which, count = torch.stack([queries.double(), scores]).unique(
        dim=1, return_inverse=True, return_counts=True
    )
    up_to = count.cumsum(0)  # columns are sorted by query, then by score
    last = torch.searchsorted(distinct[0].contiguous(), distinct[0].contiguous(), right=True) - 1
    found: Tensor = (up_to[last] - up_to + count)[which].double()
    return found


def ranking_metrics(ranked: RankedAnswers, metric: str = "mrr", order: AncestorOrder | None = None) -> dict[str, float]:
    """Return the metrics of a ranking by name, ``metric`` first: shares in percent, the mean rank as it is.

    With the ``order`` of the ancestors they include ``ordered_mrr``, its factor ``order`` and ``parent_first``.

    Example:
        >>> ranked = rank_answers(lambda rows: torch.eye(3)[rows], torch.tensor([[0, 1], [2, 0]]), 3)
        >>> ranking_metrics(ranked, "hits@1")["mean_rank"]
        1.5
    """
    names = dict.fromkeys([metric, *(["ordered_mrr"] if order else []), "mrr"])
    found = {name: 100 * float(ranking_metric(ranked, name, order)) for name in names}
    if order is not None:
        found |= {"order": 100 * float(order.share()), "parent_first": 100 * float(order.parent_first())}
    rest = [name for name in ("mean_average_precision", "hits@10") if name not in found]
    found |= {name: 100 * float(ranking_metric(ranked, name)) for name in rest}
    return found | {"mean_rank": float(ranked.mean_rank())}


def ranking_metric(ranked: RankedAnswers, name: str, order: AncestorOrder | None = None) -> Tensor:
    """Return the metric ``name``, one of :data:`lresnet.metrics.HIERARCHY_METRICS`, between 0 and 1.

    ``"ordered_mrr"`` is the mean reciprocal rank times the share of ancestors in ``order``. It is high only if
    ancestors stand above other nodes, and near ancestors above far ones.

    Raises:
        ValueError: ``"ordered_mrr"`` without the order.
    """
    if name == "ordered_mrr":
        if order is None:
            raise ValueError("ordered_mrr needs the order of the ancestors; see lresnet.metrics.ancestor_order")
        return ranked.mean_reciprocal_rank() * order.share()
    if name == "mrr":
        return ranked.mean_reciprocal_rank()
    if name == "mean_average_precision":
        return ranked.mean_average_precision()
    return ranked.hits_at(int(name.removeprefix("hits@")))


def average_distortion(distances: Tensor, tree_distances: Tensor) -> Tensor:
    r"""Return how far embedded distances are from the tree's, relative to the tree's, up to a common factor.

    .. math:: \frac1m \sum_i |c r_i - 1|, \qquad r_i = \frac{d_i}{t_i}, \qquad c = \frac{\sum r_i}{\sum r_i^2}

    The factor c, which minimises the squared errors, makes the figure independent of the unit of length (Sala et al.,
    2018, `arXiv 1804.03329 <https://arxiv.org/abs/1804.03329>`_, use c = 1). 0 is exact; equal points have 1.

    Args:
        distances: Distances d of embedded pairs ``[m]``.
        tree_distances: Numbers of edges t between them ``[m]``, positive.

    Returns:
        0-d, float64.

    Example:
        >>> average_distortion(torch.tensor([2.0, 4.0]), torch.tensor([1, 2]))
        tensor(0., dtype=torch.float64)
    """
    if distances.dim() != 1 or distances.shape != tree_distances.shape or distances.numel() == 0:
        raise ValueError(
            f"distances {list(distances.shape)} and tree_distances {list(tree_distances.shape)} must both be [m], m > 0"
        )
    if checks_values(tree_distances) and not bool((tree_distances > 0).all()):
        raise ValueError("tree_distances must be positive; leave out pairs of a node with itself")
    ratio = distances.double() / tree_distances.double()
    largest = ratio.max()
    ratio = ratio / torch.where(largest > 0, largest, 1.0)  # squares neither overflow nor underflow
    squares = ratio.square().sum()
    factor = ratio.sum() / torch.where(squares > 0, squares, 1.0)
    return (factor * ratio - 1).abs().mean()


def norm_depth_correlation(norms: Tensor, depths: Tensor) -> float:
    """Return Spearman's rank correlation of the norms of points and the depths of their nodes.

    It is 1 if deeper nodes always lie further out. Ties have their mean rank. If all norms or all depths are equal, it
    is 0: there is no order to agree with.

    Shapes:
        norms [n], depths [n]

    Example:
        >>> round(norm_depth_correlation(torch.tensor([0.1, 0.5, 0.7, 0.9]), torch.tensor([0, 1, 1, 2])), 4)
        0.9487
    """
    if norms.dim() != 1 or norms.shape != depths.shape or norms.numel() < 2:
        raise ValueError(f"norms {list(norms.shape)} and depths {list(depths.shape)} must both be [n] with n > 1")
    norms, depths = norms.detach().cpu(), depths.detach().cpu()
    if bool((norms == norms[0]).all()) or bool((depths == depths[0]).all()):
        return 0.0
    return float(stats.spearmanr(norms.double().numpy(), depths.numpy()).statistic)
