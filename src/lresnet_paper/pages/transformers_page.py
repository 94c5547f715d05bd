"""The page of transformers by depth: residual connections with 6, 12 and 24 blocks, on images and on a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from lresnet.runs.statistics import Estimate, Verdict, paired_difference, summarise
from lresnet_paper.comparisons import Comparison, compare_methods, family_verdicts
from lresnet_paper.pages.text_tables import difference_text
from lresnet_paper.plan import protocols, recipe, recipe_cells
from lresnet_paper.render import render
from lresnet_paper.results import NoResults, method_label, unique_runs
from lresnet_paper.run import depth_cell, text_cell

__all__ = ["TABLE", "transformers_page"]

TABLE = "transformers"
"""Name of the table in the recipes and in the lines of results."""

Run = Mapping[str, Any]
Gain = tuple[Estimate, Verdict]
Values = Mapping[tuple[int, str], Mapping[int, float | None]]  # by depth and method: by seed


def transformers_page(lines: Sequence[Run]) -> str:
    """Return the page in Markdown. Recipes and cells without final runs are named as not measured.

    Args:
        lines: lines of ``results/transformers.jsonl``.

    Raises:
        NoResults: there are no final runs of the study.
    """
    own = unique_runs(dict(line) for line in lines if line["table"] == TABLE)
    final = [line for line in own if line.get("stage", "final") == "final"]
    if not any(line.get("value") is not None for line in final):
        raise NoResults("there are no final runs of the study; `lresnet reproduce transformers` makes them")
    plans = [
        (data, recipe(TABLE, data, protocol)) for data in recipe_cells(TABLE) for protocol in protocols(TABLE, data)
    ]
    forms = [_form(data, plan, own) for data, plan in plans]
    return render(
        "transformers.md.j2",
        forms=[form for form in forms if form["runs"]],
        missing=[form for form in forms if form["runs"] < form["planned"]],
    )


def _form(data: str, plan: Mapping[str, Any], lines: Iterable[Run]) -> dict[str, Any]:
    """Return the values that the page shows for one recipe: a data set and a size of the study."""
    depths, methods, seeds = plan["depths"], plan["methods"], plan["final_seeds"]
    cells = {depth_cell(data, depth): depth for depth in depths}
    own = [line for line in lines if line["protocol"] == plan["protocol"] and line["cell"] in cells]
    final = [line for line in own if line.get("stage", "final") == "final"]
    values = _by_seed(final, cells)
    compared = {(cells[one.cell], one.method): one for one in compare_methods(final)}
    is_text = text_cell(data) is not None
    digits = 3 if is_text else 2
    gains = _gains(values, depths, methods, lower_is_better=is_text)
    differences = {
        (depth, method): difference_text(one.difference, one.verdict, digits)
        for (depth, method), one in compared.items()
    }
    chosen = {(cells[line["cell"]], line["method"]): line["config"] for line in final}
    return {
        "data": data,
        "protocol": plan["protocol"],
        "on_cpu": plan.get("device") == "cpu",
        "is_text": is_text,
        "plan": plan,
        "depths": depths,
        "methods": {method: method_label(method) for method in methods},
        "values": {
            (depth, method): _value(values.get((depth, method), {}), digits) for depth in depths for method in methods
        },
        "differences": differences,
        "verdicts": _verdicts(compared, depths, methods),
        "gains": {method: difference_text(*gain, digits) for method, gain in gains.items()},
        "by_depth": _by_verdict({method: verdict for method, (_, verdict) in gains.items()}),
        "chosen": {key: {name: config[name] for name in plan["space"]} for key, config in chosen.items()},
        "edge": [key for key in sorted(chosen) if _at_the_edge(chosen[key], plan["space"])],
        "runs": len(final),
        "planned": len(depths) * len(methods) * len(seeds),
        "searches": sum(line.get("stage") == "search" for line in own),
        "minutes": sum(line.get("seconds", 0) for line in own) / 60,
        "hardware": sorted({line["hardware"] for line in final}),
    }


def _by_seed(final: Iterable[Run], cells: Mapping[str, int]) -> Values:
    found: dict[tuple[int, str], dict[int, float | None]] = {}
    for line in final:
        found.setdefault((cells[line["cell"]], line["method"]), {})[line["seed"]] = line["value"]
    return found


def _value(by_seed: Mapping[int, float | None], digits: int) -> str:
    """Return mean and deviation of the finished runs, e.g. ``2.431 ± 0.012 (3)``; empty without runs."""
    finite = [value for value in by_seed.values() if value is not None]
    if not finite:
        return "diverged" if by_seed else ""
    diverged = f", {len(by_seed) - len(finite)} diverged" if len(finite) < len(by_seed) else ""
    return f"{summarise(finite):.{digits}f} ({len(finite)}{diverged})"


def _verdicts(
    compared: Mapping[tuple[int, str], Comparison], depths: Sequence[int], methods: Sequence[str]
) -> list[dict[str, Any]]:
    """Return for every depth with comparisons the methods by the verdict on Lorentz."""
    by_depth = {
        depth: {name: compared[depth, name].verdict for name in methods if (depth, name) in compared}
        for depth in depths
    }
    return [{"depth": depth, "methods": _by_verdict(own)} for depth, own in by_depth.items() if own]


def _gains(values: Values, depths: Sequence[int], methods: Sequence[str], lower_is_better: bool) -> dict[str, Gain]:
    """Return the difference of the deepest and the shallowest network by method, with a verdict on the deepest."""
    found = {}
    for method in methods:
        deep, shallow = (_finite(values.get((depth, method), {})) for depth in (depths[-1], depths[0]))
        if (difference := paired_difference(deep, shallow)) is not None:
            found[method] = difference
    signed = {method: -difference if lower_is_better else difference for method, difference in found.items()}
    decided = family_verdicts(signed) if signed else {}
    return {method: (difference, decided[method]) for method, difference in found.items()}


def _by_verdict(verdicts: Mapping[str, Verdict]) -> dict[Verdict, list[str]]:
    return {verdict: [one for one in verdicts if verdicts[one] == verdict] for verdict in get_args(Verdict)}


def _finite(by_seed: Mapping[int, float | None]) -> dict[int, float]:
    return {seed: value for seed, value in by_seed.items() if value is not None}


def _at_the_edge(config: Mapping[str, Any], space: Mapping[str, Sequence[float]]) -> bool:
    """Return whether a chosen learning rate is the smallest or the largest that was tried."""
    return config["lr"] in (min(space["lr"]), max(space["lr"]))
