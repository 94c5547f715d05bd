"""One run: a cell, a method, a configuration and a seed, to a line of results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lresnet.data import LinkTask, NodeTask, load_task
from lresnet.models import LorentzGCN
from lresnet.train import LinkPrediction, NodeClassification, Objective, Schedule, fit, seed_everything
from lresnet.train.results import environment

__all__ = ["METHODS", "Run", "build", "execute"]

METHODS = ("none", "parallel_transport", "tangent", "space", "lorentz", "euclidean")

_SCHEDULE = {field.name for field in dataclasses.fields(Schedule)}
_OBJECTIVE = {"loss", "margin"}
_TASK = {"features"}


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


def build(run: Run, device: torch.device | str = "cpu") -> tuple[LorentzGCN, Objective[LorentzGCN], Schedule]:
    """The model, the objective and the schedule of a run; the model's parameters follow the seed."""
    config = dict(run.config)
    schedule = Schedule(**{name: config.pop(name) for name in list(config) if name in _SCHEDULE})
    objective = {name: config.pop(name) for name in list(config) if name in _OBJECTIVE}
    task = _task(run.cell, run.protocol, run.split, run.seed, **{n: config.pop(n) for n in list(config) if n in _TASK})
    seed_everything(run.seed)
    classes = task.num_classes if isinstance(task, NodeTask) else None
    model = LorentzGCN(in_features=task.x.shape[1], num_classes=classes, residual=run.method, **config).to(device)
    if isinstance(task, LinkTask):
        return model, LinkPrediction(task, seed=run.seed, device=device, **objective), schedule
    return model, NodeClassification(task, device=device, **objective), schedule


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


@functools.lru_cache(maxsize=4)
def _task(cell: str, protocol: str, split: int | None, seed: int, **options: Any) -> LinkTask | NodeTask:
    """Published splits are one and the same for every seed; honest ones follow it."""
    return load_task(cell, split=protocol if split is None else split, seed=seed, **options)
