"""Model cards: the ``README.md`` of a model on the Hugging Face hub, written from the record of its run."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, TypeVar

import jinja2

from lresnet._metric_names import digits, is_percentage
from lresnet.data.registry import DATASETS, TASKS
from lresnet.data.source import DataSource
from lresnet.data.split_names import SPLITS
from lresnet.residual.registry import METHODS
from lresnet.runs.config import train_from_dict
from lresnet.runs.graph_search import read_trials
from lresnet.runs.model_config import MODEL_CONFIGS
from lresnet.runs.own_network import is_own_network
from lresnet.runs.record import RunRecord
from lresnet.runs.report import (
    BASELINE,
    RunGroup,
    finished_record,
    folder_states,
    group_runs,
    record_of,
    settings_apart,
    settings_of,
)
from lresnet.train.config import TrainConfig

if TYPE_CHECKING:
    from lresnet.runs.run import Run

T = TypeVar("T")

__all__ = ["Baseline", "find_baseline", "model_card"]

# Settings of the geometry and of the residual: the Euclidean baseline has none of them.
_ONLY_HYPERBOLIC = ("curvature", "initial_scale", "learn_curvature", "residual_options", "scale", "weight")
_METRIC_LABELS = {
    "bits_per_byte": "bits per byte",
    "loss": "nats per token",
    "roc_auc": "ROC AUC",
    "mrr": "MRR",
    "ordered_mrr": "ordered MRR",
    "order": "ancestors in order",
    "parent_first": "parent first",
    "f1": "F1",
    "f1_binary": "F1 (binary)",
    "f1_macro": "F1 (macro)",
}
_GOALS = {
    "link": "link prediction",
    "node": "node classification",
    "graph-level": "graph classification",
    "hierarchy": "hierarchy completion",
}
_PIPELINES = {"image classification": "image-classification", "language modelling": "text-generation"}
_MOST_CLASSES = 1000  # names of more classes are left out of the code that loads the model


@dataclass(frozen=True)
class Baseline:
    """The run of the Euclidean baseline that a card shows.

    Args:
        record: its record, with test metrics if it was evaluated.
        trials: number of trials of the search that chose its settings; 0: they were given.
        settings: settings in which it differs from the run, in words; empty if they are equal.
    """

    record: RunRecord
    trials: int
    settings: str


def model_card(
    run: Run, baseline: str | Path | Run | None = None, *, repo: str | None = None, license: str | None = None
) -> str:
    """Return the model card of a finished run in Markdown, with the metadata of the Hugging Face hub.

    The figures are those of ``evaluation.json`` if the run was evaluated, otherwise the validation metric. Paths of the
    machine are left out; files of the user appear with their names.

    Args:
        run: the run.
        baseline: a run of the Euclidean baseline, or its folder. None: the one that :func:`find_baseline` finds.
        repo: the repository ``"owner/name"`` from which the card's code loads the model; None: the run's folder.
        license: licence of the weights for the metadata, e.g. ``"mit"``; None: the card has none.

    Raises:
        FileNotFoundError: ``baseline`` holds no run.
        ValueError: ``baseline`` is not a finished run of the Euclidean baseline on the same task and split, or is not
            evaluated although the run is.
    """
    record = _record(run)
    if record.on_dataset or is_own_network(record.model):
        raise ValueError(
            f"a model card describes a model of lresnet.create_model on data that lresnet reads, but {run.place} holds "
            f"{record.model['name']} on {record.data_name}"
        )
    other = find_baseline(run.folder, record) if baseline is None else _given_baseline(baseline, record)
    config, method, goal = run.model.config, METHODS.get(record.method), _goal(record)
    return _template().render(
        record=record,
        config=config,
        license=license,
        repo=repo,
        # With a folder, the code runs beside it. No absolute path gets into the card.
        source=repo or ("model" if run.folder is None else f"{run.folder.resolve().name}/model"),
        method=record.method if method is None else method.label,
        euclidean=record.method == BASELINE,
        curvature=_curvature(run),
        learned_curvature=bool(config.get("learn_curvature")),
        data_name=_without_folder(record.data_name),
        goal=goal,
        data=_data(record),
        split=_split(record),
        features=config.get("in_features"),
        one_point_per_node=_has_one_point_per_node(record, config),
        figures=_figures(record),
        metric_labels=_METRIC_LABELS,
        untrained=next(iter(record.untrained_scores), None),
        baseline=other,
        baseline_figures=None if other is None else _figures(other.record),
        group=None if run.folder is None else _group(run.folder, record),
        trials=len(read_trials(run.folder)),
        command=_command(record),
        load_task=_load_task(record),
        fit_call=_fit_call(record, config),
        most_classes=_MOST_CLASSES,
        pipeline=_PIPELINES.get(goal, "graph-ml"),
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
    )


def find_baseline(folder: Path | None, record: RunRecord) -> Baseline | None:
    """Return the Euclidean baseline among the run folders beside ``folder``; None: there is none, or several fit.

    It has the same task, data, split and seed, and is evaluated if the run is. A baseline with equal settings takes
    precedence; otherwise it must be the only one, and the card names the settings that differ.
    """
    if folder is None or record.method == BASELINE:
        return None
    found: list[Baseline] = []
    for file in sorted(folder.resolve().parent.glob("*/run.json")):
        try:
            other = finished_record(file.parent)
        except (OSError, ValueError):  # unfinished or damaged: no baseline
            continue
        if _misfit(record, other) is None:
            found.append(_baseline(record, other, file.parent))
    candidates = [one for one in found if not one.settings] or found
    return candidates[0] if len(candidates) == 1 else None


def _given_baseline(given: str | Path | Run, record: RunRecord) -> Baseline:
    from lresnet.runs.run import Run

    folder = given.folder if isinstance(given, Run) else Path(given)
    other = _record(given) if isinstance(given, Run) else finished_record(Path(given))
    misfit = _misfit(record, other)
    if misfit is not None:
        place = given.place if isinstance(given, Run) else str(given)
        raise ValueError(f"{place} is not a Euclidean baseline of this run: {misfit}")
    return _baseline(record, other, folder)


def _baseline(record: RunRecord, other: RunRecord, folder: Path | None) -> Baseline:
    own, theirs = (
        {name: _without_folder(value) for name, value in settings_of(one).items() if name not in _ONLY_HYPERBOLIC}
        for one in (record, other)
    )
    return Baseline(other, len(read_trials(folder)), settings_apart(own, theirs))


def _misfit(record: RunRecord, other: RunRecord) -> str | None:
    """Return why ``other`` is not a Euclidean baseline of a run, in words; None: it is one."""
    if other.method != BASELINE:
        return f"its residual is {other.method}, not {BASELINE}"
    for name, own, theirs in (
        ("task", (record.task_name, record.own_task), (other.task_name, other.own_task)),
        ("split", (record.split, record.split_index), (other.split, other.split_index)),
        ("metric", record.task.get("metric"), other.task.get("metric")),
        ("features", list(record.task.get("drop_columns") or ()), list(other.task.get("drop_columns") or ())),
        ("seed", record.seed, other.seed),
        ("data", _digests(record), _digests(other)),
    ):
        if own != theirs:
            return f"its {name} differs"
    if record.metrics is not None and other.metrics is None:
        return "its test metrics are missing; evaluate it first (`lresnet evaluate`)"
    return None


def _digests(record: RunRecord) -> list[Any]:
    images, graph = record.images or {}, record.graph or {}
    return [
        record.task.get("digest"),
        (record.text or {}).get("digest"),
        graph.get("digest"),
        images.get("training_digest"),
        images.get("test_digest"),
    ]


def _record(run: Run) -> RunRecord:
    """Return the record of a run, with its test metrics if it was evaluated, and the environment of its training."""
    return run.record if run.folder is None else record_of(run.folder)


def _group(folder: Path, record: RunRecord) -> RunGroup | None:
    """Return the runs beside ``folder`` that differ in seed or split index only, compared with the baseline's runs."""
    if record.metrics is None:
        return None
    folder = folder.resolve()
    evaluated = [(state.folder, state.record) for state in folder_states(folder.parent) if state.record is not None]
    groups = group_runs(evaluated)
    found = next((group for group in groups if any(own == folder for own, _ in group.runs)), None)
    return found if found is not None and found.difference is not None else None


