"""A cell of a table, whole: search for every method, then the chosen configuration over all seeds. Resumable."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, Literal, Protocol

from lresnet.metrics.checks import NonFiniteScores
from lresnet.models.pretrained import Pretrained
from lresnet.studies.depth import depth_cell, diagnose, split_depth
from lresnet.studies.depth_search import cell_plan
from lresnet.studies.graph_run import split_name
from lresnet.studies.ood_run import detections, lines_of, remaining, require_sets, training_cell
from lresnet.studies.run import METHODS, Run, build, complete, execute, require_data
from lresnet.studies.search import best_configuration, recipe
from lresnet.studies.stacked_run import execute_many, stacks
from lresnet.studies.workers import worker_pool
from lresnet.train.results import append_result, environment, read_results
from lresnet.train.sentry import NonFiniteError
from lresnet.train.stack import StackError

__all__ = [
    "FINAL_SEEDS",
    "OFFICIAL_SPLITS",
    "SEARCH_SEEDS",
    "final_runs",
    "methods_of",
    "missing_runs",
    "reproduce_cell",
    "run_all",
    "search_runs",
]

# The seeds that choose a configuration are not those that report it.
SEARCH_SEEDS = (1000, 1001)
FINAL_SEEDS = tuple(range(10))
OFFICIAL_SPLITS = 10

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
    protocol: str | None = None,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    stage: Stage = "all",
    workers: int = 1,
    device: str = "cpu",
    minutes: float | None = None,
    report: StageReport | None = None,
) -> int:
    """Search, then the final runs: whatever of it is not in ``results`` yet.

    Args:
        protocol: which recipe of the cell; None: its first.
        methods, seeds: some of the recipe's; none named: all.
        stage: ``"search"`` or ``"final"``: that alone; final runs are those of methods whose search is complete.
        workers, device, minutes: as for :func:`run_all`.

    Returns:
        How many runs are still missing, among those that are known by now.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    missing = 0
    stages = ("search", "final") if stage == "all" else (stage,)
    for name in stages:
        searched = search_runs(table, cell, methods, protocol)
        runs = searched if name == "search" else final_runs(table, cell, results, methods, seeds, protocol)
        todo = missing_runs(runs, results)
        if todo:
            require_data(todo[0])  # missing data: better said here, at once, than by every worker
            if "final" in stages:
                require_sets(table, cell)
        if report is not None:
            report(name, 0, len(todo), None)
        missing += run_all(
            todo,
            results,
            command=f"lresnet reproduce {table} --cell {cell}" + (f" --protocol {protocol}" if protocol else ""),
            workers=workers,
            device=device,
            minutes=None if deadline is None else (deadline - time.monotonic()) / 60,
            report=None if report is None else functools.partial(report, name),
        )
    return missing


def missing_runs(runs: Iterable[Run], results: Path) -> list[Run]:
    """Those of ``runs`` that ``results`` has no line of."""
    finished = set(_recorded(results))
    return [left for run in runs for left in remaining(run, finished)]


def search_runs(table: str, cell: str, methods: Sequence[str] = (), protocol: str | None = None) -> list[Run]:
    """Every configuration of the recipe, for every method, on the search seeds; none for a table of variants.

    A recipe that is ``searched_at`` another cell has the search runs of that one.
    """
    cell, plan = _search_plan(table, cell, protocol)
    return [
        Run(table, cell, method, plan["protocol"], seed, config, _split(plan, seed), stage="search")
        for configuration in plan.get("configurations", ())
        for method in methods or methods_of(plan)
        for config in [complete(plan, method, configuration, "search")]
        for seed in plan.get("search_seeds", SEARCH_SEEDS)
    ]


def final_runs(
    table: str,
    cell: str,
    results: Path,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    protocol: str | None = None,
) -> list[Run]:
    """The configuration with the best mean validation figure of each method whose search is complete, on all seeds.

    A recipe with ``variants`` has no search: each of them is a change to what the recipe of the same cell in the table
    ``like`` names as chosen. One with ``depths`` has a variant, and a cell of its own, for each number of layers.
    """
    plan = cell_plan(table, training_cell(table, cell), protocol)
    if "variants" in plan:
        return _variants(table, cell, plan, methods, seeds)
    searched = _search_plan(table, cell, protocol)[1]
    found = _recorded(results)
    # In the recipe's order: that of the lines, in which workers were ready, would decide between equals.
    done = [found[key] for run in search_runs(table, cell, methods, protocol) if (key := run.key()) in found]
    count = len(searched["configurations"]) * len(searched.get("search_seeds", SEARCH_SEEDS))
    runs = []
    for method in methods or methods_of(plan):
        records = [record for record in done if record["method"] == method]
        if len(records) < count:
            continue
        best = best_configuration(records)
        chosen = next(c for c in searched["configurations"] if complete(searched, method, c, "search") == best)
        config = complete(plan, method, chosen)
        own = seeds or plan.get("seeds", {}).get(method, plan.get("final_seeds", FINAL_SEEDS))
        runs += [Run(table, cell, method, plan["protocol"], seed, config, _split(plan, seed)) for seed in own]
    return runs


