"""One run: a cell, a method, a configuration and a seed, to a line of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lresnet.models.pretrained import Pretrained
from lresnet.studies.graph_run import build_graph_run, graph_cell, graph_task
from lresnet.studies.image_run import build_image_run, image_data, images_of
from lresnet.studies.settings import require_bounds
from lresnet.train import Objective, Outcome, Schedule, fit
from lresnet.train.results import environment
from lresnet.train.team import ALONE, Team

__all__ = ["METHODS", "Run", "build", "complete", "execute", "record_of", "require_data", "require_shareable"]

METHODS = ("none", "parallel_transport", "tangent", "space", "lorentz", "euclidean")


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
    """``"search"``, ``"train"``: the test set is not read. ``"final"``: it is, once. A line may also be of a
    ``"trial"``, which no table shows."""

    def key(self) -> tuple[Any, ...]:
        """What makes two runs the same run."""
        config = tuple(sorted((name, str(value)) for name, value in self.config.items()))
        return (self.table, self.cell, self.method, self.protocol, self.seed, self.split, self.stage, config)


def complete(plan: dict[str, Any], method: str, configuration: dict[str, Any], stage: str = "final") -> dict[str, Any]:
    """A configuration, completed by what a recipe fixes for all methods, for this one, and for this stage."""
    own = plan.get("only", {}).get(method, {})
    return plan["fixed"] | own | configuration | plan.get(stage, {})  # type: ignore[no-any-return]


def build(
    run: Run, device: torch.device | str = "cpu", team: Team = ALONE
) -> tuple[Pretrained, Objective[Any], Schedule]:
    """The model, the objective and the schedule of a run; the model's parameters follow the seed.

    Args:
        team: the processes that share the batches of images.

    Raises:
        ValueError: a value of the configuration cannot be; its name and what it should be are said.
    """
    require_shareable(run, team.size)
    require_bounds(run.config)
    return build_graph_run(run, device) if graph_cell(run.cell) else build_image_run(run, device, team)


def require_shareable(run: Run, processes: int) -> None:
    """Refuse a run that several processes cannot share.

    Raises:
        ValueError: it is one of graphs.
    """
    if processes > 1 and graph_cell(run.cell):
        raise ValueError(
            f"{run.cell} cannot be shared among {processes} processes: the whole graph is one batch, which one process "
            "trains on one device; start it without torchrun"
        )


def require_data(run: Run) -> None:
    """Load the data of a run, or say what is missing; runs that come next find them in memory."""
    if graph_cell(run.cell):
        graph_task(run)
    else:
        image_data(images_of(run), run.config.get("size"))


def execute(
    run: Run,
    *,
    command: str,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    on_epoch: Callable[[int, float | None], None] | None = None,
) -> tuple[dict[str, Any], Pretrained]:
    """Train, and read the test set if this is a final run. Returns the line for the results and the model.

    Args:
        checkpoint: file to go on from, written after every fifth of the epochs: for a ResNet-18 that takes as long as
            an epoch on a fast GPU, and so an interruption costs a fifth of a training at most.
    """
    model, objective, schedule = build(run, device)
    outcome = fit(
        model,
        objective,
        schedule,
        checkpoint=checkpoint,
        checkpoint_every=max(1, schedule.epochs // 5),
        execution="compiled",  # of a table there are many runs in one process, which share what is compiled
        on_epoch=on_epoch,
    )
    return record_of(run, outcome, model, objective, command, device), model


def record_of(
    run: Run,
    outcome: Outcome,
    model: Pretrained,
    objective: Objective[Any],
    command: str,
    device: torch.device | str,
) -> dict[str, Any]:
    """The line for the results of a run that has ended; of a final run with the test figures, read here and once."""
    record = dataclasses.asdict(run)
    if run.stage == "final":
        record["metrics"] = {name: round(value, 4) for name, value in objective.test(model).items()}
        record["value"] = next(iter(record["metrics"].values()))
    return record | {
        "validation": None if outcome.validation is None else round(outcome.validation, 4),
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "seconds": round(outcome.seconds, 2),
        "command": command,
        **environment(str(device)),
    }
