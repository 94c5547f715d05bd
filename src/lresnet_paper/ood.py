"""Runs of the table ``ood``: one training, and one line of results per out-of-distribution (OOD) set.

The cell of a training, ``cifar10/r20``, serves three cells of the paper's table: ``cifar10/svhn/r20`` and so on. The
reported score was fixed before any OOD set was read: the energy at T = 1, after the last epoch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Container, Iterable
from typing import Any

import torch

from lresnet.data import ImageTask
from lresnet.data.ood_sets import OodSet, load_ood_set
from lresnet.models import LorentzResNet
from lresnet.models.pretrained import Pretrained
from lresnet.runs.detection import available_scores, detect, norm_confidence
from lresnet.runs.tasks import load
from lresnet_paper.run import Run, run_config

__all__ = [
    "PAPER_SETS",
    "cells_served",
    "detections",
    "lines_of",
    "ood_set",
    "remaining",
    "require_sets",
    "training_cell",
]

PAPER_SETS = ("places", "svhn", "textures")
"""The OOD sets of the paper's table."""

_TABLE = "ood"
_METRICS = ("auroc", "fpr95", "fpr95_first", "aupr", "aupr_out", "n_id", "n_ood")


def training_cell(table: str, cell: str) -> str:
    """Return the cell of the training that serves ``cell``; in other tables, ``cell`` itself.

    Example:
        >>> training_cell("ood", "cifar10/svhn/r20")
        'cifar10/r20'
    """
    if table != _TABLE:
        return cell
    images, *_, network = cell.split("/")
    return f"{images}/{network}"


def cells_served(table: str, cell: str) -> list[str]:
    """Return the cells of the table in which a final run of ``cell`` has a line.

    Example:
        >>> cells_served("ood", "cifar10/r20")
        ['cifar10/places/r20', 'cifar10/svhn/r20', 'cifar10/textures/r20']
    """
    if table != _TABLE or cell != training_cell(table, cell):
        return [cell]
    images, network = cell.split("/")
    return [f"{images}/{name}/{network}" for name in PAPER_SETS]


def remaining(run: Run, finished: Container[tuple[Any, ...]]) -> list[Run]:
    """Return what is left to execute of ``run``, given the keys of finished runs.

    If a training has lines in only some of its cells, this is one run for each other cell: no line is written twice.
    """
    cells = [run.cell] if run.stage == "search" else cells_served(run.table, run.cell)
    runs = [dataclasses.replace(run, cell=cell) for cell in cells]
    left = [own for own in runs if own.key() not in finished]
    return [run] if len(left) == len(runs) else left


def require_sets(table: str, cell: str) -> None:
    """Load the OOD sets of the final runs of ``cell``, or report which are missing; other tables have none."""
    if table == _TABLE:
        for served in cells_served(table, cell):
            ood_set(served.split("/")[1])


def detections(run: Run, model: Pretrained, device: torch.device | str) -> dict[str, Any]:
    """Return ``{"detections": ...}`` with the ``value``, ``metrics`` and ``note`` of each cell that ``run`` serves.

    The value is the AUROC of the energy on random draws from the OOD set, as in the paper. The metrics are those of the
    energy on the same draws; ``full`` holds them for the whole set, and ``scores`` holds both for the other scores.
    """
    assert isinstance(model, LorentzResNet)  # the only models for images
    task = load(run_config(run).task)
    assert isinstance(task, ImageTask)
    data = task.data
    cells = {cell.split("/")[1]: cell for cell in cells_served(run.table, run.cell)}
    sets = [ood_set(name) for name in cells]
    # The seed decides the draws, so that methods are compared on the same images.
    rows = detect(model, data, sets, scores=available_scores(model), seed=run.seed, device=device)
    norms = norm_confidence(model, data)
    return {
        "detections": {
            cell: _results_of_set([row for row in rows if row["ood"] == name]) | {"norm_confidence": _rounded(norms)}
            for name, cell in cells.items()
        }
    }


def lines_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of results of a run: one, but one per served cell for a final run of the table ood.

    The lines share the time of the training equally; ``served`` is their number.
    """
    cells = cells_served(record["table"], record["cell"])
    if record["table"] != _TABLE or record["stage"] == "search":
        return [record]
    own = {name: value for name, value in record.items() if name != "detections"} | {"served": len(cells)}
    if "seconds" in own:
        own["seconds"] = round(own["seconds"] / len(cells), 2)
    return [own | {"cell": cell} | _results_of_cell(record, cell) for cell in cells]


def _results_of_cell(record: dict[str, Any], cell: str) -> dict[str, Any]:
    """Return the detection results of one cell and the test accuracy; empty for a run that diverged."""
    if "detections" not in record:
        return {}
    found: dict[str, Any] = record["detections"][cell]
    return found | {"metrics": found["metrics"] | record["metrics"]}


def _results_of_set(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    by_score: dict[str, dict[str, Any]] = {}
    note = ""
    for row in rows:
        metrics = _rounded({name: row[name] for name in _METRICS})
        own = by_score.setdefault(row["score"], {})
        own |= {"full": metrics} if row["sampling"] == "full" else metrics
        note = row["note"]
    energy = by_score.pop("energy")
    return {"value": energy["auroc"], "metrics": energy | {"scores": by_score}, "note": note}


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


@functools.lru_cache(maxsize=len(PAPER_SETS))
def ood_set(name: str) -> OodSet:
    """Return the OOD set called ``name``; it stays in memory for the next runs."""
    return load_ood_set(name)
