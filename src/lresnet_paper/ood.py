"""Runs of the table ``ood``: one training, then a line of results for each set of images from elsewhere.

A training has a cell of its own, ``cifar10/r20``, and serves three of the paper's table, ``cifar10/svhn/r20`` and the
like. What is reported was fixed before any of these sets was looked at: the energy at T = 1, after the last epoch.
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
from lresnet.runs.run import load
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
"""The sets of the paper's table."""

_TABLE = "ood"
_FIGURES = ("auroc", "fpr95", "fpr95_first", "aupr", "aupr_out", "n_id", "n_ood")


def training_cell(table: str, cell: str) -> str:
    """The cell of the training that serves ``cell``; in other tables ``cell`` itself.

    Example:
        >>> training_cell("ood", "cifar10/svhn/r20")
        'cifar10/r20'
    """
    if table != _TABLE:
        return cell
    images, *_, network = cell.split("/")
    return f"{images}/{network}"


def cells_served(table: str, cell: str) -> list[str]:
    """The cells of the table that final runs of ``cell`` have a line in.

    Example:
        >>> cells_served("ood", "cifar10/r20")
        ['cifar10/places/r20', 'cifar10/svhn/r20', 'cifar10/textures/r20']
    """
    if table != _TABLE or cell != training_cell(table, cell):
        return [cell]
    images, network = cell.split("/")
    return [f"{images}/{name}/{network}" for name in PAPER_SETS]


def remaining(run: Run, finished: Container[tuple[Any, ...]]) -> list[Run]:
    """What is left to do of ``run``, where the runs with these keys are finished.

    Of a training that has a line in some of its cells only, a run for each of the others: no line is written twice.
    """
    cells = [run.cell] if run.stage == "search" else cells_served(run.table, run.cell)
    runs = [dataclasses.replace(run, cell=cell) for cell in cells]
    left = [own for own in runs if own.key() not in finished]
    return [run] if len(left) == len(runs) else left


def require_sets(table: str, cell: str) -> None:
    """Load the sets that final runs of ``cell`` are judged by, or say what is missing; other tables have none."""
    if table == _TABLE:
        for served in cells_served(table, cell):
            ood_set(served.split("/")[1])


def detections(run: Run, model: Pretrained, device: torch.device | str) -> dict[str, Any]:
    """``{"detections": ...}``: for each cell that ``run`` serves its ``value``, ``metrics`` and ``note``.

    The value is the AUROC of the energy by the paper's draws, and so are the metrics, but for those under ``full`` (the
    whole set instead of draws) and under ``scores`` (other scores, with the same two).
    """
    assert isinstance(model, LorentzResNet)  # a run on images has no other
    task = load(run_config(run).task)
    assert isinstance(task, ImageTask)
    data = task.data
    cells = {cell.split("/")[1]: cell for cell in cells_served(run.table, run.cell)}
    sets = [ood_set(name) for name in cells]
    # The draws follow the seed: methods that are compared over seeds are judged by the same images.
    rows = detect(model, data, sets, scores=available_scores(model), seed=run.seed, device=device)
    norms = norm_confidence(model, data)
    return {
        "detections": {
            cell: _detection([row for row in rows if row["ood"] == name]) | {"norm_confidence": _rounded(norms)}
            for name, cell in cells.items()
        }
    }


def lines_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of results of a run: one, of a training for detection one for each cell.

    The time of the training is shared out among its lines, and ``served`` says how many they are.
    """
    cells = cells_served(record["table"], record["cell"])
    if record["table"] != _TABLE or record["stage"] == "search":
        return [record]
    own = {name: value for name, value in record.items() if name != "detections"} | {"served": len(cells)}
    if "seconds" in own:
        own["seconds"] = round(own["seconds"] / len(cells), 2)
    return [own | {"cell": cell} | _figures(record, cell) for cell in cells]


def _figures(record: dict[str, Any], cell: str) -> dict[str, Any]:
    """What a line says of its own cell, and the accuracy at home; nothing of a run that diverged."""
    if "detections" not in record:
        return {}
    found: dict[str, Any] = record["detections"][cell]
    return found | {"metrics": found["metrics"] | record["metrics"]}


def _detection(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    by_score: dict[str, dict[str, Any]] = {}
    note = ""
    for row in rows:
        figures = _rounded({name: row[name] for name in _FIGURES})
        own = by_score.setdefault(row["score"], {})
        own |= {"full": figures} if row["sampling"] == "full" else figures
        note = row["note"]
    energy = by_score.pop("energy")
    return {"value": energy["auroc"], "metrics": energy | {"scores": by_score}, "note": note}


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


@functools.lru_cache(maxsize=len(PAPER_SETS))
def ood_set(name: str) -> OodSet:
    """The set called ``name``; a run that comes next finds it in memory."""
    return load_ood_set(name)
