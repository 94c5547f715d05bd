"""Training curves: validation results of runs by epoch.

A run folder keeps its curve in ``curve.jsonl``, one line per validation pass: ``{"epoch": 5, "validation": 81.2}``, in
percent, or for a text in bits per byte. If an epoch is listed twice, the later line counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lresnet._files import has_file
from lresnet.plots.picture import GREY, INK, method_style, save_picture
from lresnet.runs.record import CURVE_FILE, require_undamaged
from lresnet.runs.report import finished_record
from lresnet.train.results import read_results

__all__ = ["CURVE_FILE", "Curve", "draw_curves", "read_curve"]

_LINE_STYLES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))  # for several runs of one method


class Curve(NamedTuple):
    """Validation results of one run."""

    name: str
    method: str
    epochs: tuple[int, ...]
    validation: tuple[float, ...]
    best_epoch: int
    unit: str = "percent"


def read_curve(folder: Path) -> Curve:
    """Return the curve of the run in ``folder``.

    Raises:
        FileNotFoundError: There is no run, or it has no curve.
        ValueError: The run has not finished, or its curve is damaged.
    """
    record = finished_record(folder)
    if has_file(folder / CURVE_FILE):
        require_undamaged(folder, record, [CURVE_FILE])
    lines = [line for line in read_results(folder / CURVE_FILE) if isinstance(line.get("epoch"), int)]
    by_epoch = {line["epoch"]: line.get("validation") for line in lines}
    known = sorted((epoch, value) for epoch, value in by_epoch.items() if _is_number(value))
    if not known:
        raise FileNotFoundError(f"{folder} has no curve: {CURVE_FILE} is missing or empty; train the run again")
    epochs, values = zip(*known, strict=True)
    unit = "percent" if record.text is None else "bits per byte"
    return Curve(record.name, record.method, epochs, values, record.best_epoch or epochs[-1], unit)


def draw_curves(path: str | Path, curves: Sequence[Curve]) -> Path:
    """Draw the curves and write the picture to ``path`` (.png, .svg or .pdf).

    A marker shows the epoch whose parameters were kept.

    Returns:
        The path of the picture.

    Raises:
        ValueError: ``curves`` is empty, or the curves have different units.
    """
    from matplotlib.figure import Figure

    if not curves:
        raise ValueError("there is no curve to draw; name at least one run folder")
    units = {curve.unit for curve in curves}
    if len(units) > 1:
        raise ValueError(f"curves in {' and '.join(sorted(units))} have no common axis; draw them in two pictures")
    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    axes = figure.subplots()
    drawn: dict[str, int] = {}
    for curve in curves:
        number = drawn[curve.method] = drawn.get(curve.method, -1) + 1
        colour, marker = method_style(curve.method)
        style = _LINE_STYLES[number % len(_LINE_STYLES)]
        (line,) = axes.plot(curve.epochs, curve.validation, color=colour, linestyle=style, linewidth=1.6)
        line.set_label(curve.name)
        kept = dict(zip(curve.epochs, curve.validation, strict=True)).get(curve.best_epoch)
        if kept is not None:
            axes.plot(curve.best_epoch, kept, marker=marker, color=colour, markersize=8, markeredgecolor="white")
    if units == {"percent"}:
        axes.set_ylim(top=min(100.0, axes.get_ylim()[1]))
    axes.set_xlabel("epoch", color=INK)
    axes.set_ylabel(f"validation, {units.pop()}", color=INK)
    axes.grid(color=GREY, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right" if curves[0].unit == "percent" else "upper right")
    return save_picture(figure, path)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
