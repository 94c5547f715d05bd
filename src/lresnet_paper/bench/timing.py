"""Clocks, interleaved rounds, CUDA graphs and the copy rate: how every benchmark is timed."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec, Protocol

import torch

__all__ = [
    "PROCESS",
    "Batch",
    "Candidate",
    "Clock",
    "CopyRate",
    "EventClock",
    "HostClock",
    "Spread",
    "SyncTimes",
    "Task",
    "as_cuda_graph",
    "copy_rate",
    "device_clock",
    "first_line",
    "interleave",
    "ratios",
    "single_thread",
    "spread",
    "sync_times",
    "try_prepare",
]

Task = Callable[[], object]
P = ParamSpec("P")

_WARM_UP_ROUNDS = 3
_WARM_UP_CALLS = 3  # before a task is captured as a CUDA graph

# Cycles (about four milliseconds) for which the GPU is busy before the first event. This is longer than a slow host
# takes to submit a call whose code is no longer in its caches. Half a millisecond was too short: host time was then
# part of every measurement that is not replayed.
_HEAD_START_CYCLES = 8_000_000

_COPY_BYTES = {"cuda": (2**30, 2**31, 2**32), "cpu": (2**27,)}


# --- clocks -----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Measures how long a task takes, from an idle device until all of its work is done."""

    @property
    def name(self) -> str:
        """The name that is stored with the results."""

    def seconds(self, task: Task) -> float:
        """Run ``task`` once and return the seconds."""


@dataclass(frozen=True)
class HostClock:
    """A clock of the host, for tasks whose work is done when they return.

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


# Process time excludes other processes on a shared machine, and adds up all threads of this one.
PROCESS = HostClock("process time", time.process_time)


class EventClock:
    """A GPU's own clock: CUDA events before and after the task in the stream, read after the second one has completed.

    The GPU is busy when the task is submitted, as it is inside a network. The result is the time of the GPU's work,
    without the time an idle GPU waits for its first kernel.

    Args:
        event: returns an event with ``record()``, ``synchronize()`` and ``elapsed_time(later)`` in milliseconds.
            Default: CUDA events.
        occupy: submits work that gives the host a head start. Default: a CUDA kernel that spins.
    """

    name = "CUDA events"

    def __init__(self, event: Callable[[], Any] | None = None, occupy: Task | None = None) -> None:
        self._event = event or (lambda: torch.cuda.Event(enable_timing=True))
        self._occupy = occupy or (lambda: torch.cuda._sleep(_HEAD_START_CYCLES))

    def seconds(self, task: Task) -> float:
        start, end = self._event(), self._event()
        self._occupy()
        start.record()
        task()
        end.record()
        end.synchronize()
        return 1e-3 * float(start.elapsed_time(end))


def device_clock(device: torch.device) -> Clock:
    """Return the clock of a device: events on CUDA, process time on a CPU (use it with :func:`single_thread`)."""
    return EventClock() if device.type == "cuda" else PROCESS


@contextlib.contextmanager
def single_thread(device: torch.device) -> Iterator[None]:
    """On a CPU, compute with one thread inside the context, because process time adds up all threads."""
    before = torch.get_num_threads()
    if device.type != "cuda":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class SyncTimes:
    """Times of one run of a task, read without and with GPU synchronisation."""

    returned: float
    """Seconds until the call returned: on a GPU, until its work was submitted."""
    finished: float
    """Seconds until its work was done."""


def sync_times(task: Task, synchronise: Task, now: Callable[[], float] = time.perf_counter) -> SyncTimes:
    """Time ``task`` without and with GPU synchronisation.

    Args:
        task: the work, run once.
        synchronise: waits until all submitted work is done.
        now: the clock.

    Example:
        >>> ticks = iter([0.0, 0.001, 5.0])
        >>> sync_times(lambda: None, lambda: None, lambda: next(ticks))
        SyncTimes(returned=0.001, finished=5.0)
    """
    synchronise()
    start = now()
    task()
    returned = now()
    synchronise()
    return SyncTimes(returned - start, now() - start)


# --- rounds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """A task that makes ``count`` calls and is timed as one."""

    task: Task
    count: int = 1


@dataclass(frozen=True)
class Candidate:
    """A computation that has run once and is ready to be timed."""

    batches: Sequence[Batch]
    replayed: bool
    """Whether it is replayed as a CUDA graph."""


class Spread(NamedTuple):
    """Median and quartiles over ``n`` rounds."""

    median: float
    low: float
    high: float
    n: int


def try_prepare(make: Callable[P, Candidate], *args: P.args, **options: P.kwargs) -> Candidate | str:
    """Return ``make(*args, **options)``, or the reason in one line if it fails (no compiler, not enough memory)."""
    try:
        return make(*args, **options)
    except Exception as error:  # any failure is reported in the candidate's row, and the others are still measured
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return first_line(error)


def first_line(error: Exception) -> str:
    """Return the type and the first line of an error.

    Example:
        >>> first_line(ValueError("no such thing\\nsecond line"))
        'ValueError: no such thing'
    """
    message = next((text for text in str(error).splitlines() if text.strip()), "")
    return f"{type(error).__name__}: {message}"[:160]


def interleave(
    candidates: Mapping[str, Sequence[Batch]], clock: Clock, rounds: int, warm_up: int = _WARM_UP_ROUNDS
) -> dict[str, list[float]]:
    """Return the seconds of one call, for each candidate and round.

    All candidates run in every round, in reverse order in every second one, so that other load on the machine affects
    all of them alike. A candidate with several batches (the same calls on other memory) uses them in turn. No batch
    has the index of the batch that ran just before it, so that its data are not in the cache.

    Args:
        candidates: the batches of each candidate.
        clock: times one batch.
        rounds: the number of measured rounds.
        warm_up: the number of rounds before them, which are not measured.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    turn = 0
    for number in range(warm_up + rounds):
        for name in reversed(list(candidates)) if number % 2 else candidates:
            batches = candidates[name]
            batch = batches[turn % len(batches)]
            spent = clock.seconds(batch.task) / batch.count
            turn += 1
            if number >= warm_up:
                seconds[name].append(spent)
    return seconds


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles of ``values``.

    Example:
        >>> spread([3.0, 1.0, 2.0])
        Spread(median=2.0, low=1.5, high=2.5, n=3)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high, len(values))


