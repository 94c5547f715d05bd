"""Pictures of depth: AUC by the number of layers, and norms, distances and gradients by layer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lresnet.plots.picture import GREY, INK, percent_limits, save_picture
from lresnet.residual.registry import METHODS
from lresnet_paper.pages.depth_page import (
    DEEP_TABLE,
    DEPTH_TABLE,
    Depths,
    all_runs_by_depth,
    depth_protocols,
    depths_of,
    differences_by_seed,
    finite_values,
    runs_by_depth,
)
from lresnet_paper.results import NoResults, method_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["auc_picture", "connection_panels", "connections_picture", "depth_picture", "draw_depth", "layers_picture"]

_BY_LAYER = {
    "radius": "mean norm",
    "distance": "mean distance",
    "gradient": "norm of the loss's gradient",
}

_BANDS = "Bands: one deviation over the seeds."
_LAYERS_NOTE = """\
Medians over the seeds; norms and distances in radii of curvature, in plain units for the Euclidean baseline.
A line ends where a value is 0 or not finite. Dotted: the network before training, where every run diverged."""


def depth_picture(
    runs: Iterable[Mapping[str, Any]], protocol: str | None = None, second_protocol: str | None = None
) -> Figure:
    """Draw one column for each data set: AUC by depth, AUC minus that of none, and the number of runs not finite.

    Means, with bands of one deviation over the seeds. The panels of a row have the same axis.

    Args:
        runs: lines of results.
        protocol: which runs to draw; None: the first protocol.
        second_protocol: a second protocol, e.g. of a deeper network, in the same panels with hollow markers; its runs
            are not counted among those that were not finite.

    Raises:
        NoResults: there are no runs.
    """
    lines = list(runs)
    groups, others = _required(runs_by_depth(lines, protocol)), _second_groups(lines, second_protocol)
    picture, grid = _grid(3, len(groups), heights=(1.0, 1.0, 1.05))
    limits = _auc_limits([*groups.values(), *others.values()])
    for column, (cell, own) in enumerate(groups.items()):
        other = others.get(_data_of(cell), {})
        _draw_values(grid[0][column], cell, own, limits, other)
        _draw_differences(grid[1][column], own, other)
        _draw_not_finite(grid[2][column], own)
    _finish_picture(picture, grid, _BANDS)
    return picture


def layers_picture(
    runs: Iterable[Mapping[str, Any]],
    layers: int | None = None,
    protocol: str | None = None,
    second_protocol: str | None = None,
) -> Figure:
    """Draw one column for each data set: norms, distances and gradients layer by layer.

    Medians over the seeds of trained networks; of initialised ones for a method whose runs all diverged.

    Args:
        runs: lines of results.
        layers: depth of the networks; None: the deepest.
        protocol, second_protocol: as for :func:`depth_picture`.

    Raises:
        ValueError: there are no runs, or none with ``layers`` layers.
    """
    lines = list(runs)
    groups, others = _required(runs_by_depth(lines, protocol)), _second_groups(lines, second_protocol)
    known = sorted({depth for own in groups.values() for depth in depths_of(own)})
    layers = known[-1] if layers is None else layers
    if layers not in known:
        raise ValueError(f"there are no runs with {layers} layers; choose one of {', '.join(map(str, known))}")
    picture, grid = _grid(3, len(groups))
    for row, (name, label) in enumerate(_BY_LAYER.items()):
        for axes, (cell, own) in zip(grid[row], groups.items(), strict=True):
            _draw_layers(axes, own, name, layers)
            _draw_layers(axes, others.get(_data_of(cell), {}), name, layers, hollow=True)
            _finish_layers(axes, "" if row else f"{cell}, {layers} layers", label)
    _finish_picture(picture, grid, _LAYERS_NOTE)
    return picture


def auc_picture(runs: Iterable[Mapping[str, Any]]) -> Figure:
    """Draw AUC by depth, one panel for each data set and protocol, all in one row with the same axis.

    Raises:
        NoResults: there are no runs.
    """
    groups = _required(all_runs_by_depth(runs))
    picture, grid = _grid(1, len(groups), panel=(2.75, 2.5))
    limits = _auc_limits(groups.values())
    for axes, (cell, own) in zip(grid[0], groups.items(), strict=True):
        _draw_values(axes, cell, own, limits)
    _finish_picture(picture, grid, _BANDS)
    return picture


def connection_panels(runs: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Depths, Depths]]:
    """Return the chain and the initial residual of every data set where both have two depths at least, by title.

    The protocols of a data set in the table ``deep`` differ in their ending: ``-chain`` and ``-deep``.
    """
    lines, panels = list(runs), dict[str, tuple[Depths, Depths]]()
    for protocol in depth_protocols(lines, DEEP_TABLE):
        base, _, kind = protocol.rpartition("-")
        if kind == "chain":
            chains, others = (_by_data(lines, f"{base}-{one}", DEEP_TABLE) for one in ("chain", "deep"))
            for cell, own in chains.items():
                if cell in others and min(len(depths_of(own)), len(depths_of(others[cell]))) > 1:
                    panels[f"{cell}, {base}"] = own, others[cell]
    return panels


def connections_picture(runs: Iterable[Mapping[str, Any]]) -> Figure:
    """Draw a chain of residuals and the initial residual by depth, one panel for each data set of the table ``deep``.

    Solid lines are chains, hollow markers the initial residual; see :func:`connection_panels`.

    Raises:
        NoResults: no data set has runs of both at two depths.
    """
    panels = connection_panels(runs)
    if not panels:
        raise NoResults(
            f"no data set of the table {DEEP_TABLE} has final runs of a chain and of an initial residual at two "
            f"depths; run `lresnet reproduce {DEEP_TABLE}` first"
        )
    picture, grid = _grid(1, len(panels), panel=(max(2.75, 8.5 / len(panels)), 2.7))  # the legend needs 8.5 inches
    limits = _auc_limits([own for pair in panels.values() for own in pair])
    for axes, (title, (own, other)) in zip(grid[0], panels.items(), strict=True):
        _draw_values(axes, title, own, limits, other)
        axes.set_ylabel("test score, percent", fontsize=9, color=INK)
    _finish_picture(picture, grid, f"Solid: a chain of residuals. Hollow: the initial residual. {_BANDS}")
    return picture


def draw_depth(
    path: str | Path,
    runs: Iterable[Mapping[str, Any]],
    layers: int | None = None,
    protocol: str | None = None,
    second_protocol: str | None = None,
) -> list[Path]:
    """Write :func:`depth_picture` to ``path`` (.png, .svg or .pdf) and :func:`layers_picture` next to it.

    The name of the second file ends with ``-layers``: ``depth.png`` and ``depth-layers.png``.

    Returns:
        The two paths.
    """
    path, runs = Path(path), list(runs)
    by_layer = path.with_name(f"{path.stem}-layers{path.suffix}")
    pictures = {
        path: depth_picture(runs, protocol, second_protocol),
        by_layer: layers_picture(runs, layers, protocol, second_protocol),
    }
    return [save_picture(picture, file, dpi=120) for file, picture in pictures.items()]


def _second_groups(runs: Sequence[Mapping[str, Any]], protocol: str | None) -> dict[str, Depths]:
    """Return the runs of the second protocol by data set."""
    return {} if protocol is None else _required(_by_data(runs, protocol))


def _by_data(runs: Sequence[Mapping[str, Any]], protocol: str, table: str = DEPTH_TABLE) -> dict[str, Depths]:
    return {_data_of(cell): own for cell, own in runs_by_depth(runs, protocol, table).items()}


def _data_of(cell: str) -> str:
    """Return a cell without the protocol that :func:`runs_by_depth` adds."""
    return cell.partition(", ")[0]


def _required(groups: dict[str, Depths]) -> dict[str, Depths]:
    if not groups:
        raise NoResults(
            f"there are no final runs of the table {DEPTH_TABLE}; run `lresnet reproduce {DEPTH_TABLE}` first"
        )
    return groups


def _grid(
    rows: int, columns: int, panel: tuple[float, float] = (3.9, 2.55), heights: Sequence[float] | None = None
) -> tuple[Figure, Any]:
    """Return a figure and its axes [rows, columns]. The panels of a row have the same vertical axis.

    Args:
        panel: width and height of a panel, in inches.
        heights: relative heights of the rows; None: all equal.
    """
    from matplotlib.figure import Figure

    size = (panel[0] * columns + 0.3, panel[1] * sum(heights or [1.0] * rows) + 0.85)
    picture = Figure(figsize=size, layout="constrained")
    return picture, picture.subplots(rows, columns, squeeze=False, sharey="row", height_ratios=heights)


def _finish_picture(picture: Figure, grid: Any, note: str) -> None:
    """Add the legend of all panels and the note below them; only the first panel of a row names its axis."""
    shown: dict[str, Any] = {}
    for axes in grid.flat:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, line)
    for axes in grid[:, 1:].flat:
        axes.set_ylabel("")
    style: dict[str, Any] = {"ncols": 4, "frameon": False, "fontsize": 9.5, "labelcolor": INK}
    picture.legend(shown.values(), shown.keys(), loc="outside upper center", **style)
    picture.supxlabel(note, fontsize=8.5, color=INK)


def _auc_limits(groups: Iterable[Depths]) -> tuple[float, float]:
    """Return the ends of an axis that holds all means and bands and ends at 100."""
    cells = [finite_values(runs).values() for own in groups for by_depth in own.values() for runs in by_depth.values()]
    low, _ = percent_limits(statistics.fmean(values) - _deviation(values) for values in cells if values)
    return low, 100.0


def _deviation(values: Collection[float]) -> float:
    """Return the deviation; 0 for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _draw_differences(axes: Axes, own: Depths, other: Depths) -> None:
    axes.axhline(0, color=INK, linewidth=0.8)
    for group in (own, other):
        for method in _ordered(group):
            if method != "none":
                by_depth = differences_by_seed("none", group, method)
                values = {depth: list(found.values()) for depth, found in by_depth.items()}
                _draw_band(axes, _style(method) if group is own else _hollow_style(method, group), values)
    _finish(axes, "", "layers", "AUC minus that of none, points")
    _depth_axis(axes, own, other)


