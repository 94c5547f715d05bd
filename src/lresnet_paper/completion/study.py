"""The study of hierarchy completion: its plan, its runs and their lines of results.

:func:`run_untrained` measures the scores that are not trained; :func:`run_study` trains the arms of the plan.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, NamedTuple

from scipy import sparse

from lresnet._json import read_toml
from lresnet.runs.workers import worker_pool
from lresnet.train.results import ResultsFile, environment
from lresnet_paper.completion.data import PROTOCOLS, TASKS, Cell, Nouns, load_nouns, make_cell, noun_subtree
from lresnet_paper.completion.evaluation import completion_metrics, mean_reciprocal_rank
from lresnet_paper.completion.trained import train
from lresnet_paper.completion.untrained import UNTRAINED, untrained_names, untrained_scorers
from lresnet_paper.results import study_file, study_lines

__all__ = [
    "TABLE",
    "Training",
    "arm_settings",
    "cell_name",
    "chosen_settings",
    "hierarchy_of",
    "own_lines",
    "planned_trainings",
    "read_plan",
    "results_file",
    "run_study",
    "run_training",
    "run_untrained",
]

TABLE = "completion"
"""The name of the file of results, and of the field ``table`` of its lines."""

Plan = Mapping[str, Any]
Line = Mapping[str, Any]
Settings = tuple[tuple[str, float], ...]


def read_plan(path: Path | None = None) -> Plan:
    """Return the plan of the study, or one of the same form.

    Example:
        >>> read_plan()["dimensions"]
        [4, 8, 16, 64]
    """
    return read_toml(path or Path(__file__).with_name("completion.toml"))


class Training(NamedTuple):
    """One run. ``settings`` are the searched ones; an untrained score has none, and some have no dimension."""

    stage: str
    cell: str
    protocol: str
    arm: str
    dimension: int | None
    settings: Settings
    split: int


def cell_name(plan: Plan, form: str, task: str) -> str:
    """Return the name of a task on the hierarchy of a form.

    Example:
        >>> cell_name(read_plan(), "mammal", "leaves")
        'wordnet:mammal/leaves'
    """
    subtree = plan["forms"][form].get("subtree")
    return f"wordnet:{subtree}/{task}" if subtree else f"wordnet/{task}"


def arm_settings(plan: Plan, arm: str, settings: Settings) -> dict[str, Any]:
    """Return all settings of an arm: those of its family, its own and the searched ones."""
    own = {name: value for name, value in plan["arms"][arm].items() if name not in ("grid", "label")}
    shared = plan["networks"] if own.get("family", "network") == "network" else {}
    return {**shared, **own, **dict(settings)}


def planned_trainings(plan: Plan, form: str, lines: Iterable[Line] = ()) -> list[Training]:
    """Return the trainings of all searches, and the final ones whose settings the ``lines`` choose.

    Example:
        >>> len(planned_trainings(read_plan(), "full"))
        456
    """
    known = list(lines)
    groups = [group for _, group in _groups(plan, form)]
    return [one for group in groups for stage in ("search", "final") for one in _trainings(plan, group, stage, known)]


class _Group(NamedTuple):
    """Arms that are compared with each other: one cell, protocol and dimension."""

    cell: str
    protocol: str
    dimension: int
    arms: tuple[str, ...]


def _groups(plan: Plan, form: str) -> Iterator[tuple[str, _Group]]:
    """Yield the groups of a form with their task, in the order in which they run."""
    own = plan["forms"][form]
    for protocol, task, dimension in itertools.product(PROTOCOLS, TASKS, plan["dimensions"]):
        shallow = protocol == "none"  # a shallow embedding reads no gloss, every other arm does
        if not shallow and protocol not in own["protocols"][task]:
            continue
        arms = tuple(arm for arm in own["arms"][task] if (plan["arms"][arm].get("family") == "shallow") == shallow)
        if arms:
            yield task, _Group(cell_name(plan, form, task), protocol, dimension, arms)


def _trainings(plan: Plan, group: _Group, stage: str, lines: Iterable[Line]) -> list[Training]:
    arms = group.arms
    if stage == "search":
        return [
            Training("search", group.cell, group.protocol, arm, group.dimension, settings, plan["search_split"])
            for arm in arms
            for settings in _grid(plan["arms"][arm]["grid"])
        ]
    chosen = chosen_settings(lines)
    keys = [(group.cell, group.protocol, arm, group.dimension) for arm in arms]
    return [Training("final", *key, chosen[key], split) for split in plan["splits"] for key in keys if key in chosen]


def _grid(options: Mapping[str, Sequence[float]]) -> Iterator[Settings]:
    for values in itertools.product(*options.values()):
        yield tuple(zip(options, map(float, values), strict=True))


def chosen_settings(lines: Iterable[Line]) -> dict[tuple[str, str, str, int], Settings]:
    """Return, by cell, protocol, arm and dimension, the settings with the highest validation MRR of the search."""
    best: dict[tuple[str, str, str, int], Line] = {}
    for line in lines:
        if line["stage"] == "search":
            key = line["cell"], line["protocol"], line["method"], line["config"]["dimension"]
            if key not in best or line["validation"] > best[key]["validation"]:
                best[key] = line
    return {key: tuple(line["config"]["settings"].items()) for key, line in best.items()}


# --- one run ----------------------------------------------------------------------------------------------------------


@functools.cache
def hierarchy_of(subtree: str | None) -> Nouns:
    """Return WordNet's nouns, or a synset and its descendants; loaded once per process."""
    return load_nouns() if subtree is None else noun_subtree(hierarchy_of(None), subtree)


