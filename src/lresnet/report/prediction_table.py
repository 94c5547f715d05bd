"""Predictions for the terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from lresnet.studies.prediction import Predictions

__all__ = ["prediction_json", "prediction_notes", "prediction_table"]


def prediction_table(predictions: Predictions) -> Table:
    """A row for each image and class; the file is named once."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("image", overflow="fold")
    table.add_column("class", overflow="fold")
    table.add_column("probability", justify="right", no_wrap=True)
    for image in predictions.images:
        name = escape(str(image.file))
        for label, share in zip(image.classes, image.probabilities, strict=True):
            table.add_row(name, escape(label), f"{100 * share:.1f} %")
            name = ""
    return table


def prediction_notes(predictions: Predictions) -> Iterator[str]:
    """What one must know to read the table, a line each."""
    count, (width, height) = len(predictions.images), predictions.size
    if predictions.resized:
        yield f"{predictions.resized} of {count} images had another size than {width} x {height}: cropped, then resized"
    if predictions.skipped:
        yield f"{len(predictions.skipped)} of {count + len(predictions.skipped)} files could not be read as images"


def prediction_json(predictions: Predictions) -> str:
    """One object: ``images``, each with its file, size and classes, and what was ``skipped``."""
    images = [
        {
            "file": str(image.file),
            "size": list(image.size),
            "predictions": [
                {"class": label, "probability": round(share, 6)}
                for label, share in zip(image.classes, image.probabilities, strict=True)
            ],
        }
        for image in predictions.images
    ]
    skipped = [{"file": str(file), "reason": reason} for file, reason in predictions.skipped]
    return json.dumps({"size": list(predictions.size), "images": images, "skipped": skipped}, indent=2)
