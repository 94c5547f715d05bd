"""The order of a node's ancestors in its ranking: nearest first, and a parent at the top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lresnet.geometry.checks import checks_values
from lresnet.metrics.checks import NonFiniteScores

__all__ = ["AncestorOrder", "ScoreRows", "ancestor_order"]

ScoreRows = Callable[[Tensor], Tensor]
"""Function from the numbers of some queries ``[b]`` to the scores of all candidates ``[b, N]``; higher is better."""

_BLOCK = 2**23  # scores or pairs of ancestors that are compared at once


@dataclass(frozen=True, eq=False)
class AncestorOrder:
    """How the ancestors of some nodes are ordered; made by :func:`ancestor_order`.

    Args:
        shares: Share of each node's pairs of ancestors that are in order ``[q]``, float64: the nearer one has the
            higher score. Pairs that are equally near are left out, equal scores count half. NaN: there are no pairs.
        parents_first: Whether the best of all candidates is a parent of the node ``[q]``, float64. Among equally good
            candidates it is the share of parents.
    """

    shares: Tensor
    parents_first: Tensor

    def share(self) -> Tensor:
        """Return the mean share of pairs in order, of the nodes that have pairs; 0-d, float64.

        1: the nearest ancestors always come first. 0.5: as in a random order. It is 1 if no node has pairs: nothing can
        be in the wrong order. Twice the share minus 1 is Kendall's tau.
        """
        found: Tensor = self.shares.nanmean()
        return found.nan_to_num(nan=1.0)

    def parent_first(self) -> Tensor:
        """Return the share of nodes whose best candidate is a parent; 0-d, float64."""
        found: Tensor = self.parents_first.mean()
        return found


@torch.no_grad()
def ancestor_order(score: ScoreRows, pairs: Tensor, steps: Tensor, num_candidates: int) -> AncestorOrder:
    """Return how nodes order their ancestors, and whether a parent is the first of all candidates but the node.

    Args:
        score: Function from nodes ``[b]`` to scores of all candidates ``[b, N]``; higher is better.
        pairs: Pairs (node, ancestor) ``[2, m]``, int64, which must differ. Other ancestors of a node are not compared.
        steps: Steps from the node to the ancestor ``[m]``, int64: 1 for a parent, 2 for a grandparent, ...
        num_candidates: Number of candidates N, the nodes themselves.

    Raises:
        ValueError: There are no pairs, or the shapes do not match.
        NonFiniteScores: A score is NaN (eager CPU tensors only).

    Example:
        >>> scores = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
        >>> pairs, steps = torch.tensor([[0, 0, 0], [1, 2, 3]]), torch.tensor([1, 2, 3])  # 1 is the parent of 0
        >>> found = ancestor_order(lambda nodes: scores[nodes], pairs, steps, 4)
        >>> found.share(), found.parent_first()
        (tensor(0.6667, dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    if pairs.dim() != 2 or pairs.shape[0] != 2 or pairs.shape[1] == 0 or steps.shape != pairs.shape[1:]:
        raise ValueError(f"pairs {list(pairs.shape)} and steps {list(steps.shape)} must be [2, m] and [m] with m > 0")
    order = pairs[0].argsort(stable=True)
    nodes, count = pairs[0].unique(return_counts=True)
    most = int(count.max())
    row = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), count)
    place = torch.arange(row.numel(), device=nodes.device) - (count.cumsum(0) - count)[row]
    ancestors, levels = pairs.new_zeros(nodes.numel(), most), steps.new_full((nodes.numel(), most), -1)
    ancestors[row, place], levels[row, place] = pairs[1, order], steps[order]
    shares, first = [], []
    for some in torch.arange(nodes.numel(), device=nodes.device).split(max(1, _BLOCK // max(num_candidates, most**2))):
        scores = score(nodes[some])
        if scores.shape != (some.numel(), num_candidates):
            wanted = [some.numel(), num_candidates]
            raise ValueError(f"the scores have shape {list(scores.shape)}; {wanted} are needed: nodes, candidates")
        if checks_values(scores) and bool(scores.isnan().any()):
            raise NonFiniteScores(f"a score of node {int(nodes[some][scores.isnan().any(1)][0])} is NaN")
        own, level = scores.gather(1, ancestors[some]), levels[some]
        shares.append(_share_in_order(own, level))
        others = scores.index_put(
            (torch.arange(some.numel(), device=some.device), nodes[some]), scores.new_tensor(-torch.inf)
        )
        best = others.amax(1, keepdim=True)
        first.append(((own == best) & (level == 1)).sum(1).double() / (others == best).sum(1))
    return AncestorOrder(torch.cat(shares), torch.cat(first))


def _share_in_order(scores: Tensor, levels: Tensor) -> Tensor:
    """Return the share of pairs of scores ``[b, p]`` that are in the order of their levels; level -1 is padding."""
    nearer = (levels.unsqueeze(2) < levels.unsqueeze(1)) & (levels.unsqueeze(2) > 0)
    above = (scores.unsqueeze(2) > scores.unsqueeze(1)) & nearer
    equal = (scores.unsqueeze(2) == scores.unsqueeze(1)) & nearer
    return (above.sum((1, 2)) + 0.5 * equal.sum((1, 2))).double() / nearer.sum((1, 2))  # NaN without pairs
