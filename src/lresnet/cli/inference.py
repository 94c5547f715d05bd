"""The verb ``predict``: what a trained network sees in a user's images."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

__all__ = ["predict"]


def predict(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    images: Annotated[Positional[tuple[Path, ...]], arg(metavar="IMAGE|FOLDER")],
    top: int = 1,
    json: Annotated[str | None, arg(metavar="FILE|-")] = None,
    device: str = "auto",
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
) -> int:
    """Name the classes of images, with the model that `lresnet train` left in a folder.

    Images of another size than those of the training are resized and cropped. Files that cannot be read are passed
    over; it ends with code 1 if none could be read.

    Example: lresnet predict runs/cifar10-lorentz-0 cat.png photos/ --top 3

    Args:
        run: The folder of a run on images.
        images: Image files, or folders with images.
        top: So many of the most probable classes of each image.
        json: Write the predictions to this file too; - for the standard output, instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: Name the files that could not be read, and why.
    """
    from rich.console import Console

    from lresnet.report.prediction_table import prediction_json, prediction_notes, prediction_table
    from lresnet.studies.prediction import predict as predict_images
    from lresnet.train.checkpoint import write_atomically

    found = predict_images(run, images, top=top, device=device)
    if json == "-":
        print(prediction_json(found))
    else:
        if json is not None:
            write_atomically(Path(json), (prediction_json(found) + "\n").encode())
        if found.images:
            Console().print(prediction_table(found))
    for note in prediction_notes(found):
        print(note, file=sys.stderr)
    if verbose:
        for file, reason in found.skipped:
            print(f"  {file}: {reason}", file=sys.stderr)
    return 0 if found.images else 1
