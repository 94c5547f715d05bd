"""The verb ``predict``: classes of a user's images, or of the nodes of a graph."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.console import image_notes, print_skipped, print_table

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.runs.prediction import NodePrediction, Predictions
    from lresnet.runs.run import Run

__all__ = ["predict"]


def predict(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    items: Annotated[Positional[tuple[str, ...]], arg(metavar="IMAGE|FOLDER|NODE")],
    top: int = 1,
    json: Annotated[str | None, arg(metavar="FILE|-")] = None,
    device: str = "auto",
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
) -> int:
    """Predict the classes of images or of nodes with the model in a run folder.

    Images of another size than the training images are resized and cropped. Files that cannot be read are skipped; the
    exit code is 1 if none could be read.

    Example: lresnet predict runs/cifar10-lorentz-0 cat.png photos/ --top 3

    Example: lresnet predict runs/cora_nc-lorentz-0 0 17

    Args:
        run: The folder of a run on images, or of a run that classifies nodes.
        items: Image files, or folders of images; for a graph, the numbers of nodes (none: all nodes).
        top: Number of most probable classes to show for each item.
        json: Also write the predictions to this file; - prints JSON instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: List the files that could not be read, and why.
    """
    require_run_folder(run)
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    if opened.record.images is not None:
        return _images(opened, [Path(item) for item in items], top, json, verbose)
    return _nodes(opened, items, top, json)


def _images(run: "Run", images: Sequence[Path], top: int, json: str | None, verbose: bool) -> int:
    from lresnet.runs.prediction import predict_images

    found = predict_images(run, images, top=top)
    print_table(prediction_table(found) if found.images else None, prediction_json(found), json)
    for note in image_notes(len(found.images), found.size, found.resized, len(found.skipped)):
        print(note, file=sys.stderr)
    if verbose:
        print_skipped(found.skipped)
    return 0 if found.images else 1


def _nodes(run: "Run", items: Sequence[str], top: int, json: str | None) -> int:
    from lresnet.runs.prediction import predict_nodes

    for item in items:
        if not item.isdecimal():
            raise ValueError(f"{run.place} holds a run on a graph; give the numbers of nodes, not {item!r}")
    found = predict_nodes(run, [int(item) for item in items], top=top)
    print_table(node_table(found), node_json(found), json)
    return 0


def prediction_table(predictions: "Predictions") -> "Table":
    """Return one row per image and class, for the terminal; each file is named once."""
    return _class_table("image", [(str(one.file), one.classes, one.probabilities) for one in predictions.images])


def node_table(predictions: "Sequence[NodePrediction]") -> "Table":
    """Return one row per node and class, for the terminal; each node is named once."""
    return _class_table(
        "node", [(str(one.node), [str(label) for label in one.classes], one.probabilities) for one in predictions]
    )


def _class_table(kind: str, items: Sequence[tuple[str, Sequence[str], Sequence[float]]]) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from lresnet.runs.one_line import one_line

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(kind, overflow="fold")
    table.add_column("class", overflow="fold")
    table.add_column("probability", justify="right", no_wrap=True)
    for name, classes, probabilities in items:
        for rank, (label, share) in enumerate(zip(classes, probabilities, strict=True)):
            table.add_row("" if rank else escape(one_line(name)), escape(one_line(label)), f"{100 * share:.1f} %")
    return table


def prediction_json(predictions: "Predictions") -> str:
    """Return one JSON object: ``images`` with file, size and classes, and the ``skipped`` files."""
    images = [
        {"file": str(image.file), "size": list(image.size), "predictions": _pairs(image.classes, image.probabilities)}
        for image in predictions.images
    ]
    skipped = [{"file": str(file), "reason": reason} for file, reason in predictions.skipped]
    return json.dumps({"size": list(predictions.size), "images": images, "skipped": skipped}, indent=2)


def node_json(predictions: "Sequence[NodePrediction]") -> str:
    """Return one JSON object: ``nodes`` with number and classes."""
    nodes = [{"node": one.node, "predictions": _pairs(one.classes, one.probabilities)} for one in predictions]
    return json.dumps({"nodes": nodes}, indent=2)


def _pairs(classes: Sequence[str | int], probabilities: Sequence[float]) -> list[dict[str, str | int | float]]:
    return [
        {"class": label, "probability": round(share, 6)} for label, share in zip(classes, probabilities, strict=True)
    ]
