"""Clocks, interleaved rounds, sizes and the copy rate, with fake clocks."""

import itertools
import math

import pytest
import torch

from lresnet_paper.bench.residuals import Size, parse_size, point_sets
from lresnet_paper.bench.timing import (
    PROCESS,
    Batch,
    EventClock,
    HostClock,
    Spread,
    SyncTimes,
    copy_rate,
    device_clock,
    interleave,
    ratios,
    single_thread,
    spread,
    sync_times,
)
from tests.paper.fake_clock import FakeClock

CPU = torch.device("cpu")
TINY = Size(8, 16)


@pytest.fixture(autouse=True)
def few_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet_paper.bench.residuals._CPU_CACHE", 1000)


class Machine:
    """An asynchronous device: a launch takes the host 1 unit of time, and its work takes the device 100."""

    def __init__(self) -> None:
        self.host, self.done = 0.0, 0.0

    def launch(self) -> None:
        self.host += 1
        self.done = max(self.done, self.host) + 100

    def synchronise(self) -> None:
        self.host = max(self.host, self.done)

    def now(self) -> float:
        return self.host

    def event(self) -> "Event":
        return Event(self)


class Event:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.at = machine, math.nan

    def record(self) -> None:
        self.at = max(self.machine.host, self.machine.done)

    def synchronize(self) -> None:
        self.machine.host = max(self.machine.host, self.at)

    def elapsed_time(self, later: "Event") -> float:
        return later.at - self.at


def test_an_event_clock_times_the_work_and_a_host_clock_only_the_launch() -> None:
    machine = Machine()
    clock = EventClock(machine.event, machine.launch)
    for _ in range(2):  # the second time the GPU is idle when the clock starts
        assert clock.seconds(machine.launch) == pytest.approx(0.1)
        machine.synchronise()
    assert HostClock("host", machine.now).seconds(machine.launch) == 1


def test_work_submitted_before_is_not_timed() -> None:
    machine = Machine()
    machine.launch()  # submitted before: not timed

    def loop() -> None:
        for _ in range(10):
            machine.launch()

    assert sync_times(loop, machine.synchronise, machine.now) == SyncTimes(returned=10, finished=1001)


def test_the_clock_of_a_cpu_is_process_time_of_one_thread() -> None:
    assert device_clock(CPU) is PROCESS
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with single_thread(CPU):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_candidates_alternate_in_order_and_never_reuse_the_last_batch() -> None:
    seen: list[tuple[str, int]] = []
    clock = FakeClock()

    def batch(name: str, number: int) -> Batch:
        def task() -> None:
            seen.append((name, number))
            clock.spent = {"a": 3.0, "b": 8.0}[name]

        return Batch(task, 2)

    field = {name: [batch(name, number) for number in range(3)] for name in ("a", "b")}
    seconds = interleave(field, clock, rounds=4, warm_up=1)
    assert seconds == {"a": [1.5] * 4, "b": [4.0] * 4}  # of one call; the warm-up round is not measured
    assert "".join(name for name, _ in seen) == "abbaabbaab"
    assert all(before != after for (_, before), (_, after) in itertools.pairwise(seen))
    assert {number for _, number in seen} == {0, 1, 2}


def test_spread_and_ratios() -> None:
    assert spread([4.0, 1.0, 3.0, 2.0, 5.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0, 1)
    # Ratios are taken round by round.
    assert ratios([1.0, 2.0, 30.0], [1.0, 1.0, 10.0]).median == 2.0
    assert ratios([10.0, 20.0, 30.0], [5.0, 40.0, 10.0]).median == 2.0


@pytest.mark.parametrize("text", ["2048", "2048/", "a/b", "0/5", "-1/5", "1/2/3", "2.5/4", ""])
def test_an_invalid_size_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="a size is DIMENSION/POINTS"):
        parse_size(text)


def test_the_point_sets_exceed_the_cache() -> None:
    assert parse_size("4096/100000").bytes == 1_638_400_000
    assert str(parse_size("2048/10000")) == "2048/10000"
    sets = point_sets(TINY, CPU)
    assert len(sets) == 4  # of 2 x 512 bytes, to exceed 4 x 1000
    assert all(one.x.requires_grad and one.y.requires_grad and not one.g.requires_grad for one in sets)
    assert len({one.x.data_ptr() for one in sets}) == 4
    assert len(point_sets(Size(1, 1), CPU)) == 256


def test_the_copy_rate_is_the_highest_rate_in_bytes_read_and_written() -> None:
    found = copy_rate(CPU, HostClock("fake", iter(range(10_000)).__next__), rounds=3, sizes=[800, 8000])
    assert found.bytes_per_second == 8000  # a second a copy
    assert set(found.tried.values()) == {800.0, 8000.0}
    assert len(found.tried) == 4
