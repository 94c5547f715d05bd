"""Dropout with masks from torch's generator or, for a stack of networks, from one generator per member."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["dropout", "dropout_mask"]


def dropout(
    x: Tensor, rate: float, generators: Sequence[torch.Generator] = (), counts: Sequence[int] | None = None
) -> Tensor:
    """Set entries to 0 with probability ``rate`` and divide the others by 1 - rate.

    On every device the mask is one call of ``bernoulli_`` with the shape that a single network has. So a member of a
    stack drops the same entries as it would alone. torch's own dropout cannot do this: on CUDA it takes no generator.

    Args:
        x: Tensor of any shape. For a stack [N, S, d], or [N, 1, d] if all members share the points; or with ``counts``
            the entries of all members in sequence, [sum of counts].
        rate: Probability of setting an entry to 0.
        generators: One for each member of the stack. Default: x belongs to one network and torch's generator is used.
        counts: Number of entries of each member.

    Example:
        >>> generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
        >>> dropout(torch.ones(50, 1, 4), 0.5, generators).shape
        torch.Size([50, 3, 4])
    """
    return x * dropout_mask(x, rate, generators, counts).div_(1 - rate)


def dropout_mask(
    x: Tensor, rate: float, generators: Sequence[torch.Generator] = (), counts: Sequence[int] | None = None
) -> Tensor:
    """Return the entries that :func:`dropout` keeps as 1 and those that it drops as 0, in the dtype of x.

    Example:
        >>> dropout_mask(torch.ones(3), 0.0)
        tensor([1., 1., 1.])
    """
    keep = 1 - rate
    if not generators:
        return torch.empty_like(x).bernoulli_(keep)
    if counts is not None:
        sizes = zip(counts, generators, strict=True)
        return torch.cat([x.new_empty(size).bernoulli_(keep, generator=generator) for size, generator in sizes])
    shape = x.shape[0], *x.shape[2:]
    return torch.stack([x.new_empty(shape).bernoulli_(keep, generator=g) for g in generators], dim=1)
