"""The page of the study of hierarchy-aware losses: results by network and loss, and the registered comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lresnet.runs.statistics import Estimate, Verdict, paired_difference, summarise, verdicts
from lresnet_paper.hierarchy_images import LOSSES, NETWORKS, TABLE, chosen_settings, read_plan
from lresnet_paper.render import render
from lresnet_paper.results import NoResults

__all__ = ["COMPARED_METRICS", "Comparison", "compare_losses", "hierarchy_page"]

NETWORK_LABELS = {"lorentz": "Lorentz", "euclidean": "Euclidean"}
LOSS_LABELS = {
    "cross_entropy": "cross entropy",
    "superclass_cross_entropy": "+ superclass cross entropy",
    "supervised_contrastive": "+ supervised contrastive",
}
COMPARED_METRICS = ("accuracy", "mistake_severity", "hierarchical_distance@1")
"""The metrics of the registered comparisons."""

_SHOWN = {
    "accuracy": ".2f",
    "superclass_accuracy": ".2f",
    "mistake_severity": ".3f",
    "hierarchical_distance@1": ".4f",
    "hierarchical_distance@5": ".3f",
    "hierarchical_distance@20": ".3f",
}

Line = Mapping[str, Any]


class Comparison(NamedTuple):
    """One registered comparison of one metric, paired by seed."""

    metric: str
    ours: tuple[str, str]
    """Network and loss."""
    theirs: tuple[str, str]
    difference: Estimate
    """Ours minus theirs, in the units of the metric."""
    verdict: Verdict
    """Better, worse or undecided; fewer percent of accuracy are worse, fewer of the other metrics better."""


def compare_losses(lines: Iterable[Line]) -> list[Comparison]:
    """Return the registered comparisons with their verdicts, Holm-corrected within each metric.

    Comparisons with fewer than two shared seeds are left out.
    """
    values: dict[tuple[str, str], dict[int, Mapping[str, float]]] = {}
    for line in _final(lines):
        values.setdefault((line["method"], line["protocol"]), {})[line["seed"]] = line["metrics"]
    planned = [((network, loss), (network, LOSSES[0])) for network in NETWORKS for loss in LOSSES[1:]]
    planned += [((NETWORKS[0], loss), (NETWORKS[1], loss)) for loss in LOSSES]
    found: list[Comparison] = []
    for metric in COMPARED_METRICS:
        family = []
        for ours, theirs in planned:
            sides = ({seed: own[metric] for seed, own in values.get(key, {}).items()} for key in (ours, theirs))
            difference = paired_difference(*sides)
            if difference is not None:
                family.append((ours, theirs, difference))
        higher_is_better = metric == "accuracy"
        decided = verdicts([one if higher_is_better else -one for *_, one in family]) if family else []
        found += [Comparison(metric, *one, verdict) for one, verdict in zip(family, decided, strict=True)]
    return found


def hierarchy_page(lines: Sequence[Line]) -> str:
    """Return the page in Markdown.

    Raises:
        NoResults: there are no final runs of the study.
    """
    own = [line for line in lines if line["table"] == TABLE]
    final = _final(own)
    if not final:
        raise NoResults("there are no final runs of the study; `python -m lresnet_paper hierarchy` makes them")
    plan, chosen, comparisons = read_plan(), chosen_settings(own), compare_losses(own)
    rows = []
    for network in NETWORKS:
        for loss in LOSSES:
            runs = [line["metrics"] for line in final if (line["method"], line["protocol"]) == (network, loss)]
            cells = [f"{summarise(run[name] for run in runs):{form}}" for name, form in _SHOWN.items()]
            settings = _settings(dict(chosen.get((network, loss), ())))
            rows.append({"network": NETWORK_LABELS[network], "loss": LOSS_LABELS[loss], "cells": cells} | settings)
    searches = [
        {
            "network": NETWORK_LABELS[line["method"]],
            "loss": LOSS_LABELS[line["protocol"]],
            "metrics": line["validation_metrics"],
            "chosen": dict(chosen[line["method"], line["protocol"]]) == line["config"]["settings"],
        }
        | _settings(line["config"]["settings"])
        for line in sorted(own, key=_search_order)
        if line["stage"] == "search"
    ]
    return render(
        "hierarchy.md.j2",
        plan=plan,
        rows=rows,
        searches=searches,
        comparisons=[_shown(one) for one in comparisons],
        by_loss={loss: _counts(comparisons, loss) for loss in LOSSES[1:]},
        by_network=_network_counts(comparisons),
        compared=len(against := [one for one in comparisons if one.ours[1] != one.theirs[1]]),
        decided=sum(one.verdict != "no difference shown" for one in against),
        at_edge=_at_edge(plan, chosen),
        at_5={
            network: {loss: f"{_mean(final, network, loss, 'hierarchical_distance@5'):.3f}" for loss in LOSSES}
            for network in NETWORKS
        },
        labels=LOSS_LABELS,
        runs=len(own),
        minutes=sum(line["seconds"] for line in own) / 60,
        hardware=final[0]["hardware"],
        torch=final[0]["versions"]["torch"],
        command=final[0]["command"],
    )


def _final(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line["table"] == TABLE and line["stage"] == "final"]


def _mean(final: Iterable[Line], network: str, loss: str, metric: str) -> float:
    own = (line["metrics"][metric] for line in final if (line["method"], line["protocol"]) == (network, loss))
    return summarise(own).mean


def _search_order(line: Line) -> tuple[Any, ...]:
    return NETWORKS.index(line["method"]), LOSSES.index(line["protocol"]), *line["config"]["settings"].values()


def _settings(settings: Mapping[str, float]) -> dict[str, str]:
    shown = {name: value for name, value in settings.items() if name != "temperature"}
    return {"settings": ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in shown.items())}


def _shown(one: Comparison) -> dict[str, str]:
    digits = "+" + _SHOWN[one.metric]
    return {
        "metric": one.metric.replace("_", " "),
        "ours": f"{NETWORK_LABELS[one.ours[0]]}, {LOSS_LABELS[one.ours[1]]}",
        "theirs": f"{NETWORK_LABELS[one.theirs[0]]}, {LOSS_LABELS[one.theirs[1]]}",
        "difference": f"{one.difference:{digits}}",
        "p": f"{one.difference.p:.3f}",
        "verdict": one.verdict,
    }


def _counts(comparisons: Sequence[Comparison], loss: str) -> dict[str, dict[str, Any]]:
    """Return, by metric, the differences of a loss from the cross entropy in both networks and their verdicts."""
    found: dict[str, dict[str, Any]] = {}
    for one in comparisons:
        if one.ours[1] == loss and one.theirs[1] == LOSSES[0]:
            form = "+" + _SHOWN[one.metric]
            found.setdefault(one.metric, {})[one.ours[0]] = {
                "difference": f"{one.difference.mean:{form}}",
                "verdict": one.verdict,
            }
    return found


def _at_edge(plan: Mapping[str, Any], chosen: Mapping[tuple[str, str], Iterable[tuple[str, float]]]) -> list[str]:
    """Return the chosen settings that are the smallest or largest of several, as words."""
    found = []
    for (network, loss), settings in sorted(chosen.items()):
        for name, value in settings:
            values = plan["losses"][loss][name]
            if len(values) > 1 and value in (min(values), max(values)):
                words = f"{NETWORK_LABELS[network]}, {LOSS_LABELS[loss]}: {name.replace('_', ' ')} {value:g}"
                found.append(words)
    return found


def _network_counts(comparisons: Sequence[Comparison]) -> dict[str, int]:
    own = [one.verdict for one in comparisons if one.ours[1] == one.theirs[1]]
    return {name: own.count(name) for name in ("better", "worse", "no difference shown")} | {"all": len(own)}
