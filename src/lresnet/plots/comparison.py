"""Picture of methods side by side: one panel per task on fixed axes, means with error bars, optional references."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lresnet.plots.picture import GREY, INK, method_style, percent_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MethodResult", "Panel", "comparison_picture"]

_WIDTH = 11.2  # inches
_LABELS = 1.45  # inches for the names of the methods
_WIDEST = 3.4  # inches of one panel


class MethodResult(NamedTuple):
    """One row of a panel.

    Args:
        name: Label of the row.
        method: The residual connection, which sets colour and marker.
        mean: Mean over the runs; None: every run diverged.
        deviation: Half the length of the error bar; None: no bar.
        reference: A published mean and its deviation (or None), drawn hollow.
    """

    name: str
    method: str
    mean: float | None
    deviation: float | None = None
    reference: tuple[float, float | None] | None = None


class Panel(NamedTuple):
    """One panel of the picture.

    Args:
        title: Title of the panel.
        results: Its rows.
        metric: Name of what is measured. Panels of one metric stand together and have the same axis.
    """

    title: str
    results: Sequence[MethodResult]
    metric: str = ""


def comparison_picture(panels: Sequence[Panel], caption: str, *, scale: str = "percent") -> Figure:
    """Draw the panels. Those of one metric have the same axis; in percent it ends at 100 or earlier.

    If one panel names all methods, its rows are those of every panel, and only the first panel of a line has labels.

    Args:
        panels: What to draw.
        caption: Label below the panels.
        scale: ``"percent"``, or ``"log"`` for positive values such as times.

    Raises:
        ValueError: There is nothing to draw.
    """
    from matplotlib.figure import Figure

    if not panels:
        raise ValueError("there are no results to compare")
    names = max(([one.name for one in panel.results] for panel in panels), key=len)
    is_shared = all(one.name in names for panel in panels for one in panel.results)
    metrics = list(dict.fromkeys(panel.metric for panel in panels))
    groups = [[panel for panel in panels if panel.metric == metric] for metric in metrics]
    columns = _columns(list(map(len, groups)), 5 if is_shared else 3)
    lines = [group[k : k + columns] for group in groups for k in range(0, len(group), columns)]
    width = min(_WIDEST, (_WIDTH - _LABELS) / columns)
    height = max(len(panel.results) for panel in panels) * _row_height([one for p in panels for one in p.results])
    size = (_LABELS + width * columns, len(lines) * (height + 0.62) + 0.22 * len(groups) + 0.2)
    picture = Figure(figsize=size, layout="constrained")
    picture.get_layout_engine().set(w_pad=0.05, wspace=0.02)  # type: ignore[union-attr, call-arg]
    grid = picture.subplots(len(lines), columns, squeeze=False)
    limits = {metric: _limits(group, scale) for metric, group in zip(metrics, groups, strict=True)}
    for row, line in enumerate(lines):
        for column, axes in enumerate(grid[row]):
            if column >= len(line):
                axes.set_axis_off()
                continue
            panel = line[column]
            _draw_panel(axes, panel, names if is_shared else [one.name for one in panel.results], scale, width)
            axes.set_xlim(limits[panel.metric])
            axes.tick_params(axis="y", length=0, labelleft=column == 0 or not is_shared)
            if column == 0 and len(metrics) > 1 and (row + 1 == len(lines) or lines[row + 1][0].metric != panel.metric):
                axes.set_xlabel(panel.metric, fontsize=8.5, color=INK, loc="left")
    picture.supxlabel(caption, fontsize=9, color=INK)
    return picture


def _columns(counts: Sequence[int], most: int) -> int:
    """Return the number of columns that needs the fewest lines, then the fewest empty places."""
    lines = {columns: sum(-(-count // columns) for count in counts) for columns in range(1, most + 1)}
    return min(lines, key=lambda columns: (lines[columns], columns * lines[columns]))


def _limits(panels: Sequence[Panel], scale: str) -> tuple[float, float]:
    """Return the ends of an axis that holds all results of the panels with their bars."""
    pairs = [(one.mean, one.deviation) for panel in panels for one in panel.results if one.mean is not None]
    pairs += [one.reference for panel in panels for one in panel.results if one.reference is not None]
    if scale == "log":  # to powers of ten, so that a narrow panel has at least two labels
        means = [mean for mean, _ in pairs] or [1.0]
        return 10.0 ** math.floor(math.log10(min(means))), 10.0 ** math.ceil(math.log10(1.01 * max(means)))
    return percent_limits([mean + sign * (bar or 0.0) for mean, bar in pairs for sign in (-1, 1)])


def _draw_panel(axes: Axes, panel: Panel, names: Sequence[str], scale: str, width: float) -> None:
    offset = 0.13 if any(result.reference for result in panel.results) else 0.0  # the references are below our values
    if scale == "log":
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter("")  # labels between powers of ten would overlap
    for result in panel.results:
        row = names.index(result.name)
        colour, marker = method_style(result.method)
        style: dict[str, Any] = {"marker": marker, "color": colour, "markersize": 6, "capsize": 2.5}
        if result.mean is not None:
            _draw_bar(axes, result.mean, row - offset, xerr=result.deviation, zorder=3, elinewidth=1.3, **style)
        else:
            left_edge = axes.get_yaxis_transform()  # x in widths of the panel
            axes.text(0.02, row, "diverged", transform=left_edge, color=INK, fontsize=8, va="center")
        if result.reference is not None:
            mean, deviation = result.reference
            style |= {"zorder": 2, "elinewidth": 0.9, "markerfacecolor": "none"}
            _draw_bar(axes, mean, row + 0.2, xerr=deviation, **style)
    axes.set_yticks(range(len(names)), [_label(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_title(textwrap.fill(panel.title, int(13 * width)), fontsize=9, loc="left", color=INK)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    if scale == "percent":
        axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="x", color=GREY, alpha=0.35, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)
    axes.patch.set_alpha(0)


def _draw_bar(axes: Axes, x: float, y: float, **style: Any) -> None:
    """Draw a mean and its bar. The bar ends with the axis; a marker at the end of the axis stays whole."""
    mean, _, _ = axes.errorbar(x, y, **style).lines
    mean.set_clip_on(False)


def _row_height(results: Sequence[MethodResult]) -> float:
    """Return the height of a row in inches."""
    return max(0.175, 0.16 * max(_label(result.name).count("\n") + 1 for result in results))


def _label(name: str) -> str:
    """Return the name in short lines; with its settings it may be long."""
    return textwrap.fill(name.replace("_", " "), 30)
