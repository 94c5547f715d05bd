"""One run: a cell, a method, a configuration and a seed, to a line of results."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lresnet.data import LinkTask, NodeTask, load_task
from lresnet.models import LorentzGCN
from lresnet.train import LinkPrediction, NodeClassification, Objective, Schedule, fit, seed_everything
from lresnet.train.results import environment

__all__ = ["METHODS", "Run", "build", "complete", "execute", "task_of"]

METHODS = ("none", "parallel_transport", "tangent", "space", "lorentz", "euclidean")

_SCHEDULE = {field.name for field in dataclasses.fields(Schedule)}
_OBJECTIVE = {"loss", "margin"}
_TASK = {"features"}

_Bound = tuple[Callable[[Any], bool], str]
_AT_LEAST_1: _Bound = (lambda value: value >= 1, "at least 1")
_POSITIVE: _Bound = (lambda value: 0 < value < math.inf, "positive and finite")
# What a wrong value would otherwise show far from its cause, or never.
_BOUNDS: dict[str, _Bound] = {
    "epochs": _AT_LEAST_1,
    "eval_every": _AT_LEAST_1,
    "patience": _AT_LEAST_1,
    "hidden": _AT_LEAST_1,
    "num_layers": _AT_LEAST_1,
    "lr": _POSITIVE,
    "clip": _POSITIVE,
    "margin": _POSITIVE,
    "max_radius": _POSITIVE,
    "weight_decay": (lambda value: 0 <= value < math.inf, "not negative, and finite"),
    "dropout": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "curvature": (lambda value: -math.inf < value < 0, "negative and finite"),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """What to run. ``config`` holds arguments of the model, the objective, the schedule and the task, by name."""

    table: str
    cell: str
    method: str
    protocol: str
    seed: int
    config: dict[str, Any]
    split: int | None = None
    """Index of the official split, where there are several."""
    stage: str = "final"
    """``"search"``: the test set is not read. ``"final"``: it is, once."""

    def key(self) -> tuple[Any, ...]:
        """What makes two runs the same run."""
        config = tuple(sorted((name, str(value)) for name, value in self.config.items()))
        return (self.table, self.cell, self.method, self.protocol, self.seed, self.split, self.stage, config)


def complete(plan: dict[str, Any], method: str, configuration: dict[str, Any]) -> dict[str, Any]:
    """A configuration, completed by what a recipe fixes for all methods and for this one."""
    return plan["fixed"] | plan.get("only", {}).get(method, {}) | configuration  # type: ignore[no-any-return]


def build(run: Run, device: torch.device | str = "cpu") -> tuple[LorentzGCN, Objective[LorentzGCN], Schedule]:
    """The model, the objective and the schedule of a run; the model's parameters follow the seed.

    Raises:
        ValueError: a value of the configuration cannot be; its name and what it should be are said.
    """
    _require_bounds(run.config)
    task = task_of(run)
    config = {name: value for name, value in run.config.items() if name not in _TASK}
    schedule = Schedule(**{name: config.pop(name) for name in list(config) if name in _SCHEDULE})
    objective = {name: config.pop(name) for name in list(config) if name in _OBJECTIVE}
    seed_everything(run.seed)
    classes = task.num_classes if isinstance(task, NodeTask) else None
    model = LorentzGCN(in_features=task.x.shape[1], num_classes=classes, residual=run.method, **config).to(device)
    if isinstance(task, LinkTask):
        return model, LinkPrediction(task, seed=run.seed, device=device, **objective), schedule
    return model, NodeClassification(task, device=device, **objective), schedule


def task_of(run: Run) -> LinkTask | NodeTask:
    """The task of a run, with its split; a run that comes next with the same one finds it in memory."""
    options = {name: run.config[name] for name in _TASK if name in run.config}
    return _task(run.cell, run.protocol, run.split, run.seed, **options)


def execute(
    run: Run,
    *,
    command: str,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    on_epoch: Callable[[int, float | None], None] | None = None,
) -> tuple[dict[str, Any], LorentzGCN]:
    """Train, and read the test set if this is a final run. Returns the line for the results and the model."""
    model, objective, schedule = build(run, device)
    outcome = fit(model, objective, schedule, checkpoint=checkpoint, on_epoch=on_epoch)
    record = dataclasses.asdict(run)
    if run.stage == "final":
        record["metrics"] = {name: round(value, 4) for name, value in objective.test(model).items()}
        record["value"] = next(iter(record["metrics"].values()))
    record |= {
        "validation": round(outcome.validation, 4),
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "seconds": round(outcome.seconds, 2),
        "command": command,
        **environment(str(device)),
    }
    return record, model


def _require_bounds(config: dict[str, Any]) -> None:
    for name, (holds, words) in _BOUNDS.items():
        value = config.get(name)
        if value is not None and not holds(value):
            raise ValueError(f"{name} must be {words}, got {value}")


@functools.lru_cache(maxsize=4)
def _task(cell: str, protocol: str, split: int | None, seed: int, **options: Any) -> LinkTask | NodeTask:
    """Published splits are one and the same for every seed; honest ones follow it."""
    return load_task(cell, split=protocol if split is None else split, seed=seed, **options)
