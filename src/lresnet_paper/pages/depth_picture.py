"""Depth: the paper's figure of AUC against the number of layers, and what explains it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lresnet.plots.picture import INK
from lresnet.residual.registry import METHODS
from lresnet_paper.pages.depth_runs import (
    DEPTH_TABLE,
    Depths,
    depths_of,
    finite_values,
    gaps_to,
    runs_by_depth,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

__all__ = ["depth_picture", "draw_depth"]

_GRID = "#8C8C8C"
_BY_LAYER = {
    "radius": "mean norm, radii of curvature",
    "distance": "mean distance, radii of curvature",
    "gradient": "norm of the loss's gradient",
}

_NOTE = """\
Bands: one deviation over seeds. By layer: medians over seeds, of the Euclidean twin plain lengths; a line ends where a
number is 0 or not finite, and is dotted, of the network before training, where no run ended well."""


def depth_picture(runs: Iterable[Mapping[str, Any]], layers: int | None = None, protocol: str | None = None) -> Picture:
    """Two rows of panels for each data set, of one protocol (None: the first).

    Above, by depth: AUC minus that of none, AUC itself (means, bands of one deviation over seeds), runs that were not
    finite. Below, layer by layer of the trained networks with ``layers`` layers (default: the deepest): norms,
    distances and gradients, medians over seeds; of a method none of whose runs ended well, as initialised.

    Raises:
        ValueError: there are no runs, or none with so many layers.
    """
    from matplotlib.figure import Figure as Picture

    groups = runs_by_depth(runs, protocol)
    if not groups:
        raise ValueError(
            f"there are no final runs of the table {DEPTH_TABLE}; `lresnet reproduce {DEPTH_TABLE}` makes them"
        )
    known = sorted({depth for own in groups.values() for by_depth in own.values() for depth in by_depth})
    layers = known[-1] if layers is None else layers
    if layers not in known:
        raise ValueError(f"there are no runs with {layers} layers; there are some with {', '.join(map(str, known))}")
    picture = Picture(figsize=(12, 6.2 * len(groups) + 0.9), layout="constrained")
    grid = picture.subplots(2 * len(groups), 3, squeeze=False)
    for row, (cell, own) in enumerate(groups.items()):
        _draw_gaps(grid[2 * row][0], cell, own)
        _draw_figures(grid[2 * row][1], cell, own)
        _draw_not_finite(grid[2 * row][2], cell, own)
        for axes, (name, words) in zip(grid[2 * row + 1], _BY_LAYER.items(), strict=True):
            _draw_layers(axes, f"{cell}, {layers} layers: {name}", words, own, name, layers)
    shown: dict[str, Any] = {}
    for axes in grid.flat:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, line)
    look: dict[str, Any] = {"ncols": 4, "frameon": False, "fontsize": 9, "labelcolor": INK}
    picture.legend(shown.values(), shown.keys(), loc="outside upper center", **look)
    picture.supxlabel(_NOTE, fontsize=8.5, color=INK)
    return picture


def draw_depth(
    path: str | Path, runs: Iterable[Mapping[str, Any]], layers: int | None = None, protocol: str | None = None
) -> Path:
    """Write :func:`depth_picture` to ``path`` (.png, .svg or .pdf) and return that."""
    path = Path(path)
    picture = depth_picture(runs, layers, protocol)
    picture.savefig(path, dpi=140, facecolor="white", metadata={"Software": None} if path.suffix == ".png" else None)
    return path


def _draw_gaps(axes: Axes, cell: str, own: Depths) -> None:
    axes.axhline(0, color=INK, linewidth=0.8)
    for method in _ordered(own):
        if method != "none":
            _draw_band(
                axes, method, {depth: list(gaps.values()) for depth, gaps in gaps_to("none", own, method).items()}
            )
    _finish(axes, f"{cell}: AUC minus that of none", "layers", "percentage points")
    _depth_axis(axes, own)


def _draw_figures(axes: Axes, cell: str, own: Depths) -> None:
    for method in _ordered(own):
        _draw_band(axes, method, {depth: list(finite_values(runs).values()) for depth, runs in own[method].items()})
    _finish(axes, f"{cell}: AUC", "layers", "test, percent")
    _depth_axis(axes, own)


def _draw_band(axes: Axes, method: str, values: Mapping[int, Sequence[float]]) -> None:
    depths = list(values)
    means = [statistics.fmean(own) if own else math.nan for own in values.values()]
    spread = [statistics.stdev(own) if len(own) > 1 else 0.0 for own in values.values()]
    axes.plot(depths, means, markersize=6.5, **_look(method))
    low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
    axes.fill_between(depths, low, high, color=METHODS[method].colour, alpha=0.15, linewidth=0)


def _draw_not_finite(axes: Axes, cell: str, own: Depths) -> None:
    """A square for each method and depth, the darker the more runs were not finite, with their number."""
    methods, depths = _ordered(own), depths_of(own)
    for row, method in enumerate(methods):
        for depth, runs in own[method].items():
            lost = sum(run.get("value") is None for run in runs)
            share, column = lost / len(runs), depths.index(depth)
            # Half-transparent grey, under ink that is legible on it, on paper as on a dark page.
            square = [column - 0.45, column + 0.45]
            axes.fill_between(square, row - 0.42, row + 0.42, color=_GRID, alpha=0.6 * share, linewidth=0)
            ink = INK if lost else _GRID
            axes.text(column, row, f"{lost}/{len(runs)}", ha="center", va="center", fontsize=8.5, color=ink)
    axes.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    axes.set_yticks(range(len(methods)), [METHODS[method].short_label.replace(", ", ",\n") for method in methods])
    axes.set_ylim(len(methods) - 0.5, -0.5)
    _finish(axes, f"{cell}: not finite", "layers", "")
    axes.grid(visible=False)


def _draw_layers(axes: Axes, title: str, words: str, own: Depths, name: str, layers: int) -> None:
    for method in _ordered(own):
        runs = own[method].get(layers, [])
        trained = [run["layers"][name] for run in runs if "layers" in run]
        rows = trained or [run["initial_layers"][name] for run in runs if "initial_layers" in run]
        if rows:
            medians = [_median(values) for values in zip(*rows, strict=True)]
            look = _look(method) | ({} if trained else {"linestyle": "dotted"})
            axes.plot(range(1, len(medians) + 1), medians, markersize=5, markevery=max(1, layers // 8), **look)
    if any(value > 0 for line in axes.lines for value in line.get_ydata()):  # type: ignore[union-attr, operator]
        axes.set_yscale("log")
    axes.locator_params(axis="x", integer=True)
    _finish(axes, title, "layer", words)


def _median(values: Iterable[float | None]) -> float:
    """Of positive numbers, those that are not finite above all others; NaN where it is no positive number itself."""
    middle = statistics.median(math.inf if value is None else value for value in values)
    return middle if 0 < middle < math.inf else math.nan


def _ordered(own: Depths) -> list[str]:
    """Return the methods that were run: the Lorentz residual and "none", which it is compared with, come first."""
    known = [method for method in METHODS.values() if method.name in own]
    known.sort(key=lambda method: (method.name not in ("lorentz", "none"), method.picture_rank))
    return [method.name for method in known]


def _look(method: str) -> dict[str, Any]:
    entry = METHODS[method]
    look: dict[str, Any] = {"color": entry.colour, "marker": entry.marker, "linestyle": entry.line, "linewidth": 1.5}
    return look | {"label": entry.short_label}


def _depth_axis(axes: Axes, own: Depths) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(depths_of(own), [str(depth) for depth in depths_of(own)], minor=False)
    axes.minorticks_off()


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    axes.grid(color=_GRID, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(INK)
    axes.patch.set_alpha(0)
