"""Picture of depth: AUC by the number of layers, and norms, distances and gradients by layer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lresnet.plots.picture import GREY, INK, save_picture
from lresnet.residual.registry import METHODS
from lresnet_paper.pages.depth_page import (
    DEPTH_TABLE,
    Depths,
    depths_of,
    differences_by_seed,
    finite_values,
    runs_by_depth,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["depth_picture", "draw_depth"]

_BY_LAYER = {
    "radius": "mean norm, radii of curvature",
    "distance": "mean distance, radii of curvature",
    "gradient": "norm of the loss's gradient",
}

_NOTE = """\
Bands: one deviation over the seeds. By layer: medians over the seeds, in plain units for the Euclidean baseline. A line
ends where a value is 0 or not finite. A dotted line shows the network before training, where every run diverged."""


def depth_picture(runs: Iterable[Mapping[str, Any]], layers: int | None = None, protocol: str | None = None) -> Figure:
    """Draw two rows of panels for each data set.

    The upper row shows, by depth, AUC minus that of none, AUC itself (means, with bands of one deviation over the
    seeds) and the number of runs that were not finite. The lower row shows norms, distances and gradients layer by
    layer (medians over the seeds) of trained networks; of initialised ones for a method whose runs all diverged.

    Args:
        runs: lines of results.
        layers: depth of the networks in the lower row; None: the deepest.
        protocol: which runs to draw; None: the first protocol.

    Raises:
        ValueError: there are no runs, or none with ``layers`` layers.
    """
    from matplotlib.figure import Figure

    groups = runs_by_depth(runs, protocol)
    if not groups:
        raise ValueError(
            f"there are no final runs of the table {DEPTH_TABLE}; run `lresnet reproduce {DEPTH_TABLE}` first"
        )
    known = sorted({depth for own in groups.values() for by_depth in own.values() for depth in by_depth})
    layers = known[-1] if layers is None else layers
    if layers not in known:
        raise ValueError(f"there are no runs with {layers} layers; choose one of {', '.join(map(str, known))}")
    picture = Figure(figsize=(12, 6.2 * len(groups) + 0.9), layout="constrained")
    grid = picture.subplots(2 * len(groups), 3, squeeze=False)
    for row, (cell, own) in enumerate(groups.items()):
        _draw_differences(grid[2 * row][0], cell, own)
        _draw_values(grid[2 * row][1], cell, own)
        _draw_not_finite(grid[2 * row][2], cell, own)
        for axes, (name, label) in zip(grid[2 * row + 1], _BY_LAYER.items(), strict=True):
            _draw_layers(axes, f"{cell}, {layers} layers: {name}", label, own, name, layers)
    shown: dict[str, Any] = {}
    for axes in grid.flat:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, line)
    style: dict[str, Any] = {"ncols": 4, "frameon": False, "fontsize": 9, "labelcolor": INK}
    picture.legend(shown.values(), shown.keys(), loc="outside upper center", **style)
    picture.supxlabel(_NOTE, fontsize=8.5, color=INK)
    return picture


def draw_depth(
    path: str | Path, runs: Iterable[Mapping[str, Any]], layers: int | None = None, protocol: str | None = None
) -> Path:
    """Write :func:`depth_picture` to ``path`` (.png, .svg or .pdf) and return the path."""
    return save_picture(depth_picture(runs, layers, protocol), path)


def _draw_differences(axes: Axes, cell: str, own: Depths) -> None:
    axes.axhline(0, color=INK, linewidth=0.8)
    for method in _ordered(own):
        if method != "none":
            by_depth = differences_by_seed("none", own, method)
            _draw_band(axes, method, {depth: list(found.values()) for depth, found in by_depth.items()})
    _finish(axes, f"{cell}: AUC minus that of none", "layers", "percentage points")
    _depth_axis(axes, own)


def _draw_values(axes: Axes, cell: str, own: Depths) -> None:
    for method in _ordered(own):
        _draw_band(axes, method, {depth: list(finite_values(runs).values()) for depth, runs in own[method].items()})
    _finish(axes, f"{cell}: AUC", "layers", "test, percent")
    _depth_axis(axes, own)


def _draw_band(axes: Axes, method: str, values: Mapping[int, Sequence[float]]) -> None:
    depths = list(values)
    means = [statistics.fmean(own) if own else math.nan for own in values.values()]
    spread = [statistics.stdev(own) if len(own) > 1 else 0.0 for own in values.values()]
    axes.plot(depths, means, markersize=6.5, **_style(method))
    low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
    axes.fill_between(depths, low, high, color=METHODS[method].colour, alpha=0.15, linewidth=0)


def _draw_not_finite(axes: Axes, cell: str, own: Depths) -> None:
    """Draw a square for each method and depth: the more runs were not finite, the darker, with their number."""
    methods, depths = _ordered(own), depths_of(own)
    for row, method in enumerate(methods):
        for depth, runs in own[method].items():
            lost = sum(run.get("value") is None for run in runs)
            share, column = lost / len(runs), depths.index(depth)
            # Half-transparent grey, on which text is legible in light and in dark mode.
            square = [column - 0.45, column + 0.45]
            axes.fill_between(square, row - 0.42, row + 0.42, color=GREY, alpha=0.6 * share, linewidth=0)
            ink = INK if lost else GREY
            axes.text(column, row, f"{lost}/{len(runs)}", ha="center", va="center", fontsize=8.5, color=ink)
    axes.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    axes.set_yticks(range(len(methods)), [METHODS[method].short_label.replace(", ", ",\n") for method in methods])
    axes.set_ylim(len(methods) - 0.5, -0.5)
    _finish(axes, f"{cell}: not finite", "layers", "")
    axes.grid(visible=False)


def _draw_layers(axes: Axes, title: str, label: str, own: Depths, name: str, layers: int) -> None:
    for method in _ordered(own):
        runs = own[method].get(layers, [])
        trained = [run["layers"][name] for run in runs if "layers" in run]
        rows = trained or [run["initial_layers"][name] for run in runs if "initial_layers" in run]
        if rows:
            medians = [_median(values) for values in zip(*rows, strict=True)]
            style = _style(method) | ({} if trained else {"linestyle": "dotted"})
            axes.plot(range(1, len(medians) + 1), medians, markersize=5, markevery=max(1, layers // 8), **style)
    if any(value > 0 for line in axes.lines for value in line.get_ydata()):  # type: ignore[union-attr, operator]
        axes.set_yscale("log")
    axes.locator_params(axis="x", integer=True)
    _finish(axes, title, "layer", label)


def _median(values: Iterable[float | None]) -> float:
    """Return the median, with values that are not finite above all others; NaN if it is not positive and finite."""
    middle = statistics.median(math.inf if value is None else value for value in values)
    return middle if 0 < middle < math.inf else math.nan


def _ordered(own: Depths) -> list[str]:
    """Return the methods that were run: the Lorentz residual and "none", which it is compared with, come first."""
    known = [method for method in METHODS.values() if method.name in own]
    known.sort(key=lambda method: (method.name not in ("lorentz", "none"), method.picture_rank))
    return [method.name for method in known]


def _style(method: str) -> dict[str, Any]:
    entry = METHODS[method]
    style: dict[str, Any] = {"color": entry.colour, "marker": entry.marker, "linestyle": entry.line, "linewidth": 1.5}
    return style | {"label": entry.short_label}


def _depth_axis(axes: Axes, own: Depths) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(depths_of(own), [str(depth) for depth in depths_of(own)], minor=False)
    axes.minorticks_off()


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    axes.grid(color=GREY, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(INK)
    axes.patch.set_alpha(0)