@functools.lru_cache(maxsize=4)
def _features(nouns: Nouns, protocol: str) -> sparse.csr_array | None:
    return None if protocol == "none" else nouns.features(protocol)


class _Cells:
    """The cells of one form, the last few of them kept, on one device."""

    def __init__(self, plan: Plan, form: str, device: str, nouns: Nouns | None) -> None:
        self.form, self.device = plan["forms"][form], device
        self.nouns = hierarchy_of(self.form.get("subtree")) if nouns is None else nouns
        self._made: dict[tuple[str, int], Cell] = {}

    def get(self, task: str, split: int) -> Cell:
        if (task, split) not in self._made:
            if len(self._made) == 2 * len(TASKS):
                self._made.clear()
            made = make_cell(self.nouns, task, split, self.form["evaluation"], **self.form["shares"][task])
            self._made[task, split] = made.to(self.device)
        return self._made[task, split]


def run_training(plan: Plan, form: str, training: Training, cell: Cell, device: str = "cpu") -> dict[str, Any]:
    """Train once, and return the line of results. A final training reads the test pairs once, a search never."""
    started = time.perf_counter()
    assert training.dimension is not None
    settings = arm_settings(plan, training.arm, training.settings)
    schedule = plan["forms"][form]["training"][cell.task]
    features = _features(cell.nouns, training.protocol)
    outcome = train(cell, features, settings, training.dimension, schedule, training.split, device)
    own: dict[str, Any] = {}
    if training.stage == "final":
        own = _tested(completion_metrics(outcome.scorer, cell.test, cell.nouns.num_nodes))
    config = {"dimension": training.dimension, "settings": dict(training.settings), **settings, **schedule}
    return _line(
        training.stage,
        cell,
        training.arm,
        training.protocol,
        config,
        own | {"validation": round(outcome.validation, 4), "step": outcome.step},
        time.perf_counter() - started,
        device,
    )


def _line(
    stage: str,
    cell: Cell,
    method: str,
    protocol: str,
    config: Mapping[str, Any],
    own: Line,
    seconds: float,
    device: str,
) -> dict[str, Any]:
    subtree = cell.nouns.name.partition(":")[2]
    return {
        "table": TABLE,
        "cell": cell.name,
        "method": method,
        "protocol": protocol,
        "seed": cell.seed,
        "config": config,
        "split": cell.seed,
        "stage": stage,
        **own,
        "pairs": {"train": cell.split.train.shape[1], "test": cell.split.test.shape[1]},
        "seconds": round(seconds, 2),
        "command": "python -m lresnet_paper completion"
        + (f" --subtree {subtree}" if subtree else "")
        + (" --untrained" if method in UNTRAINED else ""),
        **environment(device),
    }


def _tested(found: Mapping[str, float]) -> dict[str, Any]:
    return {"metrics": {name: round(value, 4) for name, value in found.items()}, "value": round(found["mrr"], 4)}


# --- the study --------------------------------------------------------------------------------------------------------