def ratios(values: Sequence[float], base: Sequence[float]) -> Spread:
    """Return the spread of the ratios of two candidates, round by round: load that affects both cancels."""
    return spread([a / b for a, b in zip(values, base, strict=True)])


def as_cuda_graph(task: Task) -> Task:
    """Return a task that replays the GPU work of ``task`` with one launch. ``task`` runs three times before.

    Where a kernel takes no longer than its launch, timing the task itself would time the launches.

    Raises:
        RuntimeError: the task cannot be captured, e.g. because it synchronises with the GPU.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP_CALLS):
            task()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        task()

    def replay(captured: Task = task) -> None:  # the graph reads the tensors of the task, so the task has to stay
        graph.replay()

    return replay


# --- the copy rate ----------------------------------------------------------------------------------------------------


class CopyRate(NamedTuple):
    """The memory bandwidth of a device, measured with simple copies."""

    bytes_per_second: float
    """The highest rate of all."""
    tried: dict[str, float]
    """Bytes per second for each operation and size; medians over the rounds."""


def copy_rate(device: torch.device, clock: Clock, rounds: int = 9, sizes: Sequence[int] | None = None) -> CopyRate:
    """Return the bytes read and written per second by the fastest simple copy.

    On a GPU ``b.copy_(a)`` uses the driver's copy engine, which is not always the fastest way. An elementwise kernel
    that reads a and writes -a moves the same bytes. The rate is the best of both over all sizes.

    Args:
        device: where to copy.
        clock: times one copy.
        rounds: the number of measured rounds.
        sizes: bytes moved by one copy, read and written. Default: 1, 2 and 4 GiB on CUDA, 128 MiB on a CPU.
    """
    tried: dict[str, float] = {}
    for moved in sizes or _COPY_BYTES.get(device.type, _COPY_BYTES["cpu"]):
        a = torch.ones(moved // 8, device=device)
        b = torch.empty_like(a)
        ways = {"copy_": [Batch(lambda a=a, b=b: b.copy_(a))], "-x": [Batch(lambda a=a, b=b: torch.neg(a, out=b))]}  # type: ignore[misc]
        for way, seconds in interleave(ways, clock, rounds).items():
            tried[f"{way}, {moved / 2**30:g} GiB"] = 8 * a.numel() / sorted(seconds)[rounds // 2]
    return CopyRate(max(tried.values()), tried)
