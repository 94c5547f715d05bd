"""Configuration of a run: one tree of typed dataclasses for the task, the model and the training.

Every setting has one owner, with its type, default, help text and allowed range. The command line, presets in TOML and
Python build the same tree; every value is checked where its dataclass is made. :data:`DATA_KINDS` is the one table of
what differs between graphs, images and texts. The module imports without torch.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lresnet._options import option_name
from lresnet.data.source import DataKind
from lresnet.runs.model_config import (
    GRAPH_MODELS,
    IMAGE_MODELS,
    MODEL_CONFIGS,
    TEXT_MODELS,
    ModelConfig,
    ResNetConfig,
)
from lresnet.runs.names import require_known
from lresnet.runs.task_config import MACHINE_SETTINGS, GraphTaskConfig, ImageTaskConfig, TaskConfig, TextTaskConfig
from lresnet.train.config import Augment, TrainConfig

if TYPE_CHECKING:
    from lresnet.data import Task

__all__ = [
    "DATA_KINDS",
    "KindOfData",
    "RunConfig",
    "configure",
    "given_fields",
    "require_network_for",
    "require_shareable",
    "task_as_dict",
    "task_from_dict",
    "train_as_dict",
    "train_from_dict",
]


class KindOfData(NamedTuple):
    """What differs between runs on graphs, images and texts, beside the settings that their dataclasses declare."""

    task: type[TaskConfig]
    models: Mapping[str, type[ModelConfig]]
    """Networks by name, the default first."""
    default_task: str
    """Task of ``lresnet train`` without a name."""
    training: tuple[str, ...] = ()
    """Settings of :class:`~lresnet.train.config.TrainConfig` that only this kind has."""
    augmented: bool = False
    """Whether training data are augmented."""


DATA_KINDS: Mapping[DataKind, KindOfData] = {
    "graphs": KindOfData(GraphTaskConfig, GRAPH_MODELS, "disease_tree/lp", ("loss", "margin", "neighbours")),
    "images": KindOfData(ImageTaskConfig, IMAGE_MODELS, "cifar10", augmented=True),
    "texts": KindOfData(TextTaskConfig, TEXT_MODELS, "gcide"),
}
"""The kinds of data by the name that messages give them."""


@dataclass(frozen=True)
class RunConfig:
    """A run: its task, its model and how it is trained.

    Example:
        >>> config = configure(GraphTaskConfig("airport/lp"), settings={"lr": 0.1, "hidden": 8, "features": "raw"})
        >>> config.train.lr, config.model.name, config.task.features
        (0.1, 'lorentz_gcn', 'raw')
        >>> RunConfig.from_dict(config.as_dict()) == config
        True
    """

    task: TaskConfig
    model: ModelConfig
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def as_dict(self) -> dict[str, Any]:
        """Return the tree as JSON values; settings that are None are left out."""
        return {"task": task_as_dict(self.task), "model": given_fields(self.model), "train": train_as_dict(self.train)}

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> RunConfig:
        """Read what :meth:`as_dict` returned.

        Raises:
            ValueError: a part is missing, or a setting is unknown or out of its range.
        """
        try:
            model = dict(tree["model"])
            model_class = MODEL_CONFIGS[model["name"]]
            return cls(task_from_dict(tree["task"]), model_class(**model), train_from_dict(tree["train"]))
        except KeyError as error:
            raise ValueError(f"the configuration has no {error}, or an unknown value of it") from error
        except TypeError as error:
            raise ValueError(f"the configuration does not fit: {error}") from error

    def settings(self) -> dict[str, Any]:
        """Return the settings by name, flat, as the command line takes them; those that are None are left out."""
        hidden = {"name", "residual", "split", "split_index", "seed", "augment", "task"}
        parts = [self.model, self.train, self.task]
        if DATA_KINDS[self.task.data_kind].augmented:
            parts.append(self.train.augment)
        settings = {"model": self.model.name}
        for part in parts:
            settings |= {name: value for name, value in given_fields(part).items() if name not in hidden}
        return settings

    def command(self, processes: int = 1) -> str:
        """Return the command that repeats the run with every setting spelt out, whatever the presets may become."""
        program = ["lresnet"] if processes == 1 else ["torchrun", f"--nproc-per-node={processes}", "-m", "lresnet"]
        words = [*program, "train", self.task.name, "--method", self.model.residual, "--seed", str(self.train.seed)]
        words += self.task.words()
        for name, value in self.settings().items():
            typed = option_name(name)
            if isinstance(value, tuple):
                words += [f"--{typed}", *map(str, value)]
            elif isinstance(value, bool):
                words.append(f"--{typed}" if value else f"--no-{typed}")
            else:
                words += [f"--{typed}", _number(value) if isinstance(value, float) else str(value)]
        return shlex.join(words)

    def facts(self) -> dict[str, Any]:
        """Return what makes two runs the same, by name; a path is followed through its links."""
        path = Path(self.task.name)
        name = str(path.resolve()) if path.is_absolute() else self.task.name
        facts: dict[str, Any] = {"task": name, "method": self.model.residual}
        if isinstance(self.model, ResNetConfig):
            facts["stem"] = self.model.usual_stem  # where the settings have none
        settings = {name: value for name, value in self.settings().items() if name not in MACHINE_SETTINGS}
        return facts | self.task.split_facts() | {"seed": self.train.seed} | settings

    def same_run(self, other: RunConfig) -> str | None:
        """Return the first setting in which another configuration differs, as a sentence; None: they are equal."""
        own, others = self.facts(), other.facts()
        for name in dict.fromkeys([*own, *others]):
            if own.get(name) != others.get(name):
                return f"{name} is {others.get(name)} there, not {own.get(name)}"
        return None


def configure(
    task: TaskConfig,
    method: str = "lorentz",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Build the configuration of a run from flat settings, as the command line and TOML files provide them.

    Args:
        task: what is learned. Settings of the task in ``settings`` take precedence.
        method: the residual connection, a name of :data:`lresnet.residual.RESIDUALS`.
        seed: seed of parameters, negatives, shuffling and augmentation.
        settings: values by name; ``model`` names the network, ``lorentz_gcn``, ``lorentz_resnet18`` or ``lorentz_gpt``
            by default.

    Raises:
        ValueError: a setting is unknown, belongs to another model or kind of task, or is out of its range.
    """
    given = dict(settings or {})
    kind = DATA_KINDS[task.data_kind]
    name = given.pop("model", next(iter(kind.models)))
    require_known("model", name, MODEL_CONFIGS)
    require_network_for(task.data_kind, name, task.name)
    others = [setting for other in DATA_KINDS.values() if other is not kind for setting in other.training]
    misplaced = [setting for setting in others if setting in given]
    model = kind.models[name]
    taken = {part: _take(given, part) for part in (type(task), model, TrainConfig)}
    augment = _take(given, Augment) if kind.augmented else {}
    if misplaced or given:
        raise ValueError(_misplaced([*misplaced, *given][0], task, name))
    return RunConfig(
        dataclasses.replace(task, **taken[type(task)]),
        model(name, method, **taken[model]),
        TrainConfig(**{"seed": seed} | taken[TrainConfig], augment=Augment(**augment)),
    )


