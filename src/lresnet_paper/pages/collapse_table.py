"""The table of the study of deep chains: what a chain attains, and how many of its runs collapse."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lresnet_paper.pages.text_tables import TextRow, TextTable

__all__ = ["COLLAPSED", "collapse_table", "collapsed_at", "share_of_margin"]

COLLAPSED = 0.995
"""Share of the margin from which on the training loss shows a collapse: it is 1 if all nodes are one point."""


def collapse_table(lines: Iterable[Mapping[str, Any]]) -> TextTable:
    """Return, by setting and number of layers, final training loss and validation, and the runs that collapsed.

    Example:
        >>> collapse_table([]).rows
        []
    """
    groups: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for line in lines:
        groups.setdefault(line["setting"], {}).setdefault(line["config"]["num_layers"], []).append(line)
    depths = sorted({layers for own in groups.values() for layers in own})
    columns = [f"{layers}: {name}" for layers in depths for name in ("loss", "validation", "collapsed")]
    rows = [
        TextRow(setting, tuple(text for layers in depths for text in _cells(own.get(layers, []))))
        for setting, own in groups.items()
    ]
    return TextTable("Deep chains during training", "", tuple(columns), rows)


def _cells(runs: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    finite = [run for run in runs if "error" not in run]
    if not finite:
        return ("diverged" if runs else "", "", "")
    losses = [share_of_margin(run, run["states"][-1]) for run in finite]
    scores = [run["states"][-1]["validation"] for run in finite]
    collapsed = sum(collapsed_at(run) is not None for run in finite)
    return f"{statistics.median(losses):.2f}", f"{statistics.fmean(scores):.1f}", f"{collapsed} of {len(runs)}"


def share_of_margin(run: Mapping[str, Any], state: Mapping[str, Any]) -> float:
    """Return the training loss as a share of its value where all nodes are one point, the margin."""
    config = run["config"]
    margin = config["margin"] / (1.0 if run["method"] == "euclidean" else -config["curvature"])
    return float(state["loss"] / margin)


def collapsed_at(run: Mapping[str, Any]) -> int | None:
    """Return the first measured epoch from which on the training loss is that of one point; None: it is not."""
    collapsed = [share_of_margin(run, state) >= COLLAPSED for state in run["states"]]
    return next((epoch for number, epoch in enumerate(run["state_epochs"]) if all(collapsed[number:])), None)
