"""Search for the settings of a run on a user's graph: short trainings, compared on validation data only."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lresnet._files import has_file, locked_folder, read_file, sync_folder, write_atomically
from lresnet.runs.config import RunConfig, configure, task_as_dict
from lresnet.runs.graph_trials import trials
from lresnet.runs.task_config import GraphTaskConfig
from lresnet.train.results import parse_line, result_line

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Budget",
    "Trial",
    "best_trial",
    "changed_settings",
    "read_budget",
    "read_trials",
    "require_chosen",
    "search",
]

_FILE = "search.jsonl"


@dataclasses.dataclass(frozen=True)
class Budget:
    """When a search starts no further trial.

    Args:
        seconds: after this time; None: no limit.
        trials: after this number of trials; None: no limit. 0: there is no search.

    Example:
        >>> Budget(seconds=60).allows(started=3, elapsed=59.0), Budget(trials=3).allows(started=3, elapsed=0.0)
        (True, False)
    """

    seconds: float | None = None
    trials: int | None = None

    def allows(self, started: int, elapsed: float) -> bool:
        """Whether another trial may start. The first one always may, unless there is no search."""
        if self.trials is not None and started >= self.trials:
            return False
        return started == 0 or self.seconds is None or elapsed < self.seconds


def read_budget(text: str) -> Budget:
    """Read ``"60s"``, ``"5m"``, ``"2h"``, a number of trials, or ``"off"``.

    Raises:
        ValueError: the text is none of these.

    Example:
        >>> read_budget("5m"), read_budget("12"), read_budget("off")
        (Budget(seconds=300.0, trials=None), Budget(seconds=None, trials=12), Budget(seconds=None, trials=0))
    """
    if text == "off":
        return Budget(trials=0)
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]+)?)(s|m|h)", text)
    if match:
        return Budget(seconds=float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]])
    if re.fullmatch(r"[1-9][0-9]{0,8}", text):
        return Budget(trials=int(text))
    raise ValueError(f"--search must be a time such as 60s or 5m, a number of trials, or off, got {text!r}")


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training of a search.

    Args:
        number: place in the list of trials, from 1.
        settings: settings by name, ``"method"`` among them.
        validation: validation metric in percent; None: the training diverged.
        epochs, seconds: how long it took.
        data: checksum of the graph, the split and the seed.
    """

    number: int
    settings: dict[str, Any]
    validation: float | None
    epochs: int
    seconds: float
    data: str = ""


def search(
    config: RunConfig,
    given: Mapping[str, Any],
    budget: Budget,
    *,
    method: str | None = None,
    folder: Path | None = None,
    device: str = "auto",
    on_trial: Callable[[Trial], None] | None = None,
) -> tuple[RunConfig, list[Trial]]:
    """Train with one set of settings after the other, and return the configuration with the best validation metric.

    The trials and their order depend on the seed only, see :func:`lresnet.runs.graph_trials.trials`; the budget decides
    how many of them run. An interrupted search resumes: trials that ``folder`` records for the same data are not
    repeated. The best trial becomes the run in ``folder``, so that nothing is trained twice.

    Args:
        config: the run on a user's graph, with the settings of the first trial.
        given: settings that the user has fixed.
        budget: when to stop.
        method: the residual connection if the user has fixed it.
        folder: where the trials are recorded, as ``search.jsonl``; None: nowhere.
        device: see :func:`lresnet.runs.device.usable_device`.
        on_trial: called with every trial when it has ended.

    Raises:
        ValueError: every trial has diverged, or the task is impossible.
        OSError: another process is working in the folder.
    """
    assert isinstance(config.task, GraphTaskConfig)
    assert config.task.task is not None
    data = _checksum(config)
    with contextlib.nullcontext() if folder is None else locked_folder(folder):
        before = read_trials(folder)
        recorded = [trial for trial in before if trial.data == data]
        done = {json.dumps(trial.settings, sort_keys=True): trial for trial in recorded}
        if folder is not None and before and not recorded:  # a search on other data
            shutil.rmtree(folder / "trials", ignore_errors=True)
        candidates = trials(
            config.task.task, given, config.train.seed, method=method, has_features=_has_features(config.task)
        )
        ended: list[Trial] = []
        for number, settings in enumerate(candidates, 1):
            if not budget.allows(len(ended), sum(trial.seconds for trial in ended)):
                break
            known = done.get(json.dumps(settings, sort_keys=True))
            trial = known or _train(number, settings, config, device, folder)
            ended.append(dataclasses.replace(trial, number=number, data=data))
            if known is None and folder is not None:
                _write(folder, ended)
                _forget(folder, ended)
            if on_trial is not None:
                on_trial(ended[-1])
        best = best_trial(ended)
        if folder is not None:
            _keep(folder, best)
    return _configured(config, best.settings), ended


def require_chosen(
    before: RunConfig, config: RunConfig, given: Mapping[str, Any], method: str | None, folder: Path
) -> None:
    """Raise an error if a search could not have chosen the run that ``folder`` holds.

    Args:
        before: the configuration of that run.
        config: the run that is to be searched for, with the settings of the first trial.
        given: settings that the user has fixed.
        method: the residual connection if the user has fixed it.

    Raises:
        ValueError: the run is on other data, or a fixed setting has another value there.
    """
    known, wanted = before.facts(), config.facts()
    named = ("task", "task kind", "split", "split_index", "seed")
    fixed = {name: wanted[name] for name in named} | ({} if method is None else {"method": method}) | dict(given)
    for name, value in fixed.items():
        if known.get(name) != value:
            raise ValueError(
                f"{folder} holds another run: {name} is {known.get(name)} there, not {value}; use another folder"
            )


