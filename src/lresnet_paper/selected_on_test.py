"""A measurement: how much higher a test score is if the epoch is chosen on the test set and not on the validation set.

Scores that were chosen on the test set are no results. Their lines have a file, a table and a stage of their own, no
field ``value``, and no table of results or comparison of methods reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lresnet.runs.statistics import Estimate, Summary, mean_interval, summarise
from lresnet.train import train_model
from lresnet.train.results import environment
from lresnet_paper.plan import recipe
from lresnet_paper.run import Run, build, complete, split_name

__all__ = ["PROTOCOL", "SELECTED_TABLE", "Selection", "published_config", "run_selected_on_test", "selections"]

SELECTED_TABLE = "selected_on_test"
"""The name of the file of results, and of the fields ``table`` and ``stage`` of its lines."""
PROTOCOL = "official_splits-sgformer"
"""The recipe whose last configuration is SGFormer's published command."""

# SGFormer's code scores every epoch and stops this many epochs after the best one.
_PATIENCE = 200


class Selection(NamedTuple):
    """The test scores of one cell and method over its runs, by what selected the epoch."""

    cell: str
    method: str
    by_validation: Summary
    by_test: Summary
    gain: Estimate | None
    """The highest test score minus the one at the best validation score; Student's interval over the runs."""
    epochs: int
    """Largest number of epochs of a run."""
    command: str
    hardware: str


def published_config(cell: str, method: str = "euclidean") -> dict[str, Any]:
    """Return the settings of SGFormer's published command as a configuration of ours.

    Example:
        >>> config = published_config("chameleon")
        >>> config["lr"], config["dropout"], config["epochs"], config["eval_every"]
        (0.001, 0.6, 200, 1)
    """
    plan = recipe("graph_transformer", cell, PROTOCOL)
    return complete(plan, method, plan["configurations"][-1]) | {"eval_every": 1, "patience": _PATIENCE}


def run_selected_on_test(
    cell: str, method: str, split: int, seed: int, *, command: str, device: str = "cpu"
) -> dict[str, Any]:
    """Train the published settings on one official split, read the test set at every epoch, and return the line."""
    config = published_config(cell, method)
    run = Run(SELECTED_TABLE, cell, method, split_name(PROTOCOL), seed, config, split, SELECTED_TABLE)
    model, objective, training = build(run, device)
    scores: dict[int, float] = {}

    def read_test_set(epoch: int, best: float | None) -> None:
        model.eval()
        scores[epoch] = next(iter(objective.test(model).values()))

    outcome = train_model(model, objective, training, on_epoch=read_test_set)
    highest = max(scores, key=lambda epoch: scores[epoch])
    return dataclasses.asdict(run) | {
        "test_at_best_validation": round(scores[outcome.best_epoch], 4),
        "best_epoch": outcome.best_epoch,
        "validation": None if outcome.validation is None else round(outcome.validation, 4),
        "highest_test": round(scores[highest], 4),
        "highest_test_epoch": highest,
        "epochs": outcome.epochs,
        "seconds": round(outcome.seconds, 2),
        "command": command,
        **environment(device),
    }


def selections(lines: Iterable[Mapping[str, Any]]) -> list[Selection]:
    """Return one selection per cell and method, in order of first appearance."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in lines:
        if line["table"] == SELECTED_TABLE:
            groups.setdefault((line["cell"], line["method"]), []).append(line)
    return [_selection(*key, own) for key, own in groups.items()]


def _selection(cell: str, method: str, lines: list[Mapping[str, Any]]) -> Selection:
    honest, highest = ([line[name] for line in lines] for name in ("test_at_best_validation", "highest_test"))
    gain = mean_interval([high - own for high, own in zip(highest, honest, strict=True)])
    last = lines[-1]
    epochs = max(line["epochs"] for line in lines)
    return Selection(
        cell, method, summarise(honest), summarise(highest), gain, epochs, last["command"], last["hardware"]
    )
