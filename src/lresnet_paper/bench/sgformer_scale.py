"""Time and memory of ``lorentz_sgformer`` as the graph grows, every size in a process of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import torch

from lresnet_paper.bench.clock import device_clock, one_thread
from lresnet_paper.bench.entry import first_line
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.memory import peak_resident
from lresnet_paper.bench.rounds import spread
from lresnet_paper.bench.sgformer import FEATURES, NEIGHBOURS, random_training

__all__ = ["SIZES", "measure_scale", "print_scale"]

SIZES = (10_000, 100_000, 1_000_000)

_EPOCHS = {"cuda": 20, "cpu": 3}  # that are timed
_STEADY = (
    2  # epochs before memory is looked at on CUDA; the engine records its step in the fourth, and that is not seen
)
# By default the C library gives arrays above 32 MB back to the system at once, which clears their pages for the next.
_KEEPING = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=34359738368"
_CHILD = "import sys; from lresnet_paper.bench.sgformer_scale import print_scale; print_scale(*sys.argv[1:])"


def measure_scale(sizes: Sequence[int], methods: Sequence[str], device: torch.device) -> list[Measurement]:
    """Seconds of an epoch and peak memory for each number of nodes, and what ten times the nodes make of them.

    On a CPU the memory is the growth of the process's peak over what it was after the imports: the graph, its making
    and the training; and everything is measured once more by a process that keeps what it was given, as the cost of
    pages that go to and fro grows faster than the arithmetic. On CUDA, where torch keeps memory anyway, it is the most
    that was allocated during one steady epoch.
    """
    ways = [""] if device.type == "cuda" else ["", _KEEPING]
    return [one for method in methods for way in ways for one in _grow(sizes, method, way, device)]


def _grow(sizes: Sequence[int], method: str, tunables: str, device: torch.device) -> list[Measurement]:
    """One method, from the smallest graph to the largest. ``tunables``: of the C library."""
    measured, before = list[Measurement](), dict[str, Any]()
    cell, words = f"{NEIGHBOURS} neighbours, {FEATURES} features", " nodes, kept" if tunables else " nodes"
    for nodes in sorted(sizes):
        case = "scale", cell, method, f"{nodes:,}{words}", "training epoch"
        found = _in_a_fresh_process(nodes, method, device, tunables)
        if "missing" in found:
            measured.append(Measurement(*case, missing=found["missing"]))
            continue
        spent = spread(found["seconds"])
        now = {"nodes": nodes, "seconds": spent.median, "peak": found["peak"]}
        figures = {"nodes": nodes, "peak_gibibytes": found["peak"] / 2**30, **_growth(before, now)}
        facts = {"clock": found["clock"], "threads": 1, "GLIBC_TUNABLES": tunables}
        measured.append(Measurement(*case, spent, figures, facts=facts))
        before = now
    return measured


def print_scale(nodes: str, method: str, device: str) -> None:
    """What a fresh process does: print one JSON object."""
    try:
        found = _measure(int(nodes), method, torch.device(device))
    except Exception as error:  # said in the row of this size; the others are measured
        found = {"missing": first_line(error)}
    sys.stdout.write(json.dumps(found) + "\n")


def _measure(nodes: int, method: str, device: torch.device) -> dict[str, Any]:
    before, clock = peak_resident(), device_clock(device)
    with one_thread(device):
        run = random_training(nodes, method, device)
        run.train_epoch()
        peak = _steady_peak(run) if device.type == "cuda" else 0
        seconds = [clock.seconds(run.train_epoch) for _ in range(_EPOCHS[device.type])]
    return {"seconds": seconds, "peak": peak or peak_resident() - before, "clock": clock.name}


def _steady_peak(run: Any) -> int:
    """Bytes on the GPU during one epoch; goes on to the epoch in which the step is recorded."""
    for _ in range(_STEADY - 1):
        run.train_epoch()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run.train_epoch()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    run.train_epoch()
    return peak


def _in_a_fresh_process(nodes: int, method: str, device: torch.device, tunables: str) -> dict[str, Any]:
    command = [sys.executable, "-c", _CHILD, str(nodes), method, str(device)]
    environment = os.environ | ({"GLIBC_TUNABLES": tunables} if tunables else {})
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:  # e.g. the system ended it, for want of memory
        words = next((text for text in reversed(done.stderr.splitlines()) if text.strip()), "it ended without a word")
        return {"missing": words[:160]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def _growth(before: dict[str, Any], now: dict[str, Any]) -> dict[str, float]:
    """How many times as much time and memory ten times the nodes take: 10 is linear."""
    if not before:
        return {}
    power = 1 / math.log10(now["nodes"] / before["nodes"])
    names = {"time_growth": "seconds", "memory_growth": "peak"}
    return {name: (now[key] / before[key]) ** power for name, key in names.items()}
