"""Faults by kind: every one is injected into every scenario, and what is left is compared with a run without faults."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lresnet._files import InUse
from lresnet.plots.curves import read_curve
from lresnet.runs.graph_search import read_trials
from lresnet.runs.record import (
    MODEL_FILES,
    TOKENIZER_FILE,
    read_evaluation,
    read_finished_record,
    read_record,
    require_undamaged,
)
from lresnet.train.checkpoint import load_checkpoint
from lresnet.train.results import read_results
from tests.faults.commands import VERBS, Outcome, Runs, damages, prohibitions, run_verb, verdict
from tests.faults.disk import CUTS, Disk, Fault, Replay, write_files
from tests.faults.scenarios import SCENARIOS, Scenario

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.faults.warm"])
_HANG_SECONDS = 600  # only ends a campaign that hangs


@dataclass
class Count:
    """How many faults were injected, and what became of them.

    Args:
        survived: the outcome is that of a run without faults; or the damage is reported in one line.
        lost: something that was promised is gone, or the program cannot go on.
        silent: the outcome is another one, and nothing said so.
        problems: a line for each that was not survived.
    """

    injected: int = 0
    survived: int = 0
    lost: int = 0
    silent: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, what: str, result: str) -> None:
        """Count a fault: ``"survived"``, or ``"lost: reason"``, or ``"silent: reason"``."""
        self.injected += 1
        kind = result.partition(":")[0]
        setattr(self, kind, getattr(self, kind) + 1)
        if kind != "survived":
            self.problems.append(f"{what}: {result}")


@dataclass
class Reference:
    """A scenario that ran to its end without a fault."""

    scenario: Scenario
    folder: Path
    disk: Disk
    outcome: object

    def promised(self, operations: int) -> int:
        """Return how far the program had come, by its own word, after some operations."""
        return max(self.disk.promised(operations), default=-1)

    def resumed(self, folder: Path, promised: int) -> str:
        """Start the program again after a fault and say what became of it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the checkpoint before the last one is used
            try:
                reached = self.scenario.progress(folder)
                if reached < promised:
                    return f"lost: {promised} was promised, {reached} is there"
                self.scenario.start(folder)
                outcome = self.scenario.outcome(folder)
            except Exception as error:
                return f"lost: {type(error).__name__}: {error}"
        if left := [path.name for path in folder.rglob("*") if path.suffix == ".tmp"]:
            return f"lost: a temporary file stays: {left[0]}"
        return "survived" if outcome == self.outcome else f"silent: {outcome} instead of {self.outcome}"


@contextmanager
def reference(name: str) -> Iterator[Reference]:
    """Run a scenario in a new folder without a fault."""
    scenario = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "whole"
        disk = scenario.record(folder)
        yield Reference(scenario, folder, disk, scenario.outcome(folder))


@contextmanager
def _new_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place) / "run"


# Power cuts ----------------------------------------------------------------------------------------------------------


def power_cuts(whole: Reference, step: int = 1) -> Count:
    """Cut the power before every operation and after the last one, in the ways of :data:`tests.faults.disk.CUTS`."""
    count, total = Count(), len(whole.disk.operations)
    for number in [*range(0, total, step), total]:
        replay = Replay(whole.disk.operations[:number])
        seen: list[dict[str, bytes | None]] = []
        for kind in CUTS:
            files = replay.after_a_cut(kind)
            if files in seen:  # no difference to another way
                continue
            seen.append(files)
            with _new_folder() as folder:
                write_files(folder, files)
                count.add(f"power cut before operation {number}, {kind}", whole.resumed(folder, whole.promised(number)))
    return count


# Kills ---------------------------------------------------------------------------------------------------------------


def kills(whole: Reference, step: int = 1) -> Count:
    """End the process with SIGKILL at every operation."""
    count = Count()
    for number in range(0, len(whole.disk.operations), step):
        with _new_folder() as folder:
            process = _CONTEXT.Process(target=_start, args=(whole.scenario.name, folder, "kill", number))
            process.start()
            process.join(_HANG_SECONDS)
            what = f"kill at operation {number}"
            if process.exitcode != -signal.SIGKILL:
                count.add(what, f"lost: the process ended with {process.exitcode}, not by the signal")
                continue
            folder.mkdir(exist_ok=True)
            count.add(what, whole.resumed(folder, whole.promised(number)))
    return count


