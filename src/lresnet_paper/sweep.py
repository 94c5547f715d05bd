"""Sweeps: all runs of a cell, in this process or in workers; one line of results per run, resumable."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import time
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from lresnet._files import InUse, has_file, locked, make_folder, require_writable
from lresnet.metrics.checks import NonFiniteScores
from lresnet.models import LorentzGCN, LorentzGCNII, LorentzSGFormer
from lresnet.models.pretrained import Pretrained
from lresnet.runs.workers import worker_pool
from lresnet.train import NonFiniteError, Objective, TrainConfig
from lresnet.train.checkpoint import is_damaged, previous_checkpoint
from lresnet.train.results import ResultsFile, environment
from lresnet.train.stacking import fork_generator, train_many
from lresnet.train.stacking.model import StackError
from lresnet_paper.depth import diagnose
from lresnet_paper.ood import detections, lines_of, remaining, require_sets
from lresnet_paper.plan import NothingChosen, final_runs, missing_runs, search_runs
from lresnet_paper.results import key_of_line
from lresnet_paper.run import Run, build, execute, graph_cell, record_of, require_data, split_depth

__all__ = [
    "Stage",
    "StageReport",
    "checkpoint_path",
    "execute_many",
    "group_runs",
    "remove_checkpoints",
    "reproduce_cell",
    "reproduce_cells",
    "run_all",
]

Stage = Literal["all", "search", "final"]
Record = dict[str, Any]
Report = Callable[[int, int, Record], None]


class StageReport(Protocol):
    """Callback of :func:`reproduce_cell`: called with no record when a stage starts, and after each of its runs."""

    def __call__(self, stage: str, done: int, total: int, record: Record | None) -> None: ...


# Cells ---------------------------------------------------------------------------------------------------------------


def reproduce_cell(
    table: str,
    cell: str,
    results: Path,
    *,
    protocol: str | None = None,
    report: StageReport | None = None,
    **options: Any,
) -> int:
    """Run the search of a cell and then its final runs: :func:`reproduce_cells` for one cell.

    Args:
        table: see :func:`reproduce_cells`, and ``results`` and ``options``.
        cell: the cell.
        protocol: recipe of the cell; None: its first.
        report: called when a stage starts and after each run.

    Returns:
        The number of runs that are still missing.
    """
    return reproduce_cells(table, [(cell, protocol)], results, report=lambda *_: report, **options)


def reproduce_cells(
    table: str,
    cells: Iterable[tuple[str, str | None]],
    results: Path,
    *,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    stage: Stage = "all",
    workers: int = 1,
    device: str = "cpu",
    minutes: float | None = None,
    report: Callable[[str, str | None], StageReport | None] = lambda *_: None,
    skip: Callable[[str, Exception], None] | None = None,
) -> int:
    """Run the searches and the final runs of cells in one pool. Runs that are already in ``results`` are skipped.

    The cells come in the order given. While the last runs of a search finish, free workers take runs of the next cell.

    Args:
        cells: pairs of a cell and its protocol; None: its first recipe.
        methods: methods to run; empty: all methods of the recipe.
        seeds: seeds of the final runs; empty: those of the recipe.
        stage: ``"search"`` or ``"final"`` runs only that stage. Final runs need a complete search of their method.
        workers: see :func:`run_all`.
        device: see :func:`run_all`.
        minutes: see :func:`run_all`.
        report: returns the report of a cell and protocol.
        skip: called with a cell whose data are missing, or for which another table has chosen nothing yet, and with
            the error. None: the error is raised.

    Returns:
        The number of runs that are still missing. Final runs count once the search of their method is complete.
    """
    _require_writable(results)
    names: tuple[Stage, ...] = ("search", "final") if stage == "all" else (stage,)

    def planned(cell: str, protocol: str | None, name: Stage) -> list[Run]:
        if name == "search":
            runs = search_runs(table, cell, methods, protocol)
        else:
            runs = final_runs(table, cell, results, methods, seeds, protocol)
        todo = missing_runs(runs, results)
        if todo:
            require_data(todo[0])  # report missing data once, here, instead of in every worker
            if "final" in names:
                require_sets(table, cell)
        return runs

    parts = []
    for cell, protocol in cells:
        own = report(cell, protocol)
        parts.append(
            _Part(
                results,
                f"lresnet reproduce {table} --cell {cell}" + (f" --protocol {protocol}" if protocol else ""),
                [functools.partial(planned, cell, protocol, name) for name in names],
                reports=[None if own is None else functools.partial(own, name) for name in names],
                grouped=device != "cpu",
                skip=None if skip is None else functools.partial(skip, cell),
            )
        )
    return _execute(parts, workers=workers, device=device, minutes=minutes)


# Many runs -----------------------------------------------------------------------------------------------------------


def run_all(
    runs: Iterable[Run],
    results: Path,
    *,
    command: str,
    workers: int = 1,
    device: str = "cpu",
    minutes: float | None = None,
    report: Report | None = None,
) -> int:
    """Execute the runs that are not in ``results`` yet, and append one line as each run finishes.

    Several processes may work on one file: each starts only runs that no other has finished, and no run is written
    twice. A run on a graph may be trained twice; give the processes different runs to share the work. An interrupted
    final training on images resumes from its checkpoint in the folder ``unfinished`` next to ``results``.

    Args:
        workers: number of processes. On a CPU each has one thread. On a GPU, runs on graphs that differ only in seed or
            split are trained as one stack, and each process takes whole stacks; with one worker, this process trains.
        minutes: start no run after this time. Runs that have started are finished, in a pool of processes also one
            that is already on its way to a worker.
        report: called as ``report(done, total, record)`` once the run is in ``results``. If it raises, if this process
            is interrupted, or if a run raises an unexpected error, the workers are stopped at once; every run that
            finished before is in ``results``.

    Returns:
        The number of runs that are still missing.
    """
    _require_writable(results)
    planned = list(runs)
    after = None if report is None else lambda done, total, record: record is None or report(done, total, record)
    part = _Part(results, command, [lambda: planned], reports=[after], grouped=device != "cpu")
    return _execute([part], workers=workers, device=device, minutes=minutes)


def _execute(parts: Sequence[_Part], *, workers: int, device: str, minutes: float | None) -> int:
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    # A worker on a CPU has one thread, so even a single worker is a process of its own.
    if device == "cpu" or workers > 1:
        _run_in_workers(parts, device, workers, deadline)
    else:
        _run_here(parts, device, deadline)
    return len({run.key() for part in parts for run in part.missing()})


class _Part:
    """The runs of one cell: stages that follow each other, each planned when the one before has finished.

    Args:
        results: the file of results.
        command: the command that the lines record.
        stages: functions that return the runs of a stage.
        reports: one for each stage, called as ``report(done, total, record)``; without a record when it starts.
        grouped: whether runs that differ only in seed or split are executed together.
        skip: called with an error of missing data; None: it is raised.
    """

    def __init__(
        self,
        results: Path,
        command: str,
        stages: Sequence[Callable[[], list[Run]]],
        *,
        reports: Sequence[Callable[[int, int, Record | None], object] | None],
        grouped: bool,
        skip: Callable[[Exception], None] | None = None,
    ) -> None:
        self.results, self.command = results, command
        self.running: list[list[Run]] = []
        self._stages = list(zip(stages, reports, strict=True))
        self._grouped, self._skip = grouped, skip
        self._waiting: Iterator[list[Run]] = iter(())
        self._planned = list[Run]()
        self.recorder = _Recorder(results, 0, None)

    def next(self, busy: Container[tuple[Any, ...]]) -> list[Run] | None:
        """Return runs to execute together; None: there are none before the running ones have finished.

        Args:
            busy: keys of runs that other cells are executing; two cells may share a search.
        """
        while True:
            group = next(self._waiting, None)
            if group is not None:
                self.running.append(group)
                return group
            if self.running or not self._stages:
                return None
            plan, report = self._stages[0]
            todo = missing_runs(self._plan(plan), self.results)
            if any(run.key() in busy for run in todo):
                return None
            del self._stages[:1]
            self._start(todo, report)

    def _start(self, todo: list[Run], report: Callable[[int, int, Record | None], object] | None) -> None:
        if report is not None:
            report(0, len(todo), None)
        groups = group_runs(todo) if self._grouped else [[run] for run in todo]
        groups.sort(key=lambda group: group[0].seed)  # seed by seed: an interrupted sweep still compares all methods
        self.recorder = _Recorder(self.results, len(todo), report)
        self._waiting = self.recorder.missing(groups)

    def _plan(self, plan: Callable[[], list[Run]]) -> list[Run]:
        try:
            runs = plan()
        except (FileNotFoundError, NothingChosen) as error:
            if self._skip is None:
                raise
            self._skip(error)
            self._stages.clear()
            return []
        self._planned += runs
        return runs

    def missing(self) -> list[Run]:
        """Return the runs that are not in the results, of the stages that can be planned."""
        while self._stages:
            self._plan(self._stages.pop(0)[0])
        return missing_runs(self._planned, self.results)


class _Recorder:
    """Appends finished runs to the results, each once, and reports them.

    The report may raise or be interrupted; the other finished runs are then written without a report.
    """

    def __init__(self, results: Path, total: int, report: Callable[[int, int, Record | None], object] | None) -> None:
        self.results, self.total, self.report, self.done = results, total, report, 0
        self._file = ResultsFile(results, key_of_line)

    def missing(self, groups: Iterable[list[Run]]) -> Iterator[list[Run]]:
        """Yield the groups one by one, without the runs that another process has finished when it is their turn."""
        for group in groups:
            finished = self._file.keys()
            left = [run for run in group if remaining(run, finished)]
            if left:
                yield left

    def write_and_report(self, records: Iterable[Record]) -> None:
        unwritten = list(records)
        try:
            while unwritten:
                self.write(unwritten[0])
                record = unwritten.pop(0)
                self.done += 1
                if self.report is not None:
                    self.report(self.done, self.total, record)
        except BaseException:
            self.write(*unwritten)
            raise

    def write(self, *records: Record) -> None:
        for record in records:
            for line in lines_of(record):
                self._file.append(line)
            remove_checkpoints(Run(**{name: record[name] for name in Run.__dataclass_fields__}), self.results)


def _next(parts: Sequence[_Part]) -> tuple[_Part, list[Run]] | None:
    """Return the first runs that can be executed now; None: there are none before others have finished."""
    busy = {run.key() for part in parts for group in part.running for run in group}
    for part in parts:
        group = part.next(busy)
        if group is not None:
            return part, group
    return None


def _run_here(parts: Sequence[_Part], device: str, deadline: float) -> None:
    while time.monotonic() <= deadline and (found := _next(parts)):
        part, group = found
        part.recorder.write_and_report(_execute_group(group, part.command, device, part.results))
        part.running.remove(group)


def _run_in_workers(parts: Sequence[_Part], device: str, workers: int, deadline: float) -> None:
    running = dict[Future[list[Record]], tuple[_Part, list[Run]]]()
    with contextlib.ExitStack() as stack:
        pool: ProcessPoolExecutor | None = None  # started with the first run: there may be nothing to do
        try:
            while True:
                while time.monotonic() <= deadline and len(running) < 2 * workers and (found := _next(parts)):
                    part, group = found
                    pool = pool or stack.enter_context(worker_pool(workers))
                    running[pool.submit(_execute_group, group, part.command, device, part.results)] = part, group
                if time.monotonic() > deadline:
                    for future in [future for future in running if future.cancel()]:  # it waits for a worker
                        part, group = running.pop(future)
                        part.running.remove(group)
                if not running:
                    return
                for future in wait(running, _seconds_until(deadline), FIRST_COMPLETED).done:
                    part, group = running.pop(future)
                    part.recorder.write_and_report(future.result())
                    part.running.remove(group)
        except BaseException:  # write what has finished meanwhile, before the pool stops the workers
            for future, (part, _) in running.items():
                if future.done() and future.exception() is None:
                    part.recorder.write(*future.result())
            raise


def _seconds_until(deadline: float) -> float | None:
    """Return the seconds until the deadline; None: it has passed, or there is none."""
    left = deadline - time.monotonic()
    return left if 0 < left < math.inf else None


def _require_writable(results: Path) -> None:
    """Raise an error before the first run if ``results`` cannot be written, or is a named pipe or a device."""
    has_file(results)
    make_folder(results.parent)
    require_writable(results)


# One run or one group ------------------------------------------------------------------------------------------------


def _execute_group(runs: Sequence[Run], command: str, device: str, results: Path) -> list[Record]:
    try:
        if len(runs) > 1:
            outcomes = execute_many(runs, command=command, device=device)
            return [_complete_record(run, own, command, device) for run, own in zip(runs, outcomes, strict=True)]
    except StackError:  # for example tasks of unequal shape
        pass
    records = []
    for run in runs:
        with _alone(run, results) as alone:
            if alone:
                records.append(_execute_one(run, command, device, results))
    return records


def _execute_one(run: Run, command: str, device: str, results: Path) -> Record:
    checkpoint = checkpoint_path(run, results, device)
    try:
        outcome = execute(run, command=command, device=device, checkpoint=checkpoint)
        return _complete_record(run, outcome, command, device)
    except (NonFiniteError, NonFiniteScores) as error:  # in training, on the test images or on an OOD set
        return _complete_record(run, error, command, device)


@contextlib.contextmanager
def _alone(run: Run, results: Path) -> Iterator[bool]:
    """Lock the checkpoint of a run that has one; yield False if another process trains the run, or has finished it.

    A run may wait for a worker for hours, in which another process may finish it.
    """
    if not _has_checkpoint(run):
        yield True
        return
    lock = _checkpoint_folder(results) / f"{_digest(run.key())}.lock"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, f"{run.cell} {run.method} with seed {run.seed} is being trained by {{}}"))
        except InUse as error:
            warnings.warn(f"skipped: {error}", stacklevel=2)
            yield False
            return
        yield bool(missing_runs([run], results))


def _complete_record(run: Run, outcome: tuple[Record, Pretrained] | Exception, command: str, device: str) -> Record:
    """Return the record of a finished or diverged run, with the measurements that the tables ood and depth add."""
    model: Pretrained | None = None
    if isinstance(outcome, Exception):
        record = _diverged_record(run, outcome, command, device)
    else:
        record, model = outcome
        if run.table == "ood" and run.stage == "final":
            record |= detections(run, model, device)
    has_layers = graph_cell(run.cell) is not None and split_depth(run.cell)[1] is not None
    return record if not has_layers else record | _layer_measurements(run, model, device)


def _layer_measurements(run: Run, model: Pretrained | None, device: str) -> Record:
    """Measure the layers before training and, if the run did not diverge, after it."""
    initial, objective, _ = build(run, device)
    found = {"initial_layers": diagnose(initial, objective)}
    return found if model is None else found | {"layers": diagnose(model, objective)}


def _diverged_record(run: Run, error: Exception, command: str, device: str) -> Record:
    """Return the record of a diverged run. It is a result too, with None as its value."""
    record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
    failure = {"value": None, "validation": None, "validation_smoothed": None, "error": str(error), "command": command}
    return record | failure | environment(device)


# Stacks of runs ------------------------------------------------------------------------------------------------------


def group_runs(runs: Iterable[Run], largest: int = 10) -> list[list[Run]]:
    """Group runs that :func:`execute_many` can train as one stack, in the order of their first members.

    Runs of a group differ only in seed or split. A run on images is a group of its own.

    Args:
        runs: the runs to group.
        largest: largest number of runs in a group.

    Example:
        >>> runs = [Run("gnn", "disease/lp", "lorentz", "legacy", seed, {}) for seed in range(5)]
        >>> [len(group) for group in group_runs(runs, largest=3)]
        [3, 2]
    """
    groups: dict[tuple[Any, ...], list[list[Run]]] = {}
    order: list[list[Run]] = []
    for run in runs:
        own = groups.setdefault(_key_without_seed(run), [])
        if not own or len(own[-1]) == largest or graph_cell(run.cell) is None:
            own.append([])
            order.append(own[-1])
        own[-1].append(run)
    return order


def execute_many(
    runs: Sequence[Run],
    *,
    command: str,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, list[float | None]], None] | None = None,
) -> list[tuple[Record, Pretrained] | NonFiniteError]:
    """Train runs as one stack. Return for each what :func:`~lresnet_paper.run.execute` returns, or its error.

    A record's ``stacked`` is the number of runs in the stack; its ``seconds`` are the run's share of the time.

    Raises:
        StackError: the runs differ in more than seed and split, or their tasks differ in shape; execute them one by
            one.
    """
    if not runs:
        return []
    if len({_key_without_seed(run) for run in runs}) > 1:
        raise StackError("the runs of a stack may differ only in seed and split; group them with group_runs()")
    if graph_cell(runs[0].cell) is None:
        raise StackError(f"only runs on graphs can be stacked, {runs[0].cell} is not a graph; execute them one by one")
    models, objectives, generators = list[Any](), list[Objective[Any]](), list[torch.Generator]()
    config = TrainConfig()
    for run in runs:
        model, objective, config = build(run, device)
        if not isinstance(model, LorentzGCN | LorentzGCNII | LorentzSGFormer):
            raise StackError(f"models of class {type(model).__name__} cannot be stacked; execute them one by one")
        models.append(model)
        objectives.append(objective)
        generators.append(fork_generator(device))  # draws the same dropout as this run on its own
    outcomes = train_many(models, objectives, config, generators=generators, on_epoch=on_epoch)
    results = list[tuple[Record, Pretrained] | NonFiniteError]()
    for run, outcome, model, objective in zip(runs, outcomes, models, objectives, strict=True):
        if isinstance(outcome, NonFiniteError):
            results.append(outcome)
        else:
            record = record_of(run, outcome, model, objective, command, device) | {"stacked": len(runs)}
            results.append((record, model))
    return results


def _key_without_seed(run: Run) -> tuple[Any, ...]:
    """Return what two runs of one stack have in common: everything except seed and split."""
    return dataclasses.replace(run, seed=0, split=None).key()


# Checkpoints of interrupted runs -------------------------------------------------------------------------------------


def checkpoint_path(run: Run, results: Path, device: str) -> Path | None:
    """Return the checkpoint file of a run whose line goes into ``results``; None: the run is short and has none.

    Runs on graphs and search runs have none. The file name depends on hardware and versions, because a run resumes
    only where it was started. A damaged file is removed.
    """
    if not _has_checkpoint(run):
        return None
    path = _checkpoint_folder(results) / f"{_digest(run.key())}-{_digest(environment(device))}.pt"
    if is_damaged(path):
        for file in (path, previous_checkpoint(path)):
            file.unlink(missing_ok=True)
    return path


def remove_checkpoints(run: Run, results: Path) -> None:
    """Remove all checkpoints of a finished run, including those of other versions and hardware.

    The folder stays, because another process may be about to write into it.
    """
    for path in _checkpoint_folder(results).glob(f"{_digest(run.key())}-*.pt*"):
        path.unlink(missing_ok=True)


def _has_checkpoint(run: Run) -> bool:
    return graph_cell(run.cell) is None and run.stage == "final"


def _checkpoint_folder(results: Path) -> Path:
    return results.parent / "unfinished"


def _digest(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
