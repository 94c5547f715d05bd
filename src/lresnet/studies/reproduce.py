"""A cell of a table, whole: search for every method, then the chosen configuration over all seeds. Resumable."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, Literal, Protocol

from lresnet.studies.run import METHODS, Run, complete, execute, task_of
from lresnet.studies.search import best_configuration, recipe
from lresnet.studies.workers import worker_pool
from lresnet.train.results import append_result, environment, read_results
from lresnet.train.sentry import NonFiniteError

__all__ = ["FINAL_SEEDS", "SEARCH_SEEDS", "final_runs", "missing_runs", "reproduce_cell", "run_all", "search_runs"]

# The seeds that choose a configuration are not those that report it.
SEARCH_SEEDS = (1000, 1001)
FINAL_SEEDS = tuple(range(10))

Report = Callable[[int, int, dict[str, Any]], None]
Stage = Literal["all", "search", "final"]


class StageReport(Protocol):
    """Called when a stage begins, without a record, and as each of its runs ends."""

    def __call__(self, stage: str, done: int, total: int, record: dict[str, Any] | None) -> None: ...


def reproduce_cell(
    table: str,
    cell: str,
    results: Path,
    *,
    methods: Sequence[str] = METHODS,
    stage: Stage = "all",
    workers: int = 1,
    minutes: float | None = None,
    report: StageReport | None = None,
) -> int:
    """Search, then the final runs: whatever of it is not in ``results`` yet.

    Args:
        stage: ``"search"`` or ``"final"``: that alone; final runs are those of methods whose search is complete.
        minutes: start no run after this long.

    Returns:
        How many runs are still missing, among those that are known by now.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    missing = 0
    for name in ("search", "final") if stage == "all" else (stage,):
        runs = search_runs(table, cell, methods) if name == "search" else final_runs(table, cell, results, methods)
        todo = missing_runs(runs, results)
        if todo:
            task_of(todo[0])  # missing data: better said here, at once, than by every worker
        if report is not None:
            report(name, 0, len(todo), None)
        missing += run_all(
            todo,
            results,
            command=f"lresnet reproduce {table} --cell {cell}",
            workers=workers,
            minutes=None if deadline is None else (deadline - time.monotonic()) / 60,
            report=None if report is None else functools.partial(report, name),
        )
    return missing


def missing_runs(runs: Iterable[Run], results: Path) -> list[Run]:
    """Those of ``runs`` that ``results`` has no line of."""
    finished = {_run(record).key() for record in read_results(results)}
    return [run for run in runs if run.key() not in finished]


def search_runs(table: str, cell: str, methods: Sequence[str] = METHODS) -> list[Run]:
    """Every configuration of the recipe, for every method, on the search seeds."""
    plan = recipe(table, cell)
    return [
        Run(table, cell, method, plan["protocol"], seed, complete(plan, method, configuration), stage="search")
        for configuration in plan["configurations"]
        for method in methods
        for seed in SEARCH_SEEDS
    ]


def final_runs(
    table: str, cell: str, results: Path, methods: Sequence[str] = METHODS, seeds: Sequence[int] = FINAL_SEEDS
) -> list[Run]:
    """The configuration with the best mean validation figure of each method whose search is complete, on all seeds."""
    plan = recipe(table, cell)
    wanted = {run.key() for run in search_runs(table, cell, methods)}
    done = {key: r for r in read_results(results) if (key := _run(r).key()) in wanted}  # a line twice counts once
    runs = []
    for method in methods:
        records = [r for r in done.values() if r["method"] == method]
        if len(records) < len(plan["configurations"]) * len(SEARCH_SEEDS):
            continue
        config = best_configuration(records)
        runs += [Run(table, cell, method, plan["protocol"], seed, config) for seed in seeds]
    return runs


def run_all(
    runs: Iterable[Run],
    results: Path,
    *,
    command: str,
    workers: int = 1,
    minutes: float | None = None,
    report: Report | None = None,
) -> int:
    """Run what is not in ``results`` yet, on ``workers`` processes; one line is added as each run ends.

    Args:
        minutes: start no run after this long (those under way are finished).
        report: called as ``report(done, total, record)``.

    Returns:
        How many runs are still missing.
    """
    _require_writable(results)
    todo = missing_runs(runs, results)
    if not todo:
        return 0
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    queue, under_way, done = list(todo), set[Future[dict[str, Any]]](), 0
    with worker_pool(workers) as pool:
        while queue or under_way:
            late = deadline is not None and time.monotonic() > deadline
            while queue and not late and len(under_way) < 2 * workers:
                under_way.add(pool.submit(_execute, queue.pop(0), command))
            if not under_way:
                break
            ready, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ready:
                record = future.result()
                append_result(results, record)
                done += 1
                if report is not None:
                    report(done, len(todo), record)
    return len(queue)


def _execute(run: Run, command: str) -> dict[str, Any]:
    """In a worker. A run that diverges is a result too: it is kept, without a figure."""
    try:
        return execute(run, command=command)[0]
    except NonFiniteError as error:
        record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
        return record | {"value": None, "validation": None, "error": str(error), "command": command, **environment()}


def _run(record: dict[str, Any]) -> Run:
    return Run(**{name: record[name] for name in Run.__dataclass_fields__})


def _require_writable(results: Path) -> None:
    """Fail before the first run, not after it."""
    results.parent.mkdir(parents=True, exist_ok=True)
    new = not results.exists()
    results.open("a").close()
    if new:
        results.unlink()
