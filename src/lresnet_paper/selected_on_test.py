"""A measurement: how much higher a test score is if the epoch is chosen on the test set and not on the validation set.

Scores that were chosen on the test set are no results. Their lines have a file, a table and a stage of their own, no
field ``value``, and no table of results or comparison of methods reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lresnet.runs.statistics import Estimate, Summary, resampled_difference, summarise
from lresnet.train import train_model
from lresnet.train.results import environment
from lresnet_paper.comparisons import resampling_ratio
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
    """The test scores of one cell, method and number of epochs over the splits, by what selected the epoch."""

    cell: str
    method: str
    epochs: int
    """Largest number of epochs."""
    by_validation: Summary
    by_test: Summary
    gain: Estimate | None
    """The highest test score minus the one at the best validation score, over resampled splits."""
    command: str
    hardware: str


def published_config(cell: str, method: str = "euclidean", epochs: int | None = None) -> dict[str, Any]:
    """Return the settings of SGFormer's published command as a configuration of ours.

    Args:
        cell: a cell of the table of graph transformers.
        method: a method of the recipe.
        epochs: largest number of epochs; None: that of the command.

    Example:
        >>> config = published_config("chameleon")
        >>> config["lr"], config["dropout"], config["epochs"], config["eval_every"]
        (0.001, 0.6, 200, 1)
    """
    plan = recipe("graph_transformer", cell, PROTOCOL)
    config = complete(plan, method, plan["configurations"][-1]) | {"eval_every": 1, "patience": _PATIENCE}
    return config if epochs is None else config | {"epochs": epochs}


def run_selected_on_test(
    cell: str, config: dict[str, Any], method: str, split: int, *, command: str, device: str = "cpu"
) -> dict[str, Any]:
    """Train on one official split with its number as the seed, read the test set at every epoch, return the line."""
    run = Run(SELECTED_TABLE, cell, method, split_name(PROTOCOL), split, config, split, SELECTED_TABLE)
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
    """Return one selection per cell, method and number of epochs, in order of first appearance."""
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for line in lines:
        if line["table"] == SELECTED_TABLE:
            groups.setdefault((line["cell"], line["method"], line["config"]["epochs"]), []).append(line)
    return [_selection(*key, own) for key, own in groups.items()]


def _selection(cell: str, method: str, epochs: int, lines: list[Mapping[str, Any]]) -> Selection:
    honest, highest = (
        {line["split"]: line[name] for line in lines} for name in ("test_at_best_validation", "highest_test")
    )
    ratio = resampling_ratio(cell, PROTOCOL)
    gain = None if ratio is None else resampled_difference(highest, honest, test_per_train=ratio)
    last, scores = lines[-1], (summarise(honest.values()), summarise(highest.values()))
    return Selection(cell, method, epochs, *scores, gain, last["command"], last["hardware"])
