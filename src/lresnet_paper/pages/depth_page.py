"""The table of depths (oversmoothing): runs by number of layers, tables of AUC, distances and gradients.

Two numbers explain why a deep network fails: the distance between its nodes after the last layer (over-smoothing),
and the part of the loss's gradient that reaches the first layer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Group

from lresnet.residual.registry import METHODS
from lresnet.runs.statistics import mean_interval, summarise
from lresnet_paper.pages.text_tables import TextRow, TextTable, markdown_tables, terminal_tables
from lresnet_paper.render import render
from lresnet_paper.results import cell_key, method_key
from lresnet_paper.run import split_depth

__all__ = [
    "DEEP_TABLE",
    "DEPTH_TABLE",
    "TEXTBOOK",
    "Depths",
    "all_runs_by_depth",
    "depth_causes",
    "depth_markdown",
    "depth_protocols",
    "depth_tables",
    "depth_terminal",
    "depths_of",
    "differences_by_seed",
    "finite_values",
    "runs_by_depth",
    "shown_name",
]

DEPTH_TABLE, TEXTBOOK = "oversmoothing", "parallel_transport_textbook"
DEEP_TABLE = "deep"
"""The table of networks with an initial residual, and of chains of residuals beside them."""

Depths = dict[str, dict[int, list[dict[str, Any]]]]
"""The runs on one data set, by method and number of layers."""

# --- runs by depth ----------------------------------------------------------------------------------------------------


def shown_name(method: str) -> str:
    """Return the label of a method on this page, which compares two forms of parallel transport.

    Example:
        >>> shown_name("parallel_transport")
        'parallel transport, boost'
    """
    return METHODS[method].short_label if method in METHODS else method


def depth_protocols(runs: Iterable[Mapping[str, Any]], table: str = DEPTH_TABLE) -> list[str]:
    """Return the protocols with final runs. The paper's protocol, which tunes no depth, comes first."""
    return sorted({run["protocol"] for run in runs if run["table"] == table and _is_final(run)})


def runs_by_depth(
    runs: Iterable[Mapping[str, Any]], protocol: str | None = None, table: str = DEPTH_TABLE
) -> dict[str, Depths]:
    """Return the final runs of one protocol by data set, method and depth, with ascending depths.

    Args:
        protocol: None for the first. For another one, the names of the data sets end with it:
            ``"disease/lp, legacy-deep"``.
        table: the table of the runs.
    """
    lines = list(runs)
    first, *_ = [*depth_protocols(lines, table), ""]
    wanted = first if protocol is None else protocol
    found: dict[str, Depths] = {}
    for run in sorted(lines, key=lambda run: split_depth(run["cell"])[1] or 0):
        cell, depth = split_depth(run["cell"])
        if run["table"] == table and depth is not None and _is_final(run) and run["protocol"] == wanted:
            found.setdefault(cell, {}).setdefault(run["method"], {}).setdefault(depth, []).append(dict(run))
    ordered = sorted(found.items(), key=lambda item: cell_key("gnn", item[0]))
    return {cell if wanted == first else f"{cell}, {wanted}": own for cell, own in ordered}


def all_runs_by_depth(runs: Iterable[Mapping[str, Any]]) -> dict[str, Depths]:
    """Return the runs of every protocol, one protocol after the other."""
    lines = list(runs)
    return {name: own for one in depth_protocols(lines) for name, own in runs_by_depth(lines, one).items()}


def _is_final(run: Mapping[str, Any]) -> bool:
    return bool(run.get("stage", "final") == "final")


def depths_of(own: Depths) -> list[int]:
    """Return all numbers of layers, ascending."""
    return sorted({depth for by_depth in own.values() for depth in by_depth})


def differences_by_seed(other: str, own: Depths, method: str) -> dict[int, dict[int, float]]:
    """Return the AUC of ``method`` minus that of ``other`` by depth and seed, for the seeds that both have."""
    found = {}
    for depth, runs in own.get(method, {}).items():
        base, ours = finite_values(own.get(other, {}).get(depth, [])), finite_values(runs)
        found[depth] = {seed: value - base[seed] for seed, value in ours.items() if seed in base}
    return found