def best_trial(ended: Sequence[Trial]) -> Trial:
    """Return the trial with the highest validation metric, the earlier one of equals.

    Raises:
        ValueError: no trial has ended without diverging.
    """
    scored = [trial for trial in ended if trial.validation is not None]
    if not scored:
        raise ValueError("every trial of the search has diverged; give smaller --lr or other settings")
    return max(scored, key=lambda trial: (trial.validation, -trial.number))


def read_trials(folder: Path | None) -> list[Trial]:
    """Read the trials that a search has recorded in ``folder``; a warning names lines that are not trials."""
    path = None if folder is None else folder / _FILE
    if path is None or not has_file(path):
        return []
    found = []
    for number, line in enumerate(read_file(path).splitlines(), 1):
        trial = _trial(line)
        if trial is not None:
            found.append(trial)
        else:
            warnings.warn(f"{path}, line {number} is damaged; its trial is repeated", stacklevel=2)
    return found


def _trial(line: bytes) -> Trial | None:
    try:
        trial = Trial(**parse_line(line))
    except (TypeError, ValueError):
        return None
    kinds = (
        (trial.number, int),
        (trial.settings, dict),
        (trial.validation, int | float | None),
        (trial.epochs, int),
        (trial.seconds, int | float),
        (trial.data, str),
    )
    numbers = (trial.validation or 0.0, trial.seconds)
    valid = all(isinstance(value, kind) for value, kind in kinds) and all(map(math.isfinite, numbers))
    return trial if valid else None


def _write(folder: Path, ended: Sequence[Trial]) -> None:
    write_atomically(folder / _FILE, "".join(result_line(dataclasses.asdict(trial)) for trial in ended).encode())


def _checksum(config: RunConfig) -> str:
    from lresnet.runs.data_facts import graph_facts
    from lresnet.runs.tasks import load

    facts = {"task": task_as_dict(config.task), "seed": config.train.seed}
    facts |= {"graph": graph_facts(load(config.task, config.train.seed))}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _has_features(task: GraphTaskConfig) -> bool:
    from lresnet.runs.graphs import read_own_graph

    if task.task == "hierarchy":
        from lresnet.runs.graphs import load_own_task

        return load_own_task(task, 0).graph.features is not None  # type: ignore[union-attr]
    return task.node_features is not None or task.task == "graph-level" or read_own_graph(task).features is not None


def _train(number: int, settings: dict[str, Any], config: RunConfig, device: str, folder: Path | None) -> Trial:
    from lresnet.runs.training import fit
    from lresnet.train import NonFiniteError

    tried = _configured(config, settings)
    out = None if folder is None else _place(folder, number)
    if out is not None and not _can_resume(out, tried):
        shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    try:
        record = fit(tried.task, tried.model, tried.train, device=device, out=out).record
    except NonFiniteError:
        return Trial(number, settings, None, 0, round(time.perf_counter() - start, 2))
    assert record.epochs is not None
    assert record.seconds is not None
    return Trial(number, settings, record.validation, record.epochs, record.seconds)


def _can_resume(place: Path, tried: RunConfig) -> bool:
    """Return whether the files of an interrupted trial, if any, belong to the same settings and data."""
    from lresnet.runs.data_facts import graph_facts
    from lresnet.runs.record import read_record
    from lresnet.runs.tasks import load

    try:
        before = read_record(place)
    except (OSError, ValueError):  # damaged
        return False
    if before is None:
        return True
    return before.config.same_run(tried) is None and before.graph == graph_facts(load(tried.task, tried.train.seed))


def _place(folder: Path, number: int) -> Path:
    return folder / "trials" / str(number)


def _forget(folder: Path, ended: Sequence[Trial]) -> None:
    """Delete the files of all trials but the best."""
    best = best_trial(ended) if any(trial.validation is not None for trial in ended) else None
    for trial in ended:
        if trial is not best:
            shutil.rmtree(_place(folder, trial.number), ignore_errors=True)


def _keep(folder: Path, best: Trial) -> None:
    """Move the files of the best trial into ``folder``, ``run.json`` last: a folder with it holds a finished run."""
    place = _place(folder, best.number)
    if (place / "run.json").is_file():
        for file in sorted(place.iterdir(), key=lambda file: file.name == "run.json"):
            target = folder / file.name
            if target.is_dir():
                shutil.rmtree(target)
            sync_folder(folder)  # the names of the other files come to the disk before that of run.json
            file.replace(target)
        sync_folder(folder)
    shutil.rmtree(folder / "trials", ignore_errors=True)


def _configured(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    own = dict(settings)
    return configure(config.task, own.pop("method"), config.train.seed, own)


def changed_settings(ended: Sequence[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield every trial with the settings in which it differs from the first."""
    for trial in ended:
        yield trial, {name: value for name, value in trial.settings.items() if value != ended[0].settings.get(name)}
