"""The page of deep graph networks: Lorentz, its limit for curvature 0 and GCNII; depths beside the chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lresnet.data import TASKS
from lresnet.data.split_names import SPLITS, canonical_split
from lresnet.runs.statistics import summarise
from lresnet_paper.comparisons import Comparison, compare_methods
from lresnet_paper.pages.depth_picture import connection_panels
from lresnet_paper.pages.text_tables import difference_text
from lresnet_paper.plan import FINAL_SEEDS, protocols, recipe, recipe_cells
from lresnet_paper.render import render
from lresnet_paper.results import NoResults, Result, aggregate
from lresnet_paper.run import depth_cell, split_name
from lresnet_paper.untrained import SCORE_LABELS, best_untrained

__all__ = ["TABLE", "deep_page"]

TABLE = "deep"
"""Name of the table in the recipes and in the lines of results."""

METHODS = {"lorentz": "Lorentz", "lorentz_limit": "Lorentz, K → 0", "euclidean": "GCNII"}

_SCALES = {"none": "average", "1+w": "sum"}
"""What the scale of a residual with equal weights makes of it."""

_NOT_MEASURED = "not measured"

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
    # The family of the page's verdict has one cell per graph, task and split; depths are a family of their own.
    compared = compare_methods(line for line in final if line["cell"].count("/") == 1)
    at_depths = compare_methods(line for line in final if line["cell"].count("/") == 2)
    recipes = [
        (cell, recipe(TABLE, cell, protocol)) for cell in recipe_cells(TABLE) for protocol in protocols(TABLE, cell)
    ]
    scores = {
        (cell, canonical_split(protocol, TASKS[cell].splits)): best
        for (cell, protocol), best in best_untrained(aggregate(untrained)).items()
    }
    rows = [_row(cell, plan, final, compared, scores) for cell, plan in recipes if "depths" not in plan]
    by_depth = [DepthRuns.of(cell, plan, final) for cell, plan in recipes if "depths" in plan]
    shown = sorted({layers for own in by_depth for layers in own.measured})
    against = [one for one in compared if one.method == "euclidean"]
    return render(
        "deep.md.j2",
        methods=METHODS,
        rows=[row for row in rows if row["measured"]],
        missing=[row for row in rows if not row["measured"]],
        shown_depths=shown,
        depths=[row for own in by_depth for row in own.rows(shown)],
        depth_gaps=[f"{own.title}: {own.gaps}" for own in by_depth if own.gaps],
        depth_answers=_depth_answers(by_depth),
        depth_differences=[row for own in by_depth for row in own.differences(at_depths, shown)],
        depth_counts=_depth_counts(by_depth, at_depths),
        depth_family=len(at_depths),
        depth_rates=sorted({rate for own in by_depth for rate in own.plan["space"]["lr"]}),
        depth_below=_below_untrained(by_depth, scores),
        depth_noise=_largest_limit_gap(by_depth),
        has_picture=bool(connection_panels(final)),
        better=[row for row in rows if "better" in row["differences"].get("euclidean", {}).get("text", "")],
        counts={verdict: sum(one.verdict == verdict for one in against) for verdict in ("better", "worse")},
        non_inferior=sum(bool(one.non_inferior) for one in against),
        compared=len(against),
        family=len(compared),
        by_loss=any(row["by_loss"] and row["measured"] for row in rows),
        rules={split: SPLITS[split].rule for split in dict.fromkeys(row["split"] for row in rows)},
        runs=len(final),
        searches=sum(line.get("stage") == "search" for line in lines),
        minutes=sum(line.get("seconds", 0) for line in lines) / 60,
        hardware=sorted({line["hardware"] for line in lines if line["table"] == TABLE}),
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
        "by_loss": plan["fixed"].get("criterion") == "loss",
        "values": {method: _value(runs, method) or _NOT_MEASURED for method in METHODS},
        "untrained": f"{best.mean:.1f} ({SCORE_LABELS[best.method]})" if best else "",
        "untrained_above": bool(best and flat and best.mean > fmean(flat)),
        "chosen": {method: _chosen(runs, method, plan["space"]) for method in METHODS},
        "differences": differences,
        "measured": bool(runs),
    }


@dataclass(frozen=True)
class DepthRuns:
    """The final runs of a recipe at every depth, by method and number of layers."""

    cell: str
    plan: Mapping[str, Any]
    runs: Mapping[str, Mapping[int, Sequence[Run]]]

    @classmethod
    def of(cls, cell: str, plan: Mapping[str, Any], final: Sequence[Run]) -> DepthRuns:
        """Return the runs of the recipe ``plan``."""
        runs: dict[str, dict[int, list[Run]]] = {
            method: {layers: [] for layers in plan["depths"]} for method in METHODS
        }
        cells = {depth_cell(cell, layers): layers for layers in plan["depths"]}
        for line in final:
            if line["protocol"] == plan["protocol"] and line["cell"] in cells and line["method"] in runs:
                runs[line["method"]][cells[line["cell"]]].append(line)
        return cls(cell, plan, runs)

    @property
    def connection(self) -> str:
        return str(self.plan["fixed"]["connection"])

    @property
    def title(self) -> str:
        return f"{self.cell}, {self.connection}"

    @property
    def measured(self) -> set[int]:
        """The depths with a run of any method."""
        return {layers for own in self.runs.values() for layers, runs in own.items() if runs}

    @property
    def gaps(self) -> str:
        """What the recipe plans and no line has, e.g. ``2, 4 layers; 16 layers: 0 of 5 runs of GCNII``."""
        planned = len(self.plan.get("final_seeds", FINAL_SEEDS))
        absent = [str(layers) for layers in self.plan["depths"] if layers not in self.measured]
        parts = [f"{', '.join(absent)} layers"] if absent else []
        for layers in sorted(self.measured):
            counts = {METHODS[method]: len(own[layers]) for method, own in self.runs.items()}
            short = [f"{count} of {planned} runs of {label}" for label, count in counts.items() if count < planned]
            if short:
                same = len(short) == len(counts) and len(set(counts.values())) == 1
                done = f"{min(counts.values())} of {planned} runs each" if same else " and ".join(short)
                parts.append(f"{layers} layers: {done}")
        return "; ".join(parts)

    def rows(self, depths: Sequence[int]) -> Iterable[dict[str, Any]]:
        """Return one row per method with its results at ``depths``."""
        for method, own in self.runs.items():
            if lines := [line for runs in own.values() for line in runs]:
                yield {
                    "cell": self.cell,
                    "split": split_name(self.plan["protocol"]),
                    "connection": self.connection,
                    "method": METHODS[method],
                    "alpha": _range_of([line["alpha"] for line in lines if "alpha" in line]),
                    "values": [self._text(method, layers) for layers in depths],
                }

    def compared(self, compared: Iterable[Comparison], method: str) -> dict[int, Comparison]:
        """Return the comparisons of Lorentz with ``method`` by number of layers."""
        layers = {depth_cell(self.cell, count): count for count in self.plan["depths"]}
        own = [one for one in compared if one.protocol == self.plan["protocol"] and one.method == method]
        return {layers[one.cell]: one for one in own if one.cell in layers}

    def differences(self, compared: Sequence[Comparison], depths: Sequence[int]) -> Iterable[dict[str, Any]]:
        """Return one row per other method with its differences at ``depths``."""
        for method in METHODS:
            if own := self.compared(compared, method):
                texts = [difference_text(own[n].difference, own[n].verdict) if n in own else "" for n in depths]
                yield {
                    "cell": self.cell,
                    "connection": self.connection,
                    "method": METHODS[method],
                    "texts": [text or _NOT_MEASURED for text in texts],
                }

    def value(self, method: str, layers: int) -> float | None:
        """Return the mean of the finished runs; None without any."""
        finite = [line["value"] for line in self.runs[method].get(layers, []) if line["value"] is not None]
        return fmean(finite) if finite else None

    def _text(self, method: str, layers: int) -> str:
        runs = self.runs[method].get(layers, [])
        # Chains also search the scale; elsewhere it is fixed.
        scales = {line["config"].get("scale") for line in runs} if self._searches_scale else set()
        names = [_SCALES[scale] for scale in sorted(scales & _SCALES.keys())]
        return ", ".join([_value(runs, method), *names]) or _NOT_MEASURED

    @property
    def _searches_scale(self) -> bool:
        return any("scale" in configuration for configuration in self.plan["configurations"])


def _depth_answers(by_depth: Iterable[DepthRuns]) -> list[dict[str, Any]]:
    """Return, for each data set, the initial residual and the chain at the largest depth that both have."""
    answers = []
    pairs: dict[tuple[str, str], dict[str, DepthRuns]] = {}
    for own in by_depth:
        pairs.setdefault((own.cell, split_name(own.plan["protocol"])), {})[own.connection] = own
    for (cell, _), by_connection in pairs.items():
        initial, chain = by_connection.get("initial"), by_connection.get("chain")
        if initial is None or chain is None:
            continue
        for layers in sorted(initial.measured & chain.measured, reverse=True):
            values = {
                label: (initial.value(method, layers), chain.value(method, layers))
                for method, label in METHODS.items()
                if method != "lorentz_limit"
            }
            found = {label: pair for label, pair in values.items() if None not in pair}
            if found:
                answers.append({"cell": cell, "layers": layers, "values": found})
                break
    return answers


def _depth_counts(by_depth: Iterable[DepthRuns], compared: Sequence[Comparison]) -> dict[str, dict[str, int]]:
    """Return, for each connection, at how many depths Lorentz is better and worse than GCNII, and of how many."""
    counts: dict[str, dict[str, int]] = {}
    for own in by_depth:
        found = own.compared(compared, "euclidean").values()
        verdicts = [one.verdict for one in found]
        total = counts.setdefault(own.connection, {"better": 0, "worse": 0, "all": 0})
        total["better"] += verdicts.count("better")
        total["worse"] += verdicts.count("worse")
        total["all"] += len(verdicts)
    return {connection: total for connection, total in counts.items() if total["all"]}


def _below_untrained(by_depth: Iterable[DepthRuns], scores: Mapping[tuple[str, str], Result]) -> list[str]:
    """Return the cells where every network at every depth scores less than the best untrained score."""
    below: dict[str, bool] = {}
    for own in by_depth:
        best = scores.get((own.cell, split_name(own.plan["protocol"])))
        means = [value for method in METHODS for n in own.measured if (value := own.value(method, n)) is not None]
        if means:
            lower = best is not None and max(means) < best.mean
            below[own.cell] = below.get(own.cell, True) and lower
    return [cell for cell, lower in below.items() if lower]


def _largest_limit_gap(by_depth: Iterable[DepthRuns]) -> dict[str, Any] | None:
    """Return the place where the means of K → 0 and of GCNII differ most; None without such a pair."""
    found: list[dict[str, Any]] = []
    for own in by_depth:
        for layers in own.measured:
            limit, flat = own.value("lorentz_limit", layers), own.value("euclidean", layers)
            if limit is not None and flat is not None:
                place = {"cell": own.cell, "connection": own.connection, "layers": layers}
                found.append({**place, "gap": abs(limit - flat)})
    return max(found, key=lambda one: one["gap"], default=None)


def _range_of(values: Sequence[float]) -> str:
    """Return one number, or the smallest and the largest one."""
    texts = list(dict.fromkeys(f"{value:.2f}" for value in sorted(values)))
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}" if texts else ""


def _value(runs: Iterable[Run], method: str) -> str:
    """Return mean and deviation of the finished runs, e.g. ``85.1 ± 0.4 (10)``; empty without runs."""
    own = [line["value"] for line in runs if line["method"] == method]
    finite = [value for value in own if value is not None]
    if not finite:
        return "diverged" if own else ""
    diverged = f", {len(own) - len(finite)} diverged" if len(finite) < len(own) else ""
    return f"{summarise(finite):.1f} ({len(finite)}{diverged})"


def _chosen(runs: Iterable[Run], method: str, space: Iterable[str]) -> dict[str, Any]:
    """Return the settings that the search chose."""
    config: Mapping[str, Any] = next((line["config"] for line in runs if line["method"] == method), {})
    free = {"curvature"} if method == "euclidean" else set()  # it is in the configuration, and has no effect
    return {name: config[name] for name in space if name in config and name not in free}