def _search_plan(table: str, cell: str, protocol: str | None) -> tuple[str, dict[str, Any]]:
    """The cell in which the settings of ``cell`` are searched for, and its recipe."""
    plan = cell_plan(table, own := training_cell(table, cell), protocol)
    if "searched_at" not in plan:
        return own, plan
    return plan["searched_at"], cell_plan(table, plan["searched_at"], plan["protocol"])


def _variants(table: str, cell: str, plan: dict[str, Any], methods: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    base = split_depth(training_cell(table, cell))[0]
    like = recipe(plan["like"], base, plan["protocol"])
    runs = []
    for method in methods or methods_of(plan):
        source = plan.get("settings_of", {}).get(method, method)
        if source not in like.get("chosen", {}):
            raise ValueError(
                f"{table} {cell} changes what is chosen for {source} in {plan['like']}, where nothing is chosen yet: "
                f"`lresnet reproduce {plan['like']} --cell {base}` first, and [chosen.{source}] into its recipe"
            )
        chosen = complete(like, source, like["chosen"][source])
        runs += [
            Run(table, own, method, plan["protocol"], seed, chosen | variant, _split(plan, seed))
            for variant in plan["variants"]
            for own in [depth_cell(base, variant["num_layers"]) if "depths" in plan else cell]
            for seed in seeds or plan.get("final_seeds", FINAL_SEEDS)
        ]
    return runs


def _split(plan: dict[str, Any], seed: int) -> int | None:
    """Of the ten official splits, the one that goes with a seed: 0 to 9 for the seeds 0 to 9, and so on."""
    return seed % OFFICIAL_SPLITS if split_name(plan["protocol"]) == "official_splits" else None


def methods_of(plan: dict[str, Any]) -> Sequence[str]:
    """The methods that a recipe compares: all, if it does not say."""
    return plan.get("methods", METHODS)  # type: ignore[no-any-return]


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

    Args:
        workers: processes that share the work. On a GPU, runs on graphs that differ in seed or split alone are one
            computation, and the processes take such stacks. One alone, on a GPU: this process, run after run.
        minutes: start no run after this long (those under way are finished).
        report: called as ``report(done, total, record)``.

    Returns:
        How many runs are still missing.
    """
    _require_writable(results)
    todo = missing_runs(runs, results)
    if not todo:
        return 0
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    groups = [[run] for run in todo] if device == "cpu" else stacks(todo)
    # A worker of a CPU has one thread, so even a single one is a process of its own.
    if device == "cpu" or workers > 1:
        finished = _in_workers(groups, command, device, workers, deadline)
    else:
        finished = _one_by_one(groups, command, device, deadline)
    done = 0
    for done, record in enumerate(finished, 1):
        for line in lines_of(record):
            append_result(results, line)
        if report is not None:
            report(done, len(todo), record)
    return len(todo) - done


def _one_by_one(groups: Sequence[list[Run]], command: str, device: str, deadline: float) -> Iterator[dict[str, Any]]:
    for group in groups:
        if time.monotonic() > deadline:
            return
        yield from _execute_stack(group, command, device)


def _in_workers(
    groups: Sequence[list[Run]], command: str, device: str, workers: int, deadline: float
) -> Iterator[dict[str, Any]]:
    queue, under_way = list(groups), set[Future[list[dict[str, Any]]]]()
    with worker_pool(workers) as pool:
        while queue or under_way:
            while queue and time.monotonic() <= deadline and len(under_way) < 2 * workers:
                under_way.add(pool.submit(_execute_stack, queue.pop(0), command, device))
            if not under_way:
                return
            ready, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ready:
                yield from future.result()


def _execute_stack(runs: Sequence[Run], command: str, device: str) -> list[dict[str, Any]]:
    try:
        if len(runs) > 1:
            outcomes = execute_many(runs, command=command, device=device)
            return [_line(run, outcome, command, device) for run, outcome in zip(runs, outcomes, strict=True)]
    except StackError:  # tasks of unequal shape, say
        pass
    return [_execute(run, command, device) for run in runs]


def _execute(run: Run, command: str, device: str = "cpu") -> dict[str, Any]:
    try:
        return _line(run, execute(run, command=command, device=device), command, device)
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


def _recorded(results: Path) -> dict[Any, dict[str, Any]]:
    """The runs that ``results`` has lines of, by their keys: a line twice counts once, what is no run not at all."""
    lines = (line for line in read_results(results) if line.keys() >= Run.__dataclass_fields__.keys())
    runs = (line for line in lines if isinstance(line["config"], dict) and isinstance(line["seed"], int))
    return {Run(**{name: line[name] for name in Run.__dataclass_fields__}).key(): line for line in runs}


def _require_writable(results: Path) -> None:
    """Fail before the first run, not after it."""
    results.parent.mkdir(parents=True, exist_ok=True)
    new = not results.exists()
    results.open("a").close()
    if new:
        results.unlink()
