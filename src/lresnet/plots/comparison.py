"""Picture of methods side by side: one panel per task, means with error bars, and optional reference values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lresnet.plots.picture import GREY, INK, method_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MethodResult", "comparison_picture"]

_COLUMNS = 3


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


def comparison_picture(panels: Mapping[str, Sequence[MethodResult]], caption: str, *, scale: str = "linear") -> Figure:
    """Draw one panel for each title of ``panels``.

    Args:
        panels: The rows by title.
        caption: Label of the horizontal axes.
        scale: ``"linear"`` or ``"log"``.

    Raises:
        ValueError: There is nothing to draw.
    """
    from matplotlib.figure import Figure

    if not panels:
        raise ValueError("there are no results to compare")
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    results = [result for own in panels.values() for result in own]
    tallest = max(len(own) for own in panels.values()) * _row_height(results)
    picture = Figure(figsize=(3.45 * columns + 0.6, rows * (tallest + 0.95) + 0.35), layout="constrained")
    grid = list(picture.subplots(rows, columns, squeeze=False).flat)
    for axes, (title, own) in zip(grid, panels.items(), strict=False):
        _draw_panel(axes, title, own, scale)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    picture.supxlabel(caption, fontsize=9, color=INK)
    return picture


def _draw_panel(axes: Axes, title: str, results: Sequence[MethodResult], scale: str) -> None:
    offset = 0.13 if any(result.reference for result in results) else 0.0  # the references are below our values
    for row, result in enumerate(results):
        colour, marker = method_style(result.method)
        style: dict[str, Any] = {"marker": marker, "color": colour, "markersize": 6.5, "capsize": 2.5}
        if result.mean is not None:
            axes.errorbar(result.mean, row - offset, xerr=result.deviation, zorder=3, elinewidth=1.3, **style)
        else:
            left_edge = axes.get_yaxis_transform()  # x in widths of the panel
            axes.text(0.02, row, "diverged", transform=left_edge, color=INK, fontsize=8, va="center")
        if result.reference is not None:
            mean, deviation = result.reference
            axes.errorbar(mean, row + 0.2, xerr=deviation, zorder=2, elinewidth=0.9, **style, markerfacecolor="none")
    axes.set_yticks(range(len(results)), [_label(result) for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    if scale == "log":
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter("")  # labels between powers of ten would overlap
        _widen_to_powers_of_ten(axes)
    axes.set_title(textwrap.fill(title, 34), fontsize=10, loc="left", color=INK)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    axes.grid(axis="x", color=GREY, alpha=0.35, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)
    axes.tick_params(axis="y", length=0)
    axes.patch.set_alpha(0)


def _widen_to_powers_of_ten(axes: Axes) -> None:
    """Extend the axis to powers of ten, so that a narrow panel has at least two labels."""
    low, high = axes.get_xlim()
    axes.set_xlim(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high)))


def _row_height(results: Sequence[MethodResult]) -> float:
    """Return the height of a row in inches."""
    return max(0.34, 0.16 * max(_label(result).count("\n") + 1 for result in results))


def _label(result: MethodResult) -> str:
    """Return the name in short lines; with its settings it may be long."""
    return textwrap.fill(result.name.replace("_", " "), 30)
