"""State dicts, optimiser states and checkpoints as lresnet 0.2 wrote them: numbers without an axis, no checksums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lresnet.train import TrainConfig

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


def save_checkpoint_as_0_2(path: Path, state: dict[str, Any], config: TrainConfig) -> None:
    """Write the state of a run: with twelve of its settings, and as torch does."""
    rest = {name: value for name, value in state.items() if name not in ("identity", "best_loss")}
    torch.save(rest | {"schedule": config.schedule()}, path)
