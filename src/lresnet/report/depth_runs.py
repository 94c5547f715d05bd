"""Runs of the table of depths, by data set, method and number of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lresnet.report.order import cell_key
from lresnet.studies.depth import split_depth

__all__ = ["DEPTH_TABLE", "TEXTBOOK", "Depths", "depths_of", "finite_values", "gaps_to", "runs_by_depth", "shown_name"]

DEPTH_TABLE, TEXTBOOK = "oversmoothing", "parallel_transport_textbook"

Depths = dict[str, dict[int, list[dict[str, Any]]]]
"""The runs of one data set, by method and number of layers."""

_NAMES = {
    "parallel_transport": "parallel transport, boost",
    TEXTBOOK: "parallel transport, exp and log",
    "euclidean": "Euclidean twin",
}


def shown_name(method: str) -> str:
    """A method as the figure and the tables of depth call it: of parallel transport two forms are compared.

    Example:
        >>> shown_name("parallel_transport")
        'parallel transport, boost'
    """
    return _NAMES.get(method, method)


def runs_by_depth(runs: Iterable[Mapping[str, Any]]) -> dict[str, Depths]:
    """The final runs of the table, by data set, method and depth; depths ascend."""
    found: dict[str, Depths] = {}
    for run in sorted(runs, key=lambda run: split_depth(run["cell"])[1] or 0):
        cell, depth = split_depth(run["cell"])
        if run["table"] == DEPTH_TABLE and depth is not None and run.get("stage", "final") == "final":
            found.setdefault(cell, {}).setdefault(run["method"], {}).setdefault(depth, []).append(dict(run))
    return dict(sorted(found.items(), key=lambda item: cell_key("gnn", item[0])))


def depths_of(own: Depths) -> list[int]:
    """All numbers of layers, ascending."""
    return sorted({depth for by_depth in own.values() for depth in by_depth})


def gaps_to(other: str, own: Depths, method: str) -> dict[int, dict[int, float]]:
    """AUC of ``method`` minus that of ``other``, by depth and seed, where both have one; percentage points."""
    gaps = {}
    for depth, runs in own.get(method, {}).items():
        base, ours = finite_values(own.get(other, {}).get(depth, [])), finite_values(runs)
        gaps[depth] = {seed: value - base[seed] for seed, value in ours.items() if seed in base}
    return gaps


def finite_values(runs: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """The test figures by seed, of the runs that ended well."""
    return {run["seed"]: run["value"] for run in runs if run.get("value") is not None}
