"""What all runs took: on GPUs and on CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["computing_time"]

_SHARED = """\
Runs that were one computation carry their share of it; where several processes shared a device, the sum is more than
the time that passed"""


def computing_time(runs: Iterable[Mapping[str, Any]]) -> str:
    """The time of ``runs``, searches too, in a sentence or two; nothing without runs.

    Example:
        >>> computing_time([{"seconds": 7200, "hardware": "NVIDIA H200"}]).partition("; CPU")[0]
        'GPU: 2.0 hours (1 run on NVIDIA H200)'
    """
    places: dict[bool, list[Mapping[str, Any]]] = {True: [], False: []}
    for run in runs:
        places[not str(run.get("hardware", "CPU")).startswith("CPU")].append(run)
    if not any(places.values()):
        return ""
    untimed = sum(run.get("seconds") is None for own in places.values() for run in own)
    missing = "; 1 run that broke off has no time" if untimed == 1 else f"; {untimed} runs that broke off have no time"
    return f"GPU: {_hours(places[True])}; CPU: {_hours(places[False])}. {_SHARED}{missing if untimed else ''}."


def _hours(runs: list[Mapping[str, Any]]) -> str:
    if not runs:
        return "none"
    seconds = sum(run.get("seconds") or 0.0 for run in runs)
    time = f"{seconds / 3600:.1f} hours" if seconds >= 180 else f"{seconds:.0f} seconds"  # 0.1 hours are 180 s at least
    names = dict.fromkeys(str(run.get("hardware", "hardware not recorded")) for run in runs)
    count = round(sum(1 / run.get("served", 1) for run in runs))  # of a training with lines in three cells a third each
    number = f"{count:,} run" + ("s" if count > 1 else "")
    return f"{time} ({number} on {', '.join(names)})"
