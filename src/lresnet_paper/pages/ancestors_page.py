"""The page of k-hop ancestor retrieval: accuracy by residual, curvature and hops, and the registered contrasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lresnet.plots.picture import GREY, INK, method_style
from lresnet.residual.registry import METHODS
from lresnet.runs.statistics import Estimate, Verdict, mean_interval, summarise, verdicts
from lresnet_paper.ancestors import FORMS, Arm, Plan, arm_of, chosen_trial, missing_arms, read_plan, total_steps, trials
from lresnet_paper.pages.text_tables import TextRow, TextTable, markdown_tables
from lresnet_paper.render import render
from lresnet_paper.results import NoResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Contrast",
    "accuracies",
    "accuracy_tables",
    "ancestors_page",
    "ancestors_picture",
    "registered_contrasts",
    "row_label",
    "slopes",
]

Line = Mapping[str, Any]
Values = Mapping[int, float]
"""Accuracy by seed."""

_FORM_LABELS = {
    "full": "The whole study",
    "cpu": "The form for one CPU core",
    "small": "The small form",
    "deeper": "More layers than hops",
}
_NEAR_CHANCE = 1.0  # points
_NEAR_PERFECT = 99.0


class Contrast(NamedTuple):
    """One registered difference in points of accuracy, or its slope in points per hop."""

    tree: str
    name: str
    at: int | None
    """Number of hops, or of layers if the form varies them; None: the slope."""
    difference: Estimate
    verdict: Verdict


# --- Values -----------------------------------------------------------------------------------------------------------


def accuracies(lines: Iterable[Line], form: str) -> dict[Arm, dict[int, float]]:
    """Return the test accuracy of every arm of a form by seed, without the arm's limit on the number of nodes."""
    found: dict[Arm, dict[int, float]] = {}
    for line in lines:
        if line["stage"] == "final" and line["protocol"] == form:
            found.setdefault(arm_of(line)._replace(max_nodes=None), {})[line["seed"]] = line["value"]
    return found


def registered_contrasts(plan: Plan, lines: Iterable[Line], form: str) -> list[Contrast]:
    """Return the contrasts of the plan for a form, paired by seed; those of one tree are one family for Holm.

    A difference needs two shared seeds, a slope two numbers of hops (or layers) that two seeds have in common.
    """
    values, facts = accuracies(lines, form), plan["contrasts"]
    varied = varied_by(values)
    found: list[Contrast] = []
    for tree in dict.fromkeys(arm.tree for arm in values):

        def own(method: str, kappa: float, tree: str = tree) -> dict[int, dict[int, float]]:
            place = form, tree, facts["width"], method, kappa
            return {
                getattr(arm, varied): found
                for arm, found in values.items()
                if (arm.form, arm.tree, arm.width, arm.method, arm.kappa) == place
            }

        ours, family = own("lorentz", facts["kappa"]), list[tuple[str, int | None, Estimate]]()
        for name, theirs in {
            f"Lorentz minus none, both at kappa {facts['kappa']:g}": own("none", facts["kappa"]),
            f"Lorentz at kappa {facts['kappa']:g} minus Lorentz at {facts['flat']:g}": own("lorentz", facts["flat"]),
        }.items():
            differences = {
                hops: {seed: ours[hops][seed] - theirs[hops][seed] for seed in ours[hops].keys() & theirs[hops].keys()}
                for hops in sorted(ours.keys() & theirs.keys())
            }
            estimates: dict[int | None, Estimate | None] = {
                hops: mean_interval([one[seed] for seed in sorted(one)]) for hops, one in differences.items()
            }
            estimates[None] = mean_interval(slopes(differences))
            family += [(name, hops, one) for hops, one in estimates.items() if one is not None]
        decided = verdicts([one for *_, one in family]) if family else []
        found += [Contrast(tree, *one, verdict) for one, verdict in zip(family, decided, strict=True)]
    return found


def varied_by(values: Iterable[Arm]) -> str:
    """Return what varies among the arms of a form: ``"hops"``, with as many layers, or ``"layers"``."""
    return "layers" if any(arm.extra_layers for arm in values) else "hops"


def slopes(differences: Mapping[int, Values]) -> list[float]:
    """Return, for every seed, the least-squares slope of its differences on the number of hops.

    Example:
        >>> [round(slope, 3) for slope in slopes({2: {0: 1.0, 1: 0.0}, 4: {0: 3.0, 1: 0.0}, 6: {0: 5.0, 1: 0.0}})]
        [1.0, 0.0]
    """
    if len(differences) < 2:
        return []
    hops = sorted(differences)
    # Multiplying by the number of hops keeps the weights whole: slopes that are 0 are then exactly 0.
    weights = [len(hops) * k - sum(hops) for k in hops]
    scale = sum(weight * k for weight, k in zip(weights, hops, strict=True))
    seeds = sorted(set.intersection(*(set(differences[k]) for k in hops)))
    return [
        sum(weight * differences[k][seed] for weight, k in zip(weights, hops, strict=True)) / scale for seed in seeds
    ]


