"""Depth: the paper's figure of AUC against the number of layers, what explains it, and what it answers."""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy import stats

from lresnet.report.claims import HOLDS, IN_PART, NOT_MEASURED, REFUTED, Claim
from lresnet.report.palette import METHOD_LOOKS
from lresnet.studies.depth import split_depth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

__all__ = ["Depths", "depth_answers", "depth_picture", "draw_depth", "gaps_to_none", "runs_by_depth"]

Depths = dict[str, dict[int, list[dict[str, Any]]]]
"""The runs of one data set, by method and number of layers."""

_TABLE, _INK, _GRID = "oversmoothing", "#222222", "#8C8C8C"
_TEXTBOOK = "parallel_transport_textbook"
_LOOKS = METHOD_LOOKS | {_TEXTBOOK: METHOD_LOOKS["parallel_transport_reversed"]}
_ORDER = ("none", "lorentz", "space", "tangent", "parallel_transport", _TEXTBOOK, "euclidean")
_NO_DIFFERENCE = "no difference shown"
_DASHED = {_TEXTBOOK, "euclidean"}
_NAMES = {
    "parallel_transport": "parallel transport, boost",
    _TEXTBOOK: "parallel transport, exp and log",
    "euclidean": "Euclidean twin",
}
_BY_LAYER = {
    "radius": "mean norm, radii of curvature",
    "distance": "mean distance, radii of curvature",
    "gradient": "norm of the loss's gradient",
}

_NOTE = """\
Bands: one deviation over seeds. By layer: medians over seeds, of the Euclidean twin plain lengths; a line ends where a
number is 0 or not finite, and is dotted, of the network before training, where no run ended well."""


def runs_by_depth(runs: Iterable[Mapping[str, Any]]) -> dict[str, Depths]:
    """The final runs of the table, by data set, method and depth; depths ascend."""
    found: dict[str, Depths] = {}
    for run in sorted(runs, key=lambda run: split_depth(run["cell"])[1] or 0):
        cell, depth = split_depth(run["cell"])
        if run["table"] == _TABLE and depth is not None and run.get("stage", "final") == "final":
            found.setdefault(cell, {}).setdefault(run["method"], {}).setdefault(depth, []).append(dict(run))
    return dict(sorted(found.items()))


def gaps_to_none(own: Depths, method: str) -> dict[int, dict[int, float]]:
    """AUC of ``method`` minus that of none, by depth and seed, where both have one; percentage points."""
    gaps = {}
    for depth, runs in own.get(method, {}).items():
        base, ours = _values(own.get("none", {}).get(depth, [])), _values(runs)
        gaps[depth] = {seed: value - base[seed] for seed, value in ours.items() if seed in base}
    return gaps


