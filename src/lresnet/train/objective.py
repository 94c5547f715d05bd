"""What the engine asks of a task: a loss to minimise, a figure to select by, figures to report."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

__all__ = ["Objective"]


Model = TypeVar("Model", bound=torch.nn.Module, contravariant=True)


class Objective(Protocol[Model]):
    """One task bound to its data on one device. The engine knows nothing else about it."""

    def loss(self, model: Model) -> Tensor:
        """Training loss of one step (draws what it needs, e.g. negatives); a 0-dimensional tensor."""
        ...

    def validation(self, model: Model) -> Tensor:
        """The figure that epochs and configurations are chosen by, higher is better; 0-dimensional, on the device."""
        ...

    def test(self, model: Model) -> dict[str, float]:
        """Figures on the test set, in percent; the first is the one to report. For once a run, after :func:`fit`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """State of what the loss draws from (generators), for resuming."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
