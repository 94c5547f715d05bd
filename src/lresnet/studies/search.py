"""Hyperparameter search: configurations drawn once from a stated space, the best one by mean validation figure."""

from __future__ import annotations

import math
import random
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib import resources
from typing import Any

__all__ = ["best_configuration", "draw", "recipe", "recipe_cells", "recipe_notes"]


def recipe(table: str, cell: str) -> dict[str, Any]:
    """The recipe of a cell: ``protocol``, ``fixed`` values, the search ``space`` and the drawn ``configurations``."""
    name = f"{table}/{cell.replace('/', '_')}.toml"
    path = resources.files("lresnet.recipes").joinpath(name)
    if not path.is_file():
        folder = resources.files("lresnet.recipes").joinpath(table)
        known = sorted(p.name[:-5] for p in folder.iterdir()) if folder.is_dir() else []
        raise ValueError(f"no recipe for {table} {cell}; there are: {', '.join(known) or 'none'}")
    return tomllib.loads(path.read_text())


def recipe_cells(table: str) -> list[str]:
    """The cells of ``table`` that have a recipe.

    Raises:
        ValueError: no cell has.
    """
    folder = resources.files("lresnet.recipes").joinpath(table)
    names = sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".toml")) if folder.is_dir() else []
    if not names:
        raise ValueError(f"no recipes for a table {table!r}; there are recipes for gnn and for demo")
    return ["/".join(name.rsplit("_", 1)) for name in names]


def recipe_notes(cells: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What was tried, by cell, where the recipe of one of ``cells`` = (table, cell) says so.

    Example:
        >>> list(recipe_notes([("gnn", "airport/lp"), ("gnn", "disease/lp")]))
        ['airport/lp']
    """
    notes = {}
    for table, cell in sorted(cells):
        if resources.files("lresnet.recipes").joinpath(f"{table}/{cell.replace('/', '_')}.toml").is_file():
            note = recipe(table, cell).get("note")
            if note:
                notes[cell] = note
    return notes


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
