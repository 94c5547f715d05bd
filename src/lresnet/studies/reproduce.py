"""A cell of a table, whole: search for every method, then the chosen configuration over all seeds. Resumable."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

from lresnet.studies.run import METHODS, Run, execute
from lresnet.studies.search import best_configuration, recipe
from lresnet.train.results import append_result, environment, read_results
from lresnet.train.sentry import NonFiniteError

__all__ = ["FINAL_SEEDS", "SEARCH_SEEDS", "final_runs", "run_all", "search_runs"]

# The seeds that choose a configuration are not those that report it.
SEARCH_SEEDS = (1000, 1001)
FINAL_SEEDS = tuple(range(10))

Report = Callable[[int, int, dict[str, Any]], None]


def search_runs(table: str, cell: str, methods: Sequence[str] = METHODS) -> list[Run]:
    """Every configuration of the recipe, for every method, on the search seeds."""
    plan = recipe(table, cell)
    return [
        Run(table, cell, method, plan["protocol"], seed, _config(plan, method, configuration), stage="search")
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
    done = [r for r in read_results(results) if r["stage"] == "search" and _run(r).key() in wanted]
    runs = []
    for method in methods:
        records = [r for r in done if r["method"] == method]
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
    finished = {_run(record).key() for record in read_results(results)}
    todo = [run for run in runs if run.key() not in finished]
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    context = multiprocessing.get_context("spawn")
    queue, under_way, done = list(todo), set[Future[dict[str, Any]]](), 0
    with ProcessPoolExecutor(workers, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
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


def _config(plan: dict[str, Any], method: str, configuration: dict[str, Any]) -> dict[str, Any]:
    """A drawn configuration, completed by what is fixed for all methods and for this one."""
    return plan["fixed"] | plan.get("only", {}).get(method, {}) | configuration  # type: ignore[no-any-return]


def _execute(run: Run, command: str) -> dict[str, Any]:
    """In a worker. A run that diverges is a result too: it is kept, without a figure."""
    try:
        return execute(run, command=command)[0]
    except NonFiniteError as error:
        record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
        return record | {"value": None, "validation": None, "error": str(error), "command": command, **environment()}


def _run(record: dict[str, Any]) -> Run:
    return Run(**{name: record[name] for name in Run.__dataclass_fields__})
