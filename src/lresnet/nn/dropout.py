"""Dropout with masks from torch's generator or, for a stack of networks, from one generator per member."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["dropout"]


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
    keep = 1 - rate
    if not generators:
        mask = torch.empty_like(x).bernoulli_(keep)
    elif counts is not None:
        sizes = zip(counts, generators, strict=True)
        mask = torch.cat([x.new_empty(size).bernoulli_(keep, generator=generator) for size, generator in sizes])
    else:
        shape = x.shape[0], *x.shape[2:]
        mask = torch.stack([x.new_empty(shape).bernoulli_(keep, generator=g) for g in generators], dim=1)
    return x * mask.div_(keep)