def _values(runs: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    return {run["seed"]: run["value"] for run in runs if run.get("value") is not None}


# --- the picture ------------------------------------------------------------------------------------------------------


def depth_picture(runs: Iterable[Mapping[str, Any]], layers: int | None = None) -> Picture:
    """Two rows of panels for each data set.

    Above, by depth: AUC minus that of none, AUC itself (means, bands of one deviation over seeds), runs that were not
    finite. Below, layer by layer of the trained networks with ``layers`` layers (default: the deepest): norms,
    distances and gradients, medians over seeds; of a method none of whose runs ended well, as initialised.

    Raises:
        ValueError: there are no runs, or none with so many layers.
    """
    from matplotlib.figure import Figure as Picture

    groups = runs_by_depth(runs)
    if not groups:
        raise ValueError(f"there are no final runs of the table {_TABLE}; `lresnet reproduce {_TABLE}` makes them")
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
    picture.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    picture.supxlabel(_NOTE, fontsize=8.5, color=_INK)
    return picture


def draw_depth(path: str | Path, runs: Iterable[Mapping[str, Any]], layers: int | None = None) -> Path:
    """Write :func:`depth_picture` to ``path`` (.png, .svg or .pdf) and return that."""
    path = Path(path)
    picture = depth_picture(runs, layers)
    picture.savefig(path, dpi=140, facecolor="white", metadata={"Software": None} if path.suffix == ".png" else None)
    return path


def _draw_gaps(axes: Axes, cell: str, own: Depths) -> None:
    axes.axhline(0, color=_INK, linewidth=0.8)
    for method in _ordered(own):
        if method != "none":
            _draw_band(axes, method, {depth: list(gaps.values()) for depth, gaps in gaps_to_none(own, method).items()})
    _finish(axes, f"{cell}: AUC minus that of none", "layers", "percentage points")
    _depth_axis(axes, own)


def _draw_figures(axes: Axes, cell: str, own: Depths) -> None:
    for method in _ordered(own):
        _draw_band(axes, method, {depth: list(_values(runs).values()) for depth, runs in own[method].items()})
    _finish(axes, f"{cell}: AUC", "layers", "test, percent")
    _depth_axis(axes, own)


def _draw_band(axes: Axes, method: str, values: Mapping[int, Sequence[float]]) -> None:
    depths = list(values)
    means = [statistics.fmean(own) if own else math.nan for own in values.values()]
    spread = [statistics.stdev(own) if len(own) > 1 else 0.0 for own in values.values()]
    axes.plot(depths, means, markersize=6.5, **_look(method))
    low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
    axes.fill_between(depths, low, high, color=_LOOKS[method][0], alpha=0.15, linewidth=0)


def _draw_not_finite(axes: Axes, cell: str, own: Depths) -> None:
    """A square for each method and depth, the darker the more runs were not finite, with their number."""
    methods, depths = _ordered(own), _depths(own)
    for row, method in enumerate(methods):
        for depth, runs in own[method].items():
            lost = sum(run.get("value") is None for run in runs)
            share, column = lost / len(runs), depths.index(depth)
            axes.fill_between([column - 0.45, column + 0.45], row - 0.42, row + 0.42, color=str(1 - 0.7 * share))
            ink = "white" if share > 0.5 else _INK if lost else _GRID
            axes.text(column, row, f"{lost}/{len(runs)}", ha="center", va="center", fontsize=8.5, color=ink)
    axes.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    axes.set_yticks(range(len(methods)), [_name(method).replace(", ", ",\n") for method in methods])
    axes.set_ylim(len(methods) - 0.5, -0.5)
    _finish(axes, f"{cell}: runs that were not finite", "layers", "")
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
    return [method for method in _ORDER if method in own]


def _depths(own: Depths) -> list[int]:
    return sorted({depth for by_depth in own.values() for depth in by_depth})


def _name(method: str) -> str:
    return _NAMES.get(method, method)


def _look(method: str) -> dict[str, Any]:
    colour, marker = _LOOKS[method]
    style = "dashed" if method in _DASHED else "solid"
    return {"color": colour, "marker": marker, "linestyle": style, "linewidth": 1.5, "label": _name(method)}


def _depth_axis(axes: Axes, own: Depths) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(_depths(own), [str(depth) for depth in _depths(own)], minor=False)
    axes.minorticks_off()


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10, loc="left", color=_INK)
    axes.set_xlabel(x, fontsize=9, color=_INK)
    axes.set_ylabel(y, fontsize=9, color=_INK)
    axes.tick_params(labelsize=8.5, colors=_INK, length=3)
    axes.grid(color=_GRID, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


# --- the answers ------------------------------------------------------------------------------------------------------


def depth_answers(runs: Iterable[Mapping[str, Any]]) -> list[Claim]:
    """What the paper says of depth, with the verdict that the runs allow and what it rests on.

    Example:
        >>> depth_answers([])[0].verdict
        'not measured yet'
    """
    groups = runs_by_depth(runs)
    paper = tomllib.loads(resources.files("lresnet.recipes").joinpath("paper.toml").read_text())[_TABLE]
    return [Claim(_TABLE, sentence, *_JUDGES[sentence](groups)) for sentence in paper["claims"]]


def _gap_widens(groups: Mapping[str, Depths]) -> tuple[str, str]:
    """By the slope over doublings of the depth, seed by seed: widens where its 95 % interval is above 0."""
    verdicts, evidence = list[bool | None](), []
    for cell, own in groups.items():
        gaps = gaps_to_none(own, "lorentz")
        seeds = set.intersection(*map(set, gaps.values())) if len(gaps) > 1 else set()
        if len(seeds) > 1:
            doublings = [math.log2(depth) for depth in gaps]
            slopes = [statistics.linear_regression(doublings, [g[seed] for g in gaps.values()])[0] for seed in seeds]
            mean, low, high = _interval(slopes)
            verdicts.append(None if low <= 0 <= high else low > 0)
            means = ", ".join(f"{statistics.fmean(own.values()):+.1f} at {depth}" for depth, own in gaps.items())
            evidence.append(f"{cell} {means}: {mean:+.2f} a doubling ({low:+.2f} to {high:+.2f})")
    return _verdict(verdicts), "; ".join(evidence)


def _tangent_shrinks(groups: Mapping[str, Depths]) -> tuple[str, str]:
    """Where the paper says so, against half the depth, paired over seeds."""
    verdicts, evidence = list[bool | None](), []
    for cell, depth in (("disease/lp", 32), ("airport/lp", 16)):
        gaps = gaps_to_none(groups.get(cell, {}), "tangent")
        here, before = gaps.get(depth, {}), gaps.get(depth // 2, {})
        changes = [here[seed] - before[seed] for seed in here.keys() & before.keys()]
        if len(changes) > 1:
            mean, low, high = _interval(changes)
            verdicts.append(None if low <= 0 <= high else high < 0)
            evidence.append(f"{cell}, {depth} layers against {depth // 2}: {mean:+.2f} ({low:+.2f} to {high:+.2f})")
    return _verdict(verdicts), "; ".join(evidence)


def _transport_breaks(groups: Mapping[str, Depths]) -> tuple[str, str]:
    """Of the published form; the boost stands beside it."""
    words = []
    for method in (_TEXTBOOK, "parallel_transport"):
        lost = _not_finite(groups, method)
        if lost:
            words.append(f"{_name(method)}, not finite: " + ", ".join(f"{sum(v)} of {len(v)} at {d}" for d, v in lost))
    return _verdict([one for depth, own in _not_finite(groups, _TEXTBOOK) if depth >= 16 for one in own]), "; ".join(
        words
    )


def _not_finite(groups: Mapping[str, Depths], method: str) -> list[tuple[int, list[bool]]]:
    """By depth, of each run on all data sets whether it diverged."""
    found: dict[int, list[bool]] = {}
    for own in groups.values():
        for depth, runs in own.get(method, {}).items():
            found.setdefault(depth, []).extend(run.get("value") is None for run in runs)
    return sorted(found.items())


def _verdict(found: Sequence[bool | None]) -> str:
    """Of a claim that is so in some cells and not in others; None: an interval that holds 0."""
    if not found:
        return NOT_MEASURED
    if any(found):
        return HOLDS if all(found) else IN_PART
    return _NO_DIFFERENCE if None in found else REFUTED


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the 95 % interval of the mean by Student's t."""
    mean = statistics.fmean(values)
    error = float(stats.sem(values)) * float(stats.t.ppf(0.975, len(values) - 1))
    return mean, mean - error, mean + error


_JUDGES: dict[str, Callable[[Mapping[str, Depths]], tuple[str, str]]] = {
    "the gap of lorentz over none widens with depth": _gap_widens,
    "tangent shrinks at 32 layers on disease and at 16 on airport": _tangent_shrinks,
    "parallel_transport yields NaN from 16 layers on": _transport_breaks,
}
