"""Free and peak memory, and measurements in fresh processes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from lresnet_paper.bench.timing import first_line

__all__ = [
    "free_memory",
    "lacking_memory",
    "peak_resident",
    "print_json",
    "process_result",
    "resident",
    "start_process",
]

_STATUS = Path("/proc/self/status")


def free_memory(device: torch.device) -> int:
    """Return the bytes that can still be allocated on ``device``."""
    if device.type == "cuda":  # what the driver has, and what torch holds without using it
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def lacking_memory(needed: int, device: torch.device) -> str:
    """Return "" if ``needed`` bytes are free on ``device``, else the reason in one line."""
    free = free_memory(device)
    return "" if needed <= free else f"needs up to {needed / 1e9:.0f} GB of memory, {free / 1e9:.0f} GB are free"


def peak_resident() -> int:
    """Return the peak resident memory of this process in bytes."""
    if _STATUS.is_file():  # on Linux, getrusage inherits the peak of the parent process
        return _status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident() -> int:
    """Return the resident memory of this process in bytes, on Linux."""
    return _status("VmRSS")


def _status(entry: str) -> int:
    entries = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines() if ":" in line)
    return 1024 * int(entries[entry].split()[0])


def start_process(
    module: str, function: str, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start ``function(*arguments)`` of ``module`` in a new Python process; the arguments are passed as strings.

    Args:
        module: a dotted name.
        function: a function of it that calls :func:`print_json`.
        *arguments: its arguments.
        environment: added to the environment variables of this process.
    """
    code = f"import sys; from {module} import {function}; {function}(*sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (environment or {}),
    )


def process_result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a process and return the object it printed; its key ``"missing"`` is the reason of a failure."""
    out, err = process.communicate()
    lines = out.splitlines()
    if process.returncode or not lines:  # e.g. the system ended it because memory was full
        ending = f"the process ended with code {process.returncode} and without a message"
        return {"missing": next((text for text in reversed(err.splitlines()) if text.strip()), ending)[:160]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def print_json(measure: Callable[[], Mapping[str, Any]]) -> None:
    """Print what ``measure`` returns as one line of JSON, or its error as ``{"missing": ...}``."""
    try:
        result = dict(measure())
    except Exception as error:  # reported in the row of this measurement; the others are still measured
        result = {"missing": first_line(error)}
    sys.stdout.write(json.dumps(result) + "\n")
