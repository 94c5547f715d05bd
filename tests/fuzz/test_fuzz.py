"""The fuzzers: 5,000 damaged and hostile files in a short run, and what the harness itself must notice."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.__main__ import planned, table
from tests.fuzz.workers import Case, Target, files_of, run_cases

ROOT = Path(__file__).parents[2]


def test_no_reader_crashes_or_fails_in_another_way_than_one_line(request: pytest.FixtureRequest) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", "5000", "--processes", "2"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    total = re.search(r"^\| all \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| 0 \| 0 \| 0 \|$", done.stdout, re.MULTILINE)
    assert total is not None, done.stdout
    inputs, accepted, refused = (int(number.replace(",", "")) for number in total.groups())
    assert inputs >= 4_900
    assert accepted >= inputs // 10  # damage that no reader notices finds nothing, nor does damage that all notice
    assert refused >= inputs // 10


def _read(folder: Path) -> None:
    """A reader with every fault; the first byte of the file chooses one."""
    content = (folder / "a.bin").read_bytes()
    match content[:1]:
        case b"s":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"e":
            os._exit(3)
        case b"m":
            np.ones(2**28)  # 2 GB
        case b"l":
            while True:
                pass
        case b"k":
            raise KeyError("damaged")
        case b"n":
            raise ValueError("damaged")
        case b"2":
            raise ValueError(f"{folder / 'a.bin'} is damaged\nbadly")
        case b"r":
            raise ValueError(f"{folder / 'a.bin'} is damaged")


def _counts(faults: str) -> dict[str, int]:
    """Run valid inputs of a reader that treats them in the given ways."""
    targets = {fault: Target(fault, [{"a.bin": fault.encode()}], _read) for fault in faults}
    counts, failures = run_cases(targets, [Case(fault, 0) for fault in faults], seed=0)
    assert all(failure.detail for failure in failures)
    return dict.fromkeys(faults, 1) and {
        f"{name} {outcome}": count for (name, outcome), count in sorted(counts.items())
    }


def test_every_fault_is_noticed_and_the_next_input_still_runs() -> None:
    assert _counts("smaeknb2") == {
        "2 traceback": 1,
        "a accepted": 1,
        "b accepted": 1,
        "e crash": 1,
        "k traceback": 1,
        "m over limits": 1,
        "n traceback": 1,
        "s crash": 1,
    }


def test_a_refusal_of_a_valid_input_is_a_fault() -> None:
    assert _counts("r") == {"r traceback": 1}


@pytest.mark.slow
def test_a_reader_that_never_ends_is_stopped_after_its_cpu_time() -> None:
    assert _counts("la") == {"a accepted": 1, "l over limits": 1}


def test_inputs_depend_on_the_seed_only() -> None:
    target = Target("t", [{"a.csv": b"0,1\n1,2\n2,3\n", "b.json": b'{"a": [1, 2], "b": {"c": 0.5}}'}], _read)
    first = [files_of(target, index, 0) for index in range(200)]
    assert first == [files_of(target, index, 0) for index in range(200)]
    assert first != [files_of(target, index, 1) for index in range(200)]
    assert first[0] == target.inputs[0]  # a valid one
    changed = sum(files != target.inputs[0] for files in first)
    assert changed > 150


def test_cases_follow_the_weights_and_are_counted() -> None:
    targets = {"a": Target("a", [{}], _read, weight=3), "b": Target("b", [{}], _read)}
    cases = planned(targets, 400)
    assert Counter(case.target for case in cases) == {"a": 300, "b": 100}
    assert len(set(cases)) == 400
    counts = Counter({("a", "accepted"): 2, ("a", "crash"): 1, ("b", "refused"): 4})
    assert table(counts).splitlines()[2:] == [
        "| a | 3 | 2 | 0 | 0 | 1 | 0 |",
        "| b | 4 | 0 | 4 | 0 | 0 | 0 |",
        "| all | 7 | 2 | 4 | 0 | 1 | 0 |",
    ]