def _start(name: str, folder: Path, fault: Fault | None, number: int) -> None:
    torch.set_num_threads(1)
    with Disk(folder, fault, number).mounted():
        SCENARIOS[name].start(folder)


# A full disk ---------------------------------------------------------------------------------------------------------


def full_disks(whole: Reference, step: int = 1) -> Count:
    """Let the disk be full from every operation on that needs space; the error must name a file."""
    count = Count()
    for number, operation in list(enumerate(whole.disk.operations))[::step]:
        if operation.kind not in ("create", "write", "fsync", "mkdir"):
            continue
        with _new_folder() as folder:
            what, disk = f"full disk at operation {number}", Disk(folder, "full", number)
            with warnings.catch_warnings(), disk.mounted():
                warnings.simplefilter("ignore")  # that the metrics could not be saved
                try:
                    whole.scenario.start(folder)
                except OSError as error:
                    if str(folder) not in str(error):
                        count.add(what, f"lost: the error names no file: {error}")
                        continue
                except Exception as error:
                    count.add(what, f"lost: {type(error).__name__}: {error}")
                    continue
            folder.mkdir(exist_ok=True)
            count.add(what, whole.resumed(folder, whole.promised(number)))
    return count


# Flipped bits --------------------------------------------------------------------------------------------------------


