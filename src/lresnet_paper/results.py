"""Lines of ``results/*.jsonl``: reading, checking, aggregation over runs, and the paper's order."""

from __future__ import annotations

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from lresnet.residual.registry import METHODS
from lresnet.runs.statistics import Summary, summarise, verdict_against_published
from lresnet.train.results import ResultsFile, read_results
from lresnet_paper.run import Run, on_paper_split, split_depth, split_name
from lresnet_paper.tables import paper_columns, paper_figure, paper_tables

__all__ = [
    "DIVERGED",
    "LABELS",
    "RUN_FIELDS",
    "STUDIES",
    "NoResults",
    "Result",
    "aggregate",
    "cell_key",
    "grouped",
    "in_order",
    "is_finite",
    "is_run",
    "key_of_line",
    "method_key",
    "method_label",
    "read_runs",
    "run_key",
    "study_file",
    "study_lines",
    "unique_runs",
]

T = TypeVar("T")

RUN_FIELDS = frozenset({"table", "cell", "method", "protocol", "seed"})
"""Fields that every run has. A line with fewer fields is something else, e.g. a benchmark."""
STUDIES = frozenset(
    {
        "ancestors",
        "collapse",
        "completion",
        "deep",
        "hierarchy_images",
        "selected_on_test",
        "splits",
        "transformers",
    }
)
"""Tables of our own studies, which the paper does not have; each has a page or a paragraph of its own."""
LABELS = {
    "lorentz_limit": "lorentz, K → 0",
    "lorentz_learned": "lorentz, learned K",
    "lorentz_per_layer": "lorentz, learned K per layer",
    "euclidean_l2": "euclidean, L2 attention",
}
"""Labels of methods that are no residual of their own; every other method is shown by its name."""
DIVERGED = "every run diverged"
"""The verdict on a method without a single finite run."""

_BY_LAYER = ("radius", "distance", "gradient")
_DETECTION = ("fpr95", "auroc", "aupr", "accuracy")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Return the runs in every results file of ``folder``.

    Lines that are no runs (benchmarks), lines of studies beyond the paper and lines marked ``missing`` are skipped. A
    line with the fields of a run but invalid values is skipped with a warning. If a run occurs twice, its later line
    counts.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"the results folder {folder} does not exist; `lresnet reproduce` writes one")
    found = list[dict[str, Any]]()
    for file in sorted(folder.glob("*.jsonl")):
        for record in read_results(file):
            if record.get("missing") or str(record.get("table")) in STUDIES:
                continue
            if is_run(record):
                found.append(record)
            elif record.keys() >= RUN_FIELDS:
                place = ", ".join(str(record[name]) for name in ("table", "cell", "method", "seed"))
                warnings.warn(f"{file}: skipped the run {place}: not in the format of this version", stacklevel=2)
    return unique_runs(found)


