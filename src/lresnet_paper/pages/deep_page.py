"""The page of deep graph networks: Lorentz, its limit for curvature 0 and GCNII; depths beside the chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from lresnet.data import TASKS
from lresnet.data.split_names import SPLITS, canonical_split
from lresnet.runs.statistics import summarise
from lresnet_paper.comparisons import Comparison, compare_methods
from lresnet_paper.pages.text_tables import difference_text
from lresnet_paper.plan import protocols, recipe, recipe_cells
from lresnet_paper.render import render
from lresnet_paper.results import NoResults, Result, aggregate
from lresnet_paper.run import depth_cell, split_name
from lresnet_paper.untrained import SCORE_LABELS, best_untrained

__all__ = ["TABLE", "deep_page"]

TABLE = "deep"
"""Name of the table in the recipes and in the lines of results."""

METHODS = {"lorentz": "Lorentz", "lorentz_limit": "Lorentz, K → 0", "euclidean": "GCNII"}

Run = Mapping[str, Any]


def deep_page(lines: Sequence[Run], untrained: Iterable[Run] = ()) -> str:
    """Return the page in Markdown.

    Args:
        lines: lines of ``results/deep.jsonl``; cells without final runs are listed as not measured.
        untrained: lines of ``results/untrained.jsonl``, whose best scores stand beside the networks.

    Raises:
        NoResults: there are no final runs of the study.
    """
    final = [line for line in lines if line["table"] == TABLE and line.get("stage", "final") == "final"]
    if not any(line.get("value") is not None for line in final):
        raise NoResults("there are no final runs of the study; `lresnet reproduce deep` makes them")
    # Depths are described, not compared: the family of comparisons has one cell per graph, task and split.
    compared = compare_methods(line for line in final if line["cell"].count("/") == 1)
    recipes = [
        (cell, recipe(TABLE, cell, protocol)) for cell in recipe_cells(TABLE) for protocol in protocols(TABLE, cell)
    ]
    scores = {
        (cell, canonical_split(protocol, TASKS[cell].splits)): best
        for (cell, protocol), best in best_untrained(aggregate(untrained)).items()
    }
    rows = [_row(cell, plan, final, compared, scores) for cell, plan in recipes if "depths" not in plan]
    depths = [row for cell, plan in recipes if "depths" in plan for row in _depth_rows(cell, plan, final)]
    against = [one for one in compared if one.method == "euclidean"]
    return render(
        "deep.md.j2",
        methods=METHODS,
        rows=[row for row in rows if row["measured"]],
        missing=[row for row in rows if not row["measured"]],
        depths=depths,
        better=[row for row in rows if "better" in row["differences"].get("euclidean", {}).get("text", "")],
        counts={verdict: sum(one.verdict == verdict for one in against) for verdict in ("better", "worse")},
        non_inferior=sum(bool(one.non_inferior) for one in against),
        compared=len(against),
        rules={split: SPLITS[split].rule for split in dict.fromkeys(row["split"] for row in rows)},
        runs=len(final),
        searches=sum(line.get("stage") == "search" for line in lines),
        minutes=sum(line.get("seconds", 0) for line in lines) / 60,
        hardware=sorted({line["hardware"] for line in final}),
    )


def _row(
    cell: str,
    plan: Mapping[str, Any],
    final: Iterable[Run],
    compared: Iterable[Comparison],
    untrained: Mapping[tuple[str, str], Result],
) -> dict[str, Any]:
    """Return the results of one cell on one split."""
    runs = [line for line in final if (line["cell"], line["protocol"]) == (cell, plan["protocol"])]
    differences = {
        one.method: {"text": difference_text(one.difference, one.verdict), "non_inferior": one.non_inferior}
        for one in compared
        if (one.cell, one.protocol) == (cell, plan["protocol"])
    }
    split = split_name(plan["protocol"])
    best = untrained.get((cell, split))
    flat = [line["value"] for line in runs if line["method"] == "euclidean" and line["value"] is not None]
    return {
        "cell": cell,
        "split": split,
        "values": {method: _value(runs, method) for method in METHODS},
        "untrained": f"{best.mean:.1f} ({SCORE_LABELS[best.method]})" if best else "",
        "untrained_above": bool(best and flat and best.mean > fmean(flat)),
        "chosen": {method: _chosen(runs, method, plan["space"]) for method in METHODS},
        "differences": differences,
        "measured": bool(runs),
    }


def _depth_rows(cell: str, plan: Mapping[str, Any], final: Sequence[Run]) -> Iterable[dict[str, Any]]:
    """Return one row per method: its results at every depth, each with its mean weight of the skip branch."""
    for method in METHODS:
        own = []
        for layers in plan["depths"]:
            at = (depth_cell(cell, layers), plan["protocol"])
            own.append([line for line in final if (line["cell"], line["protocol"]) == at and line["method"] == method])
        if any(own):
            yield {
                "cell": cell,
                "split": split_name(plan["protocol"]),
                "connection": plan["fixed"]["connection"],
                "method": METHODS[method],
                "values": dict(zip(plan["depths"], (_value_and_alpha(runs, method) for runs in own), strict=True)),
            }


def _value(runs: Iterable[Run], method: str) -> str:
    """Return mean and deviation of the finished runs, e.g. ``85.1 ± 0.4 (10)``; empty without runs."""
    own = [line["value"] for line in runs if line["method"] == method]
    finite = [value for value in own if value is not None]
    if not finite:
        return "diverged" if own else ""
    diverged = f", {len(own) - len(finite)} diverged" if len(finite) < len(own) else ""
    return f"{summarise(finite):.1f} ({len(finite)}{diverged})"


def _value_and_alpha(runs: Sequence[Run], method: str) -> str:
    alphas = [line["alpha"] for line in runs if "alpha" in line]
    return _value(runs, method) + (f", alpha {fmean(alphas):.2f}" if alphas else "")


def _chosen(runs: Iterable[Run], method: str, space: Iterable[str]) -> dict[str, Any]:
    """Return the settings that the search chose."""
    config: Mapping[str, Any] = next((line["config"] for line in runs if line["method"] == method), {})
    free = {"curvature"} if method == "euclidean" else set()  # it is in the configuration, and has no effect
    return {name: config[name] for name in space if name in config and name not in free}
