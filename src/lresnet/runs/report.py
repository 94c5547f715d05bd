"""Report of a user's own runs: folders, means over seeds and splits, differences to the Euclidean baseline."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lresnet._metric_names import digits, is_text_metric
from lresnet._version import __version__
from lresnet.data.registry import TASKS
from lresnet.data.source import HIERARCHY_SPLITS
from lresnet.data.split_names import SPLITS, test_per_train
from lresnet.metrics.untrained_links import UNTRAINED_SCORES, UntrainedScore
from lresnet.residual.registry import METHODS
from lresnet.runs.graph_search import read_trials
from lresnet.runs.record import RunRecord, read_own_evaluation, read_record
from lresnet.runs.statistics import (
    Estimate,
    Summary,
    Verdict,
    paired_difference,
    resampled_difference,
    summarise,
    verdicts,
)

__all__ = [
    "BASELINE",
    "BaselineDifference",
    "DeviceTime",
    "FolderState",
    "Report",
    "RunGroup",
    "RunRecord",
    "UntrainedResult",
    "computing_time",
    "finished_record",
    "folder_states",
    "group_runs",
    "read_report",
    "record_of",
    "report_json",
    "settings_apart",
    "settings_of",
    "shown",
    "untrained_result",
]

BASELINE = "euclidean"
"""The method that the others are compared with."""

_DEFAULT = "default"  # shown for a setting that a run leaves to the library


@dataclass(frozen=True)
class FolderState:
    """A run folder and its state in words, with its record if the run has been evaluated.

    Args:
        is_damaged: Whether its files cannot be read.
    """

    folder: Path
    state: str
    record: RunRecord | None = None
    is_damaged: bool = False


@dataclass(frozen=True)
class BaselineDifference:
    """Difference of a group to the Euclidean baseline.

    Args:
        estimate: Mean difference over the runs that share seed and split, with its 95 % interval.
        verdict: What the interval shows, after Holm's correction over all comparisons of the same task and split.
        settings: Settings in which the two groups differ, in words; empty if they are equal.
        resampled: Whether the pairs have different splits; the interval is then that of Nadeau and Bengio.
    """

    estimate: Estimate
    verdict: Verdict
    settings: str
    resampled: bool


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in seed or split index only.

    Args:
        task: Name of the task; for a user's graph its file and what is learned, e.g. ``"friends.csv, link"``.
        split: Name of the split, or of its file; empty for a task with a single one.
        method: The residual connection.
        differs: Settings that differ from other runs of the same task, split and method.
        runs: Folder and record of each run.
        metrics: Summary of each test metric, the main one first.
        validation: Summary of the validation results.
        difference: Difference to the Euclidean baseline, where there is one.
    """

    task: str
    split: str
    method: str
    differs: Mapping[str, Any]
    runs: Sequence[tuple[Path, RunRecord]]
    metrics: Mapping[str, Summary]
    validation: Summary
    difference: BaselineDifference | None = None

    @property
    def name(self) -> str:
        """The method with the settings that differ, e.g. ``"lorentz, lr 0.1"``."""
        return ", ".join([self.method, *(f"{name} {shown(value)}" for name, value in self.differs.items())])

    @property
    def title(self) -> str:
        """The task, with the name of its split if there is one."""
        return f"{self.task}, {self.split}" if self.split else self.task

    @property
    def metric(self) -> str:
        """Name of the main metric."""
        return next(iter(self.metrics))

    @property
    def test(self) -> Summary:
        """Summary of the main metric."""
        return self.metrics[self.metric]

    @property
    def unit(self) -> str:
        """Unit of the main metric: percent, or none for bits per byte."""
        return "" if is_text_metric(self.metric) else "percent"

    @property
    def spec(self) -> str:
        """Format of the main metric, e.g. ``".2f"``."""
        return f".{digits(self.metric)}f"

    @property
    def other_metrics(self) -> str:
        """The metrics after the main one, e.g. ``"average_precision 92.03 ± 0.50"``; empty if there are none."""
        return ", ".join(
            f"{name} {value:.{digits(name)}f}" for name, value in self.metrics.items() if name != self.metric
        )

    @property
    def search_trials(self) -> list[int]:
        """Number of trials of the search that chose the settings of each run; 0: its settings were given."""
        return [len(read_trials(folder)) for folder, _ in self.runs]

    @property
    def records(self) -> list[RunRecord]:
        """The record of each run."""
        return [record for _, record in self.runs]

    @property
    def values(self) -> dict[tuple[int, int | None], float]:
        """The main metric by seed and split index."""
        return {(record.seed, record.split_index): _main_value(record) for _, record in self.runs}


