"""Numbers of the table ood: differences paired over seeds or on the same networks, and correlations, from its runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

__all__ = ["Cell", "Gap", "Runs", "first_protocol", "ood_runs", "residual_gaps", "score_gaps", "scores_of", "spearman"]

Run = Mapping[str, Any]
Runs = dict["Cell", dict[str, list[Run]]]
"""The final runs by cell and method."""


@dataclass(frozen=True, order=True)
class Cell:
    """A cell of the table under one protocol, e.g. CIFAR-10 against SVHN with ResNet-20."""

    protocol: str
    images: str
    ood: str
    network: str

    @property
    def training(self) -> str:
        """What three cells share: the images trained on and the network."""
        return f"{self.images}/{self.network}"


@dataclass(frozen=True)
class Gap:
    """A mean difference with its 95 % interval by Student's t."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1: above zero; -1: below; 0: the interval holds zero."""
        return (self.low > 0) - (self.high < 0)

    @classmethod
    def of(cls, values: Sequence[float]) -> Gap | None:
        """None: fewer than two values show no spread."""
        if len(values) < 2:
            return None
        mean = statistics.fmean(values)
        error = float(stats.sem(values)) * float(stats.t.ppf(0.975, len(values) - 1))
        return cls(mean, mean - error, mean + error)


def ood_runs(runs: Iterable[Run]) -> Runs:
    """The final runs of the table, diverged ones too, cells in order."""
    found: Runs = {}
    for run in runs:
        if run["table"] == "ood" and run.get("stage", "final") == "final":
            cell = Cell(run["protocol"], *run["cell"].split("/"))
            found.setdefault(cell, {}).setdefault(run["method"], []).append(run)
    return dict(sorted(found.items()))


def first_protocol(runs: Runs) -> Runs:
    """Of a cell with several protocols the first."""
    first = {(cell.training, cell.ood): cell for cell in reversed(runs)}
    return {cell: methods for cell, methods in runs.items() if first[cell.training, cell.ood] == cell}


def residual_gaps(runs: Runs, other: str) -> dict[Cell, Gap]:
    """AUROC of the Lorentz residual minus that of ``other``, paired over seeds, by cell."""
    found = {}
    for cell, methods in runs.items():
        ours, theirs = ({r["seed"]: r["value"] for r in _ended(methods.get(m, []))} for m in ("lorentz", other))
        if gap := Gap.of([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]):
            found[cell] = gap
    return found


def scores_of(runs: Runs, method: str) -> list[str]:
    """The scores beside the energy that networks of ``method`` have, in the order in which they first appear."""
    ended = [run for methods in runs.values() for run in _ended(methods.get(method, []))]
    return list(dict.fromkeys(score for run in ended for score in run["metrics"]["scores"]))


def score_gaps(runs: Runs, method: str, score: str) -> dict[Cell, Gap]:
    """AUROC of ``score`` minus that of the energy on the same networks of ``method``, by cell."""
    found = {}
    for cell, methods in runs.items():
        metrics = [run["metrics"] for run in _ended(methods.get(method, []))]
        if gap := Gap.of([m["scores"][score]["auroc"] - m["auroc"] for m in metrics if score in m["scores"]]):
            found[cell] = gap
    return found


def spearman(runs: Runs, method: str) -> dict[str, Gap]:
    """By training, the rank correlation of an embedding's distance from the origin with its confidence, over seeds."""
    values: dict[str, dict[int, float]] = {}
    for cell, methods in first_protocol(runs).items():
        for run in _ended(methods.get(method, [])):  # of one network the same in all its cells
            values.setdefault(cell.training, {})[run["seed"]] = run["norm_confidence"]["spearman"]
    gaps = {training: Gap.of(list(own.values())) for training, own in values.items()}
    return {training: gap for training, gap in gaps.items() if gap is not None}


def _ended(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.get("value") is not None]
