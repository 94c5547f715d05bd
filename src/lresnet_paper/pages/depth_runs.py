"""Runs of the table of depths, by data set, method and number of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lresnet.residual.registry import METHODS
from lresnet_paper.depth import split_depth
from lresnet_paper.results import cell_key

__all__ = [
    "DEPTH_TABLE",
    "TEXTBOOK",
    "Depths",
    "all_runs_by_depth",
    "depth_protocols",
    "depths_of",
    "finite_values",
    "gaps_to",
    "runs_by_depth",
    "shown_name",
]

DEPTH_TABLE, TEXTBOOK = "oversmoothing", "parallel_transport_textbook"

Depths = dict[str, dict[int, list[dict[str, Any]]]]
"""The runs of one data set, by method and number of layers."""


def shown_name(method: str) -> str:
    """Return the label of a method in the figure and the tables of depth.

    Example:
        >>> shown_name("parallel_transport")
        'parallel transport, boost'
    """
    return METHODS[method].short_label if method in METHODS else method


def depth_protocols(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The protocols that have final runs of the table: the paper's, which tunes no depth, before those that do."""
    return sorted({run["protocol"] for run in runs if run["table"] == DEPTH_TABLE and _is_final(run)})


def runs_by_depth(runs: Iterable[Mapping[str, Any]], protocol: str | None = None) -> dict[str, Depths]:
    """The final runs of one protocol (None: the first), by data set, method and depth; depths ascend.

    With another protocol than the first, data sets are called ``"disease/lp, legacy-deep"``.
    """
    lines = list(runs)
    first, *_ = [*depth_protocols(lines), ""]
    wanted = first if protocol is None else protocol
    found: dict[str, Depths] = {}
    for run in sorted(lines, key=lambda run: split_depth(run["cell"])[1] or 0):
        cell, depth = split_depth(run["cell"])
        if run["table"] == DEPTH_TABLE and depth is not None and _is_final(run) and run["protocol"] == wanted:
            found.setdefault(cell, {}).setdefault(run["method"], {}).setdefault(depth, []).append(dict(run))
    ordered = sorted(found.items(), key=lambda item: cell_key("gnn", item[0]))
    return {cell if wanted == first else f"{cell}, {wanted}": own for cell, own in ordered}


def all_runs_by_depth(runs: Iterable[Mapping[str, Any]]) -> dict[str, Depths]:
    """Those of every protocol, one after the other."""
    lines = list(runs)
    return {name: own for one in depth_protocols(lines) for name, own in runs_by_depth(lines, one).items()}


def _is_final(run: Mapping[str, Any]) -> bool:
    return bool(run.get("stage", "final") == "final")


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
