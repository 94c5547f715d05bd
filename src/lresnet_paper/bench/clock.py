"""Clocks: process time, wall clock, CUDA events, and the pair that shows what a clock without waiting would say."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = [
    "PROCESS",
    "WALL",
    "Clock",
    "EventClock",
    "HostClock",
    "Task",
    "TwoClocks",
    "device_clock",
    "one_thread",
    "two_clocks",
]

Task = Callable[[], object]


class Clock(Protocol):
    """Tells how long a task takes, from nothing under way to everything done."""

    @property
    def name(self) -> str:
        """What the figures say of it."""

    def seconds(self, task: Task) -> float:
        """Run ``task`` once."""


@dataclass(frozen=True)
class HostClock:
    """A clock of the host, for tasks that are done when they return.

    Example:
        >>> ticks = iter([1.0, 3.5])
        >>> HostClock("fake", lambda: next(ticks)).seconds(lambda: None)
        2.5
    """

    name: str
    now: Callable[[], float]

    def seconds(self, task: Task) -> float:
        start = self.now()
        task()
        return self.now() - start


# Process time does not count what other processes of a shared machine do; it does count all threads of this one.
PROCESS = HostClock("process time", time.process_time)
WALL = HostClock("wall clock", time.perf_counter)


# How long a GPU is kept busy before the first event: longer than a slow host takes to hand in a call whose code has
# left its caches. Half a millisecond was too short: it left as much of the host in every figure that is not replayed.
_HEAD_START = 8_000_000  # cycles, about four milliseconds


class EventClock:
    """A GPU's own clock: an event before the task and one after it in the stream, read when the second has happened.

    The GPU is busy when the task is handed in, as it is in the midst of a network: what is timed is its work, and not
    the wait of an idle one for its first kernel.

    Args:
        event: makes an event with ``record()``, ``synchronize()`` and ``elapsed_time(later)`` in milliseconds; None:
            those of CUDA.
        occupy: hands in work that gives the host a head start; None: a kernel of CUDA that spins.
    """

    name = "CUDA events"

    def __init__(self, event: Callable[[], Any] | None = None, occupy: Task | None = None) -> None:
        self._event = event or (lambda: torch.cuda.Event(enable_timing=True))
        self._occupy = occupy or (lambda: torch.cuda._sleep(_HEAD_START))

    def seconds(self, task: Task) -> float:
        start, end = self._event(), self._event()
        self._occupy()
        start.record()
        task()
        end.record()
        end.synchronize()
        return 1e-3 * float(start.elapsed_time(end))


def device_clock(device: torch.device) -> Clock:
    """Events on CUDA; on a CPU process time, which is meant for one thread."""
    return EventClock() if device.type == "cuda" else PROCESS


@contextlib.contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """On a CPU, compute with one thread while the context is open: process time adds up all threads."""
    before = torch.get_num_threads()
    if device.type != "cuda":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class TwoClocks:
    """One and the same run of a task, by two clocks."""

    seems: float
    """Seconds until the task returned: on a GPU, until its work was handed in."""
    true: float
    """Seconds until its work was done."""


def two_clocks(task: Task, synchronise: Task, now: Callable[[], float] = time.perf_counter) -> TwoClocks:
    """Time ``task`` without and with waiting for its work.

    Args:
        synchronise: waits until everything that was handed in is done.

    Example:
        >>> ticks = iter([0.0, 0.001, 5.0])
        >>> two_clocks(lambda: None, lambda: None, lambda: next(ticks))
        TwoClocks(seems=0.001, true=5.0)
    """
    synchronise()
    start = now()
    task()
    returned = now()
    synchronise()
    return TwoClocks(returned - start, now() - start)
