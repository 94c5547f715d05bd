"""Link prediction with other features than the table of graph networks has: without a column, or with one alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lresnet_paper.pages.text_tables import our_value
from lresnet_paper.render import render
from lresnet_paper.results import Result, grouped, method_key
from lresnet_paper.run import split_name
from lresnet_paper.untrained import best_untrained

__all__ = ["FEATURES_TABLE", "features_markdown", "without_column_sentences"]

FEATURES_TABLE = "features"
"""The name of the file of results, and of the field ``table`` of its lines."""

_WITHOUT, _ONLY = "legacy-without_column", "legacy-column_only"
_NEAR_CHANCE = 5.0  # points of ROC AUC around 50


def features_markdown(results: Sequence[Result]) -> str:
    """Return a table per cell: all features, without the column, the column alone; empty without results.

    Args:
        results: results of all tables.

    Example:
        >>> features_markdown([])
        ''
    """
    cells = []
    for cell in dict.fromkeys(one.cell for one in results if one.table == FEATURES_TABLE):
        columns = [_methods(results, "gnn", cell, split_name(_WITHOUT))]
        columns += [_methods(results, FEATURES_TABLE, cell, protocol) for protocol in (_WITHOUT, _ONLY)]
        methods = sorted({name for column in columns for name in column}, key=method_key)
        rows = [(name, [_value(column.get(name)) for column in columns]) for name in methods]
        best = best_untrained(one for one in results if one.cell == cell)
        untrained = [best.get((cell, protocol)) for protocol in (split_name(_WITHOUT), _WITHOUT)]
        cells.append({"cell": cell, "rows": rows, "untrained": [*map(_untrained_value, untrained), ""]})
    sentences = without_column_sentences(results)
    return render("features.md.j2", cells=cells, sentences=sentences).strip() if cells else ""


def without_column_sentences(results: Sequence[Result]) -> dict[str, str]:
    """Return, by cell, what the methods reach without the column that gives the answer away.

    Args:
        results: results of all tables.

    Example:
        >>> without_column_sentences([])
        {}
    """
    best, found = best_untrained(results), {}
    cells = grouped(
        (one for one in results if (one.table, one.protocol) == (FEATURES_TABLE, _WITHOUT) and one.n),
        lambda one: one.cell,
    )
    for cell, own in cells.items():
        methods = sorted(own, key=lambda one: -one.mean)
        values: dict[str, Any] = {
            "methods": methods,
            "chance": [one for one in methods if abs(one.mean - 50) <= _NEAR_CHANCE],
            "width": _NEAR_CHANCE,
            "untrained": best.get((cell, _WITHOUT)),
            "runs": sorted({one.n for one in own}),
        }
        found[cell] = " ".join(render("without_column_sentence.md.j2", **values).split())
    return found


def _methods(results: Sequence[Result], table: str, cell: str, protocol: str) -> dict[str, Result]:
    return {one.method: one for one in results if (one.table, one.cell, one.protocol) == (table, cell, protocol)}


def _value(result: Result | None) -> str:
    return "" if result is None else f"{our_value(result)} ({result.runs})"


def _untrained_value(result: Result | None) -> str:
    return "" if result is None else f"{result.method} {our_value(result)}"
