"""A cell of a table, whole: search for every method, then the chosen configuration over all seeds. Resumable."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from lresnet_paper.ood import require_sets
from lresnet_paper.plan import final_runs, missing_runs, search_runs
from lresnet_paper.run import require_data
from lresnet_paper.sweep import run_all

__all__ = ["StageReport", "reproduce_cell"]

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
