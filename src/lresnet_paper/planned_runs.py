"""Which runs a cell consists of, by its recipe and by what its search chose; and which of them are still missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lresnet.residual.registry import compared_methods
from lresnet.train.results import read_results
from lresnet_paper.depth import depth_cell, plan_of, split_depth
from lresnet_paper.ood import remaining, training_cell
from lresnet_paper.run import Run, complete, split_name
from lresnet_paper.search import best_configuration, recipe

__all__ = [
    "FINAL_SEEDS",
    "OFFICIAL_SPLITS",
    "SEARCH_SEEDS",
    "NothingChosen",
    "cell_plan",
    "final_runs",
    "methods_of",
    "missing_runs",
    "search_runs",
]


# The seeds that choose a configuration are not those that report it.
SEARCH_SEEDS = (1000, 1001)
FINAL_SEEDS = tuple(range(10))
OFFICIAL_SPLITS = 10


class NothingChosen(ValueError):
    """A table of variants of chosen settings, where none are chosen yet."""


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
            raise NothingChosen(
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
    return plan.get("methods", compared_methods())  # type: ignore[no-any-return]


def _recorded(results: Path) -> dict[Any, dict[str, Any]]:
    """The runs that ``results`` has lines of, by their keys: a line twice counts once, what is no run not at all."""
    lines = (line for line in read_results(results) if line.keys() >= Run.__dataclass_fields__.keys())
    runs = (line for line in lines if isinstance(line["config"], dict) and isinstance(line["seed"], int))
    return {Run(**{name: line[name] for name in Run.__dataclass_fields__}).key(): line for line in runs}


def cell_plan(table: str, cell: str, protocol: str | None = None) -> dict[str, Any]:
    """:func:`~lresnet_paper.depth.plan_of`; of a recipe with ``depths`` and ``configurations`` one with a search.

    A configuration changes what the table ``like`` chose for a method. Its ``weight_times_layers`` = c stands for
    a residual's weight of c / L at L layers.
    """
    plan = plan_of(table, cell, protocol)
    base, depth = split_depth(cell)
    if "depths" not in plan or "configurations" not in plan:
        return plan
    if depth is None:
        raise ValueError(f"{table} {cell} is searched depth by depth; name one, e.g. {cell}/{plan['depths'][0]}")
    like = recipe(plan["like"], base, split_name(plan["protocol"]))
    own = {
        method: complete(like, method, like["chosen"][method]) | plan.get("fixed", {}) | {"num_layers": depth}
        for method in plan["methods"]
    }
    configurations = [_of_depth(configuration, depth) for configuration in plan["configurations"]]
    rest = {name: value for name, value in plan.items() if name != "variants"}
    return rest | {"fixed": {}, "only": own, "configurations": configurations}


def _of_depth(configuration: dict[str, Any], depth: int) -> dict[str, Any]:
    rest = {name: value for name, value in configuration.items() if name != "weight_times_layers"}
    share = configuration.get("weight_times_layers")
    return rest if share is None else rest | {"weight": share / depth}
