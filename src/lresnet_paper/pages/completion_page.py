"""The page of hierarchy completion: results by method and dimension, the registered contrasts, and their answer."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lresnet.plots.picture import GREY, INK, method_style
from lresnet.runs.statistics import Estimate, Verdict, resampled_difference, summarise
from lresnet_paper.comparisons import family_verdicts
from lresnet_paper.completion.data import PROTOCOLS, TASKS
from lresnet_paper.completion.study import TABLE, cell_name, chosen_settings, planned_trainings, read_plan
from lresnet_paper.completion.untrained import UNTRAINED
from lresnet_paper.render import render
from lresnet_paper.results import NoResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Answer", "Contrast", "completion_page", "completion_picture", "curvature_answers", "registered_contrasts"]

_SAMPLED = ("mrr_degree_matched", "auc_degree_matched", "mrr_same_file", "auc_same_file")

Line = Mapping[str, Any]
Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Contrast:
    """One registered contrast at one dimension, in percentage points of the test MRR."""

    cell: str
    protocol: str
    ours: str
    theirs: str
    dimension: int
    difference: Estimate
    """Ours minus theirs."""
    verdict: Verdict
    """On ours, after Holm's correction within the cell and protocol."""


@dataclass(frozen=True)
class Answer:
    """Whether there is a dimension below which curvature helps, for one pair of arms in one cell and protocol."""

    cell: str
    protocol: str
    ours: str
    theirs: str
    contrasts: Sequence[Contrast]
    """In order of dimension."""

    @property
    def helps(self) -> Sequence[Contrast]:
        """The contrasts from the lowest dimension on, as long as ours is better."""
        count = next((k for k, one in enumerate(self.contrasts) if one.verdict != "better"), len(self.contrasts))
        return self.contrasts[:count]

    def dimensions(self, verdict: str) -> list[int]:
        """Return the dimensions with a verdict."""
        return [one.dimension for one in self.contrasts if one.verdict == verdict]


def registered_contrasts(lines: Iterable[Line], plan: Plan) -> list[Contrast]:
    """Return the contrasts with two shared splits at least; verdicts are Holm-corrected by cell and protocol."""
    final = [line for line in lines if line["stage"] == "final"]
    values: dict[tuple[str, str, str, int], dict[int, float]] = {}
    ratios: dict[str, list[float]] = {}
    for line in final:
        key = line["cell"], line["protocol"], line["method"], line["config"]["dimension"]
        values.setdefault(key, {})[line["split"]] = line["value"]
        ratios.setdefault(line["cell"], []).append(line["pairs"]["test"] / line["pairs"]["train"])
    found = []
    for cell, protocol in dict.fromkeys((line["cell"], line["protocol"]) for line in final):
        ratio = statistics.fmean(ratios[cell])
        family: dict[tuple[str, str, int], Estimate] = {}
        for contrast in plan["contrasts"]:
            for dimension in plan["dimensions"]:
                sides = [values.get((cell, protocol, contrast[side], dimension), {}) for side in ("ours", "theirs")]
                difference = resampled_difference(*sides, test_per_train=ratio)
                if difference is not None:
                    family[contrast["ours"], contrast["theirs"], dimension] = difference
        decided = family_verdicts(family) if family else {}
        found += [Contrast(cell, protocol, *key, family[key], verdict) for key, verdict in decided.items()]
    return found


def curvature_answers(contrasts: Iterable[Contrast]) -> list[Answer]:
    """Return the answers of all pairs of arms that have contrasts."""
    grouped: dict[tuple[str, str, str, str], list[Contrast]] = {}
    for one in contrasts:
        grouped.setdefault((one.cell, one.protocol, one.ours, one.theirs), []).append(one)
    return [Answer(*key, sorted(own, key=lambda one: one.dimension)) for key, own in grouped.items()]


# --- the page ---------------------------------------------------------------------------------------------------------


