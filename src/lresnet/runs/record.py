"""The record of a run: :class:`RunRecord`, and the files of the run's folder that hold it.

The folder holds ``run.json``, ``checkpoint.pt``, ``model/``, ``curve.jsonl``, and later ``evaluation.json``. The
records have a checksum each, and ``run.json`` has those of the model and of the curve.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

from lresnet._files import CHECKSUM, checksum, digest, has_file, require_run_folder, write_atomically
from lresnet._json import read_json
from lresnet.data.quoting import reason
from lresnet.data.registry import TASKS
from lresnet.data.split_names import canonical_split
from lresnet.metrics.untrained_links import UntrainedScore
from lresnet.runs.config import RunConfig, configure
from lresnet.runs.data_facts import require_same_data, require_same_order
from lresnet.runs.model_config import GRAPH_MODELS
from lresnet.runs.task_config import GraphTaskConfig, ImageTaskConfig
from lresnet.train.checkpoint import has_checkpoint, is_damaged, load_checkpoint, previous_checkpoint

__all__ = [
    "CURVE_FILE",
    "MODEL_FILES",
    "TOKENIZER_FILE",
    "RunRecord",
    "checkpoint_epoch",
    "damage",
    "digests",
    "read_evaluation",
    "read_finished_record",
    "read_own_evaluation",
    "read_record",
    "remove_previous_checkpoint",
    "require_repairable",
    "require_resumable",
    "require_same_run",
    "require_undamaged",
    "write_record",
]

_FORMAT = 2
_RUN, _EVALUATION, _CHECKPOINT = "run.json", "evaluation.json", "checkpoint.pt"
MODEL_FILES = ("model/model.safetensors", "model/config.json")
"""The files of a run's model; a network that a user built has no configuration."""
TOKENIZER_FILE = "model/tokenizer.json"
"""What the tokens of a text stand for."""
CURVE_FILE = "curve.jsonl"
"""The validation metric of every epoch that has one."""