def finite_values(runs: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return the test values by seed of the runs that did not diverge."""
    return {run["seed"]: run["value"] for run in runs if run.get("value") is not None}


# --- tables -----------------------------------------------------------------------------------------------------------

_NOT_FINITE = "not finite"


def depth_tables(runs: Iterable[Mapping[str, Any]]) -> list[TextTable]:
    """Return, for each data set, the AUC by depth and the differences between Lorentz and the other methods.

    Example:
        >>> depth_tables([])
        []
    """
    tables = []
    for cell, own in all_runs_by_depth(runs).items():
        tables += [
            TextTable(f"{cell}: AUC", _note("auc"), _columns(own), _rows(own, _value)),
            TextTable(f"{cell}: Lorentz minus the other", _note("difference"), _columns(own), _difference_rows(own)),
        ]
    return tables


def depth_causes(runs: Iterable[Mapping[str, Any]]) -> list[TextTable]:
    """Return, for each data set, distances after the last layer and gradients at the first one."""
    tables = []
    for cell, own in all_runs_by_depth(runs).items():
        distances = partial(_before_and_after, name="distance", layer=-1)
        gradients = partial(_before_and_after, name="gradient", layer=0)
        title = f"{cell}: mean distance between nodes after the last layer"
        tables += [
            TextTable(title, _note("distance"), _columns(own), _rows(own, distances)),
            TextTable(f"{cell}: gradient at the first layer", _note("gradient"), _columns(own), _rows(own, gradients)),
        ]
    return tables


def _note(table: str) -> str:
    return render("depth_note.md.j2", table=table).strip()


def _columns(own: Depths) -> tuple[str, ...]:
    return tuple(str(depth) for depth in depths_of(own))


def _rows(own: Depths, text: Callable[[Sequence[Mapping[str, Any]]], str]) -> list[TextRow]:
    return [
        TextRow(shown_name(method), tuple(text(own[method].get(depth, [])) for depth in depths_of(own)))
        for method in sorted(own, key=method_key)
    ]


def _difference_rows(own: Depths) -> list[TextRow]:
    rows = []
    for method in sorted(own, key=method_key):
        if method != "lorentz":
            by_seed = differences_by_seed(method, own, "lorentz")
            rows.append(TextRow(shown_name(method), tuple(_difference(by_seed.get(d, {})) for d in depths_of(own))))
    return rows


def _difference(by_seed: Mapping[int, float]) -> str:
    found = mean_interval(list(by_seed.values()))
    return "" if found is None else f"{found:+.1f}"


def _value(runs: Sequence[Mapping[str, Any]]) -> str:
    values = list(finite_values(runs).values())
    if not values:
        return "diverged" if runs else ""
    return f"{summarise(values):.1f}" + (f" ({len(values)} of {len(runs)})" if len(values) < len(runs) else "")


def _before_and_after(runs: Sequence[Mapping[str, Any]], name: str, layer: int) -> str:
    before = [run["initial_layers"][name][layer] for run in runs if "initial_layers" in run]
    after = [run["layers"][name][layer] for run in runs if "layers" in run]
    if not before:
        return ""
    first = _median(before)
    return f"{first} → {_median(after)}" if after else "diverged" if first == _NOT_FINITE else f"{first} → diverged"


def _median(values: Sequence[float | None]) -> str:
    """Return the median as text; None, a value that is not finite, counts as larger than all others."""
    if not values:
        return ""
    middle = statistics.median(math.inf if value is None else value for value in values)
    if 0 < middle < 0.01 or 1e4 <= middle < math.inf:
        digits, exponent = f"{middle:.0e}".split("e")
        return f"{digits}e{int(exponent)}"
    return _NOT_FINITE if middle == math.inf else f"{middle:.0f}" if middle >= 100 else f"{middle:.2g}"


# --- pages ------------------------------------------------------------------------------------------------------------


def depth_markdown(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return the section on depth: how to read the tables, and the tables; empty without runs."""
    lines = list(runs)
    tables = depth_tables(lines) + depth_causes(lines)
    return render("depth.md.j2", tables=markdown_tables(tables)) if tables else ""


def depth_terminal(runs: Iterable[Mapping[str, Any]]) -> Group:
    """Return :func:`depth_tables` for a terminal of 80 columns."""
    return terminal_tables(DEPTH_TABLE, depth_tables(runs))
