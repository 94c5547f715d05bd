"""Pairs of nodes as numbers: row-major ranks in the upper triangle, so that non-edges are counted, never listed.

With n nodes the pairs i < j (with ``diagonal``: i <= j) are numbered 0, 1, ..., total - 1 row by row. A set of taken
pairs is a sorted tensor of such numbers, and the k-th pair *not* in it is found by one binary search: exact and
uniform on any graph, however dense, with memory for the taken pairs only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["PairNumbering", "both_directions", "free_below", "kth_free", "undirected"]


@dataclass(frozen=True)
class PairNumbering:
    """Numbers of the unordered pairs of ``nodes`` nodes.

    Args:
        nodes: how many nodes there are, n.
        diagonal: whether (i, i) counts as a pair.

    Example:
        >>> numbering = PairNumbering(4)
        >>> numbering.total
        6
        >>> numbering.encode(torch.tensor([[0, 3], [1, 2]]))
        tensor([0, 5])
        >>> numbering.decode(torch.tensor([0, 5]))
        tensor([[0, 2],
                [1, 3]])
    """

    nodes: int
    diagonal: bool = False

    @property
    def total(self) -> int:
        """How many pairs there are."""
        return self.nodes * (self.nodes + (1 if self.diagonal else -1)) // 2

    def encode(self, pairs: Tensor) -> Tensor:
        """The numbers ``[m]`` of ``pairs`` ``[2, m]``, in either order; (i, i) is only allowed with ``diagonal``."""
        low, high = torch.minimum(pairs[0], pairs[1]), torch.maximum(pairs[0], pairs[1])
        return self._start(low) + high - low - (0 if self.diagonal else 1)

    def decode(self, numbers: Tensor, starts: Tensor | None = None) -> Tensor:
        """The pairs ``[2, m]``, lower node first, with these ``numbers`` ``[m]``.

        Args:
            numbers: below :attr:`total`.
            starts: :meth:`row_starts`, for callers who decode often.
        """
        starts = self.row_starts(numbers.device) if starts is None else starts
        low = torch.searchsorted(starts, numbers, right=True) - 1
        return torch.stack([low, numbers - starts[low] + low + (0 if self.diagonal else 1)])

    def row_starts(self, device: torch.device) -> Tensor:
        """The number of the first pair of each row, ``[n]``; that of an empty last row is :attr:`total`."""
        return self._start(torch.arange(self.nodes, device=device))

    def _start(self, row: Tensor) -> Tensor:
        length = 2 * self.nodes + 1 if self.diagonal else 2 * self.nodes - 1
        return row * (length - row) // 2


def kth_free(taken: Tensor, k: Tensor) -> Tensor:
    """The ``k``-th numbers (counted from 0) that are not in ``taken``.

    Args:
        taken: sorted, distinct numbers ``[m]``.
        k: which of the free numbers, any shape.

    Returns:
        Numbers of the shape of ``k``. They stay below the total as long as ``k < total - m``.

    Example:
        >>> kth_free(torch.tensor([0, 1, 4]), torch.arange(4))
        tensor([2, 3, 5, 6])
    """
    return k + torch.searchsorted(free_below(taken), k, right=True)


def free_below(taken: Tensor) -> Tensor:
    """How many free numbers lie below each of ``taken``, ``[m]``: sorted, so that it can be searched.

    As many taken numbers precede the k-th free one as have at most k free ones below them.
    """
    return taken - torch.arange(taken.numel(), device=taken.device)


def undirected(edges: Tensor, nodes: int) -> Tensor:
    """Each undirected edge once, lower node first, row by row; self loops stay.

    Args:
        edges: ``[2, m]``, any direction, with or without repetitions.

    Returns:
        ``[2, e]``, int64, sorted.
    """
    numbering = PairNumbering(nodes, diagonal=True)
    return numbering.decode(torch.unique(numbering.encode(edges)))


def both_directions(edges: Tensor, nodes: int) -> Tensor:
    """The ``edge_index`` ``[2, 2e]`` of undirected ``edges``: both directions, no self loop, no repetition, sorted."""
    proper = edges[:, edges[0] != edges[1]]
    numbers = torch.cat([proper[0] * nodes + proper[1], proper[1] * nodes + proper[0]]).unique()
    return torch.stack([numbers.div(nodes, rounding_mode="floor"), numbers % nodes])
