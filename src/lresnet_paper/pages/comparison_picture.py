"""The methods beside each other, and beside the paper: a panel a cell, means with error bars."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lresnet.plots.palette import method_look
from lresnet_paper.results import Figure, in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

__all__ = ["INK", "comparison_picture", "draw_comparison", "panels", "unit_of"]

INK = "#222222"
"""The colour of text and axes: a page that shows the picture in the dark may replace it."""
_GRID = "#8C8C8C"
_COLUMNS = 3


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
    from matplotlib.figure import Figure as Picture

    groups = panels(in_order(figures))
    if not groups:
        raise ValueError("there are no final runs to compare; `lresnet reproduce` makes them")
    columns = min(_COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    tallest = max(len(own) for own in groups.values()) * _row_height(figures)
    picture = Picture(figsize=(3.45 * columns + 0.6, rows * (tallest + 0.95) + 0.35), layout="constrained")
    grid = list(picture.subplots(rows, columns, squeeze=False).flat)
    for axes, (title, own) in zip(grid, groups.items(), strict=False):
        _draw_panel(axes, title, own)
    for axes in grid[len(groups) :]:
        axes.set_axis_off()
    picture.supxlabel(_reading(figures), fontsize=9, color=INK)
    return picture


def draw_comparison(path: str | Path, figures: Sequence[Figure]) -> Path:
    """Write the picture of one table's figures to ``path`` (.png, .svg or .pdf) and return that."""
    path = Path(path)
    picture = comparison_picture(figures)
    # Without the writer's name and version the same picture is the same file everywhere.
    picture.savefig(path, dpi=160, facecolor="white", metadata={"Software": None} if path.suffix == ".png" else None)
    return path


def _draw_panel(axes: Axes, title: str, figures: Sequence[Figure]) -> None:
    above = 0.13 if any(figure.paper_mean is not None for figure in figures) else 0.0  # makes room for the paper's
    for row, figure in enumerate(figures):
        colour, marker = method_look(figure.method)
        look: dict[str, Any] = {"marker": marker, "color": colour, "markersize": 6.5, "capsize": 2.5, "elinewidth": 1.3}
        if figure.n:
            axes.errorbar(figure.mean, row - above, xerr=figure.std, zorder=3, **look)
        else:
            beside = axes.get_yaxis_transform()  # x in widths of the panel
            axes.text(0.02, row, "diverged", transform=beside, color=INK, fontsize=8, va="center")
        if figure.paper_mean is not None:
            hollow = look | {"markerfacecolor": "none", "elinewidth": 0.9}
            axes.errorbar(figure.paper_mean, row + 0.2, xerr=figure.paper_std, zorder=2, **hollow)
    axes.set_yticks(range(len(figures)), [_label(figure) for figure in figures])
    axes.set_ylim(len(figures) - 0.4, -0.6)
    if figures[0].table == "runtime":
        axes.set_xscale("log")  # from microseconds to seconds
        axes.xaxis.set_minor_formatter("")  # between powers of ten they would lie on one another
        _widen_to_powers(axes)
    axes.set_title(textwrap.fill(title, 34), fontsize=10, loc="left", color=INK)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    axes.grid(axis="x", color=_GRID, alpha=0.35, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)
    axes.tick_params(axis="y", length=0)
    axes.patch.set_alpha(0)


def _widen_to_powers(axes: Axes) -> None:
    """From a power of ten to another, so that a narrow panel has numbers at its axis too."""
    low, high = axes.get_xlim()
    axes.set_xlim(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high)))


def _reading(figures: Sequence[Figure]) -> str:
    """What the marks are, of those that there are."""
    marks = [unit_of(figures[0].table)]
    if any(figure.paper_mean is not None for figure in figures):
        marks[0] += ": filled ours, hollow the paper's"
    if any(figure.n > 1 or figure.paper_std is not None for figure in figures):
        marks.append("bars: one deviation")
    return "; ".join(marks)


def _row_height(figures: Sequence[Figure]) -> float:
    """In inches."""
    return max(0.34, 0.16 * max(_label(figure).count("\n") + 1 for figure in figures))


def _label(figure: Figure) -> str:
    """The name, in lines that leave room for the panel: of a user's runs it has all settings that differ."""
    return textwrap.fill(figure.name.replace("_", " "), 30)