def _figures(record: RunRecord) -> dict[str, float]:
    """Return the test metrics; if there are none, the validation metric."""
    if record.metrics is not None:
        return dict(record.metrics)
    name = "validation metric" if record.text is None else "bits_per_byte"
    return {} if record.validation is None else {name: record.validation}


def _inline(value: object) -> str:
    """Return a text as one line of Markdown in which no character has a meaning for Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(str(value).split()))


def _without_folder(value: T) -> T:
    """Return the name of the file if ``value`` is an absolute path, otherwise ``value``."""
    if isinstance(value, str):
        for path in (PurePosixPath(value), PureWindowsPath(value)):
            if path.is_absolute():
                return type(value)(path.name)
    return value


def _goal(record: RunRecord) -> str:
    if record.images is not None:
        return "image classification"
    if record.text is not None:
        return "language modelling"
    kind = record.task.get("task") or {"lp": "link", "nc": "node"}.get(record.task_name.rpartition("/")[2], "")
    return _GOALS.get(str(kind), "prediction on a graph")


def _data(record: RunRecord) -> DataSource | None:
    """Return the facts about a shipped data set; None for data of the user."""
    if record.task.get("kind") == "python":
        return None
    name = TASKS[record.task_name].dataset if record.task_name in TASKS else record.task_name
    return DATASETS.get(name)


def _shipped_split(record: RunRecord) -> dict[str, Any] | None:
    """Return the options of ``load_task`` that select the split of a shipped task; None for other data.

    A run that was started in Python by the name of its task has the first split of the task, drawn with seed 0.
    """
    if record.task.get("kind") != "graph" or record.own_task is not None:
        return None
    split, index = record.split or TASKS[record.task_name].splits[0], record.split_index
    if split == "official_splits":
        return {"split": index or 0}
    if index is not None:
        return {"split": split, "index": index}
    seed = 0 if record.split is None else record.seed
    return {"split": split, "seed": seed} if SPLITS[split].follows_seed else {"split": split}


def _split(record: RunRecord) -> str | None:
    """Return the name of the split; None for images, and for a task that was built in Python."""
    shipped = _shipped_split(record)
    if shipped is not None:
        split = shipped["split"]
        if isinstance(split, int):
            return f"official split {split}"
        number = f", number {shipped['index']}" if "index" in shipped else ""
        return f"{split}, drawn with seed {shipped['seed']}" if "seed" in shipped else f"{split}{number}"
    if record.own_task is None or record.task.get("kind") != "graph":
        return None
    if record.split_index is not None:
        return f"number {record.split_index} of the graph's own splits"
    if record.task.get("task") == "hierarchy" and record.split is None:
        return "leaves if the features are texts or names, otherwise closure"
    return _without_folder(record.split or "random")


def _has_one_point_per_node(record: RunRecord, config: Mapping[str, Any]) -> bool:
    if record.task.get("node_features") not in (None, "learned") or _data(record) is not None:
        return False
    return config.get("in_features") in ((record.graph or {}).get("nodes"), record.task.get("nodes"))


def _curvature(run: Run) -> float | None:
    manifold = getattr(run.model, "manifold", None)
    return None if manifold is None else float(manifold.K.detach())


def _command(record: RunRecord) -> str | None:
    """Return the command that repeats the run, with names of files instead of paths; None: there is none."""
    if record.from_python:
        return None
    command = record.command.removesuffix("; lresnet evaluate")
    shipped = _shipped_split(record)
    if shipped is not None and record.split_index is None and record.split is None:
        if shipped.get("seed", record.seed) != record.seed:  # the command would draw the split with the seed of the run
            return None
        command = f"{command} --split {shipped['split']}"
    if not command.isprintable() or "\\" in command:  # a line break in a name, or paths of Windows
        return None
    try:
        words = shlex.split(command)
    except ValueError:  # a command of the user's own making
        return None
    return shlex.join(map(_without_folder, words))


def _load_task(record: RunRecord) -> str | None:
    """Return the Python call that loads a shipped task on a graph as the run saw it; None for other data."""
    shipped = _shipped_split(record)
    if shipped is None:
        return None
    options = dict(shipped)
    if (features := record.task.get("features", "published")) != "published":
        options["features"] = features
    if dropped := record.task.get("drop_columns"):
        options["drop_columns"] = tuple(dropped)
    return _call("lresnet.data.load_task", record.task_name, **options)


def _fit_call(record: RunRecord, config: Mapping[str, Any]) -> str:
    """Return the Python call that trains such a model; a task that was built in Python is called ``task``."""
    task = "task" if record.task.get("kind") == "python" else _literal(_without_folder(record.task_name))
    given = {name: value for name, value in record.model.items() if value is not None and name != "name"}
    if given.pop("from", None) == "python":
        options = {name: value for name, value in config.items() if name != "model"}
        model = _call("lresnet.create_model", config["model"], **options)
    else:
        name = record.model["name"]
        model = _call(f"lresnet.runs.{MODEL_CONFIGS[name].__name__}", name, given.pop("residual"), **given)
    train, default = train_from_dict(record.train), TrainConfig()
    changed = {name: value for name, value in vars(train).items() if value != getattr(default, name)}
    settings = _call("lresnet.TrainConfig", **changed).replace("=Augment(", "=lresnet.train.Augment(")
    return f"lresnet.fit(\n    {task},\n    {model},\n    {settings},\n)"


def _call(function: str, *values: Any, **options: Any) -> str:
    words = [*map(_literal, values), *(f"{name}={_literal(value)}" for name, value in options.items())]
    return f"{function}({', '.join(words)})"


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lresnet.runs", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, not HTML
    )
    environment.filters["text"] = lambda value: json.dumps(value, ensure_ascii=False)  # valid in YAML and in Python
    environment.filters["inline"] = _inline
    environment.filters["figure"] = lambda value, name, sign="": f"{value:{sign}.{digits(name)}f}"
    environment.tests["percentage"] = is_percentage
    return environment.get_template("model_card.md.j2")
