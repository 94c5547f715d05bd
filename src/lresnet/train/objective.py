"""What the engine asks of a task: a loss to minimise, a figure to select by, figures to report."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from lresnet.train.team import ALONE, Team

__all__ = ["Objective"]


Model = TypeVar("Model", bound=torch.nn.Module)


class Objective(abc.ABC, Generic[Model]):
    """One task bound to its data on one device. The engine knows nothing else about it.

    An epoch is ``start_epoch()``, then ``steps_per_epoch`` times ``advance(i)`` and a step on ``loss(model)``. On CUDA
    that last part is recorded once and replayed: ``loss`` must read what changes from tensors that stay where they
    are, and ``advance`` puts it there.
    """

    compiles: ClassVar[bool] = False
    """Whether its steps are faster on CUDA with a compiled model; see ``execution`` of :func:`lresnet.train.fit`."""

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
        """Figures on the test set, in percent; the first is the one to report. For once a run, after :func:`fit`."""

    def state_dict(self) -> dict[str, Any]:
        """State of what the loss draws from, for resuming."""
        return {str(i): generator.get_state() for i, generator in enumerate(self.generators)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken; the same kind of device is needed."""
        for i, generator in enumerate(self.generators):
            generator.set_state(state[str(i)])
