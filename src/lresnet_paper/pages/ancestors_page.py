"""The page of k-hop ancestor retrieval: accuracy by residual, curvature and hops, and the registered contrasts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lresnet.residual.registry import METHODS
from lresnet.runs.statistics import summarise
from lresnet_paper.ancestors import Arm, arm_of
from lresnet_paper.pages.text_tables import TextRow, TextTable

__all__ = ["accuracy_tables"]

Line = Mapping[str, Any]


def accuracy_tables(lines: Iterable[Line], form: str) -> list[TextTable]:
    """Return, for each tree and width, the test accuracy of every residual and kappa by the number of hops.

    Example:
        >>> accuracy_tables([], "small")
        []
    """
    values = accuracies(lines, form)
    tables = []
    for tree, width in sorted({(arm.tree, arm.width) for arm in values}):
        own = {arm: found for arm, found in values.items() if (arm.tree, arm.width) == (tree, width)}
        hops = sorted({arm.hops for arm in own})
        rows = []
        for method, kappa in sorted({(arm.method, arm.kappa) for arm in own}, key=_row_order):
            by_hops = {arm.hops: found for arm, found in own.items() if (arm.method, arm.kappa) == (method, kappa)}
            cells = tuple(f"{summarise(by_hops[k].values()):.1f}" if k in by_hops else "" for k in hops)
            rows.append(TextRow(row_label(method, kappa), cells))
        tables.append(TextTable(f"{tree} tree, width {width}", "", tuple(f"k = {k}" for k in hops), rows))
    return tables


def accuracies(lines: Iterable[Line], form: str) -> dict[Arm, dict[int, float]]:
    """Return the test accuracy of every arm of a form by seed, without limits on the number of nodes."""
    found: dict[Arm, dict[int, float]] = {}
    for line in lines:
        if line["stage"] == "final" and line["protocol"] == form:
            found.setdefault(arm_of(line)._replace(max_nodes=None), {})[line["seed"]] = line["value"]
    return found


def row_label(method: str, kappa: float) -> str:
    """Return how a table calls a residual and a kappa."""
    label = METHODS[method].short_label
    return label if method == "euclidean" else f"{label}, kappa {kappa:g}"


def _row_order(row: tuple[str, float]) -> tuple[int, float]:
    return -METHODS[row[0]].table_rank, row[1]
