"""Who takes part in a benchmark, ready to be timed, and who does not, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec

import torch

from lresnet_paper.bench.rounds import Batch
from lresnet_paper.bench.sizes import free_memory

__all__ = ["Entry", "admit", "first_line", "lacking_memory"]

P = ParamSpec("P")


@dataclass(frozen=True)
class Entry:
    """A contender that has run once and is ready to be timed."""

    batches: Sequence[Batch]
    replayed: bool
    """Whether it is recorded as a CUDA graph."""


def admit(make: Callable[P, Entry], *args: P.args, **options: P.kwargs) -> Entry | str:
    """What ``make`` gives, or in one line why it fails: no compiler, no memory, an operation that is not there."""
    try:
        return make(*args, **options)
    except Exception as error:  # whatever a contender meets here: the others are measured, and its row says it
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return first_line(error)


def first_line(error: Exception) -> str:
    """Kind and first line of an error.

    Example:
        >>> first_line(ValueError("no such thing\\nsecond line"))
        'ValueError: no such thing'
    """
    words = next((text for text in str(error).splitlines() if text.strip()), "")
    return f"{type(error).__name__}: {words}"[:160]


def lacking_memory(needed: int, device: torch.device) -> str:
    """Empty if ``needed`` bytes are free on ``device``, else one line that says so."""
    free = free_memory(device)
    return "" if needed <= free else f"needs up to {needed / 1e9:.0f} GB of memory, {free / 1e9:.0f} GB are free"