@dataclass(frozen=True)
class RunRecord:
    """What ``run.json`` and ``evaluation.json`` hold.

    Args:
        task, model, train: the configuration, as :meth:`lresnet.runs.config.RunConfig.as_dict` returns it. A task or a
            model that was passed in from Python is described by its name and sizes.
        command: the command that repeats the run.
        device: kind of the device, ``"cpu"`` or ``"cuda"``.
        versions, hardware: of the machine that ran it.
        validation: validation metric in percent; None: nothing was held out, or the run has not finished.
        best_epoch: epoch whose parameters were kept; None: the run has not finished.
        epochs, seconds: how long the run took.
        norm_statistics: what batch norms normalise by in evaluation, ``"reestimated"`` or ``"running"``; None: no batch
            norm was trained, or the run has not finished.
        processes: number of processes that shared the run.
        images: sizes, classes and checksums of the images, for a run on images.
        graph: sizes and checksum of the graph, for a run on a user's graph.
        text: sizes and checksum of the text, for a run on a text.
        metrics: test metrics in percent, in ``evaluation.json`` only.
        files: sha256 and size of the files of a finished run, by name; None: lresnet 0.2 wrote the record.
        untrained: for link prediction, what scores without any training reach on the same test pairs, best first by
            validation pairs, see :class:`lresnet.metrics.UntrainedScore`; in ``evaluation.json`` only.
    """

    task: dict[str, Any]
    model: dict[str, Any]
    train: dict[str, Any]
    command: str
    versions: dict[str, str]
    hardware: str
    device: str = "cpu"
    validation: float | None = None
    best_epoch: int | None = None
    epochs: int | None = None
    seconds: float | None = None
    norm_statistics: str | None = None
    processes: int = 1
    images: dict[str, Any] | None = None
    graph: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    metrics: dict[str, float] | None = None
    files: dict[str, dict[str, Any]] | None = None
    untrained: list[dict[str, Any]] | None = None

    @property
    def task_name(self) -> str:
        """Name of the task, or the absolute path of the user's graph, images or text."""
        return str(self.task["name"])

    @property
    def data_name(self) -> str:
        """What outputs call the data: the name of the task, the path of the images, or the file of a user's graph."""
        return self.task_name if self.own_task is None else Path(self.task_name).name or self.task_name

    @property
    def title(self) -> str:
        """Data and task, e.g. ``"friends.csv, link"``; a shipped task and a set of images go by their names.

        A task whose features lack columns is another one: ``"disease/lp without column 10"``.
        """
        dropped = self.task.get("drop_columns")
        if dropped:
            columns = ", ".join(map(str, dropped))
            return f"{self.data_name} without column{'s' if len(dropped) > 1 else ''} {columns}"
        return self.data_name if self.own_task is None else f"{self.data_name}, {self.own_task}"

    @property
    def own_task(self) -> str | None:
        """What is learned on a user's graph: link, node or graph-level; None for other tasks."""
        task: str | None = self.task.get("task") if self.task.get("kind") == "graph" else None
        return task

    @property
    def method(self) -> str:
        """Name of the residual connection."""
        return str(self.model["residual"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.train["seed"])

    @property
    def split(self) -> str | None:
        """Current name of the split; for a user's graph ``"random"`` or a path; None: the task's default."""
        split: str | None = self.task.get("split")
        if split is None or self.own_task is not None or self.task_name not in TASKS:
            return split
        return canonical_split(split, TASKS[self.task_name].splits)

    @property
    def split_index(self) -> int | None:
        """Number of the split, where there are several of its name."""
        index: int | None = self.task.get("split_index")
        return index

    @property
    def name(self) -> str:
        """Data, method and seed, for titles."""
        return f"{self.data_name}, {self.method}, seed {self.seed}"

    @property
    def finished(self) -> bool:
        """Whether the run trained to its end."""
        return self.best_epoch is not None

    @property
    def from_python(self) -> bool:
        """Whether the task or the model was passed in from Python, so that no command repeats the run."""
        return self.task.get("kind") == "python" or self.model.get("from") == "python"

    @property
    def on_dataset(self) -> bool:
        """Whether the run is on a data set of the user's own, see :func:`lresnet.data.dataset_task`."""
        return self.task.get("data") == "dataset"

    @property
    def value(self) -> float | None:
        """The first test metric, the one to report; None before ``lresnet evaluate``."""
        return None if self.metrics is None else next(iter(self.metrics.values()))

    @property
    def untrained_scores(self) -> list[UntrainedScore]:
        """The untrained scores, best first; none for other tasks and in records of earlier versions."""
        return [UntrainedScore(**values) for values in self.untrained or ()]

    @property
    def config(self) -> RunConfig:
        """The typed configuration of a run on a shipped task or on images.

        Raises:
            ValueError: the task or the model was passed in from Python.
        """
        return RunConfig.from_dict({"task": self.task, "model": self.model, "train": self.train})

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        values = {"format": _FORMAT} | {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("norm_statistics", "images", "graph", "text", "metrics", "files", "untrained"):
            if values[name] is None:
                del values[name]
        return values | ({} if self.metrics is None else {"value": self.value})


def read_record(folder: Path) -> RunRecord | None:
    """Read ``run.json`` of ``folder``, of this version or an older one; None: there is none.

    Raises:
        ValueError: the file is not what ``lresnet train`` writes.
    """
    path = folder / _RUN
    return _read(path) if has_file(path) else None


def read_finished_record(folder: Path) -> RunRecord:
    """Read ``run.json`` of a finished run.

    Raises:
        FileNotFoundError: there is no run in the folder.
        ValueError: the run has not finished.
    """
    require_run_folder(folder)
    record = _read(folder / _RUN)
    if not record.finished:
        raise ValueError(f"the run in {folder} has not finished; repeat the same `lresnet train` command to resume it")
    return record


def read_evaluation(folder: Path) -> RunRecord | None:
    """Read ``evaluation.json`` of ``folder``; None: the run has not been evaluated.

    Raises:
        ValueError: the file is not what ``lresnet evaluate`` writes.
    """
    path = folder / _EVALUATION
    record = _read(path) if has_file(path) else None
    if record is not None and record.metrics is None:
        raise ValueError(f"{path} is not what `lresnet evaluate` writes: it has no metrics")
    return record


def read_own_evaluation(folder: Path, record: RunRecord) -> RunRecord | None:
    """Read ``evaluation.json`` of ``folder`` if it is one of the weights of ``record``; None: they are not evaluated.

    Another run may have been trained in the folder since, or the file copied from another one.
    """
    found = read_evaluation(folder)
    return found if found is None or found.files in (None, record.files) else None


def write_record(folder: Path, record: RunRecord) -> None:
    """Write ``run.json``, or ``evaluation.json`` if the record has test metrics, completely or not at all."""
    path, values = folder / (_RUN if record.metrics is None else _EVALUATION), record.as_dict()
    text = json.dumps(values | {CHECKSUM: checksum(values)}, indent=2, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Return sha256 and size of the files of a run that has just finished, as ``run.json`` records them."""
    return {
        name: digest(folder / name) for name in (*MODEL_FILES, TOKENIZER_FILE, CURVE_FILE) if has_file(folder / name)
    }


def damage(folder: Path, record: RunRecord, names: Sequence[str] = ()) -> str | None:
    """Return the first file of a finished run that is missing or is not the one that the run wrote, and what is wrong.

    None: all files are as they were written. A record of lresnet 0.2 has no checksums; then the weights must exist.

    Args:
        names: the files to compare; empty: all.
    """
    for name, known in (record.files or {MODEL_FILES[0]: {}}).items():
        if names and name not in names:
            continue
        path = folder / name
        if not has_file(path):
            return f"{name} is missing"
        if known and digest(path) != known:
            return f"{name} does not match its checksum in {_RUN}"
    return None


def require_undamaged(folder: Path, record: RunRecord, names: Sequence[str]) -> None:
    """Raise an error if one of the files ``names`` of a finished run is missing or damaged.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged.
    """
    found = None if record.files is None else damage(folder, record, names)
    if found is not None:
        kind = FileNotFoundError if found.endswith("missing") else ValueError
        raise kind(f"{folder} is damaged: {found}; train the run again with the same settings, which repairs it")


def require_repairable(folder: Path, found: str) -> None:
    """Raise an error if a damaged run has no checkpoint from which it can be trained again.

    Args:
        found: what :func:`damage` has returned.
    """
    checkpoint = folder / _CHECKPOINT
    if not has_checkpoint(checkpoint) or is_damaged(checkpoint):
        state = "damaged" if has_checkpoint(checkpoint) else "missing"
        raise ValueError(
            f"{folder} holds a finished run, but {found}, and {_CHECKPOINT} is {state} too, so it cannot be repaired; "
            f"copy the file back, or delete {_RUN} and {_CHECKPOINT} to train the run again"
        )


def remove_previous_checkpoint(folder: Path) -> None:
    """Remove the checkpoint before the last one of a run that has finished."""
    previous_checkpoint(folder / _CHECKPOINT).unlink(missing_ok=True)


def checkpoint_epoch(folder: Path) -> int:
    """Return the epoch from which the run in ``folder`` resumes; 0: there is no checkpoint."""
    state = load_checkpoint(folder / _CHECKPOINT)
    return 0 if state is None else int(state["epoch"])


def require_same_run(record: RunRecord, before: RunRecord, folder: Path) -> None:
    """Raise an error if ``folder`` holds another run than the one to train.

    Raises:
        ValueError: the runs differ; the message names the first setting that does.
    """
    if record.from_python or before.from_python:
        difference = _first_difference(record, before)
    else:
        difference = record.config.same_run(before.config)
    if difference is not None:
        raise ValueError(f"{folder} holds another run: {difference}; use another folder")


def require_resumable(folder: Path, before: RunRecord | None, record: RunRecord) -> None:
    """Raise an error if ``folder`` has a checkpoint from which the run cannot resume.

    Args:
        before: the record in the folder when training was requested; None: there was none.
        record: the record of the run that is to resume.

    Raises:
        ValueError: the checkpoint is damaged, belongs to no run, or was written on another kind of device, by another
            number of processes, or with other images.
    """
    checkpoint = folder / _CHECKPOINT
    if is_damaged(checkpoint):
        raise ValueError(f"{checkpoint} is damaged; delete it to start from the beginning")
    if not has_checkpoint(checkpoint):
        return
    if before is None:
        raise ValueError(f"{checkpoint} has no run.json beside it, so its run is unknown; use another folder")
    if before.device != record.device:  # random numbers of a CPU and a GPU differ
        raise ValueError(
            f"the run in {folder} was started on {before.device} and cannot resume on {record.device}; "
            f"use --device {before.device}, or another folder to start from the beginning"
        )
    if before.processes != record.processes:  # batch norm sees the part of a batch that its process has
        start = "without torchrun" if before.processes == 1 else f"with torchrun --nproc-per-node={before.processes}"
        raise ValueError(
            f"the run in {folder} was started by {before.processes} process{'es' if before.processes > 1 else ''} and "
            f"cannot resume with {record.processes}, because batch norm would see other parts of a batch; "
            f"start it {start}, or use another folder to start from the beginning"
        )
    require_same_data("images", record.images, before.images, record.task_name, folder)
    require_same_order(record.images, before.images, record.task_name, folder)


def _read(path: Path) -> RunRecord:
    try:
        values = read_json(path)
        if not isinstance(values, dict):
            raise ValueError(f"it holds {type(values).__name__}, not an object")
        _require_checksum(values)
        _check_outcome(values)
        record = _from_format_1(values) if "cell" in values else _from_format_2(values)
        if not record.from_python:
            record.config  # noqa: B018 - checked here, where the file can be named
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        verb = "evaluate" if path.name == _EVALUATION else "train"
        raise ValueError(f"{path} is not what `lresnet {verb}` writes: {reason(error)}") from error
    return record


def _require_checksum(values: Mapping[str, Any]) -> None:
    """Raise an error if a record was changed or damaged after it was written; lresnet 0.2 wrote no checksums."""
    if CHECKSUM not in values and "files" not in values:
        return
    if values.get(CHECKSUM) != checksum(values):
        raise ValueError(
            "its checksum does not match, so it was damaged or changed; "
            f'if you have changed it, remove "{CHECKSUM}" and "files" from it'
        )


def _check_outcome(values: Mapping[str, Any]) -> None:
    """Raise an error for an outcome of the wrong type; None stands for an unknown one."""
    kinds: dict[str, tuple[type | UnionType, str]] = {
        "command": (str, "a text"),
        "hardware": (str, "a text"),
        "device": (str, "a text"),
        "versions": (dict, "an object"),
        "images": (dict, "an object"),
        "graph": (dict, "an object"),
        "text": (dict, "an object"),
        "validation": (int | float, "a number"),
        "seconds": (int | float, "a number"),
        "processes": (int, "a whole number"),
        "best_epoch": (int, "a whole number"),
        "epochs": (int, "a whole number"),
    }
    for name, (kind, words) in kinds.items():
        value = values.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f"its {name} is {value!r}, not {words}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"its {name} is {value}, not a finite number")
    versions = values.get("versions") or {}
    if not all(isinstance(version, str) for version in versions.values()):
        raise ValueError(f"its versions are {versions!r}, not texts")
    files = values.get("files") or {}
    if not isinstance(files, dict) or not all(isinstance(name, str) and _is_digest(own) for name, own in files.items()):
        raise ValueError(f"its files are {files!r}, not names with sha256 and size")
    metrics = values.get("metrics", {"": 0.0})
    if not isinstance(metrics, dict) or not metrics or not all(map(_is_finite, metrics.values())):
        raise ValueError(f"its metrics are {metrics!r}, not finite numbers")
    untrained = values.get("untrained", [])
    if not isinstance(untrained, list) or not all(map(_is_untrained_score, untrained)):
        raise ValueError(f"its untrained scores are {untrained!r}, not a list of scores with test metrics")


def _is_untrained_score(values: object) -> bool:
    """Whether a value from JSON is an untrained score with test metrics."""
    known = {field.name for field in dataclasses.fields(UntrainedScore)}
    if not isinstance(values, dict) or not {"name", "validation", "metrics"} <= values.keys() <= known:
        return False
    metrics = values["metrics"]
    numbers = [values["validation"], *(metrics.values() if isinstance(metrics, dict) else [None])]
    return isinstance(values["name"], str) and len(numbers) > 1 and all(map(_is_finite, numbers))


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_digest(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("sha256"), str) and isinstance(value.get("size"), int)


def _from_format_2(values: Mapping[str, Any]) -> RunRecord:
    _require_keys(values, ["format"])
    if values["format"] != _FORMAT:
        raise ValueError(f"its format is {values['format']!r}, and this version reads formats 1 and {_FORMAT}")
    known = [field for field in dataclasses.fields(RunRecord) if field.name in values]
    needed = [field.name for field in dataclasses.fields(RunRecord) if field.default is dataclasses.MISSING]
    _require_keys(values, [*needed, "best_epoch"])
    for name in ("command", "device", "hardware", "versions", "processes"):
        if values.get(name, "") is None:
            raise ValueError(f"its {name} is None")
    for part in ("task", "model", "train"):
        if not isinstance(values[part], dict):
            raise ValueError(f"its {part} is {values[part]!r}, not a table of settings")
    for part, key, kind in (("task", "name", str), ("model", "residual", str), ("train", "seed", int)):
        if key not in values[part]:
            raise ValueError(f"its {part} has no {key}")
        if not isinstance(values[part][key], kind) or isinstance(values[part][key], bool):
            raise ValueError(f"{key} of its {part} is {values[part][key]!r}")
    return RunRecord(**{field.name: values[field.name] for field in known})


def _from_format_1(values: Mapping[str, Any]) -> RunRecord:
    """Read the flat format of earlier versions, which called a task a cell and a split or recipe a protocol."""
    _require_keys(values, ("cell", "method", "protocol", "seed", "split", "config", "best_epoch", "command"))
    name, protocol, settings = values["cell"], values["protocol"], values["config"]
    if not isinstance(name, str):
        raise ValueError(f"its cell is {name!r}, not the name of a task")
    if not isinstance(settings, dict):
        raise ValueError(f"its config is {settings!r}, not a table of settings")
    on_images = "images" in values or settings.get("model", next(iter(GRAPH_MODELS))) not in GRAPH_MODELS
    split = str(protocol).partition("-")[0]
    task = ImageTaskConfig(name) if on_images else GraphTaskConfig(name, split, values["split"])
    tree = configure(task, values["method"], values["seed"], settings).as_dict()
    outcome = ("validation", "best_epoch", "epochs", "seconds", "processes", "images", "metrics", "versions")
    return RunRecord(
        **tree,
        command=values["command"],
        device=values.get("device", "cpu"),
        hardware=values.get("hardware", ""),
        **{"versions": {}} | {key: values[key] for key in outcome if key in values},
    )


def _require_keys(values: Mapping[str, Any], names: Any) -> None:
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}")


# Fields of a task or model from Python whose values mean nothing to a reader.
_ORIGINS = {
    "kind": "only one of the two tasks was built in Python",
    "from": "only one of the two models was built in Python",
    "digest": "the data of its task differ",
}


def _first_difference(record: RunRecord, before: RunRecord) -> str | None:
    for part in ("task", "model", "train"):
        own, other = getattr(record, part), getattr(before, part)
        for name in dict.fromkeys([*own, *other]):
            if own.get(name) != other.get(name):
                if name in _ORIGINS:
                    return _ORIGINS[name]
                return f"{name} is {other.get(name)} there, not {own.get(name)}"
    return None
