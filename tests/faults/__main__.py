"""``make test-faults``: inject all faults and print how many were survived. A loss is exit code 1."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.faults.campaign import (
    Count,
    damaged_files,
    flipped_bits,
    full_disks,
    kills,
    missing_permissions,
    power_cuts,
    reference,
    two_processes,
)
from tests.faults.commands import Runs
from tests.faults.scenarios import SCENARIOS

_FLIPS, _REPAIRS, _ROUNDS = 1500, 150, 20


def main() -> int:
    """Run the whole campaign and print a table."""
    argparse.ArgumentParser("python -m tests.faults", description=__doc__).parse_args()  # --help; there is no option
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that are started
    torch.set_num_threads(1)
    rows: list[tuple[str, str, Count]] = []
    started = time.perf_counter()
    print(f"{'program':<14} {'fault':<14} {'injected':>8} {'survived':>8} {'lost':>5} {'silent':>6}")
    for name in SCENARIOS:
        with reference(name) as whole:
            campaign = {
                "power cut": lambda whole=whole: power_cuts(whole),
                "SIGKILL": lambda whole=whole: kills(whole),
                "full disk": lambda whole=whole: full_disks(whole),
                "flipped bit": lambda whole=whole: flipped_bits(whole, _FLIPS, _REPAIRS),
                "two processes": lambda whole=whole: two_processes(whole, _ROUNDS),
            }
            if name == "report":  # a page is for people: nothing reads it again
                del campaign["flipped bit"]
            for fault, inject in campaign.items():
                rows.append((name, fault, inject()))
                _print(*rows[-1])
    with tempfile.TemporaryDirectory() as place:
        runs = Runs.prepare(Path(place))
        for fault, commands in (("damaged file", damaged_files), ("no permission", missing_permissions)):
            rows.append(("image commands", fault, commands(runs)))
            _print(*rows[-1])
    total = Count(*(sum(getattr(row[2], part) for row in rows) for part in ("injected", "survived", "lost", "silent")))
    _print("all", "", total)
    print(f"{time.perf_counter() - started:.0f} s, torch {torch.__version__}, Python {sys.version.split()[0]}")
    for name, _, count in rows:
        for problem in count.problems:
            print(f"{name}: {problem}", file=sys.stderr)
    return int(total.lost + total.silent > 0)


def _print(name: str, fault: str, count: Count) -> None:
    numbers = f"{count.injected:>8,} {count.survived:>8,} {count.lost:>5} {count.silent:>6}"
    print(f"{name:<14} {fault:<14} {numbers}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
