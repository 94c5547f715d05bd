"""The verb ``ood``: how well a trained network tells its own kind of images from others."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet.cli.console import name_skipped
from lresnet.cli.settings import require_seeds

__all__ = ["listed", "listed_sets", "ood"]


def ood(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    ood: Annotated[tuple[str, ...], arg(metavar="SET,SET,...")] = ("svhn,places,textures",),
    scores: Annotated[tuple[str, ...], arg(metavar="SCORE,SCORE,...")] = ("energy",),
    full: Annotated[bool, FlagCreatePairsOff] = False,
    draws: int = 10,
    seed: int = 0,
    out: Annotated[Path | None, arg(metavar="FILE")] = None,
    json: Annotated[bool, FlagCreatePairsOff] = False,
    device: str = "auto",
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
) -> int:
    """Tell out-of-distribution images from the test images, with the model that `lresnet train` left in a folder.

    The paper's figures: a fifth as many images of another set as there are test images, drawn ten times. FPR95 is the
    share of them that passes for in-distribution where 95 % of the test images do.

    Example: lresnet ood runs/cifar10-lorentz-0 --ood svhn,noise_uniform,photos/ --scores all --out scores.png

    Args:
        run: The folder of a run on images.
        ood: Sets, with commas between them: svhn, places, textures, mnist, fashion_mnist, noise_gaussian,
            noise_uniform, or the path of a folder of images or of a .npz; one with a comma in it after a blank.
        scores: energy, softmax, logit, and those of the model's geometry: origin_distance and boundary_distance or
            prototype_distance, for the Euclidean twin euclidean_norm and euclidean_boundary_distance; or all.
        full: Whole sets instead of draws.
        draws: How often to draw.
        seed: Of the draws.
        out: Draw histograms of the scores; .png, .svg or .pdf.
        json: Print one JSON object, with both protocols and more metrics, instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: Name the files that could not be read, and why.
    """
    from rich.console import Console

    from lresnet.cli.detection_table import detection_json, detection_notes, detection_table
    from lresnet.plots.picture import require_writable_picture
    from lresnet.plots.score_histograms import draw_score_histograms
    from lresnet.runs.detection import judge, score_folder

    require_seeds("--seed", seed)
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    if out is not None:
        require_writable_picture(out)
    found, sets = score_folder(run, listed_sets(ood), scores=listed(scores), device=device)
    rows = judge(found, draws=draws, seed=seed)
    if json:
        print(detection_json(rows, sets))
    else:
        protocol = "full" if full else "draws"
        Console().print(detection_table([row for row in rows if row["protocol"] == protocol]))
    for note in detection_notes(sets):
        print(note, file=sys.stderr)
    if verbose:
        name_skipped(entry for one in sets for entry in one.skipped)
    if out is not None:
        print(f"The picture: {draw_score_histograms(out, found)}", file=sys.stderr if json else sys.stdout)
    return 0


def listed_sets(parts: Sequence[str]) -> list[str]:
    """As :func:`listed`, but a part that is a path with a comma in it stays whole."""
    whole = [part for part in parts if "," in part and os.path.exists(part)]  # noqa: PTH110 - Path's raises at long ones
    return [name for part in parts for name in ([part] if part in whole else listed([part]))]


def listed(parts: Sequence[str]) -> list[str]:
    """What is named in ``parts``, with commas or blanks between.

    Example:
        >>> listed(["svhn,places", " textures"])
        ['svhn', 'places', 'textures']
    """
    return [name for part in parts for name in map(str.strip, part.split(",")) if name]