def key_of_line(line: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return :meth:`lresnet_paper.run.Run.key` of the run that a line is about; None: the line is not a valid run.

    Example:
        >>> run = Run("gnn", "disease/lp", "lorentz", "legacy", 0, {"lr": 0.1})
        >>> key_of_line(asdict(run) | {"value": 90.0}) == run.key(), key_of_line({"milliseconds": 3.0})
        (True, None)
    """
    known = Run.__dataclass_fields__
    if not (line.keys() >= known.keys() and is_run(line)):
        return None
    return Run(**{name: line[name] for name in known}).key()


def study_file(path: Path, table: str, key: Callable[[Mapping[str, Any]], Hashable]) -> ResultsFile:
    """Return the results file of a study, in which every training is once.

    Args:
        path: the file; other tables may be in it.
        table: the table of the study.
        key: returns what identifies the training of a line of the study.
    """
    return ResultsFile(path, key=lambda line: key(line) if line.get("table") == table else None)


def study_lines(path: Path, table: str, key: Callable[[Mapping[str, Any]], Hashable]) -> list[dict[str, Any]]:
    """Return the lines of a study, one for each training; of repeated ones the last.

    A line that is not of the study's form is skipped with a warning. The arguments are those of :func:`study_file`.
    """
    found = dict[Hashable, dict[str, Any]]()
    for line in read_results(path):
        if line.get("table") != table:
            continue
        try:
            if not is_run(line):
                raise ValueError("a field of a run is missing or has the wrong type")
            found[key(line)] = line
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            warnings.warn(f"{path}: skipped a line that is not one of the study {table}: {error}", stacklevel=2)
    return list(found.values())


def unique_runs(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every run once, in order of first appearance. If a run occurs twice, its later line counts."""
    return list({run_key(run): run for run in runs}.values())


def run_key(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what identifies a run. Two lines with the same key are the same run."""
    names = ("table", "cell", "method", "protocol", "seed", "split", "config")
    return *(repr(_sorted(record.get(name))) for name in names), record.get("stage", "final")


def _sorted(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value


# --- checking ---------------------------------------------------------------------------------------------------------


def is_run(record: Mapping[str, Any]) -> bool:
    """Whether a line is a valid run: all fields have the right type, and every number is finite or None.

    Example:
        >>> is_run({"table": "gnn", "cell": "cora/nc", "method": "none", "protocol": "legacy", "seed": 0})
        True
    """
    return (
        record.keys() >= RUN_FIELDS
        and all(isinstance(record[name], str) for name in RUN_FIELDS - {"seed"})
        and all(isinstance(record.get(name, ""), str) for name in ("stage", "command", "hardware"))
        and _is_integer(record["seed"])
        and (record.get("split") is None or _is_integer(record["split"]))
        and all(record.get(name) is None or is_finite(record[name]) for name in ("value", "validation", "seconds"))
        and all(isinstance(record.get(name, {}), dict) for name in ("config", "versions"))
        and isinstance(record.get("note", ""), str | None)
        and _TABLE_CHECKS.get(record["table"], _no_check)(record)
    )


def is_finite(value: Any) -> bool:
    """Whether a value from JSON is a finite number.

    Example:
        >>> is_finite(0), is_finite(True), is_finite(math.nan), is_finite("0")
        (True, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _no_check(record: Mapping[str, Any]) -> bool:
    return True


def _has_curvature(record: Mapping[str, Any]) -> bool:
    return is_finite(record.get("config", {}).get("curvature", -1.0))


def _has_layers(record: Mapping[str, Any]) -> bool:
    """Whether the values by layer, if there are any, are one per layer."""
    depth = split_depth(record["cell"])[1]
    given = [record[name] for name in ("initial_layers", "layers") if name in record]
    return all(
        isinstance(own, dict)
        and all(isinstance(own.get(name), list) and len(own[name]) == depth for name in _BY_LAYER)
        and all(value is None or is_finite(value) for name in _BY_LAYER for value in own[name])
        for own in given
    )


def _has_detection(record: Mapping[str, Any]) -> bool:
    """Whether a final run names images, OOD set and network, and has all metrics if it did not diverge."""
    if record.get("stage", "final") != "final":
        return True
    metrics, norms = record.get("metrics"), record.get("norm_confidence")
    return record["cell"].count("/") == 2 and (
        record.get("value") is None
        or (
            isinstance(metrics, dict)
            and all(is_finite(metrics.get(name)) for name in _DETECTION)
            and isinstance(metrics.get("scores"), dict)
            and all(isinstance(own, dict) and is_finite(own.get("auroc")) for own in metrics["scores"].values())
            and isinstance(norms, dict)
            and is_finite(norms.get("spearman"))
        )
    )


_TABLE_CHECKS = {"curvature": _has_curvature, "oversmoothing": _has_layers, "ood": _has_detection}
"""Additional checks by table."""


# --- aggregation ------------------------------------------------------------------------------------------------------


class NoResults(ValueError):
    """There are no results for a page or a picture yet. The message names the command that makes them."""


@dataclass(frozen=True)
class Result:
    """Mean and deviation of one cell, method and protocol over its final runs; percent, or seconds for runtimes.

    If every run diverged, n is 0 and mean and deviation are NaN.
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
    """The curvature in the table of curvatures: "-0.5", or "trainable"."""
    note: str | None = None
    """A caveat on the images in the table ood, e.g. that they are not the paper's."""

    @property
    def name(self) -> str:
        """The method, with the curvature in the table of curvatures."""
        return self.method if self.curvature is None else f"{self.method}, K = {self.curvature}"

    @property
    def label(self) -> str:
        """The name as tables show it."""
        return method_label(self.name)

    @property
    def runs(self) -> str:
        """The number of runs behind the mean: ``"10"``, or ``"9 of 10"`` if the tenth run diverged."""
        return f"{self.n} of {self.n + self.diverged}" if self.diverged else str(self.n)

    @property
    def verdict(self) -> str:
        """Our mean against the paper's: "better", "worse" or "no difference shown".

        Empty where no comparison is possible: the paper prints no deviation, we have a single run, or the split, the
        images (see ``note``) or the hardware (for runtimes) are not the paper's.
        """
        if not self.n:
            return DIVERGED
        if self.paper_mean is None or self.table == "runtime" or self.note:
            return ""
        if not on_paper_split(self.cell, self.protocol):
            return ""
        return verdict_against_published(Summary(self.mean, self.std, self.n), self.paper_mean, self.paper_std) or ""

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON: the paper's values are a nested object, unknown values are None."""
        own = {name: value for name, value in asdict(self).items() if not name.startswith("paper_")}
        if self.note is None:
            del own["note"]
        deviation = math.nan if self.n == 1 else self.std  # one run has none
        numbers = {"mean": self.mean, "std": deviation, "validation": self.validation}
        known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        paper = {"mean": self.paper_mean, "std": self.paper_std}
        return own | known | {"paper": paper, "verdict": self.verdict}


def aggregate(records: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return one result per table, cell, method, protocol and curvature, in order of first appearance."""
    groups: dict[tuple[str, str, str, str, str | None], list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        if record.get("stage", "final") == "final":
            own = record["table"], record["cell"], record["method"], record["protocol"]
            groups[*own, _curvature(record)].append(record)
    return [_result(*key, runs) for key, runs in groups.items()]


def _curvature(record: Mapping[str, Any]) -> str | None:
    config = record.get("config", {})
    if record["table"] != "curvature" or "curvature" not in config:
        return None
    return "trainable" if config.get("learn_curvature") else f"{config['curvature']:.1f}"


def _result(
    table: str,
    cell: str,
    method: str,
    protocol: str,
    curvature: str | None,
    runs: Sequence[Mapping[str, Any]],
) -> Result:
    summary = summarise(run["value"] for run in runs if run.get("value") is not None)
    validation = [run["validation"] for run in runs if run.get("validation") is not None]
    paper_mean, paper_std = paper_figure(table, cell, method, curvature)
    return Result(
        table=table,
        cell=cell,
        method=method,
        protocol=protocol,
        mean=summary.mean,
        std=0.0 if summary.n == 1 else summary.deviation,
        n=summary.n,
        diverged=len(runs) - summary.n,
        validation=summarise(validation).mean,
        paper_mean=paper_mean,
        paper_std=paper_std,
        curvature=curvature,
        note=runs[0].get("note"),
    )


# --- order ------------------------------------------------------------------------------------------------------------


def in_order(results: Sequence[Result]) -> list[Result]:
    """Return results in the paper's order of tables, cells and methods.

    Splits stay in order of first appearance; a second recipe on a split follows the first.

    Example:
        >>> in_order([])
        []
    """
    splits = list(dict.fromkeys(split_name(result.protocol) for result in results))
    return sorted(
        results,
        key=lambda f: (
            _table_key(f.table),
            cell_key(f.table, f.cell),
            splits.index(split_name(f.protocol)),
            f.protocol,
            method_key(f.method),
            f.curvature or "",
        ),
    )


def grouped(results: Iterable[T], name: Callable[[T], str]) -> dict[str, list[T]]:
    """Return results by ``name``, in order of first appearance.

    Example:
        >>> grouped([], lambda result: result.table)
        {}
    """
    groups: dict[str, list[T]] = {}
    for result in results:
        groups.setdefault(name(result), []).append(result)
    return groups


def method_key(method: str) -> tuple[int, int, str]:
    """Return a sort key: the order of the table of methods, then unknown methods by name.

    The limit of a method follows it: lorentz_limit after lorentz.
    """
    base = method.removesuffix("_limit")
    return (0, METHODS[base].table_rank, method) if base in METHODS else (1, 0, method)


def method_label(method: str) -> str:
    """Return the name of a method as tables show it.

    Example:
        >>> method_label("lorentz_limit"), method_label("lorentz")
        ('lorentz, K → 0', 'lorentz')
    """
    return LABELS.get(method, method)


def cell_key(table: str, cell: str) -> tuple[Any, ...]:
    """Return the sort key of a cell: the paper's columns first, then by name with numbers by size.

    Example:
        >>> sorted(["disease/lp/16", "disease/lp/4"], key=lambda cell: cell_key("oversmoothing", cell))
        ['disease/lp/4', 'disease/lp/16']
    """
    columns = paper_columns(table)
    parts = [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", cell)]
    return columns.index(cell) if cell in columns else len(columns), parts


def _table_key(table: str) -> tuple[int, str]:
    tables = list(paper_tables())
    return tables.index(table) if table in tables else len(tables), table
