"""How to train: everything that decides a result besides model, objective and seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["LrSchedule", "Schedule"]

LrSchedule = Literal["constant", "cosine", "multistep"]

# "multistep" multiplies the rate by 0.2 after these shares of the epochs: at 60, 120 and 160 of the paper's 200.
_DROPS, _DROP = (0.3, 0.6, 0.8), 0.2


@dataclass(frozen=True)
class Schedule:
    """Optimiser, learning rate, and when to look at the validation set.

    Example:
        >>> schedule = Schedule(epochs=200, lr=0.1, lr_schedule="multistep")
        >>> [round(schedule.lr * schedule.factor(epoch), 5) for epoch in (0, 60, 120, 160)]
        [0.1, 0.02, 0.004, 0.0008]
    """

    epochs: int = 1000
    lr: float = 0.01
    weight_decay: float = 0.0
    """Adam's is decoupled, that of adam_l2 and SGD part of the gradient; not of curvature, residual weights, scales."""
    lr_schedule: LrSchedule = "constant"
    clip: float | None = None
    """Largest global gradient norm."""
    patience: int | None = None
    """Stop at the first look at the validation set that is this many epochs or more after the best one."""
    eval_every: int = 5
    """Epochs between two looks at the validation set."""
    optimizer: Literal["adam", "adam_l2", "sgd"] = "adam"
    """SGD has Nesterov momentum 0.9; adam_l2 is :func:`lresnet.optim.make_adam_l2`."""
    decay: Literal["matrices", "all"] = "matrices"
    """What weight decay touches: matrices and kernels alone, or norms and biases too."""
    warmup: float = 0.0
    """Epochs in which the learning rate rises linearly."""
    keep: Literal["best", "last"] = "best"
    """Which parameters a run ends with: those of the best look at the validation set, or the last ones."""
    average: float | None = None
    """Share of the old value, e.g. 0.999, in an average of the parameters over the steps; None: no average."""

    def factor(self, epoch: float, steps: int = 1) -> float:
        """What the learning rate is multiplied by at ``epoch`` (with a fraction inside one of several ``steps``)."""
        if epoch + 1 / steps <= self.warmup:
            return (epoch + 1 / steps) / self.warmup
        if self.lr_schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * max(0.0, epoch - self.warmup) / (self.epochs - self.warmup)))
        if self.lr_schedule == "multistep":
            # Rounded: 0.3 * 10 is 3 for a person, and a drop must not come one epoch late for a rounding error.
            return _DROP ** sum(epoch >= round(share * self.epochs, 6) for share in _DROPS)
        return 1.0
