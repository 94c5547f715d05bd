"""Picture of one table of the paper: one panel per cell, our means and the paper's with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lresnet.plots import comparison
from lresnet.plots.comparison import MethodResult, Panel
from lresnet.plots.picture import save_picture
from lresnet_paper.results import NoResults, Result, grouped, in_order

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison_picture", "draw_comparison", "panel_title", "unit_of"]

_METRICS = {"lp": "link prediction: ROC AUC", "nc": "node classification: F1 or accuracy"}


def unit_of(table: str) -> str:
    """Return the unit of a table's results."""
    return "seconds for 100 additions" if table == "runtime" else "test, percent"


def panel_title(result: Result) -> str:
    """Return the panel of a result: cell and protocol. Runtimes of one cell stand together, whatever their form."""
    return result.cell if result.table == "runtime" else f"{result.cell}, {result.protocol}"


def comparison_picture(results: Sequence[Result]) -> Figure:
    """Draw the results of one table: our mean filled, the paper's hollow, with bars of one deviation.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not results:
        raise NoResults("there are no final runs to compare; `lresnet reproduce TABLE` makes those of a table")
    panels = [
        Panel(title, [_method_result(one) for one in own], _METRICS.get(own[0].cell.rpartition("/")[2], ""))
        for title, own in grouped(in_order(results), panel_title).items()
    ]
    scale = "log" if results[0].table == "runtime" else "percent"  # from microseconds to seconds
    return comparison.comparison_picture(panels, _caption(results), scale=scale)


def draw_comparison(path: str | Path, results: Sequence[Result]) -> Path:
    """Write :func:`comparison_picture` to ``path`` (.png, .svg or .pdf) and return the path."""
    return save_picture(comparison_picture(results), path)


def _method_result(result: Result) -> MethodResult:
    reference = None if result.paper_mean is None else (result.paper_mean, result.paper_std)
    name = f"{result.name}, {result.protocol}" if result.table == "runtime" else result.label
    return MethodResult(name, result.method, result.mean if result.n else None, result.std, reference)


def _caption(results: Sequence[Result]) -> str:
    """Return the unit and what the marks of the picture mean."""
    caption = unit_of(results[0].table)
    if any(one.paper_mean is not None for one in results):
        caption += ": filled ours, hollow the paper's"
    if any(one.n > 1 or one.paper_std is not None for one in results):
        caption += "; bars: one deviation"
    return caption
