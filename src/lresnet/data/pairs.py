"""Pairs of nodes as numbers: row-major ranks in the upper triangle, so that non-edges need not be listed.

The pairs i < j (with ``diagonal``: i <= j) of n nodes are numbered 0, 1, ..., total - 1 row by row. A set of taken
pairs is a sorted tensor of such numbers. One binary search finds the k-th pair that is *not* in it. This is exact and
uniform on any graph, however dense, and needs memory for the taken pairs only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["PairNumbering", "both_directions", "free_below", "kth_free", "undirected"]


@dataclass(frozen=True)
class PairNumbering:
    """A numbering of the unordered pairs of ``nodes`` nodes.

    Args:
        nodes: Number of nodes n.
        diagonal: Whether (i, i) counts as a pair.

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
        """Number of pairs."""
        return self.nodes * (self.nodes + (1 if self.diagonal else -1)) // 2

    def encode(self, pairs: Tensor) -> Tensor:
        """Return the numbers ``[m]`` of ``pairs`` ``[2, m]``, given in any order; (i, i) requires ``diagonal``."""
        low, high = torch.minimum(pairs[0], pairs[1]), torch.maximum(pairs[0], pairs[1])
        return self._start(low) + high - low - (0 if self.diagonal else 1)

    def decode(self, numbers: Tensor, starts: Tensor | None = None) -> Tensor:
        """Return the pairs ``[2, m]``, lower node first, with these ``numbers`` ``[m]``.

        Args:
            numbers: Numbers below :attr:`total`.
            starts: The result of :meth:`row_starts`, for repeated calls.
        """
        starts = self.row_starts(numbers.device) if starts is None else starts
        low = torch.searchsorted(starts, numbers, right=True) - 1
        return torch.stack([low, numbers - starts[low] + low + (0 if self.diagonal else 1)])

    def row_starts(self, device: torch.device) -> Tensor:
        """Return the number of the first pair of each row, ``[n]``; an empty last row has :attr:`total`."""
        return self._start(torch.arange(self.nodes, device=device))

    def _start(self, row: Tensor) -> Tensor:
        length = 2 * self.nodes + 1 if self.diagonal else 2 * self.nodes - 1
        return row * (length - row) // 2


def kth_free(taken: Tensor, k: Tensor) -> Tensor:
    """Return the ``k``-th numbers, counted from 0, that are not in ``taken``.

    Args:
        taken: Sorted, distinct numbers ``[m]``.
        k: Ranks among the free numbers, of any shape.

    Returns:
        Numbers of the shape of ``k``. They are below the total if ``k < total - m``.

    Example:
        >>> kth_free(torch.tensor([0, 1, 4]), torch.arange(4))
        tensor([2, 3, 5, 6])
    """
    return k + torch.searchsorted(free_below(taken), k, right=True)


def free_below(taken: Tensor) -> Tensor:
    """Return how many free numbers are below each of ``taken``, ``[m]``, sorted.

    The number of taken numbers before the k-th free one is the number of entries that are at most k.
    """
    return taken - torch.arange(taken.numel(), device=taken.device)


def undirected(edges: Tensor, nodes: int) -> Tensor:
    """Return each undirected edge once, lower node first, sorted by row. Self loops are kept.

    Args:
        edges: ``[2, m]``, in any direction, with or without repetitions.
        nodes: Number of nodes n.

    Returns:
        ``[2, e]``, int64, sorted.
    """
    numbering = PairNumbering(nodes, diagonal=True)
    return numbering.decode(torch.unique(numbering.encode(edges)))


def both_directions(edges: Tensor, nodes: int) -> Tensor:
    """Return the sorted ``edge_index`` ``[2, 2e]`` of undirected ``edges``: both directions, no self loops, no
    repetitions.
    """
    proper = edges[:, edges[0] != edges[1]]
    numbers = torch.cat([proper[0] * nodes + proper[1], proper[1] * nodes + proper[0]]).unique()
    return torch.stack([numbers.div(nodes, rounding_mode="floor"), numbers % nodes])