def _draw_values(axes: Axes, title: str, own: Depths, limits: tuple[float, float], other: Depths | None = None) -> None:
    for group in (own, other or {}):
        for method in _ordered(group):
            values = {depth: list(finite_values(runs).values()) for depth, runs in group[method].items()}
            _draw_band(axes, _style(method) if group is own else _hollow_style(method, group), values)
    _finish(axes, title, "layers", "test AUC, percent")
    _depth_axis(axes, own, other or {})
    axes.set_ylim(limits)


def _draw_band(axes: Axes, style: dict[str, Any], values: Mapping[int, Sequence[float]]) -> None:
    depths = list(values)
    means = [statistics.fmean(own) if own else math.nan for own in values.values()]
    spread = [_deviation(own) for own in values.values()]
    axes.plot(depths, means, markersize=6.5, **style)
    low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
    axes.fill_between(depths, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _draw_not_finite(axes: Axes, own: Depths) -> None:
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
    axes.set_yticks(range(len(methods)), [_style(method)["label"].replace(", ", ",\n") for method in methods])
    axes.set_ylim(len(methods) - 0.5, -0.5)
    _finish(axes, "Runs that were not finite", "layers", "")
    axes.grid(visible=False)


def _draw_layers(axes: Axes, own: Depths, name: str, layers: int, hollow: bool = False) -> None:
    for method in _ordered(own):
        runs = own[method].get(layers, [])
        trained = [run["layers"][name] for run in runs if "layers" in run]
        rows = trained or [run["initial_layers"][name] for run in runs if "initial_layers" in run]
        if rows:
            medians = [_median(values) for values in zip(*rows, strict=True)]
            style = _hollow_style(method, own) if hollow else _style(method)
            style |= {} if trained else {"linestyle": "dotted"}
            axes.plot(range(1, len(medians) + 1), medians, markersize=5, markevery=max(1, layers // 8), **style)


def _finish_layers(axes: Axes, title: str, label: str) -> None:
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
    known = [method for method in own if _base(method) in METHODS]
    return sorted(known, key=lambda name: (name not in ("lorentz", "none"), METHODS[_base(name)].picture_rank, name))


def _base(method: str) -> str:
    """Return the residual of a method: that of lorentz_limit, the curvature 0, is lorentz."""
    return method.removesuffix("_limit")


def _style(method: str) -> dict[str, Any]:
    entry = METHODS[_base(method)]
    style: dict[str, Any] = {"color": entry.colour, "marker": entry.marker, "linestyle": entry.line, "linewidth": 1.5}
    if method in METHODS:
        return style | {"label": entry.short_label}
    return style | {"label": method_label(method), "marker": "s", "linestyle": "dotted"}


def _hollow_style(method: str, own: Depths) -> dict[str, Any]:
    """Return the style of a method in the second protocol; the label names its connections or its network."""
    run = next(run for runs in own[method].values() for run in runs)
    config, style = run["config"], _style(method)
    network = config.get("connection", config.get("model", run["protocol"]))
    return style | {"label": f"{style['label']}, {network}", "linestyle": "dashdot", "markerfacecolor": "white"}


def _depth_axis(axes: Axes, own: Depths, other: Depths) -> None:
    depths = sorted({*depths_of(own), *depths_of(other)})
    axes.set_xscale("log", base=2)
    axes.set_xticks(depths, [str(depth) for depth in depths], minor=False)
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
