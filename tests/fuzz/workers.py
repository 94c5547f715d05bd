"""Inputs in forked processes: a crash ends one process, is counted, and the next input runs in a new one."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import random
import resource
import shutil
import signal
import struct
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutations import mutated_files

__all__ = ["CPU_SECONDS", "GROWTH_BYTES", "Case", "Failure", "Target", "files_of", "run_cases"]

CPU_SECONDS = 2.0
GROWTH_BYTES = 2**30
_PER_PROCESS = 2_000  # inputs of a process, after which a new one starts
_LENGTH = struct.Struct("<I")

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Target:
    """A reader, with valid inputs to start from.

    Args:
        name: Name of the reader.
        inputs: Valid inputs: files by their path below a folder.
        read: Reads the files in a folder.
        fixed: Files that stay as they are.
        title: A name that a message may have in place of the file's: that of a published data set, whose files get here
            only with the right checksum.
        weight: How many inputs it gets, relative to the others.
    """

    name: str
    inputs: Sequence[Files]
    read: Callable[[Path], object]
    fixed: frozenset[str] = frozenset()
    title: str | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Case:
    """One input: number ``index`` of a target; with the seed it determines the files."""

    target: str
    index: int


@dataclass(frozen=True)
class Failure:
    """An input with a forbidden outcome: a traceback, a crash of the process, or a limit that was exceeded."""

    case: Case
    outcome: str
    detail: str


def files_of(target: Target, index: int, seed: int) -> dict[str, bytes]:
    """Return the files of an input. Every tenth of a target's first hundred inputs is a valid one."""
    rng = random.Random(f"{seed}:{target.name}:{index}")
    files = dict(target.inputs[index % len(target.inputs)])
    return files if is_valid(index) else mutated_files(files, rng, target.fixed)


def is_valid(index: int) -> bool:
    """Whether the files of an input are unchanged, so that the reader must accept them."""
    return index < 100 and index % 10 == 0


def run_cases(
    targets: Mapping[str, Target], cases: Sequence[Case], seed: int, processes: int = 1
) -> tuple[Counter[tuple[str, str]], list[Failure]]:
    """Run inputs in ``processes`` processes at a time, and count the outcomes of each target."""
    counts, failures = Counter[tuple[str, str]](), list[Failure]()
    memory_disk = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory_disk if memory_disk.is_dir() else None) as folder:
        parts = [list(cases[number::processes]) for number in range(processes)]
        streams = [_outcomes(targets, part, seed, Path(folder)) for part in parts]
        while streams:  # one outcome of each stream in turn; meanwhile the other processes work on
            for stream in list(streams):
                found = next(stream, None)
                if found is None:
                    streams.remove(stream)
                    continue
                case, outcome, detail = found
                counts[case.target, outcome] += 1
                if outcome not in ("accepted", "refused"):
                    failures.append(Failure(case, outcome, detail))
    return counts, failures


def _outcomes(
    targets: Mapping[str, Target], cases: Sequence[Case], seed: int, folder: Path
) -> Iterator[tuple[Case, str, str]]:
    done = 0
    while done < len(cases):
        pid, pipe = _start(targets, cases[done : done + _PER_PROCESS], seed, folder)
        limit = min(done + _PER_PROCESS, len(cases))
        with open(pipe, "rb") as messages:  # noqa: PTH123 - a file descriptor
            while done < limit and (head := messages.read(_LENGTH.size)):
                outcome, detail = json.loads(messages.read(_LENGTH.unpack(head)[0]))
                yield cases[done], outcome, detail
                done += 1
        _, status = os.waitpid(pid, 0)
        if done < limit:
            number = -os.waitstatus_to_exitcode(status)
            if number == signal.SIGPROF:
                yield cases[done], "over limits", f"more than {5 * CPU_SECONDS:g} seconds of CPU time"
            else:
                name = signal.Signals(number).name if number > 0 else f"exit code {-number}"
                yield cases[done], "crash", f"the process ended: {name}"
            done += 1


def _start(targets: Mapping[str, Target], cases: Sequence[Case], seed: int, folder: Path) -> tuple[int, int]:
    """Fork a process that works through ``cases``; return its id and the pipe on which it reports."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    try:
        os.close(read_end)
        nowhere = os.open(os.devnull, os.O_RDWR)  # decoders print warnings of their own
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        _work(targets, cases, seed, folder / str(os.getpid()), write_end)
    finally:
        os._exit(0)


def _work(targets: Mapping[str, Target], cases: Sequence[Case], seed: int, root: Path, pipe: int) -> None:
    gc.freeze()
    faulthandler.disable()  # pytest's would print the crashes that are counted
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + GROWTH_BYTES,) * 2)
    for number, case in enumerate(cases):
        folder = root / str(number)
        outcome = outcome_of(targets[case.target], files_of(targets[case.target], case.index, seed), folder)
        if outcome[0] == "refused" and is_valid(case.index):
            outcome = ("traceback", f"valid files were refused: {outcome[1]}")
        message = json.dumps(outcome).encode()
        os.write(pipe, _LENGTH.pack(len(message)) + message)
        shutil.rmtree(folder, ignore_errors=True)


def outcome_of(target: Target, files: Files, folder: Path) -> tuple[str, str]:
    """Write the files, read them, and return the outcome with what is wrong about it."""
    folder = folder / "in"  # the name of no reader's file
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    memory, start = _status("VmRSS"), time.process_time()
    signal.setitimer(signal.ITIMER_PROF, 5 * CPU_SECONDS)
    try:
        target.read(folder)
        outcome = ("accepted", "")
    except Exception as error:
        outcome = _judged(error, folder, [target.title or "", *files])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds, growth = time.process_time() - start, _status("VmHWM") - memory
    if seconds > CPU_SECONDS:
        return "over limits", f"{seconds:.1f} seconds of CPU time"
    if growth > GROWTH_BYTES:
        return "over limits", f"{growth / 2**20:.0f} MiB more memory"
    return outcome


def _judged(error: Exception, folder: Path, files: Sequence[str]) -> tuple[str, str]:
    chain, one = list[BaseException](), error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or one.__context__  # type: ignore[assignment]
    if any(isinstance(own, MemoryError) or "DefaultCPUAllocator" in str(own) for own in chain):
        return "over limits", f"an allocation of more than 1 GiB: {error}"
    text = "".join(traceback.format_exception(error))[-4000:]
    if not isinstance(error, ValueError | OSError):
        return "traceback", text
    message = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        message = f"{error.filename}: {error.strerror}"  # as the command line shows it
    names = {str(folder), *(Path(name).name for name in files if name)}
    if len(message.splitlines()) != 1 or len(message) > 1000 or not any(name in message for name in names):
        return "traceback", f"the message is not one line that names the file: {message[:1500]!r}\n{text}"
    return "refused", message


def _status(name: str) -> int:
    """Return a line of ``/proc/self/status`` in bytes; 0 where there is none."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    return 0