def flipped_bits(whole: Reference, flips: int, repairs: int = 0, seed: int = 0) -> Count:
    """Flip one bit of a file of the finished program, or of the interrupted one, and read the file.

    Args:
        flips: number of flips, shared equally by the files.
        repairs: in so many of them, the program is started again.
        seed: decides the bits.
    """
    count, dice = Count(), random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / "finished", Path(place) / "interrupted"]
        shutil.copytree(whole.folder, folders[0])
        half = Replay(whole.disk.operations[: len(whole.disk.operations) * 2 // 3])
        write_files(folders[1], half.after_a_cut("unnamed"))
        targets = [
            (folder, path)
            for folder in folders
            for path in sorted(folder.rglob("*"))
            if path.is_file() and _READERS.get(path.name) and not path.name.startswith(".")
        ]
        targets = [target for target in targets if _is_read(*target)]
        known = {path: _values(folder, path) for folder, path in targets}
        for number in range(flips):
            folder, path = targets[number % len(targets)]
            whole_content = path.read_bytes()
            place_of_bit = dice.randrange(8 * len(whole_content))
            flipped = bytearray(whole_content)
            flipped[place_of_bit // 8] ^= 1 << place_of_bit % 8
            path.write_bytes(flipped)
            result = _read_flipped(folder, path, known[path])
            if result == "survived" and number < repairs:
                result = _start_flipped(whole, folder)
            count.add(f"bit {place_of_bit} of {path.relative_to(place)}", result)
            path.write_bytes(whole_content)
    return count


def _is_read(folder: Path, path: Path) -> bool:
    """Whether a program reads the file in this state: not the model of a run that has not finished."""
    try:
        _values(folder, path)
    except (FileNotFoundError, ValueError):
        return False
    return True


def _read_flipped(folder: Path, path: Path, known: object) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            values = _values(folder, path)
        except (UserWarning, ValueError) as noticed:
            return "survived" if "\n" not in str(noticed) else f"lost: a message of several lines: {noticed}"
        except Exception as error:
            return f"lost: {type(error).__name__}: {error}"
    return "survived" if values == known else "silent: the file reads as something else"


def _start_flipped(whole: Reference, folder: Path) -> str:
    """Start the program on a copy: it repairs the file, or refuses it in one line."""
    with _new_folder() as copy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shutil.copytree(folder, copy)
        try:
            whole.scenario.start(copy)
            outcome = whole.scenario.outcome(copy)
        except ValueError as refused:
            return "survived" if "\n" not in str(refused) else f"lost: a message of several lines: {refused}"
        except Exception as error:
            return f"lost: {type(error).__name__}: {error}"
    return "survived" if outcome == whole.outcome else f"silent: {outcome} instead of {whole.outcome}"


def _values(folder: Path, path: Path) -> object:
    return _READERS[path.name](folder)


def _record(folder: Path) -> object:
    record = read_record(folder)
    return None if record is None else record.as_dict()


def _evaluation(folder: Path) -> object:
    record = read_evaluation(folder)
    return None if record is None else record.as_dict()


def _plain(value: Any) -> object:
    """Return nested values with tensors as lists, which can be compared."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


_READERS: dict[str, Callable[[Path], object]] = {
    "run.json": _record,
    "evaluation.json": _evaluation,
    "model.safetensors": lambda folder: require_undamaged(folder, read_finished_record(folder), MODEL_FILES),
    "config.json": lambda folder: require_undamaged(folder, read_finished_record(folder), MODEL_FILES),
    "tokenizer.json": lambda folder: require_undamaged(folder, read_finished_record(folder), [TOKENIZER_FILE]),
    "search.jsonl": read_trials,
    "curve.jsonl": read_curve,
    "checkpoint.pt": lambda folder: _plain(load_checkpoint(folder / "checkpoint.pt")),
    "demo.jsonl": lambda folder: list(read_results(folder / "demo.jsonl")),
}


# Damaged and unreadable files of a run on images ---------------------------------------------------------------------


def damaged_files(runs: Runs, step: int = 1, seed: int = 0) -> Count:
    """Damage every file of a run and some of its images, and give the run to every command."""
    return _commands(runs, list(damages(runs, random.Random(seed))), step, unprivileged=False)


def missing_permissions(runs: Runs, step: int = 1) -> Count:
    """Forbid access to every file of a run and to its images; root gives up its privileges, which ignore that."""
    return _commands(runs, list(prohibitions(runs)), step, unprivileged=True)


def _commands(runs: Runs, faults: Sequence[Any], step: int, *, unprivileged: bool) -> Count:
    count = Count()
    cases = [(fault, verb) for fault in faults for verb in VERBS]
    whole: dict[tuple[str, str], Outcome] = {}
    for (what, source, damage, mend), verb in cases[::step]:
        if (source, verb) not in whole:
            runs.copy(source)
            whole[source, verb] = _outcome(runs, verb)
        if verb == "report" and what.startswith("deleted") and source == "finished":
            continue  # the run has not been evaluated, or is none
        runs.copy(source)
        damage()
        try:
            found = _outcome(runs, verb, unprivileged=unprivileged)
        finally:
            mend()
            runs.run.chmod(0o755)
        count.add(f"{what} of the {source} run, {verb}", verdict(runs, found, whole[source, verb]))
    return count


def _outcome(runs: Runs, verb: str, **options: Any) -> Outcome:
    answers = _CONTEXT.SimpleQueue()
    process = _CONTEXT.Process(target=run_verb, args=(runs, verb, answers), kwargs=options)
    process.start()
    process.join(_HANG_SECONDS)
    if process.exitcode != 0:
        return -1, "", f"the process ended with {process.exitcode}", ""
    found: Outcome = answers.get()
    return found


# Two processes -------------------------------------------------------------------------------------------------------


def two_processes(whole: Reference, rounds: int) -> Count:
    """Start the program twice at the same time in one folder; one of them may be refused."""
    count = Count()
    for number in range(rounds):
        with _new_folder() as folder:
            start, answers = _CONTEXT.Barrier(2), _CONTEXT.SimpleQueue()
            arguments = (whole.scenario.name, folder, start, answers)
            both = [_CONTEXT.Process(target=_compete, args=arguments) for _ in range(2)]
            for process in both:
                process.start()
            for process in both:
                process.join(_HANG_SECONDS)
            said = [answers.get() for process in both if process.exitcode == 0]
            what = f"two processes, round {number}"
            if len(said) < 2 or not any(word == "done" for word in said) or any("Error" in word for word in said):
                count.add(what, f"lost: {said}")
            else:
                count.add(what, whole.resumed(folder, whole.promised(len(whole.disk.operations))))
    return count


def _compete(name: str, folder: Path, start: Any, answers: Any) -> None:
    torch.set_num_threads(1)
    start.wait()
    try:
        SCENARIOS[name].start(folder)
        answers.put("done")
    except InUse:
        answers.put("refused")
    except Exception as error:
        answers.put(f"{type(error).__name__}: {error}")
