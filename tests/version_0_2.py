"""State dicts and optimiser states as lresnet 0.2 wrote them: numbers without an axis, and no fixed curvature."""

from __future__ import annotations

from typing import Any

from torch import Tensor

NUMBERS = ("raw_weight", "log_scale", "log_kappa")


def as_0_2(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state dict of a network in the old form."""
    return {
        name: tensor.reshape(()) if name.endswith(NUMBERS) and tensor.shape == (1,) else tensor
        for name, tensor in state.items()
        if not name.endswith("_extra_state")
    }


def optimizer_as_0_2(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state dict of an optimiser of torch in the old form (of biases with one element too)."""
    moments = {
        index: {
            name: value.reshape(()) if isinstance(value, Tensor) and value.shape == (1,) else value
            for name, value in own.items()
        }
        for index, own in state["state"].items()
    }
    return state | {"state": moments}
