"""The table of depths as sheets, a row a method and a column a depth: AUC, what Lorentz differs by, and why.

Two numbers tell why a deep network fails: how far its nodes lie apart after the last layer (over-smoothing), and how
much of the loss's gradient reaches the first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Group

from lresnet_paper.pages.depth_claims import depth_answers
from lresnet_paper.pages.depth_runs import (
    DEPTH_TABLE,
    Depths,
    all_runs_by_depth,
    depths_of,
    finite_values,
    gaps_to,
    shown_name,
)
from lresnet_paper.pages.ood_figures import Gap
from lresnet_paper.pages.sheets import Row, Sheet, sheet_markdown, sheet_terminal
from lresnet_paper.results import method_key

__all__ = ["DEPTH_READING", "depth_causes", "depth_markdown", "depth_sheets", "depth_terminal"]

DEPTH_READING = """\
Columns: the number of layers. Only it differs from the settings that the table gnn chose for each method at two or
three layers; no depth is tuned, but in the protocol *legacy-deep*, which searches the rate and the residual's weight at
each depth. *n of m*: the other runs were not finite, and *diverged*: none was."""
"""What the rows and columns of :func:`depth_sheets` are."""

_LOST = "not finite"
_PAIRED = (
    "Points, paired over seeds, with half the 95 % interval of the mean (Student's t); below zero Lorentz is worse."
)
_BEFORE = "Before training → after it; medians over the seeds, after training over the runs that ended well. "
_DISTANCE = f"{_BEFORE}Radii of curvature, of the twin plain lengths; what is below 1e-5 is rounding."
_GRADIENT = f"{_BEFORE}Norm of the loss's gradient at the output of the first layer."
_CAUSES = (
    ("mean distance between nodes after the last layer", _DISTANCE, "distance", -1),
    ("gradient at the first layer", _GRADIENT, "gradient", 0),
)


def depth_sheets(runs: Iterable[Mapping[str, Any]]) -> list[Sheet]:
    """For each data set: AUC, and Lorentz minus the others.

    Example:
        >>> depth_sheets([])
        []
    """
    sheets = []
    for cell, own in all_runs_by_depth(runs).items():
        note = "Percent, mean ± deviation over the seeds."
        sheets.append(Sheet(f"{cell}: AUC", note, _columns(own), _rows(own, _figure)))
        sheets.append(Sheet(f"{cell}: Lorentz minus the other", _PAIRED, _columns(own), _gap_rows(own)))
    return sheets


def depth_causes(runs: Iterable[Mapping[str, Any]]) -> list[Sheet]:
    """For each data set: distances after the last layer, and gradients at the first, before and after training."""
    sheets = []
    for cell, own in all_runs_by_depth(runs).items():
        for title, note, name, layer in _CAUSES:
            words = partial(_before_and_after, name=name, layer=layer)
            sheets.append(Sheet(f"{cell}: {title}", note, _columns(own), _rows(own, words)))
    return sheets


def _columns(own: Depths) -> tuple[str, ...]:
    return tuple(str(depth) for depth in depths_of(own))


def _rows(own: Depths, words: Callable[[Sequence[Mapping[str, Any]]], str]) -> list[Row]:
    return [
        Row(shown_name(method), tuple(words(own[method].get(depth, [])) for depth in depths_of(own)))
        for method in sorted(own, key=method_key)
    ]


def _gap_rows(own: Depths) -> list[Row]:
    rows = []
    for method in sorted(own, key=method_key):
        if method != "lorentz":
            gaps = gaps_to(method, own, "lorentz")
            rows.append(Row(shown_name(method), tuple(_gap(gaps.get(depth, {})) for depth in depths_of(own))))
    return rows


def _gap(gaps: Mapping[int, float]) -> str:
    gap = Gap.of(list(gaps.values()))
    return "" if gap is None else f"{gap.mean:+.1f} ± {gap.high - gap.mean:.1f}"


def _figure(runs: Sequence[Mapping[str, Any]]) -> str:
    values = list(finite_values(runs).values())
    if not values:
        return "diverged" if runs else ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}" + (
        f" ({len(values)} of {len(runs)})" if len(values) < len(runs) else ""
    )


def _before_and_after(runs: Sequence[Mapping[str, Any]], name: str, layer: int) -> str:
    before = [run["initial_layers"][name][layer] for run in runs if "initial_layers" in run]
    after = [run["layers"][name][layer] for run in runs if "layers" in run]
    if not before:
        return ""
    first = _median(before)
    return f"{first} → {_median(after)}" if after else "diverged" if first == _LOST else f"{first} → diverged"


def _median(values: Sequence[float | None]) -> str:
    """None, which is a number that is not finite, counts as larger than all others."""
    if not values:
        return ""
    middle = statistics.median(math.inf if value is None else value for value in values)
    if 0 < middle < 0.01 or 1e4 <= middle < math.inf:
        digits, exponent = f"{middle:.0e}".split("e")
        return f"{digits}e{int(exponent)}"
    return _LOST if middle == math.inf else f"{middle:.0f}" if middle >= 100 else f"{middle:.2g}"


def depth_markdown(runs: Iterable[Mapping[str, Any]]) -> str:
    """The answers to the paper's claims of depth, how to read the sheets, and the sheets; empty without runs."""
    lines = list(runs)
    sheets = depth_sheets(lines) + depth_causes(lines)
    if not sheets:
        return ""
    answers = "; ".join(f"{claim.sentence}: **{claim.verdict}**" for claim in depth_answers(lines))
    return "\n\n".join([f"{answers[0].upper()}{answers[1:]}.", DEPTH_READING, *map(sheet_markdown, sheets)])


def depth_terminal(runs: Iterable[Mapping[str, Any]]) -> Group:
    """What :func:`depth_sheets` has, for a terminal of 80 columns."""
    return Group(*(sheet_terminal(DEPTH_TABLE, sheet) for sheet in depth_sheets(runs)))
