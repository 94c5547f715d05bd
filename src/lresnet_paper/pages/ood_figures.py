"""Numbers of the table ood: differences paired over seeds or on the same networks, and correlations, from its runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from scipy import stats

__all__ = [
    "Cell",
    "Gap",
    "Runs",
    "first_protocol",
    "ood_runs",
    "residual_gaps",
    "score_gaps",
    "scores_of",
    "spearman",
    "training_residual_gaps",
    "training_score_gaps",
]

K = TypeVar("K")
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
    n: int = 0
    """Values that it is the mean of."""

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
        return cls(mean, mean - error, mean + error, len(values))


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


def residual_gaps(runs: Runs, other: str, metric: str = "auroc") -> dict[Cell, Gap]:
    """``metric`` of the Lorentz residual minus that of ``other``, paired over seeds, by cell."""
    return _gaps({cell: _residual_differences(methods, other, metric) for cell, methods in runs.items()})


def training_residual_gaps(runs: Runs, other: str, metric: str = "auroc") -> dict[str, Gap]:
    """The same by training, of the mean over its sets: one test for networks that three cells share."""
    return _gaps(_over_sets({cell: _residual_differences(own, other, metric) for cell, own in runs.items()}))


def scores_of(runs: Runs, method: str) -> list[str]:
    """The scores beside the energy that networks of ``method`` have, in the order in which they first appear."""
    ended = [run for methods in runs.values() for run in _ended(methods.get(method, []))]
    return list(dict.fromkeys(score for run in ended for score in run["metrics"]["scores"]))


def score_gaps(runs: Runs, method: str, score: str) -> dict[Cell, Gap]:
    """AUROC of ``score`` minus that of the energy on the same networks of ``method``, by cell."""
    return _gaps({cell: _score_differences(methods.get(method, []), score) for cell, methods in runs.items()})


def training_score_gaps(runs: Runs, method: str, score: str) -> dict[str, Gap]:
    """The same by training, of the mean over its sets."""
    return _gaps(_over_sets({cell: _score_differences(own.get(method, []), score) for cell, own in runs.items()}))


def spearman(runs: Runs, method: str) -> dict[str, Gap]:
    """By training, the rank correlation of an embedding's distance from the origin with its confidence, over seeds."""
    values: dict[str, dict[int, float]] = {}
    for cell, methods in first_protocol(runs).items():
        for run in _ended(methods.get(method, [])):  # of one network the same in all its cells
            values.setdefault(cell.training, {})[run["seed"]] = run["norm_confidence"]["spearman"]
    gaps = {training: Gap.of(list(own.values())) for training, own in values.items()}
    return {training: gap for training, gap in gaps.items() if gap is not None}


def _residual_differences(methods: Mapping[str, Sequence[Run]], other: str, metric: str) -> dict[int, float]:
    """By seed, where both have one."""
    ours, theirs = (
        {run["seed"]: run["metrics"][metric] for run in _ended(methods.get(method, []))}
        for method in ("lorentz", other)
    )
    return {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}


def _score_differences(runs: Sequence[Run], score: str) -> dict[int, float]:
    """By seed, where the networks have this score."""
    metrics = {run["seed"]: run["metrics"] for run in _ended(runs)}
    return {seed: m["scores"][score]["auroc"] - m["auroc"] for seed, m in metrics.items() if score in m["scores"]}


def _over_sets(found: Mapping[Cell, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """By training and seed, the mean over the sets, as far as all of them have this seed."""
    trainings: dict[str, list[Mapping[int, float]]] = {}
    for cell, own in found.items():
        trainings.setdefault(cell.training, []).append(own)
    means: dict[str, dict[int, float]] = {}
    for training, sets in trainings.items():
        seeds = sorted(set.intersection(*map(set, sets)))
        means[training] = {seed: statistics.fmean(own[seed] for own in sets) for seed in seeds}
    return means


def _gaps(differences: Mapping[K, Mapping[int, float]]) -> dict[K, Gap]:
    found = {key: Gap.of(list(own.values())) for key, own in differences.items()}
    return {key: gap for key, gap in found.items() if gap is not None}


def _ended(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.get("value") is not None]
