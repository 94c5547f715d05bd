"""Contenders that take turns: what every figure of this package is made of."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lresnet_paper.bench.clock import Clock, Task

__all__ = ["Batch", "Spread", "interleave", "ratios", "spread"]

_WARM_UP = 3


@dataclass(frozen=True)
class Batch:
    """A task that makes ``count`` calls: what is timed at once."""

    task: Task
    count: int = 1


class Spread(NamedTuple):
    """Median and quartiles of ``n`` rounds."""

    median: float
    low: float
    high: float
    n: int


def interleave(
    contenders: Mapping[str, Sequence[Batch]], clock: Clock, rounds: int, warm_up: int = _WARM_UP
) -> dict[str, list[float]]:
    """Seconds of one call, for each contender and round.

    In every round all contenders run one after the other, every second round in reverse, so that what the machine does
    besides hits all of them. A contender with several batches (the same calls on other memory) takes them in turn,
    and no batch has the number of the one that ran just before it: its data are not in the cache.

    Args:
        rounds: that count.
        warm_up: rounds before them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    turn = 0
    for number in range(warm_up + rounds):
        for name in reversed(list(contenders)) if number % 2 else contenders:
            batches = contenders[name]
            batch = batches[turn % len(batches)]
            spent = clock.seconds(batch.task) / batch.count
            turn += 1
            if number >= warm_up:
                seconds[name].append(spent)
    return seconds


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles.

    Example:
        >>> spread([3.0, 1.0, 2.0])
        Spread(median=2.0, low=1.5, high=2.5, n=3)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high, len(values))


def ratios(values: Sequence[float], base: Sequence[float]) -> Spread:
    """Of two contenders, round by round: what happened to both at the same time cancels."""
    return spread([a / b for a, b in zip(values, base, strict=True)])