def completion_page(lines: Sequence[Line], plan: Plan | None = None) -> str:
    """Return the page in Markdown. Arms and forms without results are named as missing.

    Raises:
        NoResults: there are no final runs of the study.
    """
    plan = read_plan() if plan is None else plan
    own = [line for line in lines if line.get("table") == TABLE]
    final = [line for line in own if line["stage"] == "final"]
    if not final:
        raise NoResults("there are no final runs of the study; `python -m lresnet_paper completion` makes them")
    labels = {**UNTRAINED, **{name: arm["label"] for name, arm in plan["arms"].items()}}
    contrasts = registered_contrasts(final, plan)
    sections = [
        _section(final, plan, form, task, labels)
        for form in plan["forms"]
        for task in TASKS
        if any(line["cell"] == cell_name(plan, form, task) for line in final)
    ]
    return render(
        "completion.md.j2",
        plan=plan,
        sections=sections,
        contrasts=[_shown(one, labels) for one in contrasts],
        answers=[_answer(one, labels) for one in curvature_answers(contrasts)],
        counts={
            verdict: sum(one.verdict == verdict for one in contrasts)
            for verdict in ("better", "worse", "no difference shown")
        },
        planned_contrasts=_planned_contrasts(plan),
        trainings={form: _trainings_of(plan, form, own) for form in plan["forms"]},
        dimension=_shown_dimension(plan),
        edges=_grid_edges(own, plan, labels),
        baselines=_baselines(own, contrasts, plan, labels),
        below_untrained=_below_untrained(final, plan, labels),
        hours=sum(line["seconds"] for line in own) / 3600,
        gpu=_on_gpu(own),
        hardware=", ".join(sorted({line["hardware"] for line in own})),
        torch=", ".join(sorted({line["versions"]["torch"] for line in own})),
        commands=sorted({line["command"] for line in own}),
    )


