"""Objectives: what the engine needs from a task, namely a training loss, a validation score and test metrics."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from lresnet.data import (
    AncestorTask,
    DatasetTask,
    GraphLevelTask,
    GraphTask,
    HierarchyTask,
    ImageTask,
    LinkTask,
    NodeTask,
    Task,
    TextTask,
)
from lresnet.train.config import Augment, TrainConfig
from lresnet.train.distributed import ONE_PROCESS, Processes

__all__ = [
    "OBJECTIVES",
    "Objective",
    "given_loss",
    "given_options",
    "make_objective",
    "require_no_graph_settings",
    "sampling_options",
]


Model = TypeVar("Model", bound=torch.nn.Module)


class Objective(abc.ABC, Generic[Model]):
    """A task bound to its data on one device. The engine knows nothing else about the task.

    An epoch is ``start_epoch()``, followed by ``steps_per_epoch`` times ``advance(i)`` and a step on ``loss(model)``.
    On CUDA that step is captured once and replayed (unless ``captures`` is False): ``loss`` must read changing values
    from tensors that stay at their place in memory, and ``advance`` writes them there.
    """

    compiles: ClassVar[bool] = False
    """Whether compiling the model makes its steps faster on CUDA; see ``execution`` of :func:`train_model`."""

    captures: ClassVar[bool] = True
    """Whether a step may be captured as a CUDA graph: all batches have the same shapes, at the same place in memory."""

    percent: ClassVar[bool] = True
    """Whether ``validation`` returns a fraction, which runs report in percent; otherwise its number is reported."""

    lower_is_better: ClassVar[bool] = False
    """Whether the smaller one of two validation scores is better, as for bits per byte."""

    processes: Processes = ONE_PROCESS
    """The processes that share every batch; ``loss`` is the loss of this process's share."""

    @classmethod
    def from_config(
        cls, task: Any, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> Objective[Any]:
        """Return the objective of a task with the settings of a configuration; :func:`make_objective` calls it.

        Raises:
            ValueError: the configuration sets an option that this kind of task does not have.
        """
        raise NotImplementedError(f"{cls.__name__} has no from_config")

    def require_model(self, model: Model) -> None:
        """Raise ``ValueError`` if this objective cannot train the model; called before the first step."""

    def precompile(self, model: Model) -> None:
        """Start work that can run in the background before the first step on CUDA, such as compiling kernels."""

    @property
    def steps_per_epoch(self) -> int:
        return 1

    @property
    def checkpoint_every(self) -> int:
        """Epochs between two checkpoints by default. An epoch of many batches takes as long as a hundred of one."""
        return 200 if self.steps_per_epoch == 1 else 10

    @property
    def generators(self) -> Sequence[torch.Generator]:
        """The generators that ``loss`` draws from, besides torch's own."""
        return ()

    def start_epoch(self) -> None:
        """Prepare what all steps of the epoch need, e.g. augmented images."""

    def advance(self, step: int) -> None:
        """Put the data of step number ``step`` of this epoch in place."""

    @abc.abstractmethod
    def loss(self, model: Model) -> Tensor:
        """Return the training loss of one step, a 0-dimensional tensor; draws what it needs, e.g. negative pairs."""

    def forward_training_data(self, model: Model) -> None:
        """Run the model on training inputs as evaluation does: without augmentation, and without drawing numbers that
        training draws. :func:`~lresnet.train.norm_statistics.reestimate_statistics` calls it.

        Batches have about equal sizes and represent the training data. It is optional: without it
        ``norm_statistics`` must be "running".
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward_training_data")

    @abc.abstractmethod
    def validation(self, model: Model) -> Tensor | None:
        """Return the score that selects epochs and configurations, a 0-dimensional tensor.

        Higher is better, unless ``lower_is_better``.

        None without validation data.
        """

    def validation_with_loss(self, model: Model) -> tuple[Tensor, Tensor]:
        """Return what :meth:`validation` returns, and the mean loss of the validation data.

        It is optional: without it ``criterion`` must be "score".
        """
        raise NotImplementedError(f"{type(self).__name__} has no validation_with_loss")

    @abc.abstractmethod
    def test(self, model: Model) -> dict[str, float]:
        """Return the test metrics, the main one first, in percent if ``percent``. Call it once per run, at its end."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generators, for resuming."""
        return {str(i): generator.get_state() for i, generator in enumerate(self.generators)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned, on the same kind of device."""
        for i, generator in enumerate(self.generators):
            generator.set_state(state[str(i)])


OBJECTIVES: Mapping[type[Task], str] = {
    LinkTask: "lresnet.train.link_prediction:LinkPrediction",
    NodeTask: "lresnet.train.node_classification:NodeClassification",
    GraphLevelTask: "lresnet.train.graph_classification:GraphClassification",
    HierarchyTask: "lresnet.train.hierarchy_completion:HierarchyCompletion",
    AncestorTask: "lresnet.train.ancestor_retrieval:AncestorRetrieval",
    ImageTask: "lresnet.train.image_classification:ImageClassification",
    DatasetTask: "lresnet.train.dataset_classification:DatasetClassification",
    TextTask: "lresnet.train.text_modelling:TextModelling",
}
"""The objective of every kind of task as ``"module:name"``; it is imported when it is needed."""


def make_objective(
    task: Task,
    config: TrainConfig,
    device: torch.device | str = "cpu",
    *,
    processes: Processes = ONE_PROCESS,
) -> Objective[Any]:
    """Return the objective for a task, by its type: link prediction, classification, language modelling, ...

    Args:
        task: data and split.
        config: loss, margin, batch size, neighbours, augmentation and seed. None takes the default of the objective;
            a graph without a batch size is one batch.
        device: where data and model are.
        processes: the processes that share each batch of images, windows of a text, seed nodes or training edges.

    Raises:
        ValueError: the configuration sets an option that this kind of task does not have.
    """
    name = next(OBJECTIVES[kind] for kind in type(task).__mro__ if kind in OBJECTIVES)
    objective: type[Objective[Any]] = resolve_name(name)
    return objective.from_config(task, config, device, processes)


def given_options(config: TrainConfig, *names: str) -> dict[str, Any]:
    """Return the settings of a configuration that are not None, as keyword arguments of an objective.

    Example:
        >>> given_options(TrainConfig(batch_size=32), "batch_size", "margin")
        {'batch_size': 32}
    """
    return {name: value for name in names if (value := getattr(config, name)) is not None}


def given_loss(task: Task, config: TrainConfig) -> dict[str, Any]:
    """Return loss and margin of links or classes as keyword arguments; those that are None are left out.

    Raises:
        ValueError: the loss is one of hierarchies.
    """
    if config.loss in ("ranking", "cones"):
        raise ValueError(f"loss={config.loss} is for hierarchies, but {task.name} is none; leave it out")
    return given_options(config, "loss", "margin")


def sampling_options(task: GraphTask, config: TrainConfig, processes: Processes) -> dict[str, Any] | None:
    """Return what an objective of sampled batches of one graph takes; None: the whole graph is one batch.

    Raises:
        ValueError: the configuration augments images, or sets without a batch size what only batches have.
    """
    if config.augment != Augment():
        raise ValueError(f"augment={config.augment} is for images, but {task.name} is a graph; leave it out")
    if config.batch_size is not None:
        return {
            "batch_size": config.batch_size,
            "neighbours": config.fanouts,
            "seed": config.seed,
            "processes": processes,
        }
    if config.neighbours is not None:
        raise ValueError(f"neighbours={config.neighbours!r} needs batch_size; without it the graph is one batch")
    if processes.size > 1:
        raise ValueError(
            f"{task.name} cannot be shared among {processes.size} processes as one batch; give a batch_size"
        )
    return None


def require_no_graph_settings(task: Task, config: TrainConfig) -> None:
    """Raise an error if a configuration sets neighbours, a loss or a margin, which images and texts do not have.

    Raises:
        ValueError: one of the settings is given.
    """
    if config.neighbours is not None:
        what = "is a text" if task.data_kind == "texts" else "are images"
        raise ValueError(f"neighbours={config.neighbours!r} is for graphs, but {task.name} {what}; leave it out")
    for name, value in given_options(config, "loss", "margin").items():
        raise ValueError(
            f"{name}={value} is for graphs, but {task.data_kind} are trained on cross entropy; leave it out"
        )