@dataclass(frozen=True)
class UntrainedResult:
    """The best untrained score of link prediction over several runs, see :class:`lresnet.metrics.UntrainedScore`.

    Args:
        label: The score in words.
        test: Summary of the test metric that the runs report first.
        validation: Summary of the validation metric, which chose the score.
    """

    label: str
    test: Summary
    validation: Summary


@dataclass(frozen=True)
class DeviceTime:
    """Training time of all runs on GPUs or on CPUs."""

    kind: str
    runs: int
    seconds: float
    hardware: Sequence[str]


@dataclass(frozen=True)
class Report:
    """The run folders below ``root`` and the groups of evaluated runs."""

    root: Path
    folders: Sequence[FolderState]
    groups: Sequence[RunGroup]

    @property
    def records(self) -> list[RunRecord]:
        """The records of all evaluated runs."""
        return [state.record for state in self.folders if state.record is not None]

    @property
    def tables(self) -> dict[str, list[RunGroup]]:
        """The groups by task and split, with the title of each table."""
        return _by_title(self.groups)


def read_report(root: Path) -> Report:
    """Read every run folder directly in ``root``, or ``root`` itself if it is one. Nothing is computed on data.

    Raises:
        FileNotFoundError: The folder does not exist.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{root} does not exist; `lresnet train --out FOLDER` writes run folders")
    states = folder_states(root)
    evaluated = [(state.folder, state.record) for state in states if state.record is not None]
    return Report(root, states, group_runs(evaluated))


def folder_states(root: Path) -> list[FolderState]:
    """Return the state of every run folder directly in ``root``, and of ``root`` itself if it is one.

    A folder that is unfinished, damaged, from another version or private is listed with its state; it is not an error.

    Raises:
        PermissionError: ``root`` cannot be listed.

    Example:
        >>> folder_states(Path("nowhere"))
        []
    """
    if not root.is_dir():
        return []
    if _may_be_run(root) and not os.access(root, os.R_OK):
        return [_state(root)]
    return [_state(folder) for folder in [root, *sorted(root.iterdir())] if _may_be_run(folder)]


def _may_be_run(folder: Path) -> bool:
    """Whether a folder has ``run.json``, or the user may not know."""
    try:
        (folder / "run.json").lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def finished_record(folder: Path) -> RunRecord:
    """Return the record of a finished run.

    Raises:
        FileNotFoundError: The folder holds no run.
        ValueError: The run has not finished, or its record is damaged.
    """
    record = record_of(folder)
    if not record.finished:
        raise ValueError(_unfinished(folder))
    return record


def _unfinished(folder: Path) -> str:
    return f"the run in {folder} has not finished; `lresnet train` with the same options resumes it"


def group_runs(runs: Iterable[tuple[Path, RunRecord]]) -> list[RunGroup]:
    """Group evaluated runs that differ in seed or split index only, and compare each group with the baseline.

    Groups are sorted by task, split and method. Where runs of one task, split and method have different settings, each
    group names the settings that differ. Settings are compared among runs of the same model only.
    """
    places: dict[tuple[str, str, str], list[tuple[Path, RunRecord]]] = {}
    members = list(runs)
    titles, splits = _task_titles([record for _, record in members]), _split_titles([record for _, record in members])
    for title, split, (folder, record) in zip(titles, splits, members, strict=True):
        place = title, split, record.method
        places.setdefault(place, []).append((folder, record))
    groups = [
        _group(place, differs, own)
        for place, found in sorted(places.items(), key=lambda item: _order(item[0]))
        for differs, own in _by_settings(found)
    ]
    return [group for own in _by_title(groups).values() for group in _compared(own)]


def untrained_result(records: Iterable[RunRecord]) -> UntrainedResult | None:
    """Return the untrained score with the highest mean on validation pairs; None: no run recorded any.

    Args:
        records: Runs on one task and split. Of runs with the same seed and split index the first one counts, because
            an untrained score is the same for all methods.
    """
    runs: dict[tuple[int, int | None], list[UntrainedScore]] = {}
    for record in records:
        if record.untrained:
            runs.setdefault((record.seed, record.split_index), record.untrained_scores)
    found: dict[str, list[UntrainedScore]] = {}
    for scores in runs.values():
        for score in scores:
            found.setdefault(score.name, []).append(score)
    complete = {name: own for name, own in found.items() if len(own) == len(runs)}
    if not complete:
        return None
    validation = {name: summarise(score.validation for score in own) for name, own in complete.items()}
    best = max(validation, key=lambda name: validation[name].mean)
    labels = {score.label for score in complete[best]}
    test = summarise(score.value for score in complete[best] if score.value is not None)
    return UntrainedResult(labels.pop() if len(labels) == 1 else UNTRAINED_SCORES[best], test, validation[best])


def settings_of(record: RunRecord) -> dict[str, Any]:
    """Return all settings of a run except method, seed and split, with the model's name as ``"model"``."""
    return {
        "model": record.model.get("name") or _DEFAULT,
        **_without(record.task, "name", "split", "split_index", "drop_columns"),  # the title names the columns
        **_without(record.model, "name", "residual"),
        **_without(record.train, "seed", "augment"),
        **record.train.get("augment", {}),
    }


