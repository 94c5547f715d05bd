"""Many runs: in this process or in workers, each a line of the results as it ends, a run that diverges too."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lresnet.metrics.checks import NonFiniteScores
from lresnet.models import LorentzGCN, LorentzSGFormer
from lresnet.models.pretrained import Pretrained
from lresnet.runs.workers import worker_pool
from lresnet.train import NonFiniteError, Objective, TrainConfig
from lresnet.train.checkpoint import is_damaged
from lresnet.train.results import append_result, environment
from lresnet.train.stacking import fork_generator, train_many
from lresnet.train.stacking.model import StackError
from lresnet_paper.depth import diagnose
from lresnet_paper.ood import detections, lines_of
from lresnet_paper.plan import missing_runs
from lresnet_paper.run import Run, build, execute, graph_cell, record_of, split_depth

if TYPE_CHECKING:
    from lresnet_paper.run import Run

__all__ = [
    "checkpoint_of",
    "execute_many",
    "forget_checkpoints",
    "run_all",
    "stacks",
]


Record = dict[str, Any]
Report = Callable[[int, int, Record], None]


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
    """Run what is not in ``results`` yet; one line is added as each run ends.

    A final training on images that was interrupted goes on from its checkpoint, in the folder ``unfinished`` beside
    ``results``.

    Args:
        workers: processes that share the work. On a GPU, runs on graphs that differ in seed or split alone are one
            computation, and the processes take such stacks. One alone, on a GPU: this process, run after run.
        minutes: start no run after this long (those under way are finished).
        report: called as ``report(done, total, record)`` when the run is in ``results``. Where it raises, or this
            process is interrupted, or a run raises what no run should, the workers are ended at once; all runs that
            had ended by then are in ``results``.

    Returns:
        How many runs are still missing.
    """
    _require_writable(results)
    todo = missing_runs(runs, results)
    if not todo:
        return 0
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    groups = [[run] for run in todo] if device == "cpu" else stacks(todo)
    groups.sort(key=lambda group: group[0].seed)  # seed by seed: a sweep that is cut short leaves methods side by side
    ended = _Ended(results, len(todo), report)
    # A worker of a CPU has one thread, so even a single one is a process of its own.
    if device == "cpu" or workers > 1:
        _in_workers(groups, command, device, workers, deadline, ended)
    else:
        _one_by_one(groups, command, device, deadline, ended)
    return len(todo) - ended.done


class _Ended:
    """What becomes of runs that have ended: each is a line of the results, and then told of.

    Telling may raise, and a user interrupt it: the others have ended all the same, and are kept untold.
    """

    def __init__(self, results: Path, total: int, report: Report | None) -> None:
        self.results, self.total, self.report, self.done = results, total, report, 0

    def take(self, records: Iterable[Record]) -> None:
        left = list(records)
        try:
            while left:
                self.keep(left[0])
                record = left.pop(0)
                self.done += 1
                if self.report is not None:
                    self.report(self.done, self.total, record)
        except BaseException:
            self.keep(*left)
            raise

    def keep(self, *records: Record) -> None:
        for record in records:
            for line in lines_of(record):
                append_result(self.results, line)
            forget_checkpoints(Run(**{name: record[name] for name in Run.__dataclass_fields__}), self.results)


def _one_by_one(groups: Sequence[list[Run]], command: str, device: str, deadline: float, ended: _Ended) -> None:
    for group in groups:
        if time.monotonic() > deadline:
            return
        ended.take(_execute_stack(group, command, device, ended.results))


def _in_workers(
    groups: Sequence[list[Run]], command: str, device: str, workers: int, deadline: float, ended: _Ended
) -> None:
    queue, under_way = list(groups), set[Future[list[Record]]]()
    with worker_pool(workers) as pool:
        try:
            while queue or under_way:
                while queue and time.monotonic() <= deadline and len(under_way) < 2 * workers:
                    under_way.add(pool.submit(_execute_stack, queue.pop(0), command, device, ended.results))
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    under_way.remove(future)
                    ended.take(future.result())
        except BaseException:  # before the pool ends the workers: some may have handed over their runs by now
            for future in under_way:
                if future.done() and future.exception() is None:
                    ended.keep(*future.result())
            raise


def _execute_stack(runs: Sequence[Run], command: str, device: str, results: Path) -> list[dict[str, Any]]:
    try:
        if len(runs) > 1:
            outcomes = execute_many(runs, command=command, device=device)
            return [_line(run, outcome, command, device) for run, outcome in zip(runs, outcomes, strict=True)]
    except StackError:  # tasks of unequal shape, say
        pass
    return [_execute(run, command, device, results) for run in runs]


def _execute(run: Run, command: str, device: str, results: Path) -> dict[str, Any]:
    checkpoint = checkpoint_of(run, results, device)
    try:
        return _line(run, execute(run, command=command, device=device, checkpoint=checkpoint), command, device)
    except (NonFiniteError, NonFiniteScores) as error:  # in training; on the test images or those of a set
        return _line(run, error, command, device)


def _line(
    run: Run, outcome: tuple[dict[str, Any], Pretrained] | Exception, command: str, device: str
) -> dict[str, Any]:
    """The line of a run that has ended, well or not; in a table of depths with what its layers do, in that of detection
    with what the network tells from its own images."""
    model: Pretrained | None = None
    if isinstance(outcome, Exception):
        record = _failure(run, outcome, command, device)
    else:
        record, model = outcome
        if run.table == "ood" and run.stage == "final":
            record |= detections(run, model, device)
    return record if split_depth(run.cell)[1] is None else record | _layers(run, model, device)


def _layers(run: Run, model: Pretrained | None, device: str) -> dict[str, Any]:
    """Before training, and after it where it ended well."""
    initial, objective, _ = build(run, device)
    found = {"initial_layers": diagnose(initial, objective)}
    return found if model is None else found | {"layers": diagnose(model, objective)}


def _failure(run: Run, error: Exception, command: str, device: str) -> dict[str, Any]:
    """A run that diverges is a result too: it is kept, without a figure."""
    record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
    failure = {"value": None, "validation": None, "error": str(error), "command": command}
    return record | failure | environment(device)


def _require_writable(results: Path) -> None:
    """Fail before the first run, not after it."""
    results.parent.mkdir(parents=True, exist_ok=True)
    new = not results.exists()
    results.open("a").close()
    if new:
        results.unlink()


def checkpoint_of(run: Run, results: Path, device: str) -> Path | None:
    """The file for the state of a run whose line is to go into ``results``; None: it is short enough to begin anew.

    That is so for graphs and for the runs of a search. A run goes on where it was begun: on the same hardware, with the
    same versions. A file that was damaged is removed.
    """
    if graph_cell(run.cell) is not None or run.stage != "final":
        return None
    path = _folder(results) / f"{_digest(run.key())}-{_digest(environment(device))}.pt"
    if is_damaged(path):
        path.unlink()
    return path


def forget_checkpoints(run: Run, results: Path) -> None:
    """Remove those of a run that has its line, also where it was begun with other versions or on other hardware.

    The folder stays: another process may be about to write into it.
    """
    for path in _folder(results).glob(f"{_digest(run.key())}-*.pt"):
        path.unlink(missing_ok=True)


def _folder(results: Path) -> Path:
    return results.parent / "unfinished"


def _digest(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def stacks(runs: Iterable[Run], largest: int = 10) -> list[list[Run]]:
    """``runs`` in groups for :func:`execute_many`, in the order of their first members.

    Runs go together that differ in seed or split alone. A run on images stands by itself.

    Args:
        largest: at most so many runs a group.

    Example:
        >>> runs = [Run("gnn", "disease/lp", "lorentz", "legacy", seed, {}) for seed in range(5)]
        >>> [len(group) for group in stacks(runs, largest=3)]
        [3, 2]
    """
    groups: dict[tuple[Any, ...], list[list[Run]]] = {}
    order: list[list[Run]] = []
    for run in runs:
        own = groups.setdefault(_kind(run), [])
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
) -> list[tuple[dict[str, Any], Pretrained] | NonFiniteError]:
    """What :func:`~lresnet_paper.run.execute` gives for each run, or the error it would raise, trained as one.

    A line says with ``stacked`` how many runs shared the computation; its ``seconds`` are the run's share of the time.

    Raises:
        StackError: the runs differ in more than seed and split, or their tasks in shape: run them one by one.
    """
    if not runs:
        return []
    if len({_kind(run) for run in runs}) > 1:
        raise StackError("runs that are executed as one may differ in seed and split alone; see stacks()")
    if graph_cell(runs[0].cell) is None:
        raise StackError(f"runs on graphs can be executed as one, {runs[0].cell} is none; run them one by one")
    models, objectives, generators = list[Any](), list[Objective[Any]](), list[torch.Generator]()
    schedule = TrainConfig()
    for run in runs:
        model, objective, schedule = build(run, device)
        if not isinstance(model, LorentzGCN | LorentzSGFormer):
            raise StackError(f"networks of class {type(model).__name__} cannot be stacked; run them one by one")
        models.append(model)
        objectives.append(objective)
        generators.append(fork_generator(device))  # continues as this run's dropout would alone
    outcomes = train_many(models, objectives, schedule, generators=generators, on_epoch=on_epoch)
    results = list[tuple[dict[str, Any], Pretrained] | NonFiniteError]()
    for run, outcome, model, objective in zip(runs, outcomes, models, objectives, strict=True):
        if isinstance(outcome, NonFiniteError):
            results.append(outcome)
        else:
            record = record_of(run, outcome, model, objective, command, device) | {"stacked": len(runs)}
            results.append((record, model))
    return results


def _kind(run: Run) -> tuple[Any, ...]:
    """All of a run but its seed and its split."""
    return dataclasses.replace(run, seed=0, split=None).key()
