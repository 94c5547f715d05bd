"""Picture of one table of the paper: one panel per cell, our means and the paper's with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lresnet.plots import comparison
from lresnet.plots.comparison import MethodResult
from lresnet.plots.picture import save_picture
from lresnet_paper.results import Result, grouped, in_order

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison_picture", "draw_comparison", "unit_of"]


def unit_of(table: str) -> str:
    """Return the unit of a table's results."""
    return "seconds for 100 additions" if table == "runtime" else "test, percent"


def comparison_picture(results: Sequence[Result]) -> Figure:
    """Draw the results of one table: our mean filled, the paper's hollow, with bars of one deviation.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not results:
        raise ValueError("there are no final runs to compare; `lresnet reproduce TABLE` makes those of a table")
    groups = grouped(in_order(results), lambda one: f"{one.cell}, {one.protocol}")
    rows = {title: [_method_result(one) for one in own] for title, own in groups.items()}
    scale = "log" if results[0].table == "runtime" else "linear"  # from microseconds to seconds
    return comparison.comparison_picture(rows, _caption(results), scale=scale)


def draw_comparison(path: str | Path, results: Sequence[Result]) -> Path:
    """Write :func:`comparison_picture` to ``path`` (.png, .svg or .pdf) and return the path."""
    return save_picture(comparison_picture(results), path)


def _method_result(result: Result) -> MethodResult:
    reference = None if result.paper_mean is None else (result.paper_mean, result.paper_std)
    return MethodResult(result.name, result.method, result.mean if result.n else None, result.std, reference)


def _caption(results: Sequence[Result]) -> str:
    """Return the unit and what the marks of the picture mean."""
    caption = unit_of(results[0].table)
    if any(one.paper_mean is not None for one in results):
        caption += ": filled ours, hollow the paper's"
    if any(one.n > 1 or one.paper_std is not None for one in results):
        caption += "; bars: one deviation"
    return caption
