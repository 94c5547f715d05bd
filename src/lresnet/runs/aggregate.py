"""Results to figures: mean and deviation over runs, beside the paper's."""

from __future__ import annotations

import math
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lresnet.runs.run_line import RUN_FIELDS, is_run, run_key
from lresnet.train.results import read_results
from lresnet_paper import recipes

__all__ = ["DIVERGED", "Figure", "aggregate", "paper_detection", "paper_figure", "read_runs"]

DIVERGED = "every run diverged"
"""The verdict on a method without a single finite run."""

# Where the paper's row has another name than the method.
_ROWS = {
    ("commutativity", "parallel_transport"): "forward",
    ("commutativity", "parallel_transport_reversed"): "backward",
}


@dataclass(frozen=True)
class Figure:
    """One cell, method and protocol, over its final runs; percent, of runtimes seconds.

    Where every run diverged, n is 0 and mean and deviation are NaN.
    """

    table: str
    cell: str
    method: str
    protocol: str
    mean: float
    std: float
    n: int
    diverged: int
    validation: float
    paper_mean: float | None
    paper_std: float | None
    curvature: str | None = None
    """In the table of curvatures, which one: "-0.5", or "trainable"."""
    settings: str | None = None
    """Of a user's runs, what tells them from others by the same method: "lr 0.1"."""
    note: str | None = None
    """What to know of the images, in the table of detection: that they are not the paper's, say."""

    @property
    def name(self) -> str:
        """The method, and in the table of curvatures which one; of a user's runs the settings that differ."""
        own = self.method if self.curvature is None else f"{self.method}, K = {self.curvature}"
        return own if self.settings is None else f"{own}, {self.settings}"

    @property
    def standard_error(self) -> float:
        return self.std / math.sqrt(self.n) if self.n else math.nan

    @property
    def runs(self) -> str:
        """How many runs the mean is over: ``"10"``, or ``"9 of 10"``, the tenth of which diverged."""
        return f"{self.n} of {self.n + self.diverged}" if self.diverged else str(self.n)

    @property
    def verdict(self) -> str:
        """Our mean against the paper's: more than one standard error above it, within, or below.

        Nothing is said of seconds, which were taken on another card, and of figures on other images than the paper's.
        """
        if not self.n:
            return DIVERGED
        if self.paper_mean is None or self.table == "runtime" or self.note:
            return ""
        gap = self.mean - self.paper_mean
        return "within one s.e." if abs(gap) <= self.standard_error else ("better" if gap > 0 else "worse")

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the paper's figures as a table of their own; what is not known is None."""
        own = {name: value for name, value in asdict(self).items() if not name.startswith("paper_")}
        for name in ("note", "settings"):
            if own[name] is None:
                del own[name]
        deviation = math.nan if self.n == 1 else self.std  # one run has none
        numbers = {"mean": self.mean, "std": deviation, "validation": self.validation}
        known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        paper = {"mean": self.paper_mean, "std": self.paper_std}
        return own | known | {"paper": paper, "verdict": self.verdict}


def aggregate(records: Iterable[dict[str, Any]]) -> list[Figure]:
    """Group final runs by table, cell, method and protocol, in the table of curvatures by these too, and a user's runs
    by the settings that differ; in the order in which they first appear."""
    groups: dict[tuple[str, str, str, str, str | None, str | None], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        if record.get("stage", "final") == "final":
            own = record["table"], record["cell"], record["method"], record["protocol"]
            groups[*own, _curvature(record), record.get("settings")].append(record)
    return [_figure(*key, runs) for key, runs in groups.items()]


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs of every results file of ``folder``; lines that are no runs (a benchmark's) are passed over, and so is
    what is ``missing``: geoopt has no Lorentz residual that could be timed.

    A line that has the fields of a run and something else in them, as another version or a broken program may leave
    it, is passed over with a warning. A run that stands there twice counts once, as its later line says.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} with results; `lresnet reproduce` writes them")
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for record in read_results(file):
            if record.get("missing"):
                continue
            if is_run(record):
                found[run_key(record)] = record
            elif record.keys() >= RUN_FIELDS:
                place = ", ".join(str(record[name]) for name in ("table", "cell", "method", "seed"))
                warnings.warn(f"{file}: the run {place} is not as this version writes it, passed over", stacklevel=2)
    return list(found.values())


def paper_figure(table: str, cell: str, method: str, curvature: str | None = None) -> tuple[float | None, float | None]:
    """Mean and deviation that the paper prints, as far as it does: runtimes have no deviation.

    Example:
        >>> paper_figure("gnn", "disease/lp", "lorentz")
        (97.3, 0.4)
    """
    if table == "ood":
        return paper_detection(cell, method).get("auroc"), None
    columns = recipes.paper().get(table, {})
    row = curvature or _ROWS.get((table, method), method)
    if cell not in columns.get("columns", []) or row not in columns:
        return None, None
    printed = columns[row][columns["columns"].index(cell)]
    mean, std = printed if isinstance(printed, list) else (printed, None)
    return mean, std


def paper_detection(cell: str, row: str) -> dict[str, float]:
    """What the paper prints in its table of detection, by metric; nothing where it has no such cell or row.

    Example:
        >>> paper_detection("cifar10/svhn/r20", "lorentz")
        {'fpr95': 39.0, 'auroc': 90.8, 'aupr': 98.0}
    """
    table, (images, ood, network) = recipes.paper()["ood"], cell.split("/")
    printed = table.get(images, {}).get(ood, {}).get(row, [])
    column = {"r20": 0, "r32": 1}.get(network)
    return {} if column is None else {name: own[column] for name, own in zip(table["metrics"], printed, strict=False)}


def _curvature(record: dict[str, Any]) -> str | None:
    config = record.get("config", {})
    if record["table"] != "curvature" or "curvature" not in config:
        return None
    return "trainable" if config.get("learn_curvature") else f"{config['curvature']:.1f}"


def _figure(
    table: str,
    cell: str,
    method: str,
    protocol: str,
    curvature: str | None,
    settings: str | None,
    runs: list[dict[str, Any]],
) -> Figure:
    values = [run["value"] for run in runs if run.get("value") is not None]
    validation = [run["validation"] for run in runs if run.get("validation") is not None]
    paper = paper_figure(table, cell, method, curvature)
    return Figure(
        table,
        cell,
        method,
        protocol,
        statistics.fmean(values) if values else math.nan,
        statistics.stdev(values) if len(values) > 1 else 0.0 if values else math.nan,
        len(values),
        len(runs) - len(values),
        statistics.fmean(validation) if validation else float("nan"),
        paper[0],
        paper[1],
        curvature,
        settings,
        runs[0].get("note"),
    )