# --- The page ---------------------------------------------------------------------------------------------------------


def accuracy_tables(lines: Iterable[Line], form: str) -> list[TextTable]:
    """Return, for each tree and width, the test accuracy of every residual and kappa by the number of hops.

    Example:
        >>> accuracy_tables([], "small")
        []
    """
    values = accuracies(lines, form)
    varied, tables = varied_by(values), []
    for tree, width in sorted({(arm.tree, arm.width) for arm in values}):
        own = {arm: found for arm, found in values.items() if (arm.tree, arm.width) == (tree, width)}
        columns = sorted({getattr(arm, varied) for arm in own})
        rows = []
        for method, kappa in sorted({(arm.method, arm.kappa) for arm in own}, key=_row_order):
            found = {
                getattr(arm, varied): scores
                for arm, scores in own.items()
                if (arm.method, arm.kappa) == (method, kappa)
            }
            cells = tuple(f"{summarise(found[k].values()):.1f}" if k in found else "" for k in columns)
            rows.append(TextRow(row_label(method, kappa), cells))
        names = tuple(f"k = {k}" if varied == "hops" else f"{k} layers" for k in columns)
        tables.append(TextTable(f"{tree} tree, width {width}", "", names, rows))
    return tables


def row_label(method: str, kappa: float) -> str:
    """Return the label of a residual and a kappa in a table.

    Example:
        >>> row_label("none", 1e-6), row_label("euclidean", 0.0)
        ('none, kappa 1e-06', 'Euclidean baseline')
    """
    label = METHODS[method].short_label
    return label if method == "euclidean" else f"{label}, kappa {kappa:g}"


def ancestors_page(lines: Sequence[Line], plan: Plan | None = None) -> str:
    """Return the page in Markdown: every form of the study that has final lines, the largest one first.

    Raises:
        NoResults: there are no final lines of the study.
    """
    plan = read_plan() if plan is None else plan
    forms = [_form(plan, lines, form) for form in FORMS if accuracies(lines, form)]
    if not forms:
        raise NoResults("there are no final runs of the study; `python -m lresnet_paper ancestors` makes them")
    return render(
        "ancestors.md.j2",
        plan=plan,
        forms=forms,
        first=forms[0],
        trials=len(trials(plan, "lorentz")),
        chance=100 / plan["codes"],
        steps=total_steps(plan, "full"),
    )


def _diverged_arms(final: Sequence[Line]) -> list[str]:
    """Return the arms with final trainings that diverged, with their number."""
    counts = Counter((line["method"], line["config"]["kappa"], line["cell"]) for line in final if "error" in line)
    return [
        f"{count} of {METHODS[method].short_label} at kappa {kappa:g} ({cell})"
        for (method, kappa, cell), count in counts.items()
    ]


def _form(plan: Plan, lines: Sequence[Line], form: str) -> dict[str, Any]:
    own = [line for line in lines if line["protocol"] == form]
    contrasts, values = registered_contrasts(plan, own, form), accuracies(own, form)
    final = [line for line in own if line["stage"] == "final"]
    return {
        "name": form,
        "label": _FORM_LABELS[form],
        "facts": plan["forms"][form],
        "tables": markdown_tables(accuracy_tables(own, form)),
        "contrasts": contrasts,
        "varied": varied_by(values),
        "hops": sorted({arm.hops for arm in values}),
        "answers": _answers(contrasts),
        "at_chance": _places(values, lambda means: max(means) < 100 / plan["codes"] + _NEAR_CHANCE),
        "at_ceiling": _places(values, lambda means: min(means) > _NEAR_PERFECT),
        "missing": len(missing_arms(plan, form, own)),
        "chosen": _chosen(own),
        "sizes": sorted({(line["cell"], line["size"]["anchors"], line["size"]["nodes"]) for line in own}),
        "diverged": sum("error" in line for line in final),
        "diverged_arms": _diverged_arms(final),
        "runs": len(final),
        "searches": len(own) - len(final),
        "minutes": sum(line["seconds"] for line in own) / 60,
        "hardware": sorted({line["hardware"] for line in own}),
        "torch": sorted({line["versions"]["torch"] for line in own}),
        "command": final[0]["command"],
    }


