"""Training curves: the validation figure of runs, epoch by epoch.

A run's folder keeps its curve in ``curve.jsonl``, a line a look at the validation set:
``{"epoch": 5, "validation": 81.2}``, in percent, the best so far where the schedule keeps the best parameters. A run
that was resumed may have an epoch twice; the later line counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lresnet.plots.palette import method_look
from lresnet.runs.run_folders import whole_run
from lresnet.train.results import read_results
from lresnet_paper.results import is_finite

__all__ = ["CURVE_FILE", "Curve", "draw_curves", "read_curve"]

CURVE_FILE = "curve.jsonl"
_INK = "#222222"
_STYLES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))  # runs of one method, told apart without colour


class Curve(NamedTuple):
    """The validation figures of one run."""

    name: str
    method: str
    epochs: tuple[int, ...]
    validation: tuple[float, ...]
    best_epoch: int


def read_curve(folder: Path) -> Curve:
    """The curve of the run in ``folder``.

    Raises:
        FileNotFoundError: there is no run, or it has no curve.
        ValueError: the run has not finished.
    """
    record = whole_run(folder)
    lines = [line for line in read_results(folder / CURVE_FILE) if isinstance(line.get("epoch"), int)]
    later = {line["epoch"]: line.get("validation") for line in lines}
    looked = sorted((epoch, value) for epoch, value in later.items() if is_finite(value))
    if not looked:
        raise FileNotFoundError(f"{folder} has no curve: {CURVE_FILE} is missing or empty; train the run again for one")
    epochs, values = zip(*looked, strict=True)
    name = f"{record['cell']}, {record['method']}, seed {record['seed']}"
    best = record.get("best_epoch")
    return Curve(name, record["method"], epochs, values, best if isinstance(best, int) else epochs[-1])


def draw_curves(path: str | Path, curves: Sequence[Curve]) -> Path:
    """Draw the curves, a mark where the parameters were kept, and write the picture to ``path`` (.png, .svg or .pdf).

    Returns:
        The path of the picture.

    Raises:
        ValueError: there is no curve.
    """
    from matplotlib.figure import Figure

    if not curves:
        raise ValueError("there is no curve to draw; name the folder of a run at least")
    path = Path(path)
    figure = Figure(figsize=(8.4, 4.6), facecolor="white", layout="constrained")
    axes = figure.subplots()
    seen: dict[str, int] = {}
    for curve in curves:
        number = seen[curve.method] = seen.get(curve.method, -1) + 1
        colour, marker = method_look(curve.method)
        style = _STYLES[number % len(_STYLES)]
        (line,) = axes.plot(curve.epochs, curve.validation, color=colour, linestyle=style, linewidth=1.6)
        line.set_label(curve.name)
        kept = dict(zip(curve.epochs, curve.validation, strict=True)).get(curve.best_epoch)
        if kept is not None:
            axes.plot(curve.best_epoch, kept, marker=marker, color=colour, markersize=8, markeredgecolor="white")
    axes.set_xlabel("epoch", color=_INK)
    axes.set_ylabel("validation, percent", color=_INK)
    axes.grid(color="#8C8C8C", alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    figure.savefig(path, dpi=160, metadata={"Software": None} if path.suffix == ".png" else None)
    return path
