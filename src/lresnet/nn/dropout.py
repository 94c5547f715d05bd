"""Dropout whose masks are drawn from torch's generator, or in a stack of networks from each member's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["dropout"]


def dropout(
    x: Tensor, rate: float, generators: Sequence[torch.Generator] = (), counts: Sequence[int] | None = None
) -> Tensor:
    """Set entries to 0 with probability ``rate`` and divide the others by 1 - rate.

    The mask is one call of ``bernoulli_`` of the shape that one network has, on every device. So the members of a stack
    drop what each of them would drop alone, which torch's own dropout could not do: on CUDA it takes no generator.

    Args:
        x: any shape; of a stack [N, S, d] (or [N, 1, d], points that all members have), or its entries one member
            after the other, [sum of counts].
        generators: one for each member of the stack; none: x belongs to one network, and torch's generator is used.
        counts: how many entries each member has.

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