def _on_gpu(lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return the GPU of the study and the median seconds of a training there; None without such lines."""
    found = [line for line in lines if not line["hardware"].startswith("CPU")]
    if not found:
        return None
    return {
        "hardware": ", ".join(sorted({line["hardware"] for line in found})),
        "seconds": round(statistics.median(line["seconds"] for line in found)),
    }


def _section(final: Sequence[Line], plan: Plan, form: str, task: str, labels: Mapping[str, str]) -> dict[str, Any]:
    cell = cell_name(plan, form, task)
    lines = [line for line in final if line["cell"] == cell]
    groups: dict[tuple[str, str], dict[int | None, list[Line]]] = {}
    for line in lines:
        by_dimension = groups.setdefault((line["method"], line["protocol"]), {})
        by_dimension.setdefault(line["config"]["dimension"], []).append(line)
    order = [*UNTRAINED, *plan["arms"]]
    keys = sorted(groups, key=lambda key: (PROTOCOLS.index(key[1]), order.index(key[0])))
    protocols = {*plan["forms"][form]["protocols"][task]}
    planned = {
        (arm, protocol)
        for arm in plan["forms"][form]["arms"][task]
        for protocol in (["none"] if plan["arms"][arm].get("family") == "shallow" else protocols)
    }
    missing = sorted((key for key in planned - groups.keys()), key=lambda key: order.index(key[0]))
    splits = [{line["split"] for line in own} for by_dimension in groups.values() for own in by_dimension.values()]
    return {
        "cell": cell,
        "task": task,
        "subtree": plan["forms"][form].get("subtree"),
        "pairs": lines[0]["pairs"],
        "evaluation": plan["forms"][form]["evaluation"],
        "shares": plan["forms"][form]["shares"][task],
        "rows": [_row(key, groups[key], plan["dimensions"], labels, len(plan["splits"])) for key in keys],
        "sampled": [
            {"label": labels[key[0]], "protocol": key[1], "dimension": dimension} | _sampled(own)
            for key in keys
            for dimension, own in groups[key].items()
            if dimension in (None, _shown_dimension(plan))
        ],
        "splits": (min(map(len, splits)), max(map(len, splits))),
        "best_untrained": _best(groups, labels, [name for name in UNTRAINED if name != "reachability"]),
        "best_trained": _best(groups, labels, plan["arms"]),
        "missing": _missing(planned, missing, labels),
    }


def _missing(
    planned: Container[tuple[str, str]], missing: Sequence[tuple[str, str]], labels: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the labels of the arms without results, by the protocol that they miss; ``""``: they miss all."""
    found: dict[str, list[str]] = {"": []}
    for arm, protocol in missing:
        others = [own for own in PROTOCOLS if (arm, own) in planned and (arm, own) not in missing]
        names = found.setdefault(protocol if others else "", [])
        names += [] if labels[arm] in names else [labels[arm]]
    return {protocol: names for protocol, names in found.items() if names}


def _best(
    groups: Mapping[tuple[str, str], Mapping[int | None, Sequence[Line]]],
    labels: Mapping[str, str],
    methods: Container[str],
) -> dict[str, Any] | None:
    """Return the method with the highest mean test MRR, among ``methods``; None if none of them has results."""
    means = [
        (statistics.fmean(line["value"] for line in own), labels[method], protocol, dimension)
        for (method, protocol), by_dimension in groups.items()
        if method in methods
        for dimension, own in by_dimension.items()
    ]
    if not means:
        return None
    value, label, protocol, dimension = max(means, key=lambda one: one[0])
    return {"label": label, "protocol": protocol, "dimension": dimension, "value": f"{value:.1f}"}


def _shown_dimension(plan: Plan) -> int:
    """Return the dimension of the table of sampled rankings: the middle one, rounded down."""
    dimensions = plan["dimensions"]
    return int(dimensions[(len(dimensions) - 1) // 2])


def _row(
    key: tuple[str, str],
    by_dimension: Mapping[int | None, Sequence[Line]],
    dimensions: Sequence[int],
    labels: Mapping[str, str],
    splits: int,
) -> dict[str, Any]:
    """Return a row of the table of MRR; a figure of fewer splits than the plan has is followed by their number."""
    columns = [None, *dimensions]
    cells = []
    for column in columns:
        found = summarise(line["value"] for line in by_dimension[column]) if column in by_dimension else None
        count = f" ({found.n})" if found is not None and found.n < splits else ""
        cells.append("" if found is None else f"{found:.1f}{count}")
    return {"label": labels[key[0]], "protocol": key[1], "cells": cells}


def _sampled(lines: Sequence[Line]) -> dict[str, Any]:
    found = {}
    for name in ("hits@1", "hits@10", *_SAMPLED):
        values = [line["metrics"][name] for line in lines if name in line["metrics"]]
        found[name] = f"{statistics.fmean(values):.1f}" if values else ""
    return {"metrics": found}


def _shown(one: Contrast, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "cell": one.cell,
        "protocol": one.protocol,
        "dimension": one.dimension,
        "ours": labels[one.ours],
        "theirs": labels[one.theirs],
        "difference": f"{one.difference:+.2f}",
        "n": one.difference.n,
        "p": f"{one.difference.p:.3f}",
        "verdict": one.verdict,
    }


def _answer(answer: Answer, labels: Mapping[str, str]) -> dict[str, Any]:
    helps = [one.difference.mean for one in answer.helps]
    return {
        "cell": answer.cell,
        "protocol": answer.protocol,
        "ours": labels[answer.ours],
        "theirs": labels[answer.theirs],
        "dimensions": [one.dimension for one in answer.contrasts],
        "up_to": answer.helps[-1].dimension if helps else None,
        "least": f"{min(helps):+.1f}" if helps else "",
        "most": f"{max(helps):+.1f}" if helps else "",
        "better": answer.dimensions("better"),
        "worse": answer.dimensions("worse"),
    }


def _trainings_of(plan: Plan, form: str, lines: Iterable[Line]) -> dict[str, Any]:
    """Return how many trainings a form has, and how many of them have a line."""
    cells = {cell_name(plan, form, task) for task in TASKS}
    search = planned_trainings(plan, form)
    final = len(search) // plan["search_trainings"] * len(plan["splits"])
    done = sum(line["cell"] in cells and line["method"] in plan["arms"] for line in lines)
    return {"planned": f"{len(search) + final:,}", "done": f"{done:,}"}


def _chosen_rates(lines: Iterable[Line], plan: Plan) -> dict[tuple[str, str, str, int], float]:
    """Return the learning rate that every complete search chose, by cell, protocol, arm and dimension."""
    search = [line for line in lines if line["stage"] == "search"]
    trials = Counter((line["cell"], line["protocol"], line["method"], line["config"]["dimension"]) for line in search)
    return {
        key: dict(settings)["lr"]
        for key, settings in chosen_settings(search).items()
        if trials[key] == plan["search_trainings"]
    }


def _baselines(
    lines: Iterable[Line], contrasts: Iterable[Contrast], plan: Plan, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return what weakens the verdicts "better": flat arms at an end of their grid, and other flat arms above ours."""
    known = list(lines)
    rates = _chosen_rates(known, plan)
    values: dict[tuple[str, str, str, int], list[float]] = {}
    for line in known:
        if line["stage"] == "final" and line["method"] in plan["arms"]:
            key = line["cell"], line["protocol"], line["method"], line["config"]["dimension"]
            values.setdefault(key, []).append(line["value"])
    better = [one for one in contrasts if one.verdict == "better"]
    at_an_end = 0
    stronger: dict[tuple[str, int, str], dict[str, Any]] = {}
    for one in better:
        grid = plan["arms"][one.theirs]["grid"]["lr"]
        at_an_end += rates.get((one.cell, one.protocol, one.theirs, one.dimension)) in (min(grid), max(grid))
        ours = statistics.fmean(values[one.cell, one.protocol, one.ours, one.dimension])
        flat = {  # those that read the same glosses, or none
            (protocol, arm): statistics.fmean(own)
            for (cell, protocol, arm, dimension), own in values.items()
            if (cell, dimension) == (one.cell, one.dimension)
            and protocol in (one.protocol, "none")
            and "euclidean" in (plan["arms"][arm].get("geometry"), plan["arms"][arm].get("residual"))
        }
        best = max(flat, key=flat.__getitem__, default=None)
        if best is not None and flat[best] > ours:
            stronger[one.cell, one.dimension, one.ours] = {
                "cell": one.cell,
                "dimension": one.dimension,
                "ours": labels[one.ours],
                "protocol": one.protocol,
                "value": f"{ours:.1f}",
                "flat": labels[best[1]],
                "flat_protocol": best[0],
                "flat_value": f"{flat[best]:.1f}",
            }
    return {"better": len(better), "at_an_end": at_an_end, "stronger": list(stronger.values())}


def _below_untrained(lines: Iterable[Line], plan: Plan, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the compared arms with a lower mean than an untrained score of glosses that they read too, or of none."""
    values: dict[tuple[str, str, str], dict[int | None, list[float]]] = {}
    for line in lines:
        by_dimension = values.setdefault((line["cell"], line["protocol"], line["method"]), {})
        by_dimension.setdefault(line["config"]["dimension"], []).append(line["value"])
    compared = {name for contrast in plan["contrasts"] for name in contrast.values()}
    found = []
    for (cell, protocol, arm), own in values.items():
        if arm not in compared:
            continue
        below = []
        for dimension, scores in sorted(own.items(), key=lambda item: item[0] or 0):
            untrained = [
                statistics.fmean(others[place])
                for (other_cell, other_protocol, method), others in values.items()
                if method in UNTRAINED and method != "reachability"
                if other_cell == cell and other_protocol in (protocol, "none")
                for place in (None, dimension)
                if place in others
            ]
            if statistics.fmean(scores) < max(untrained, default=0.0):
                below.append(dimension)
        if below:
            where = cell if protocol == "none" else f"{cell}, glosses `{protocol}`"
            found.append({"where": where, "arm": labels[arm], "dimensions": below})
    return found


def _grid_edges(lines: Iterable[Line], plan: Plan, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return how many complete searches chose an end of their learning rates, and arms whose MRR falls by dimension."""
    known = list(lines)
    complete = _chosen_rates(known, plan)
    means: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for line in known:
        if line["stage"] == "final" and line["method"] in plan["arms"]:
            by_dimension = means.setdefault((line["cell"], line["protocol"], line["method"]), {})
            by_dimension.setdefault(line["config"]["dimension"], []).append(line["value"])
    low, high = min(plan["dimensions"]), max(plan["dimensions"])
    falling: dict[tuple[str, str], list[str]] = {}
    for (cell, protocol, method), own in means.items():
        if {low, high} <= own.keys() and statistics.fmean(own[high]) < statistics.fmean(own[low]):
            falling.setdefault((cell, protocol), []).append(labels[method])
    grids = [(plan["arms"][method]["grid"]["lr"], rate) for (_, _, method, _), rate in complete.items()]
    ends = {
        "highest": sum(rate == max(own) for own, rate in grids),
        "lowest": sum(rate == min(own) for own, rate in grids),
    }
    return {"arms": len(complete), "falling": falling, **ends}


def _planned_contrasts(plan: Plan) -> int:
    """Return the number of contrasts that the plan has in all forms, tasks, protocols and dimensions."""
    count = 0
    for form in plan["forms"].values():
        for task in TASKS:
            for contrast in plan["contrasts"]:
                if {contrast["ours"], contrast["theirs"]} <= set(form["arms"][task]):
                    shallow = plan["arms"][contrast["ours"]].get("family") == "shallow"
                    count += len(plan["dimensions"]) * (1 if shallow else len(form["protocols"][task]))
    return count


# --- the picture ------------------------------------------------------------------------------------------------------


def completion_picture(lines: Iterable[Line], plan: Plan | None = None) -> Figure:
    """Draw the test MRR by dimension: a panel for each cell, with all gloss words or none, means over the splits.

    Cells without a trained method are left out if another cell has one.

    Raises:
        NoResults: no method with a dimension has final runs.
    """
    from matplotlib.figure import Figure

    plan = read_plan() if plan is None else plan
    labels = {**UNTRAINED, **{name: arm["label"] for name, arm in plan["arms"].items()}}
    found: dict[str, dict[str, dict[int | None, list[float]]]] = {}
    for line in lines:
        if line.get("table") == TABLE and line["stage"] == "final" and line["protocol"] != "without_ancestors":
            methods = found.setdefault(line["cell"], {})
            methods.setdefault(line["method"], {}).setdefault(line["config"]["dimension"], []).append(line["value"])
    shown = {cell: methods for cell, methods in found.items() if any(set(own) != {None} for own in methods.values())}
    if not shown:
        raise NoResults("there are no final runs with a dimension to draw")
    panels = {cell: methods for cell, methods in shown.items() if methods.keys() & plan["arms"].keys()} or shown
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(4.6 * min(len(panels), 2) + 2.9, 3.9 * rows), layout="constrained")
    axes = figure.subplots(rows, min(len(panels), 2), squeeze=False).flatten()
    for axis in axes[len(panels) :]:
        axis.remove()
    axes = axes[: len(panels)]
    for axis, (cell, methods) in zip(axes, sorted(panels.items()), strict=True):
        for name in [name for name in labels if name in methods]:
            means = {d: statistics.fmean(own) for d, own in methods[name].items() if d is not None}
            if means:
                axis.plot(sorted(means), [means[d] for d in sorted(means)], label=labels[name], **_style(name, plan))
            elif name == "degree":
                degree = statistics.fmean(methods[name][None])
                axis.axhline(degree, color=GREY, linewidth=1, linestyle=":", label=labels[name])
        axis.set_xscale("log", base=2)
        axis.set_xticks(plan["dimensions"], [str(one) for one in plan["dimensions"]])
        axis.set_ylim(0, 1.08 * axis.get_ylim()[1])
        axis.set_title(cell, fontsize=10, loc="left", color=INK)
        axis.set_xlabel("dimension", color=INK)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[::2]:
        axis.set_ylabel("test MRR, percent", color=INK)
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", fontsize=8.5, frameon=False)
    return figure


_OTHER_STYLES = {"svd": ("#999933", "v"), "gae": ("#882255", "*"), "mlp": (INK, "x"), "poincare": ("#332288", "^")}


def _style(name: str, plan: Plan) -> dict[str, Any]:
    """Return the style of a method: colour and marker of its residual in the registry, or of its own."""
    arm = plan["arms"].get(name, {})
    geometry = arm.get("geometry")
    if (own := name if name in _OTHER_STYLES else geometry) in _OTHER_STYLES:
        colour, marker = _OTHER_STYLES[own]
    else:
        colour, marker = method_style(geometry or arm["residual"])
    style = {"color": colour, "marker": marker, "markersize": 6, "linewidth": 1.3}
    if name.endswith("_limit"):
        line = "dashdot" if geometry else "dotted"
        return style | {"linestyle": line, "markerfacecolor": "white", "markersize": 9, "zorder": 1}
    return style | {"linestyle": "dashed" if geometry else "solid"}
