"""What the engine asks of a task: a loss to minimise, a figure to select by, figures to report."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from lresnet.train.config import Augment, TrainConfig
from lresnet.train.distributed import ALONE, Team

if TYPE_CHECKING:
    from lresnet.data import ImageData, LinkTask, NodeTask

__all__ = ["Objective", "make_objective"]


Model = TypeVar("Model", bound=torch.nn.Module)


class Objective(abc.ABC, Generic[Model]):
    """One task bound to its data on one device. The engine knows nothing else about it.

    An epoch is ``start_epoch()``, then ``steps_per_epoch`` times ``advance(i)`` and a step on ``loss(model)``. On CUDA
    that last part is recorded once and replayed: ``loss`` must read what changes from tensors that stay where they
    are, and ``advance`` puts it there.
    """

    compiles: ClassVar[bool] = False
    """Whether compiling the model makes its steps faster on CUDA; see ``execution`` of :func:`train_model`."""

    team: Team = ALONE
    """The processes that share every batch; ``loss`` is then that of this one's share."""

    def rehearse(self, model: Model) -> None:
        """Before a first step on CUDA: begin what can be done in the background, such as to compile kernels."""

    @property
    def steps_per_epoch(self) -> int:
        return 1

    @property
    def generators(self) -> Sequence[torch.Generator]:
        """What ``loss`` draws from, besides torch's own generator."""
        return ()

    def start_epoch(self) -> None:
        """Make what all steps of the epoch need, e.g. augmented images."""

    def advance(self, step: int) -> None:
        """Put the data of step number ``step`` of this epoch into place."""

    @abc.abstractmethod
    def loss(self, model: Model) -> Tensor:
        """Training loss of one step (draws what it needs, e.g. negatives); a 0-dimensional tensor."""

    @abc.abstractmethod
    def validation(self, model: Model) -> Tensor | None:
        """The figure that epochs and configurations are chosen by, higher is better; 0-dimensional, on the device.

        None where nothing is held out.
        """

    @abc.abstractmethod
    def test(self, model: Model) -> dict[str, float]:
        """Figures on the test set, in percent, the one to report first. For one call per run, after training."""

    def state_dict(self) -> dict[str, Any]:
        """State of what the loss draws from, for resuming."""
        return {str(i): generator.get_state() for i, generator in enumerate(self.generators)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken; the same kind of device is needed."""
        for i, generator in enumerate(self.generators):
            generator.set_state(state[str(i)])


def make_objective(
    task: LinkTask | NodeTask | ImageData,
    config: TrainConfig,
    device: torch.device | str = "cpu",
    *,
    holdout: float = 0.0,
    team: Team = ALONE,
) -> Objective[Any]:
    """Return the objective of a task: link prediction, node classification or image classification, by its type.

    Args:
        task: data and split. A graph's task, or images.
        config: loss, margin, batch size, augmentation and seed; None takes the default of the objective.
        device: where data and model are.
        holdout: fraction of the training images that is held out for validation.
        team: the processes that share each batch of images.

    Raises:
        ValueError: the configuration sets an option that this kind of task does not have.
    """
    # The objectives import this module for their base class.
    from lresnet.data import LinkTask, NodeTask
    from lresnet.train.image_classification import ImageClassification
    from lresnet.train.link_prediction import LinkPrediction
    from lresnet.train.node_classification import NodeClassification

    loss: dict[str, Any] = {
        name: getattr(config, name) for name in ("loss", "margin") if getattr(config, name) is not None
    }
    batch: dict[str, Any] = {} if config.batch_size is None else {"batch_size": config.batch_size}
    if isinstance(task, LinkTask | NodeTask):
        if batch:
            raise ValueError(f"batch_size={config.batch_size} is for images; a graph is one batch: leave it out")
        if config.augment != Augment():
            raise ValueError(f"augment={config.augment} is for images; a graph is not augmented: leave it out")
        if isinstance(task, LinkTask):
            return LinkPrediction(task, seed=config.seed, device=device, **loss)
        return NodeClassification(task, device=device, **loss)
    if loss:
        raise ValueError(f"{next(iter(loss))} is for graphs; images are trained on cross entropy: leave it out")
    return ImageClassification(
        task, holdout=holdout, augment=config.augment, seed=config.seed, device=device, team=team, **batch
    )