def settings_apart(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the settings in which two runs differ, e.g. ``"lr 0.05 against 0.01"``."""
    names = dict.fromkeys([*own, *other])
    pairs = ((name, _setting(own, name), _setting(other, name)) for name in names)
    return ", ".join(f"{name} {shown(here)} against {shown(there)}" for name, here, there in pairs if here != there)


def computing_time(records: Iterable[RunRecord]) -> list[DeviceTime]:
    """Return the training time on GPUs and on CPUs, for the kinds of device that were used."""
    kinds: dict[str, list[RunRecord]] = {"GPU": [], "CPU": []}
    for record in records:
        kinds["CPU" if record.hardware.startswith("CPU") else "GPU"].append(record)
    return [
        DeviceTime(
            kind, len(own), sum(record.seconds or 0.0 for record in own), tuple(dict.fromkeys(r.hardware for r in own))
        )
        for kind, own in kinds.items()
        if own
    ]


def report_json(report: Report) -> str:
    """Return the groups as a JSON list of objects, in percent unless the metric has another unit; the
    deviation of a single run is null."""
    return json.dumps([_json_object(group) for group in report.groups], indent=2, allow_nan=False)


def shown(value: Any) -> str:
    """Return a setting's value as text; whole and equal numbers look equal.

    Example:
        >>> shown(5.0), shown(0.1), shown(None)
        ('5', '0.1', 'None')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else str(value)


# Reading a folder ----------------------------------------------------------------------------------------------------


def record_of(folder: Path) -> RunRecord:
    """Read ``run.json`` of a folder, with the metrics of ``evaluation.json`` if it is there.

    Raises:
        FileNotFoundError: The folder holds no run.
        ValueError: A file is damaged or from an incompatible version.
    """
    record = read_record(folder)
    if record is None:
        raise FileNotFoundError(f"{folder} holds no run: run.json is missing (`lresnet train` writes it)")
    evaluation = read_own_evaluation(folder, record)
    if evaluation is None:
        return record
    return dataclasses.replace(record, metrics=evaluation.metrics, untrained=evaluation.untrained)


def _state(folder: Path) -> FolderState:
    try:
        record = record_of(folder)
    except (OSError, ValueError) as error:
        return FolderState(folder, str(error), is_damaged=True)
    if not record.finished:
        return FolderState(folder, _unfinished(folder))
    version = record.versions.get("lresnet", "unknown")
    other = "" if version == __version__ else f"; made by lresnet {version}, this is {__version__}"
    if record.metrics is None and (folder / "evaluation.json").exists():
        problem = f"evaluation.json belongs to other weights; `lresnet evaluate {folder}` evaluates those of the run"
        return FolderState(folder, problem, is_damaged=True)
    if record.metrics is None:
        return FolderState(folder, f"not evaluated: `lresnet evaluate {folder}` reads the test set{other}")
    return FolderState(folder, f"evaluated{other}", record)


# Grouping and comparing ----------------------------------------------------------------------------------------------

_RANDOM = "random"  # the split of a user's graph that is drawn anew for every seed, and its default
# Test examples per training example of this split, by what is learned.
_TEST_PER_TRAIN = {"link": 10 / 85, "node": 20 / 60, "graph-level": 10 / 80, "hierarchy": 10 / 85}
_ASSUMED_TEST_PER_TRAIN = 0.5  # of other splits; runs do not record the sizes of their split


def _task_titles(records: Sequence[RunRecord]) -> list[str]:
    """Return what tables call the task of each run. Files with the same name in different folders keep their paths."""
    titles = [", ".join(filter(None, [record.title, record.task.get("metric")])) for record in records]
    sources: dict[str, set[str]] = {}
    for title, record in zip(titles, records, strict=True):
        sources.setdefault(title, set()).add(record.task_name)
    return [
        title if len(sources[title]) == 1 else title.replace(record.data_name, record.task_name, 1)
        for title, record in zip(titles, records, strict=True)
    ]


def _split_titles(records: Sequence[RunRecord]) -> list[str]:
    """Return what tables call the split of each run. Files with the same name in different folders keep their paths."""
    splits = [record.split or "" for record in records]
    paths = {split for split in splits if Path(split).is_absolute()}
    names = Counter(Path(path).name for path in paths)
    return [Path(split).name if split in paths and names[Path(split).name] == 1 else split for split in splits]


def _by_settings(
    runs: Sequence[tuple[Path, RunRecord]],
) -> list[tuple[dict[str, Any], list[tuple[Path, RunRecord]]]]:
    """Split runs of one task, split and method by their settings; name the settings that differ."""
    settings = [settings_of(record) for _, record in runs]
    models = {own["model"] for own in settings}
    groups: dict[tuple[tuple[str, str], ...], tuple[dict[str, Any], list[tuple[Path, RunRecord]]]] = {}
    for run, own in zip(runs, settings, strict=True):
        same_model = [other for other in settings if other["model"] == own["model"]]
        names = dict.fromkeys(name for other in same_model for name in other)
        differs = {"model": own["model"]} if len(models) > 1 else {}
        for name in names:
            if any(_setting(other, name) != _setting(own, name) for other in same_model):
                differs[name] = _setting(own, name)
        key = tuple((name, shown(value)) for name, value in differs.items())
        groups.setdefault(key, (differs, []))[1].append(run)
    return list(groups.values())


def _group(place: tuple[str, str, str], differs: Mapping[str, Any], runs: Sequence[tuple[Path, RunRecord]]) -> RunGroup:
    records = [record for _, record in runs]
    names = dict.fromkeys(name for record in records for name in record.metrics or {})
    metrics = {
        name: summarise(record.metrics[name] for record in records if record.metrics and name in record.metrics)
        for name in names
    }
    validation = summarise(record.validation for record in records if record.validation is not None)
    return RunGroup(*place, differs, runs, metrics, validation)


def _by_title(groups: Sequence[RunGroup]) -> dict[str, list[RunGroup]]:
    found: dict[str, list[RunGroup]] = {}
    for group in groups:
        found.setdefault(group.title, []).append(group)
    return found


def _compared(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Add the differences to the baseline to the groups of one task and split."""
    baselines = [group for group in groups if group.method == BASELINE]
    found: dict[int, tuple[RunGroup, Estimate, bool]] = {}
    for index, group in enumerate(groups):
        baseline = _baseline_of(group, baselines)
        estimate, resampled = (None, False) if baseline is None else _difference(group, baseline)
        if baseline is not None and estimate is not None:
            found[index] = baseline, estimate, resampled
    result = list(groups)
    lower_is_better = any(is_text_metric(group.metric) for group in groups)  # one task has one metric
    decided = verdicts([-estimate if lower_is_better else estimate for _, estimate, _ in found.values()])
    for (index, (baseline, estimate, resampled)), word in zip(found.items(), decided, strict=True):
        own, other = _settings(groups[index]), _settings(baseline)
        difference = BaselineDifference(estimate, word, settings_apart(own, other), resampled)
        result[index] = dataclasses.replace(groups[index], difference=difference)
    return result


def _baseline_of(group: RunGroup, baselines: Sequence[RunGroup]) -> RunGroup | None:
    """Return the baseline with the same settings, or else the only one; None: there is none, or the choice is open."""
    if group.method == BASELINE:
        return None
    same = [one for one in baselines if not settings_apart(_settings(group), _settings(one))]
    candidates = same or baselines
    return candidates[0] if len(candidates) == 1 else None


def _difference(group: RunGroup, baseline: RunGroup) -> tuple[Estimate | None, bool]:
    """Return the difference of two groups, and whether its pairs have different splits."""
    ours, theirs = group.values, baseline.values
    record = group.runs[0][1]
    if record.own_task is None:
        follows_seed = group.split in SPLITS and SPLITS[group.split].follows_seed
    else:
        follows_seed = group.split in ("", _RANDOM, *HIERARCHY_SPLITS)

    def drawn(run: tuple[int, int | None]) -> int | None:
        """Return what tells the splits of two runs apart: the number, or the seed that draws the split."""
        seed, index = run
        return seed if index is None and follows_seed else index

    if len({drawn(run) for run in ours.keys() & theirs.keys()}) > 1:
        return resampled_difference(ours, theirs, test_per_train=_test_per_train(record), split_of=drawn), True
    return paired_difference(ours, theirs), False


def _test_per_train(record: RunRecord) -> float:
    if record.own_task is not None:
        random = record.split_index is None and record.split in (None, _RANDOM, *HIERARCHY_SPLITS)
        return _TEST_PER_TRAIN[record.own_task] if random else _ASSUMED_TEST_PER_TRAIN
    ratio = None
    if record.split is not None and record.task_name in TASKS:
        ratio = test_per_train(TASKS[record.task_name], record.split)
    return _ASSUMED_TEST_PER_TRAIN if ratio is None else ratio


def _settings(group: RunGroup) -> dict[str, Any]:
    return settings_of(group.runs[0][1])


def _setting(settings: Mapping[str, Any], name: str) -> Any:
    return settings.get(name, _DEFAULT)


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _main_value(record: RunRecord) -> float:
    assert record.metrics  # only evaluated runs are grouped
    return next(iter(record.metrics.values()))


def _order(place: tuple[str, str, str]) -> tuple[Any, ...]:
    """Sort by task (numbers within names by size), split and method."""
    task, split, method = place
    parts = [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", task)]
    return parts, split, METHODS[method].table_rank if method in METHODS else math.inf, method


def _json_object(group: RunGroup) -> dict[str, Any]:
    difference = group.difference
    return {
        "task": group.task,
        "data": group.runs[0][1].task_name,
        "split": group.split or None,
        "method": group.method,
        "settings": dict(group.differs),
        "metric": group.metric,
        **_json_summary(group.test),
        "validation": _json_summary(group.validation),
        "metrics": {name: _json_summary(summary) for name, summary in group.metrics.items()},
        "difference": None
        if difference is None
        else {
            "to": BASELINE,
            **dataclasses.asdict(difference.estimate),
            "verdict": difference.verdict,
            "other_settings": difference.settings,
            "resampled_splits": difference.resampled,
        },
        "untrained": _json_untrained(untrained_result(group.records)),
        "search_trials": group.search_trials,
        "runs": [str(folder) for folder, _ in group.runs],
    }


def _json_untrained(result: UntrainedResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {"score": result.label, **_json_summary(result.test), "validation": _json_summary(result.validation)}


def _json_summary(summary: Summary) -> dict[str, Any]:
    return {name: None if math.isnan(value) else value for name, value in dataclasses.asdict(summary).items()}
