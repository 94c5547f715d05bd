"""Hyperparameter search: configurations drawn once from a stated space, the best one by mean validation figure."""

from __future__ import annotations

import math
import random
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib import resources
from typing import Any

__all__ = ["best_configuration", "draw", "protocols", "recipe", "recipe_cells", "recipe_notes"]


def recipe(table: str, cell: str, protocol: str | None = None) -> dict[str, Any]:
    """The recipe of a cell: ``protocol``, ``fixed`` values, the search ``space`` and the drawn ``configurations``.

    A cell with several protocols has a file for each, ``CELL.PROTOCOL.toml``; None: ``CELL.toml`` where there is one,
    else the first in the alphabet.

    Raises:
        ValueError: there is none.
    """
    plans = _plans(table, cell)
    chosen = [plan for plan in plans if protocol in (None, plan["protocol"])]
    if not chosen:
        wanted = f"{table} {cell}" + (f" with protocol {protocol}" if plans else "")
        there = [plan["protocol"] for plan in plans] or _files(table)
        raise ValueError(f"no recipe for {wanted}; there are: {', '.join(there) or 'none'}")
    return chosen[0]


def protocols(table: str, cell: str) -> list[str]:
    """The protocols that a cell has recipes of, the default first.

    Example:
        >>> protocols("gnn", "airport/nc")
        ['disjoint', 'legacy']
    """
    return [plan["protocol"] for plan in _plans(table, cell)]


def recipe_cells(table: str) -> list[str]:
    """The cells of ``table`` that have a recipe.

    Raises:
        ValueError: no cell has.
    """
    names = dict.fromkeys(name.partition(".")[0] for name in _files(table))
    if not names:
        known = sorted(p.name for p in resources.files("lresnet_paper.recipes").iterdir() if _files(p.name))
        raise ValueError(
            f"no recipes for a table {table!r}; there are recipes for {', '.join(known)} (runtime is timed)"
        )
    return ["/".join(name.rsplit("_", 1)) for name in names]


def _plans(table: str, cell: str) -> list[dict[str, Any]]:
    files = _files(table)
    return [tomllib.loads(files[name]) for name in files if name.partition(".")[0] == cell.replace("/", "_")]


def _files(table: str) -> dict[str, str]:
    """File names without .toml, and what they hold, in alphabetical order."""
    folder = resources.files("lresnet_paper.recipes").joinpath(table)
    files = sorted(folder.iterdir(), key=lambda p: p.name.removesuffix(".toml")) if folder.is_dir() else []
    return {file.name[:-5]: file.read_text() for file in files if file.name.endswith(".toml")}


def recipe_notes(cells: Iterable[tuple[str, str]]) -> dict[tuple[str, str, str], str]:
    """What was tried, by table, cell and protocol, where a recipe of one of ``cells`` = (table, cell) says so.

    Example:
        >>> list(recipe_notes([("gnn", "airport/lp"), ("gnn", "disease/lp")]))
        [('gnn', 'airport/lp', 'legacy')]
    """
    plans = [(table, cell, plan) for table, cell in sorted(cells) for plan in _plans(table, cell)]
    return {(table, cell, plan["protocol"]): plan["note"] for table, cell, plan in plans if "note" in plan}


def draw(space: dict[str, list[Any]], count: int, seed: int) -> list[dict[str, Any]]:
    """``count`` different configurations, uniformly from the grid ``space``; the same for the same seed.

    Example:
        >>> draw({"lr": [0.1, 0.01], "dropout": [0.0]}, 2, seed=0)
        [{'lr': 0.01, 'dropout': 0.0}, {'lr': 0.1, 'dropout': 0.0}]
    """
    generator = random.Random(seed)
    chosen: list[dict[str, Any]] = []
    size = 1
    for values in space.values():
        size *= len(values)
    while len(chosen) < min(count, size):
        configuration = {name: generator.choice(values) for name, values in space.items()}
        if configuration not in chosen:
            chosen.append(configuration)
    return chosen


def best_configuration(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The configuration with the highest mean validation figure over its seeds; the earlier one if two are equal."""
    figures: dict[str, list[float]] = defaultdict(list)
    configurations: dict[str, dict[str, Any]] = {}
    for record in records:
        key = repr(sorted(record["config"].items()))
        diverged = record["validation"] is None
        figures[key].append(-math.inf if diverged else record["validation"])
        configurations.setdefault(key, record["config"])
    if not figures:
        raise ValueError("no search run to choose from")
    return configurations[max(figures, key=lambda key: sum(figures[key]) / len(figures[key]))]
