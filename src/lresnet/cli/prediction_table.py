"""Predictions for the terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from lresnet.runs.one_line import one_line

if TYPE_CHECKING:
    from lresnet.runs.prediction import NodePrediction, Predictions

__all__ = ["image_notes", "node_json", "node_table", "prediction_json", "prediction_notes", "prediction_table"]


def prediction_table(predictions: Predictions) -> Table:
    """A row for each image and class; the file is named once."""
    table = _table("image")
    for image in predictions.images:
        _add_rows(table, str(image.file), image.classes, image.probabilities)
    return table


def node_table(predictions: Sequence[NodePrediction]) -> Table:
    """A row for each node and class; the node is named once."""
    table = _table("node")
    for one in predictions:
        _add_rows(table, str(one.node), [str(label) for label in one.classes], one.probabilities)
    return table


def _table(first: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, overflow="fold")
    table.add_column("class", overflow="fold")
    table.add_column("probability", justify="right", no_wrap=True)
    return table


def _add_rows(table: Table, name: str, classes: Sequence[str], probabilities: Sequence[float]) -> None:
    for label, share in zip(classes, probabilities, strict=True):
        table.add_row(escape(one_line(name)), escape(one_line(label)), f"{100 * share:.1f} %")
        name = ""


def prediction_notes(predictions: Predictions) -> Iterator[str]:
    """What one must know to read the table, a line each."""
    return image_notes(len(predictions.images), predictions.size, predictions.resized, len(predictions.skipped))


def image_notes(count: int, size: tuple[int, int], resized: int, skipped: int) -> Iterator[str]:
    """What became of a user's image files, a line each.

    Args:
        count: how many were read.
        size: width and height that the network takes.
        resized: how many of those read have another size.
        skipped: how many could not be read.

    Example:
        >>> list(image_notes(3, (8, 8), 0, 1))
        ['1 of 4 files could not be read as images']
    """
    width, height = size
    if resized:
        yield f"{resized} of {count} images had another size than {width} x {height}: cropped, then resized"
    if skipped:
        yield f"{skipped} of {count + skipped} files could not be read as images"


def prediction_json(predictions: Predictions) -> str:
    """One object: ``images``, each with its file, size and classes, and what was ``skipped``."""
    images = [
        {
            "file": str(image.file),
            "size": list(image.size),
            "predictions": _pairs(image.classes, image.probabilities),
        }
        for image in predictions.images
    ]
    skipped = [{"file": str(file), "reason": reason} for file, reason in predictions.skipped]
    return json.dumps({"size": list(predictions.size), "images": images, "skipped": skipped}, indent=2)


def node_json(predictions: Sequence[NodePrediction]) -> str:
    """One object: ``nodes``, each with its number and classes."""
    nodes = [{"node": one.node, "predictions": _pairs(one.classes, one.probabilities)} for one in predictions]
    return json.dumps({"nodes": nodes}, indent=2)


def _pairs(classes: Sequence[str | int], probabilities: Sequence[float]) -> list[dict[str, str | int | float]]:
    return [
        {"class": label, "probability": round(share, 6)} for label, share in zip(classes, probabilities, strict=True)
    ]
