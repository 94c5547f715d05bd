"""The methods beside each other, and beside the paper: a panel a cell, means with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lresnet.plots import comparison
from lresnet.plots.comparison import MethodResult
from lresnet.plots.picture import save_picture
from lresnet_paper.results import Figure, in_order

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["comparison_picture", "draw_comparison", "panels", "unit_of"]


def panels(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """The figures of one table, by cell and protocol, in the order in which these first appear."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(f"{figure.cell}, {figure.protocol}", []).append(figure)
    return found


def unit_of(table: str) -> str:
    """What the figures of a table are measured in."""
    return "seconds for 100 additions" if table == "runtime" else "test, percent"


def comparison_picture(figures: Sequence[Figure]) -> Picture:
    """The picture of one table's figures: our mean filled, the paper's hollow, bars of one deviation.

    Raises:
        ValueError: there is nothing to draw.
    """
    groups = panels(in_order(figures))
    if not groups:
        raise ValueError("there are no final runs to compare; `lresnet reproduce` makes them")
    rows = {title: [_result(figure) for figure in own] for title, own in groups.items()}
    scale = "log" if figures[0].table == "runtime" else "linear"  # from microseconds to seconds
    return comparison.comparison_picture(rows, _reading(figures), scale=scale)


def draw_comparison(path: str | Path, figures: Sequence[Figure]) -> Path:
    """Write the picture of one table's figures to ``path`` (.png, .svg or .pdf) and return that."""
    return save_picture(comparison_picture(figures), path)


def _result(figure: Figure) -> MethodResult:
    reference = None if figure.paper_mean is None else (figure.paper_mean, figure.paper_std)
    return MethodResult(figure.name, figure.method, figure.mean if figure.n else None, figure.std, reference)


def _reading(figures: Sequence[Figure]) -> str:
    """What the marks are, of those that there are."""
    marks = [unit_of(figures[0].table)]
    if any(figure.paper_mean is not None for figure in figures):
        marks[0] += ": filled ours, hollow the paper's"
    if any(figure.n > 1 or figure.paper_std is not None for figure in figures):
        marks.append("bars: one deviation")
    return "; ".join(marks)