def _answers(contrasts: Iterable[Contrast]) -> list[dict[str, Any]]:
    """Return, for each tree and registered contrast, the decided differences."""
    grouped: dict[tuple[str, str], list[Contrast]] = {}
    for one in contrasts:
        grouped.setdefault((one.tree, one.name), []).append(one)
    return [
        {
            "tree": tree,
            "name": name,
            "at": [one.at for one in own if one.at is not None],
            "decided": [one for one in own if one.verdict != "no difference shown"],
        }
        for (tree, name), own in grouped.items()
    ]


def _places(values: Mapping[Arm, Values], holds: Callable[[Sequence[float]], bool]) -> list[str]:
    """Return the trees and hops at which something holds for the mean accuracies of all arms."""
    means: dict[str, list[float]] = {}
    for arm, found in values.items():
        place = f"{arm.tree}, k = {arm.hops}, width {arm.width}"
        place += f", {arm.layers} layers" if arm.extra_layers else ""
        means.setdefault(place, []).append(summarise(found.values()).mean)
    return [place for place, own in means.items() if holds(own)]


def _chosen(lines: Iterable[Line]) -> list[tuple[str, str, int]]:
    """Return how often the search chose which settings, by method."""
    by_arm: dict[Arm, list[Line]] = {}
    for line in lines:
        if line["stage"] == "search":
            by_arm.setdefault(arm_of(line), []).append(line)
    counts: dict[tuple[str, str], int] = {}
    for arm, own in by_arm.items():
        settings = ", ".join(f"{name} {value}" for name, value in chosen_trial(own).items())
        counts[METHODS[arm.method].short_label, settings] = (
            counts.get((METHODS[arm.method].short_label, settings), 0) + 1
        )
    return sorted((method, settings, count) for (method, settings), count in counts.items())


def _row_order(row: tuple[str, float]) -> tuple[int, float]:
    return -METHODS[row[0]].table_rank, row[1]


# --- The picture ------------------------------------------------------------------------------------------------------


def ancestors_picture(lines: Iterable[Line], plan: Plan | None = None) -> Figure:
    """Draw the accuracy by the number of hops for the largest form with results.

    One row for each tree; one column for the kappa of the contrasts and one for their flat limit. The Euclidean
    baseline is in both. Bars are one deviation over the seeds; the points of a number of hops stand side by side.

    Raises:
        NoResults: there are no final lines of the study.
    """
    from matplotlib.figure import Figure

    plan, known = read_plan() if plan is None else plan, list(lines)
    facts = plan["contrasts"]
    form = next((form for form in FORMS if accuracies(known, form)), None)
    if form is None:
        raise NoResults("there are no final runs of the study; `python -m lresnet_paper ancestors` makes them")
    values = {
        arm: found
        for arm, found in accuracies(known, form).items()
        if arm.width == facts["width"] and arm.extra_layers == 0
    }
    trees, methods = ({getattr(arm, name): None for arm in values} for name in ("tree", "method"))
    ordered = sorted(methods, key=lambda name: -METHODS[name].table_rank)
    picture = Figure(figsize=(8.8, 2.6 * len(trees) + 0.3), layout="constrained")
    grid = picture.subplots(len(trees), 2, squeeze=False, sharey=True)
    for row, tree in zip(grid, trees, strict=True):
        for axes, kappa in zip(row, (facts["kappa"], facts["flat"]), strict=True):
            for place, method in enumerate(ordered):
                found = {
                    arm.hops: summarise(own.values())
                    for arm, own in sorted(values.items())
                    if (arm.tree, arm.method) == (tree, method) and arm.kappa in (kappa, 0.0)
                }
                colour, marker = method_style(method)
                axes.errorbar(
                    [hops + 0.06 * (place - (len(ordered) - 1) / 2) for hops in found],
                    [own.mean for own in found.values()],
                    np.nan_to_num([own.deviation for own in found.values()]),
                    color=colour,
                    marker=marker,
                    ms=5,
                    lw=1.1,
                    elinewidth=0.8,
                    capsize=2,
                    label=METHODS[method].short_label,
                )
            axes.axhline(100 / plan["codes"], color=GREY, lw=0.9, ls=":", label="chance")
            axes.set_title(f"{tree} tree, kappa {kappa:g}", fontsize=10, loc="left", color=INK)
            axes.set(xticks=sorted({arm.hops for arm in values if arm.tree == tree}), ylim=(0, 108))
            axes.set_yticks([0, 25, 50, 75, 100])
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("test accuracy, percent", color=INK)
    for axes in grid[-1]:
        axes.set_xlabel("hops k = layers", color=INK)
    handles = {label: one for axes in grid.flat for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    picture.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=9)
    return picture