def require_network_for(data: DataKind, model: str, task: str) -> None:
    """Raise an error if a network of the library takes another kind of data than a task has.

    Args:
        data: kind of the task's data.
        model: name of the network; a ResNet may be of any depth.
        task: name of the task, for the message.

    Raises:
        ValueError: the network does not take such data.
    """
    names = DATA_KINDS[data].models
    if not any(name.startswith(model) for name in names):
        raise ValueError(f"{model} is not a network for {data}, as {task} needs; choose one of {', '.join(names)}")


def require_shareable(task: TaskConfig | Task, processes: int, batch_size: int | None) -> None:
    """Raise an error if several processes are to share a graph that is one batch.

    Raises:
        ValueError: there are several processes, the task is on a graph, and there is no batch size.
    """
    if processes > 1 and task.data_kind == "graphs" and batch_size is None:
        raise ValueError(
            f"{task.name} cannot be shared among {processes} processes: the whole graph is one batch; give "
            "--batch-size, e.g. --batch-size 512, to train on sampled batches, or start it without torchrun"
        )


def task_as_dict(task: TaskConfig) -> dict[str, Any]:
    """Return the configuration of a task as JSON values, see :meth:`RunConfig.as_dict`."""
    fields = given_fields(task)
    return {"kind": task.kind} | {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


def task_from_dict(values: Mapping[str, Any]) -> TaskConfig:
    """Read what :func:`task_as_dict` returned."""
    fields = dict(values)
    return {each.task.kind: each.task for each in DATA_KINDS.values()}[fields.pop("kind")](**fields)


def train_as_dict(train: TrainConfig) -> dict[str, Any]:
    """Return how a run is trained as JSON values, see :meth:`RunConfig.as_dict`; default augmentation is omitted."""
    augment = {} if train.augment == Augment() else {"augment": given_fields(train.augment)}
    return given_fields(train) | augment


def train_from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """Read what :func:`train_as_dict` returned."""
    augment = Augment(**values.get("augment", {}))
    return TrainConfig(**{**values, "augment": augment})


def _take(settings: dict[str, Any], owner: Any) -> dict[str, Any]:
    """Move the settings of a dataclass out of ``settings``."""
    names = {field.name for field in dataclasses.fields(owner)} - {"name", "residual", "augment", "task"}
    return {name: settings.pop(name) for name in list(settings) if name in names}


def _settings_of_kind(kind: KindOfData) -> set[str]:
    """Return the settings that a kind of data, its networks and its training have."""
    owners: list[Any] = [kind.task, *kind.models.values()] + [Augment] * kind.augmented
    return {field.name for owner in owners for field in dataclasses.fields(owner)}.union(kind.training)


def _misplaced(setting: str, task: TaskConfig, model: str) -> str:
    """Return the error message for a setting that the task or its model does not have: it names the owner."""
    for name, config in DATA_KINDS[task.data_kind].models.items():
        if setting in {field.name for field in dataclasses.fields(config)}:
            typed = option_name(setting)
            return f"--{typed} is not a setting of {model}, but of {name}; leave it out, or use --model {name}"
    for owner, kind in DATA_KINDS.items():
        if owner != task.data_kind and setting in _settings_of_kind(kind):
            return (
                f"--{option_name(setting)} is for {owner}, but {task.name} is a task on {task.data_kind}; leave it out"
            )
    return f"{setting!r} is not a setting of a run"


def given_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are not None and not dataclasses themselves."""
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {name: value for name, value in values.items() if value is not None and not isinstance(value, Augment)}


def _number(value: float) -> str:
    """Write 5.0 as 5, so that a value looks the same however it was given."""
    return str(int(value)) if value.is_integer() else str(value)
