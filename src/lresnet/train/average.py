"""An exponential moving average of a model's parameters and buffers."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MovingAverage"]


class MovingAverage:
    r""":math:`a \leftarrow \beta a + (1 - \beta) p` after every step, from the parameters at the start on.

    Counters are copied. (torch's ``AveragedModel`` reads its own counter on the host at every update, which a recorded
    step cannot.)
    """

    def __init__(self, model: torch.nn.Module, beta: float) -> None:
        if not 0 < beta < 1:
            raise ValueError(f"average must be between 0 and 1, got {beta}; 0.999 keeps about the last 1000 steps")
        self.beta, self._model = beta, model
        self.state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are now."""
        now = self._model.state_dict()
        floats = [name for name, tensor in now.items() if tensor.is_floating_point()]
        torch._foreach_lerp_([self.state[n] for n in floats], [now[n] for n in floats], 1 - self.beta)
        for name, tensor in now.items():
            if not tensor.is_floating_point():
                self.state[name].copy_(tensor)

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved ``state``."""
        for name, tensor in self.state.items():
            tensor.copy_(state[name])
