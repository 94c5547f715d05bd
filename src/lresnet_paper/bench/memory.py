"""Peak memory of one training step, each network in a process of its own.

On CUDA it is the most that was allocated during one steady step, after the autotuners have made their choice; on a CPU
the growth of the process's peak over what it was after the imports.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from lresnet_paper.bench.entry import first_line
from lresnet_paper.bench.runs import image_training, tried_convolutions

__all__ = ["Network", "peak_bytes", "peak_resident", "peaks_in_fresh_processes", "print_peak"]

# The engine records a step at its fourth call; what a recorded step allocates is not seen.
_STEADY = 2

_CHILD = "import sys; from lresnet_paper.bench.memory import print_peak; print_peak(*sys.argv[1:])"


class Network(NamedTuple):
    """What to measure."""

    model: str
    method: str
    batch: int


def peaks_in_fresh_processes(networks: Iterable[Network], device: torch.device) -> dict[Network, int | str]:
    """Peak bytes of each, or in one line why there are none.

    On CUDA all processes run side by side: they compile most of the time, and who comes later finds in the cache what
    they compiled.
    """
    if device.type == "cuda":
        started = {network: _start(network, device) for network in networks}
        return {network: _result(process) for network, process in started.items()}
    return {network: _result(_start(network, device)) for network in networks}


def peak_bytes(network: Network, device: torch.device) -> int:
    """Of one training step in this process."""
    before = peak_resident()
    run = image_training(*network, network.batch, device)
    run.model.train()
    run.objective.start_epoch()
    run.objective.advance(0)
    with tried_convolutions():
        for _ in range(_STEADY):
            run.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            run.step()
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated()
        run.step()
    return peak_resident() - before


def _start(network: Network, device: torch.device) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CHILD, *map(str, network), str(device)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> int | str:
    out, err = process.communicate()
    lines = out.splitlines()
    if process.returncode or not lines:
        return next((text for text in reversed(err.splitlines()) if text.strip()), "it ended without a word")[:160]
    found = json.loads(lines[-1])
    return str(found["missing"]) if "missing" in found else int(found["peak_bytes"])


def peak_resident() -> int:
    """The most memory that this process has had, bytes."""
    status = Path("/proc/self/status")
    if status.is_file():  # what getrusage says on Linux is inherited from the process that started this one
        words = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return 1024 * int(words["VmHWM"].split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def print_peak(model: str, method: str, batch: str, device: str) -> None:
    """What a fresh process does: print one JSON object."""
    try:
        found: dict[str, object] = {"peak_bytes": peak_bytes(Network(model, method, int(batch)), torch.device(device))}
    except Exception as error:  # said in the row of this network; the others are measured
        found = {"missing": first_line(error)}
    sys.stdout.write(json.dumps(found) + "\n")
