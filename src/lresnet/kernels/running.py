"""The running statistics of batch norms whose batches' statistics the kernels computed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import BatchNorm2d

from lresnet.kernels.factors import MEAN, VARIANCE

__all__ = ["Update", "track"]


class Update(NamedTuple):
    """What a norm has seen."""

    norm: BatchNorm2d
    statistics: Tensor
    """[5, n]: see :mod:`lresnet.kernels.factors`."""


@torch.no_grad()
def track(updates: list[Update]) -> None:
    """Bring running statistics up to date as the norms themselves would: mean, unbiased variance, count of batches.

    All of a network's at once: under the compiler that is one kernel or two, norm by norm it is two for each.
    """
    wanted = [update for update in updates if update.norm.training and update.norm.track_running_stats]
    first, again = _first_of_each(wanted)
    if not first:
        return
    torch._foreach_add_([norm.num_batches_tracked for norm, _ in first], 1)  # type: ignore[misc]
    for share in dict.fromkeys(norm.momentum for norm, _ in first):
        some = [update for update in first if update.norm.momentum == share]
        if share is None:
            for update in some:
                _average(*update)
            continue
        running = [buffer for norm, _ in some for buffer in (norm.running_mean, norm.running_var)]
        found = [row for _, statistics in some for row in (statistics[MEAN], statistics[VARIANCE])]
        torch._foreach_mul_(running, 1 - share)  # type: ignore[arg-type]
        torch._foreach_add_(running, found, alpha=share)  # type: ignore[arg-type]
    track(again)


def _first_of_each(updates: list[Update]) -> tuple[list[Update], list[Update]]:
    """The first of each norm, and the rest: a norm that serves twice has to see one after the other."""
    norms: list[BatchNorm2d] = []
    first: list[Update] = []
    again: list[Update] = []
    for update in updates:
        seen = any(update.norm is norm for norm in norms)
        (again if seen else first).append(update)
        norms.append(update.norm)
    return first, again


def _average(norm: BatchNorm2d, statistics: Tensor) -> None:
    """A norm without momentum: the mean over all batches."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    share = 1 / norm.num_batches_tracked
    # Products and sums, not lerp_: what inductor (torch 2.11) makes of that, Triton 3.6 does not always compile.
    norm.running_mean.mul_(1 - share).add_(share * statistics[MEAN])
    norm.running_var.mul_(1 - share).add_(share * statistics[VARIANCE])
