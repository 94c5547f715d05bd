"""The verb ``predict``: what a trained network sees in a user's images, or makes of a graph's nodes."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet.cli.console import name_skipped, show

if TYPE_CHECKING:
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
    """Name the classes of images, or of nodes, with the model that `lresnet train` left in a folder.

    Images of another size than those of the training are resized and cropped. Files that cannot be read are passed
    over; it ends with code 1 if none could be read.

    Example: lresnet predict runs/cifar10-lorentz-0 cat.png photos/ --top 3

    Example: lresnet predict runs/cora_nc-lorentz-0 0 17

    Args:
        run: The folder of a run on images, or of one that classifies nodes.
        items: Image files, or folders with images; of a graph, the numbers of nodes (none: all of them).
        top: So many of the most probable classes of each.
        json: Write the predictions to this file too; - for the standard output, instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: Name the files that could not be read, and why.
    """
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    if opened.record.images is not None:
        return _images(opened, [Path(item) for item in items], top, json, verbose)
    return _nodes(opened, items, top, json)


def _images(run: "Run", images: Sequence[Path], top: int, json: str | None, verbose: bool) -> int:
    from lresnet.cli.prediction_table import prediction_json, prediction_notes, prediction_table
    from lresnet.runs.prediction import predict_images

    found = predict_images(run, images, top=top)
    show(prediction_table(found) if found.images else None, prediction_json(found), json)
    for note in prediction_notes(found):
        print(note, file=sys.stderr)
    if verbose:
        name_skipped(found.skipped)
    return 0 if found.images else 1


def _nodes(run: "Run", items: Sequence[str], top: int, json: str | None) -> int:
    from lresnet.cli.prediction_table import node_json, node_table
    from lresnet.runs.prediction import predict_nodes

    for item in items:
        if not item.isdecimal():
            raise ValueError(f"{run.place} holds a run on a graph; give the numbers of nodes, not {item!r}")
    found = predict_nodes(run, [int(item) for item in items], top=top)
    show(node_table(found), node_json(found), json)
    return 0
