"""Objectives: what the engine needs from a task, namely a training loss, a validation score and test metrics."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from lresnet.train.config import Augment, TrainConfig
from lresnet.train.distributed import ONE_PROCESS, Processes

if TYPE_CHECKING:
    from lresnet.data import DatasetTask, Task

__all__ = ["Objective", "make_objective"]


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

    def require_model(self, model: Model) -> None:
        """Raise ``ValueError`` if this objective cannot train the model; called before the first step."""

    def precompile(self, model: Model) -> None:
        """Start work that can run in the background before the first step on CUDA, such as compiling kernels."""

    @property
    def steps_per_epoch(self) -> int:
        return 1

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
    # The objectives are imported here because they import this module, and only the one that is needed.
    from lresnet.data import AncestorTask, DatasetTask, GraphLevelTask, HierarchyTask, LinkTask, NodeTask, TextTask

    loss: dict[str, Any] = {"loss": config.loss, "margin": config.margin}
    loss = {name: value for name, value in loss.items() if value is not None}
    batch: dict[str, Any] = {"batch_size": config.batch_size} if config.batch_size is not None else {}
    if isinstance(task, HierarchyTask):
        from lresnet.train.hierarchy_completion import HierarchyCompletion

        for name, value in (("neighbours", config.neighbours), ("margin", config.margin)):
            if value is not None:
                raise ValueError(f"{name}={value!r} is not for a hierarchy, as {task.name} is one; leave it out")
        if config.augment != Augment() or processes.size > 1:
            raise ValueError(f"{task.name} is a hierarchy, which has no augmentation and trains in one process")
        return HierarchyCompletion(task, seed=config.seed, device=device, **batch, **loss)
    if loss.get("loss") in ("ranking", "cones"):
        raise ValueError(f"loss={config.loss} is for hierarchies, but {task.name} is none; leave it out")
    if isinstance(task, LinkTask | NodeTask):
        if config.augment != Augment():
            raise ValueError(f"augment={config.augment} is for images, but {task.name} is a graph; leave it out")
        if batch:
            from lresnet.train.sampled import SampledLinkPrediction, SampledNodeClassification

            options = batch | {"neighbours": config.fanouts, "seed": config.seed, "processes": processes} | loss
            if isinstance(task, LinkTask):
                return SampledLinkPrediction(task, device=device, **options)
            return SampledNodeClassification(task, device=device, **options)
        if config.neighbours is not None:
            raise ValueError(f"neighbours={config.neighbours!r} needs batch_size; without it the graph is one batch")
        if processes.size > 1:
            raise ValueError(
                f"{task.name} cannot be shared among {processes.size} processes as one batch; give a batch_size"
            )
        if isinstance(task, LinkTask):
            from lresnet.train.link_prediction import LinkPrediction

            return LinkPrediction(task, seed=config.seed, device=device, **loss)
        from lresnet.train.node_classification import NodeClassification

        return NodeClassification(task, device=device, **loss)
    if isinstance(task, GraphLevelTask):
        from lresnet.train.graph_classification import GraphClassification

        if config.neighbours is not None or processes.size > 1:
            raise ValueError(f"{task.name} classifies whole graphs, which are not sampled or shared among processes")
        return GraphClassification(task, seed=config.seed, device=device, **batch, **loss)
    if isinstance(task, AncestorTask):
        from lresnet.train.ancestor_retrieval import AncestorRetrieval

        wrong: dict[str, Any] = {name: getattr(config, name) for name in ("batch_size", "neighbours", "margin")}
        wrong["loss"] = None if config.loss == "cross_entropy" else config.loss
        wrong["augment"] = None if config.augment == Augment() else config.augment
        for name, value in wrong.items():
            if value is not None:
                raise ValueError(f"{task.name} is trained on cross entropy as one batch; leave out {name}={value!r}")
        if processes.size > 1:
            raise ValueError(f"{task.name} cannot be shared among {processes.size} processes")
        return AncestorRetrieval(task, seed=config.seed, device=device)
    is_text = isinstance(task, TextTask)
    what = "is a text" if is_text else "are images"
    if config.neighbours is not None:
        raise ValueError(f"neighbours={config.neighbours!r} is for graphs, but {task.name} {what}; leave it out")
    for name, value in loss.items():
        kind = "texts" if is_text else "images"
        raise ValueError(f"{name}={value} is for graphs, but {kind} are trained on cross entropy; leave it out")
    if isinstance(task, TextTask):
        from lresnet.train.text_modelling import TextModelling

        if config.augment != Augment():
            raise ValueError(f"augment={config.augment} is for images, but {task.name} is a text; leave it out")
        return TextModelling(task, seed=config.seed, device=device, processes=processes, **batch)
    if isinstance(task, DatasetTask):
        return _dataset_objective(task, config, device, processes)
    from lresnet.train.image_classification import ImageClassification

    return ImageClassification(
        task, augment=config.augment, seed=config.seed, device=device, processes=processes, **batch
    )


def _dataset_objective(
    task: DatasetTask, config: TrainConfig, device: torch.device | str, processes: Processes
) -> Objective[Any]:
    from lresnet.train.dataset_classification import DatasetClassification

    smoothing = config.augment.label_smoothing
    if config.augment != Augment(label_smoothing=smoothing):
        raise ValueError(
            f"augment={config.augment} is for images that lresnet reads, but {task.name} has its own transforms; only "
            "label_smoothing applies"
        )
    if config.patience is not None and task.validation is None:
        raise ValueError(
            f"patience={config.patience} needs validation data, and {task.name} has none; give validation= or leave it "
            "out"
        )
    return DatasetClassification(
        task,
        batch_size=config.batch_size,
        label_smoothing=smoothing,
        seed=config.seed,
        device=device,
        processes=processes,
    )
