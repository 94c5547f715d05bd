"""Planned trainings on images that have not been run yet, by protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lresnet_paper.ood import training_cell
from lresnet_paper.plan import cells_of, protocols, recipe
from lresnet_paper.render import render

__all__ = ["PLANNED_TABLES", "Unfinished", "is_begun", "missing_sentences", "unfinished_protocols"]

PLANNED_TABLES = ("image_classification", "ood")
"""Tables whose trainings take so long that a page may show the table while runs are missing."""


class Unfinished(NamedTuple):
    """A protocol with missing trainings."""

    protocol: str
    planned: int
    done: int
    complete_cells: tuple[str, ...]


class _Training(NamedTuple):
    protocol: str
    cell: str
    method: str
    seed: int


def unfinished_protocols(table: str, runs: Iterable[Mapping[str, Any]]) -> list[Unfinished]:
    """Return the protocols whose recipes plan trainings that are not among the runs; empty without any run.

    Example:
        >>> unfinished_protocols("ood", [])
        []
    """
    finished = _finished(table, runs)
    found = []
    for protocol, planned in _planned(table).items() if finished else ():
        if missing := planned - finished:
            complete = {one.cell for one in planned} - {one.cell for one in missing}
            found.append(Unfinished(protocol, len(planned), len(planned) - len(missing), tuple(sorted(complete))))
    return found


def missing_sentences(table: str, runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one sentence per protocol with missing trainings."""
    return render("unfinished.md.j2", protocols=unfinished_protocols(table, runs)).splitlines()


def is_begun(table: str, protocol: str, runs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some, but not all, of the trainings that a protocol's recipes plan have been run.

    Example:
        >>> is_begun("ood", "fast", [])
        False
    """
    return any(one.protocol == protocol and one.done for one in unfinished_protocols(table, runs))


def _finished(table: str, runs: Iterable[Mapping[str, Any]]) -> set[_Training]:
    return {
        _Training(run["protocol"], training_cell(table, run["cell"]), run["method"], run["seed"])
        for run in runs
        if run["table"] == table and run.get("stage", "final") == "final"
    }


def _planned(table: str) -> dict[str, set[_Training]]:
    found: dict[str, set[_Training]] = {}
    for cell in cells_of(table):
        for protocol in protocols(table, cell):
            plan = recipe(table, cell, protocol)
            for method in plan["methods"]:
                seeds = plan.get("seeds", {}).get(method, plan.get("final_seeds", ()))
                own = {_Training(protocol, cell, method, seed) for seed in seeds}
                found.setdefault(protocol, set()).update(own)
    return found
