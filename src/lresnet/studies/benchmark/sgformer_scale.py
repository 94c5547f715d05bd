"""Time and memory of ``lorentz_sgformer`` as the graph grows, every size in a process of its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import torch

from lresnet.studies.benchmark.clock import device_clock, one_thread
from lresnet.studies.benchmark.entry import first_line
from lresnet.studies.benchmark.measurement import Measurement
from lresnet.studies.benchmark.memory import peak_resident
from lresnet.studies.benchmark.rounds import spread
from lresnet.studies.benchmark.sgformer import FEATURES, NEIGHBOURS, random_training

__all__ = ["SIZES", "measure_scale", "print_scale"]

SIZES = (10_000, 100_000, 1_000_000)

_EPOCHS, _ON_CUDA = 5, 20  # that are timed
_STEADY = 2  # epochs before memory is looked at; the engine records its step in the fourth, and that is not seen
_CHILD = "import sys; from lresnet.studies.benchmark.sgformer_scale import print_scale; print_scale(*sys.argv[1:])"


def measure_scale(sizes: Sequence[int], methods: Sequence[str], device: torch.device) -> list[Measurement]:
    """Seconds of an epoch and peak memory for each number of nodes, and what ten times the nodes make of them.

    On a CPU the memory is the growth of the process's peak over what it was after the imports: the graph, its making
    and the training. On CUDA it is the most that was allocated during one steady epoch.
    """
    measured = []
    for method in methods:
        before: dict[str, Any] = {}
        for nodes in sorted(sizes):
            case = (
                "scale",
                f"{NEIGHBOURS} neighbours, {FEATURES} features",
                method,
                f"{nodes:,} nodes",
                "training epoch",
            )
            found = _in_a_fresh_process(nodes, method, device)
            if "missing" in found:
                measured.append(Measurement(*case, missing=found["missing"]))
                continue
            spent = spread(found["seconds"])
            now = {"nodes": nodes, "seconds": spent.median, "peak": found["peak"]}
            figures = {"nodes": nodes, "peak_gibibytes": found["peak"] / 2**30, **_growth(before, now)}
            measured.append(Measurement(*case, spent, figures, facts={"clock": found["clock"], "threads": 1}))
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
    before, clock, on_gpu = peak_resident(), device_clock(device), device.type == "cuda"
    with one_thread(device):
        run = random_training(nodes, method, device)
        for _ in range(_STEADY):
            run.train_epoch()
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        run.train_epoch()
        if on_gpu:
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated()
            run.train_epoch()  # the one that is recorded
        seconds = [clock.seconds(run.train_epoch) for _ in range(_ON_CUDA if on_gpu else _EPOCHS)]
        if not on_gpu:
            peak = peak_resident() - before
    return {"seconds": seconds, "peak": peak, "clock": clock.name}


def _in_a_fresh_process(nodes: int, method: str, device: torch.device) -> dict[str, Any]:
    command = [sys.executable, "-c", _CHILD, str(nodes), method, str(device)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
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
    decades = math.log10(now["nodes"] / before["nodes"])
    return {
        f"{name}_growth": (now[key] / before[key]) ** (1 / decades)
        for name, key in (("time", "seconds"), ("memory", "peak"))
    }
