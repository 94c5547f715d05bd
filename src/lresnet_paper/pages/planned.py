"""Which of the trainings that the recipes of images plan have been run: said where a table is not complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lresnet_paper.depth import cells_of
from lresnet_paper.ood import training_cell
from lresnet_paper.search import protocols, recipe

__all__ = ["PLANNED_TABLES", "is_begun", "missing_sentences"]

PLANNED_TABLES = ("image_classification", "ood")
"""Those whose trainings take long enough that a table may stand there half done."""


class _Training(NamedTuple):
    protocol: str
    cell: str
    method: str
    seed: int


def missing_sentences(table: str, runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """By protocol, a sentence if trainings that its recipes plan are not among the runs; nothing without any run.

    Example:
        >>> missing_sentences("ood", [])
        []
    """
    there = _there(table, runs)
    return list(filter(None, (_sentence(name, own, there) for name, own in _planned(table).items()))) if there else []


def is_begun(table: str, protocol: str, runs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some of the trainings that the recipes of a protocol plan are there, and some are not.

    Example:
        >>> is_begun("ood", "fast", [])
        False
    """
    planned = _planned(table).get(protocol, set())
    return bool(planned & (there := _there(table, runs)) and planned - there)


def _there(table: str, runs: Iterable[Mapping[str, Any]]) -> set[_Training]:
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


def _sentence(protocol: str, planned: set[_Training], there: set[_Training]) -> str:
    missing = planned - there
    if not missing:
        return ""
    if missing == planned:
        return f"Not run yet ({protocol}): the {len(planned)} trainings that the recipes plan."
    lacking = {one.cell for one in missing}
    whole = sorted({one.cell for one in planned} - lacking)
    begun = len(planned) - len(missing)
    complete = f"; complete: {', '.join(whole)}" if whole else ""
    return f"Not complete ({protocol}): {begun} of the {len(planned)} trainings that the recipes plan{complete}."