def run_untrained(
    plan: Plan, form: str, out: Path, *, nouns: Nouns | None = None, report: Callable[[str], None] = print
) -> None:
    """Measure every untrained score on the final splits. Splits that are complete in ``out`` are not repeated."""
    file, cells = results_file(out), _Cells(plan, form, "cpu", nouns)
    dimensions = plan["dimensions"]
    for split, task in itertools.product(plan["splits"], TASKS):
        protocols = plan["forms"][form]["protocols"][task]
        name = cell_name(plan, form, task)
        planned = {
            Training("final", name, protocol, method, dimension, (), split)
            for method, protocol, dimension in untrained_names(task, protocols, dimensions)
        }
        if planned <= file.keys():
            continue
        cell, started = cells.get(task, split), time.perf_counter()
        for one in untrained_scorers(cell, protocols, dimensions):
            config = {"dimension": one.dimension, "settings": dict(one.options)}
            own = {
                **_tested(completion_metrics(one.scorer, cell.test, cell.nouns.num_nodes)),
                "validation": round(mean_reciprocal_rank(one.scorer, cell.val, cell.nouns.num_nodes), 4),
            }
            seconds = time.perf_counter() - started
            line = _line("final", cell, one.method, one.protocol, config, own, seconds, "cpu")
            file.append(line)
            report(
                f"{cell.name}, split {split}: {one.method} {one.protocol} {one.dimension or ''}, MRR {line['value']}"
            )
            started = time.perf_counter()


def run_study(
    plan: Plan,
    form: str,
    out: Path,
    *,
    device: str = "cpu",
    workers: int = 1,
    minutes: float | None = None,
    nouns: Nouns | None = None,
    report: Callable[[str], None] = print,
) -> bool:
    """Run the trainings that have no line in ``out``, and return whether all of them have one now.

    Args:
        plan: the result of :func:`read_plan`.
        form: a name of the plan's ``forms``.
        out: the file of JSON lines; each line is written as soon as it is known.
        device: where to train.
        workers: processes that share the device. Each runs one arm of a task, protocol and dimension after the other.
        minutes: start no training after this many minutes. None: run all.
        nouns: the hierarchy, for one worker; None: that of the form is loaded.
        report: called with a line of text after every training; several workers print it instead.
    """
    deadline = math.inf if minutes is None else time.time() + 60 * minutes
    half = len(plan["splits"]) // 2
    groups = list(_groups(plan, form))
    for splits in (plan["splits"][:half], plan["splits"][half:]):  # an interrupted study has the first of all groups
        if workers == 1:
            cells = _Cells(plan, form, device, nouns)
            done = all(_run_group(plan, form, out, splits, *group, cells, deadline, report) for group in groups)
        else:
            with worker_pool(workers) as pool:
                runs = [
                    pool.submit(_run_in_worker, plan, form, out, splits, task, single, device, deadline)
                    for task, group in groups
                    for single in (group._replace(arms=(arm,)) for arm in group.arms)
                ]
                results = [run.result() for run in as_completed(runs)]
                done = all(results)
        if not done:
            return False
    return True


def _run_group(
    plan: Plan,
    form: str,
    out: Path,
    splits: Container[int],
    task: str,
    group: _Group,
    cells: _Cells,
    deadline: float,
    report: Callable[[str], None],
) -> bool:
    """Run the search of a group and its final trainings on some splits; return whether none is missing."""
    file = results_file(out)
    for stage in ("search", "final"):
        for training in _trainings(plan, group, stage, own_lines(out)):
            known = file.keys()
            if (stage == "final" and training.split not in splits) or training in known:
                continue
            if time.time() > deadline:
                return False
            line = run_training(plan, form, training, cells.get(task, training.split), cells.device)
            file.append(line)
            name = f"{stage}, {training.cell}, {training.protocol}, {training.arm}, dimension {training.dimension}"
            report(f"{name}, split {training.split}: validation {line['validation']}, test {line.get('value')}")
    return True


def _run_in_worker(
    plan: Plan,
    form: str,
    out: Path,
    splits: Container[int],
    task: str,
    group: _Group,
    device: str,
    deadline: float,
) -> bool:
    """Run :func:`_run_group` in a worker process."""
    report = functools.partial(print, flush=True)
    return _run_group(plan, form, out, splits, task, group, _Cells(plan, form, device, None), deadline, report)


def own_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the study, one for each run; of repeated ones the last."""
    return study_lines(path, TABLE, _key)


def results_file(path: Path) -> ResultsFile:
    """Return the file to which the lines of the study are appended, each once."""
    return study_file(path, TABLE, _key)


def _key(line: Line) -> Training:
    settings = () if line["method"] in UNTRAINED else tuple(line["config"]["settings"].items())
    dimension = line["config"]["dimension"]
    return Training(line["stage"], line["cell"], line["protocol"], line["method"], dimension, settings, line["split"])
