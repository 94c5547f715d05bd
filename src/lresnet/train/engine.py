"""The one training loop: seeds, schedule, clipping, early stopping, NaN sentry, checkpoints, resume."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch

from lresnet.optim import Optimizers, make_adam
from lresnet.train.checkpoint import load_checkpoint, save_checkpoint
from lresnet.train.objective import Objective
from lresnet.train.sentry import Sentry

__all__ = ["Outcome", "Schedule", "fit", "seed_everything"]

Trained = TypeVar("Trained", bound=torch.nn.Module)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How to train. Everything that decides a result besides model, objective and seed."""

    epochs: int = 1000
    lr: float = 0.01
    weight_decay: float = 0.0
    lr_schedule: Literal["constant", "cosine"] = "constant"
    clip: float | None = None
    """Largest global gradient norm."""
    patience: int | None = None
    """Stop at the first look at the validation set that is this many epochs or more after the best one."""
    eval_every: int = 5
    """Epochs between two looks at the validation set."""


@dataclasses.dataclass
class Outcome:
    """What a run gave."""

    best_epoch: int
    validation: float
    """Best validation figure, percent."""
    epochs: int
    seconds: float


def seed_everything(seed: int) -> None:
    """Torch's generators on every device; ours are all derived from explicit seeds."""
    torch.manual_seed(seed)


def fit(
    model: Trained,
    objective: Objective[Trained],
    schedule: Schedule,
    *,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
    on_epoch: Callable[[int, float | None], None] | None = None,
) -> Outcome:
    """Train ``model`` on ``objective``; resumes from ``checkpoint`` if that file is there, to the same numbers.

    The model is left with the parameters of the best validation figure, in eval mode. The test set is not touched:
    that is for the caller, once, with ``objective.test(model)``.

    Args:
        checkpoint: file for the whole state of the run, written at the start (a folder that cannot be written to fails
            there) and every ``checkpoint_every`` epochs; None: never.
        on_epoch: called as ``on_epoch(epoch, best validation so far)`` at every look at the validation set.

    Nothing is read from a GPU between two looks at the validation set.
    """
    run = _Run(model, objective, schedule, make_adam(model, schedule.lr, schedule.weight_decay))
    state = load_checkpoint(checkpoint) if checkpoint else None
    if state is not None:
        run.load_state_dict(state)
    elif checkpoint:
        save_checkpoint(checkpoint, run.state_dict())
    started = time.perf_counter()
    while run.epoch < schedule.epochs and not run.out_of_patience():
        run.step()
        if run.epoch % schedule.eval_every == 0 or run.epoch == schedule.epochs:
            run.look()
            if on_epoch is not None:
                on_epoch(run.epoch, run.best)
        if checkpoint and run.epoch % checkpoint_every == 0:
            run.seconds += time.perf_counter() - started
            started = time.perf_counter()
            save_checkpoint(checkpoint, run.state_dict())
    run.seconds += time.perf_counter() - started
    return run.outcome()


class _Run(Generic[Trained]):
    """The state of a run between two epochs, and what one epoch does to it."""

    def __init__(
        self, model: Trained, objective: Objective[Trained], schedule: Schedule, optimizers: Optimizers
    ) -> None:
        self.model, self.objective, self.schedule, self.optimizers = model, objective, schedule, optimizers
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.sentry = Sentry(self.device)
        self.epoch, self.best_epoch, self.best, self.seconds = 0, 0, -math.inf, 0.0
        self.best_state: dict[str, torch.Tensor] = {}

    def step(self) -> None:
        try:
            self._step()
        except ValueError:  # a check of values, e.g. of the curvature, may meet a NaN before the sentry does
            self.sentry.check_parameters(self.model, self.epoch)
            raise
        self.epoch += 1

    def _step(self) -> None:
        if self.schedule.lr_schedule == "cosine":
            self.optimizers.scale_lr(0.5 * (1 + math.cos(math.pi * self.epoch / self.schedule.epochs)))
        self.model.train()
        self.optimizers.zero_grad()
        loss = self.objective.loss(self.model)
        self.sentry.watch(loss, self.epoch)
        if self.device.type == "cpu":  # nothing to wait for, and the parameters are still those of this step
            self.sentry.check(self.model, lambda: self.objective.loss(self.model))
        loss.backward()
        if self.schedule.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.schedule.clip, foreach=True)
        self.optimizers.step()

    def look(self) -> None:
        """Validate, and keep a copy of the parameters if they are the best so far."""
        self.sentry.check(self.model, lambda: self.objective.loss(self.model))
        self.sentry.check_parameters(self.model, self.epoch - 1)
        self.model.eval()
        with torch.no_grad():
            value = 100 * float(self.objective.validation(self.model))
        if value > self.best:
            self.best, self.best_epoch = value, self.epoch
            self.best_state = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def out_of_patience(self) -> bool:
        patience, last_look = self.schedule.patience, self.epoch - self.epoch % self.schedule.eval_every
        return patience is not None and last_look - self.best_epoch >= patience

    def outcome(self) -> Outcome:
        """Go back to the best parameters."""
        if self.best_state:
            self.model.load_state_dict(self.best_state)
        self.model.eval()
        return Outcome(self.best_epoch, self.best, self.epoch, self.seconds)

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "best_state": self.best_state,
            "optimizers": self.optimizers.state_dict(),
            "objective": self.objective.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best": self.best,
            "seconds": self.seconds,
            "schedule": dataclasses.asdict(self.schedule),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["schedule"] != dataclasses.asdict(self.schedule):
            raise ValueError("the checkpoint belongs to a run with another schedule; delete it or use another folder")
        self.model.load_state_dict(state["model"])
        self.optimizers.load_state_dict(state["optimizers"])
        self.objective.load_state_dict(state["objective"])
        self.best_state = {name: tensor.to(self.device) for name, tensor in state["best_state"].items()}
        self.epoch, self.best_epoch = state["epoch"], state["best_epoch"]
        self.best, self.seconds = state["best"], state["seconds"]
        torch.set_rng_state(state["random"])
        if state["random_cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["random_cuda"])
