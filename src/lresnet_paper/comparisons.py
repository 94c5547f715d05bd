"""Comparisons of the Lorentz residual with other methods in the paper's tables: paired, with Holm's correction.

A comparison is paired over seeds on a fixed split, and is then about that split. Over resampled splits the interval is
Nadeau and Bengio's, and several seeds on one split are averaged first. The verdicts of all comparisons in one table are
corrected together. Non-inferiority is about one interval each, without a correction, and needs a margin that the recipe
states.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lresnet.data import TASKS
from lresnet.data.split_names import test_per_train
from lresnet.runs.statistics import (
    Estimate,
    Verdict,
    is_non_inferior,
    paired_difference,
    resampled_difference,
    verdicts,
)
from lresnet_paper.plan import non_inferiority_margin
from lresnet_paper.run import graph_cell, split_name, text_cell

__all__ = ["Comparison", "compare_methods", "family_verdicts", "resampling_ratio"]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Comparison:
    """The difference between the Lorentz residual and another method in one cell, in percentage points.

    For a text it is in bits per byte, and negative where Lorentz is better.
    """

    table: str
    cell: str
    protocol: str
    method: str
    """The other method."""
    difference: Estimate
    """Lorentz minus the other method."""
    verdict: Verdict
    """On the Lorentz residual, after Holm's correction within the table."""
    margin: float | None = None
    """The margin of non-inferiority that the recipe states."""

    @property
    def non_inferior(self) -> bool | None:
        """Whether Lorentz is at most the margin worse: the interval is above -margin. None without a margin."""
        return None if self.margin is None else is_non_inferior(self.difference, self.margin)


def compare_methods(runs: Iterable[Mapping[str, Any]], method: str = "lorentz") -> list[Comparison]:
    """Compare ``method`` with every other method that shares at least two runs with it in a cell.

    Args:
        runs: lines of results; only final runs that did not diverge count.
        method: the method whose differences are taken.

    Example:
        >>> runs = [
        ...     {"table": "gnn", "cell": "cora/nc", "protocol": "legacy", "method": name, "seed": seed, "value": value}
        ...     for name, values in {"lorentz": (80.0, 82.0), "none": (79.0, 80.9)}.items()
        ...     for seed, value in enumerate(values)
        ... ]
        >>> [(one.method, round(one.difference.mean, 2), one.verdict) for one in compare_methods(runs)]
        [('none', 1.05, 'better')]
    """
    values: dict[tuple[str, str, str], dict[str, dict[tuple[Any, Any], float]]] = {}
    for run in runs:
        if run.get("stage", "final") == "final" and run.get("value") is not None:
            methods = values.setdefault((run["table"], run["cell"], run["protocol"]), {})
            methods.setdefault(run["method"], {})[run["seed"], run.get("split")] = run["value"]
    differences: dict[tuple[str, str, str, str], Estimate] = {}
    for (table, cell, protocol), methods in values.items():
        for other, theirs in methods.items():
            if other != method and (found := _difference(cell, protocol, methods.get(method, {}), theirs)):
                differences[table, cell, protocol, other] = found
    tables = dict.fromkeys(key[0] for key in differences)
    decided = [
        family_verdicts(
            {key: -own if text_cell(key[1]) else own for key, own in differences.items() if key[0] == table}
        ).items()
        for table in tables
    ]
    by_key = {key: verdict for own in decided for key, verdict in own}
    return [
        Comparison(*key, difference, by_key[key], non_inferiority_margin(*key[:3]))
        for key, difference in differences.items()
    ]


def family_verdicts(family: Mapping[K, Estimate]) -> dict[K, Verdict]:
    """Return the verdicts of a family of comparisons by key, after Holm's correction."""
    return dict(zip(family, verdicts(list(family.values())), strict=True))


def resampling_ratio(cell: str, protocol: str) -> float | None:
    """Return the ratio of test to training examples where splits are resampled; None for a fixed split.

    Example:
        >>> resampling_ratio("cora/nc", "legacy"), round(resampling_ratio("airport/nc", "disjoint"), 3)
        (None, 0.214)
    """
    task = graph_cell(cell)
    return None if task is None else test_per_train(TASKS[task], split_name(protocol))


def _difference(
    cell: str, protocol: str, ours: Mapping[tuple[Any, Any], float], theirs: Mapping[tuple[Any, Any], float]
) -> Estimate | None:
    ratio = resampling_ratio(cell, protocol)
    if ratio is None:
        return paired_difference(ours, theirs)
    return resampled_difference(ours, theirs, test_per_train=ratio, split_of=_split_of)


def _split_of(run: tuple[Any, Any]) -> Any:
    """Return what tells the splits of two runs apart: the number of the split, or the seed that draws it."""
    seed, split = run
    return seed if split is None else split
