"""The plan of a cell: its recipe, the runs that follow from it, and which of them are still missing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from lresnet.residual.registry import compared_methods
from lresnet.runs.search import best_configuration
from lresnet.train.results import read_results
from lresnet_paper.ood import remaining, training_cell
from lresnet_paper.results import key_of_line
from lresnet_paper.run import Run, complete, depth_cell, split_depth, split_name

__all__ = [
    "FINAL_SEEDS",
    "OFFICIAL_SPLITS",
    "SEARCH_SEEDS",
    "NothingChosen",
    "cell_plan",
    "cells_of",
    "final_runs",
    "methods_of",
    "missing_runs",
    "non_inferiority_margin",
    "plan_of",
    "protocols",
    "recipe",
    "recipe_cells",
    "recipe_notes",
    "search_runs",
    "selection_metric",
]

# The seeds that select a configuration are not the seeds that report it.
SEARCH_SEEDS = (1000, 1001)
FINAL_SEEDS = tuple(range(10))
OFFICIAL_SPLITS = 10
# What a recipe may name in ``select``, and the field of a line that it compares.
_SELECTED_BY = {"maximum": "validation", "minimum": "validation", "smoothed": "validation_smoothed"}


class NothingChosen(ValueError):
    """A table varies the settings that another table chose, but none are chosen yet."""


# Recipes -------------------------------------------------------------------------------------------------------------


def recipe(table: str, cell: str, protocol: str | None = None) -> dict[str, Any]:
    """Return the recipe of a cell: ``protocol``, ``fixed`` values, search ``space`` and drawn ``configurations``.

    A cell with several protocols has one file for each, ``CELL.PROTOCOL.toml``. None: ``CELL.toml`` if it exists,
    otherwise the first in alphabetical order.

    Keys that decide which runs a recipe has:

    ================  ===============================================================================================
    ``search_seeds``  Seeds of the search; default 1000 and 1001.
    ``search_splits`` Splits of the search, each with every one of ``search_seeds``.
    ``final_seeds``   Seeds of the final runs; default 0 to 9. ``[seeds]`` has seeds of single methods.
    ``splits``        Splits of the final runs, each with every one of their seeds.
    ``select``        What the search compares: ``"maximum"`` (default), the validation score of the best pass, or
                      ``"smoothed"``, see :func:`lresnet.runs.search.smoothed_best`; ``"minimum"`` for bits per byte,
                      of which the lowest is best; the mean over all search runs.
    ``device``        ``"cpu"``: the recipe is small enough for a CPU. Default: its images or texts need a GPU.
    ``non_inferiority_margin``
                      By how many points Lorentz may be worse and still be called non-inferior.
    ``[only.METHOD]`` Settings of one method, e.g. ``residual`` for a method that is not the name of a residual.
    ``[own.METHOD]``  Values of one method in place of those of ``space``, see :func:`lresnet_paper.run.complete`.
    ================  ===============================================================================================

    Without ``search_splits`` and ``splits`` the seed decides the split: seed i has official split i modulo 10.

    Raises:
        ValueError: there is no such recipe.
    """
    plans = _plans(table, cell)
    chosen = [plan for plan in plans if protocol in (None, plan["protocol"])]
    if not chosen:
        wanted = f"{table} {cell}" + (f" with protocol {protocol}" if plans else "")
        known = [plan["protocol"] for plan in plans] or _files(table)
        raise ValueError(f"no recipe for {wanted}; there are: {', '.join(known) or 'none'}")
    return chosen[0]


def protocols(table: str, cell: str) -> list[str]:
    """Return the protocols for which a cell has recipes, the default first.

    Example:
        >>> protocols("gnn", "airport/nc")
        ['disjoint', 'legacy']
    """
    return [plan["protocol"] for plan in _plans(table, cell)]


def recipe_cells(table: str) -> list[str]:
    """Return the cells of ``table`` that have a recipe.

    Raises:
        ValueError: no cell has one.
    """
    names = dict.fromkeys(name.partition(".")[0] for name in _files(table))
    if not names:
        known = sorted(path.name for path in resources.files("lresnet_paper.recipes").iterdir() if _files(path.name))
        raise ValueError(
            f"no recipes for a table {table!r}; there are recipes for {', '.join(known)} (runtime is timed)"
        )
    return ["/".join(name.rsplit("_", 1)) for name in names]


def recipe_notes(cells: Iterable[tuple[str, str]]) -> dict[tuple[str, str, str], str]:
    """Return the notes of recipes by table, cell and protocol, for pairs ``(table, cell)``.

    Example:
        >>> list(recipe_notes([("gnn", "airport/lp"), ("gnn", "disease/lp")]))
        [('gnn', 'airport/lp', 'legacy')]
    """
    plans = [(table, cell, plan) for table, cell in sorted(cells) for plan in _plans(table, cell)]
    return {(table, cell, plan["protocol"]): plan["note"] for table, cell, plan in plans if "note" in plan}


def non_inferiority_margin(table: str, cell: str, protocol: str) -> float | None:
    """Return the margin of non-inferiority that a recipe states, in points; None: it states none, or there is none.

    Example:
        >>> non_inferiority_margin("graph_transformer", "actor", "fresh_splits-sgformer")
        1.0
    """
    plans = _plans(table, split_depth(cell)[0])
    margins = (plan.get("non_inferiority_margin") for plan in plans if plan["protocol"] == protocol)
    return next(margins, None)


def methods_of(plan: dict[str, Any]) -> Sequence[str]:
    """Return the methods that a recipe compares; all of them by default."""
    return plan.get("methods", compared_methods())  # type: ignore[no-any-return]


def _plans(table: str, cell: str) -> list[dict[str, Any]]:
    files = _files(table)
    return [tomllib.loads(files[name]) for name in files if name.partition(".")[0] == cell.replace("/", "_")]


def _files(table: str) -> dict[str, str]:
    """Return the recipe files of a table, name without .toml to content, in alphabetical order.

    ``table`` may come from a line of results, so it is compared with the names of the folders and never part of a path.
    """
    folders = {folder.name: folder for folder in resources.files("lresnet_paper.recipes").iterdir() if folder.is_dir()}
    content = folders[table].iterdir() if table in folders else ()
    files = sorted(content, key=lambda path: path.name.removesuffix(".toml"))
    return {file.name[:-5]: file.read_text() for file in files if file.name.endswith(".toml")}


# Cells of the table of depths ----------------------------------------------------------------------------------------


def cells_of(table: str, protocol: str | None = None) -> list[str]:
    """Return the cells of ``table`` that have a recipe (for ``protocol``, if given); one per depth in ``depths``.

    Raises:
        ValueError: the table has no recipes, or none for this protocol.

    Example:
        >>> cells_of("oversmoothing")[-2:]
        ['disease/lp/32', 'disease/lp/64']
    """
    found = []
    for cell in recipe_cells(table):
        if protocol in (None, *protocols(table, cell)):
            depths = recipe(table, cell, protocol).get("depths")
            found += [cell] if depths is None else [depth_cell(cell, layers) for layers in depths]
    if not found:
        known = sorted({name for cell in recipe_cells(table) for name in protocols(table, cell)})
        raise ValueError(f"no cell of {table} has a recipe with protocol {protocol}; there are: {', '.join(known)}")
    return found


def plan_of(table: str, cell: str, protocol: str | None = None) -> dict[str, Any]:
    """Return the recipe of a cell with its ``depths`` as ``variants``: one for disease/lp/64, all for disease/lp.

    Raises:
        ValueError: there is no recipe, or none for this depth.
    """
    base, depth = split_depth(cell)
    plan = recipe(table, base, protocol)
    known = plan.get("depths", [])
    if depth is not None and depth not in known:
        raise ValueError(f"no recipe for {table} {cell}; its depths are {', '.join(map(str, known)) or 'none'}")
    chosen = known if depth is None else [depth]
    return plan | ({"variants": [{"num_layers": layers} for layers in chosen]} if known else {})


def cell_plan(table: str, cell: str, protocol: str | None = None) -> dict[str, Any]:
    """Return :func:`plan_of` a cell; for a recipe with ``depths`` and ``configurations``, the search at this depth.

    A configuration changes what the recipe fixes or, if it names a table ``like``, what that table chose for a method.
    ``weight_times_layers`` = c sets the weight of the residual to c / L for L layers.
    """
    plan = plan_of(table, cell, protocol)
    base, depth = split_depth(cell)
    if "depths" not in plan or "configurations" not in plan:
        return plan
    if depth is None:
        raise ValueError(f"{table} {cell} is searched at every depth; name one, e.g. {cell}/{plan['depths'][0]}")
    own = {method: _at_this_depth(plan, base, method) | {"num_layers": depth} for method in plan["methods"]}
    configurations = [_at_depth(configuration, depth) for configuration in plan["configurations"]]
    rest = {name: value for name, value in plan.items() if name != "variants"}
    return rest | {"fixed": {}, "only": own, "configurations": configurations}


def _at_this_depth(plan: dict[str, Any], cell: str, method: str) -> dict[str, Any]:
    """Return what a recipe with depths fixes for a method, on top of what the table ``like`` chose if it names one."""
    own: dict[str, Any] = plan.get("fixed", {}) | plan.get("only", {}).get(method, {})
    if "like" not in plan:
        return own
    like = recipe(plan["like"], cell, split_name(plan["protocol"]))
    return complete(like, method, like["chosen"][method]) | own


def _at_depth(configuration: dict[str, Any], depth: int) -> dict[str, Any]:
    rest = {name: value for name, value in configuration.items() if name != "weight_times_layers"}
    product = configuration.get("weight_times_layers")
    return rest if product is None else rest | {"weight": product / depth}


# Runs ----------------------------------------------------------------------------------------------------------------


def missing_runs(runs: Iterable[Run], results: Path) -> list[Run]:
    """Return those of ``runs`` that have no line in ``results``."""
    finished = set(_recorded(results))
    return [left for run in runs for left in remaining(run, finished)]


def search_runs(table: str, cell: str, methods: Sequence[str] = (), protocol: str | None = None) -> list[Run]:
    """Return every configuration of the recipe for every method on the search seeds; none for a table of variants.

    A recipe that is ``searched_at`` another cell has the search runs of that cell.
    """
    cell, plan = _search_plan(table, cell, protocol)
    return [
        Run(table, cell, method, plan["protocol"], seed, config, split, stage="search")
        for configuration in plan.get("configurations", ())
        for method in methods or methods_of(plan)
        for config in [complete(plan, method, configuration, "search")]
        for seed, split in _search_pairs(plan)
    ]


def final_runs(
    table: str,
    cell: str,
    results: Path,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    protocol: str | None = None,
) -> list[Run]:
    """Return the runs of the best configuration on all seeds, for each method whose search is complete.

    A recipe with ``variants`` has no search: each variant changes what the recipe of the same cell in the table
    ``like`` states as chosen; its protocol is ``like_protocol``, or else the same. A recipe with ``depths`` has one
    variant, and one cell, per number of layers.
    """
    plan = cell_plan(table, training_cell(table, cell), protocol)
    if "variants" in plan:
        return _variants(table, cell, plan, methods, seeds)
    searched = _search_plan(table, cell, protocol)[1]
    found = _recorded(results)
    # In the order of the recipe: the order of the lines depends on which worker finished first.
    done = [found[key] for run in search_runs(table, cell, methods, protocol) if (key := run.key()) in found]
    count = len(searched["configurations"]) * len(_search_pairs(searched))
    runs = []
    for method in methods or methods_of(plan):
        records = [record for record in done if record["method"] == method]
        if len(records) < count:
            continue
        best = best_configuration(records, selection_metric(searched), lowest=searched.get("select") == "minimum")
        chosen = next(c for c in searched["configurations"] if complete(searched, method, c, "search") == best)
        config = complete(plan, method, chosen)
        own = seeds or plan.get("seeds", {}).get(method, plan.get("final_seeds", FINAL_SEEDS))
        pairs = _pairs(plan, own, plan.get("splits"))
        runs += [Run(table, cell, method, plan["protocol"], seed, config, split) for seed, split in pairs]
    return runs


def _search_plan(table: str, cell: str, protocol: str | None) -> tuple[str, dict[str, Any]]:
    """Return the cell in which the settings of ``cell`` are searched, and its recipe."""
    plan = cell_plan(table, own := training_cell(table, cell), protocol)
    if "searched_at" not in plan:
        return own, plan
    return plan["searched_at"], cell_plan(table, plan["searched_at"], plan["protocol"])


def _variants(table: str, cell: str, plan: dict[str, Any], methods: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    base = split_depth(training_cell(table, cell))[0]
    like = recipe(plan["like"], base, plan.get("like_protocol", plan["protocol"]))
    runs = []
    for method in methods or methods_of(plan):
        source = plan.get("settings_of", {}).get(method, method)
        if source not in like.get("chosen", {}):
            raise NothingChosen(
                f"{table} {cell} varies the settings that {plan['like']} chose for {source}, but none are chosen yet; "
                f"run `lresnet reproduce {plan['like']} --cell {base}` and add [chosen.{source}] to its recipe"
            )
        chosen = complete(like, source, like["chosen"][source])
        runs += [
            Run(table, own, method, plan["protocol"], seed, chosen | variant, split)
            for variant in plan["variants"]
            for own in [depth_cell(base, variant["num_layers"]) if "depths" in plan else cell]
            for seed, split in _pairs(plan, seeds or plan.get("final_seeds", FINAL_SEEDS), plan.get("splits"))
        ]
    return runs


def selection_metric(plan: dict[str, Any]) -> str:
    """Return the field of a search line by which a recipe selects a configuration.

    Raises:
        ValueError: the recipe names an unknown rule.

    Example:
        >>> selection_metric({}), selection_metric({"select": "smoothed"})
        ('validation', 'validation_smoothed')
    """
    rule = plan.get("select", "maximum")
    if rule not in _SELECTED_BY:
        raise ValueError(f"select must be one of {', '.join(_SELECTED_BY)}, got {rule!r}")
    return _SELECTED_BY[rule]


def _search_pairs(plan: dict[str, Any]) -> list[tuple[int, int | None]]:
    """Return seed and split of every search run of a configuration."""
    return _pairs(plan, plan.get("search_seeds", SEARCH_SEEDS), plan.get("search_splits"))


def _pairs(plan: dict[str, Any], seeds: Sequence[int], splits: Sequence[int] | None) -> list[tuple[int, int | None]]:
    """Return every split with every seed; without splits, official split i modulo 10 for seed i."""
    if splits is not None:
        return [(seed, split) for seed in seeds for split in splits]
    official = split_name(plan["protocol"]) == "official_splits"
    return [(seed, seed % OFFICIAL_SPLITS if official else None) for seed in seeds]


def _recorded(results: Path) -> dict[Any, dict[str, Any]]:
    """Return the lines of ``results`` that are runs, by their keys; a repeated line counts once."""
    keyed = ((key_of_line(line), line) for line in read_results(results))
    return {key: line for key, line in keyed if key is not None}
