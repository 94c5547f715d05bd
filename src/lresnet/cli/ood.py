"""The verb ``ood``: out-of-distribution detection with a trained network."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet.cli.console import name_skipped
from lresnet.cli.options import require_seeds

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
    """Detect out-of-distribution (OOD) images with the model that `lresnet train` left in a folder.

    By default the metrics are means over ten random draws of OOD images, a fifth as many as there are test images, as
    in the paper. FPR95 is the fraction of OOD images that are accepted when 95 % of the test images are.

    Example: lresnet ood runs/cifar10-lorentz-0 --ood svhn,noise_uniform,photos/ --scores all --out scores.png

    Args:
        run: The folder of a run on images.
        ood: OOD sets, separated by commas: svhn, places, textures, mnist, fashion_mnist, noise_gaussian,
            noise_uniform, or the path of a folder of images or of a .npz. Separate a path that contains a comma by a
            space.
        scores: energy, softmax, logit, and the scores of the model's geometry: origin_distance and boundary_distance
            or prototype_distance; for the Euclidean baseline euclidean_norm and euclidean_boundary_distance; or all.
        full: Use whole sets instead of draws.
        draws: Number of draws.
        seed: Seed of the draws.
        out: Draw histograms of the scores; .png, .svg or .pdf.
        json: Print one JSON object, for draws and for whole sets and with more metrics, instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: List the files that could not be read, and why.
    """
    from rich.console import Console

    from lresnet.cli.detection_table import detection_json, detection_notes, detection_table
    from lresnet.plots.picture import require_writable_picture
    from lresnet.plots.score_histograms import draw_score_histograms
    from lresnet.runs.detection import judge, score_run
    from lresnet.runs.run import Run

    require_seeds("--seed", seed)
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    if out is not None:
        require_writable_picture(out)
    found, sets = score_run(Run.open(run, device=device), listed_sets(ood), scores=listed(scores))
    rows = judge(found, draws=draws, seed=seed)
    if json:
        print(detection_json(rows, sets))
    else:
        sampling = "full" if full else "draws"
        Console().print(detection_table([row for row in rows if row["sampling"] == sampling]))
    for note in detection_notes(sets):
        print(note, file=sys.stderr)
    if verbose:
        name_skipped(entry for one in sets for entry in one.skipped)
    if out is not None:
        print(f"The picture: {draw_score_histograms(out, found)}", file=sys.stderr if json else sys.stdout)
    return 0


def listed_sets(parts: Sequence[str]) -> list[str]:
    """Split a list as :func:`listed` does, but keep a part whole if it is an existing path with a comma in it."""
    whole = [part for part in parts if "," in part and os.path.exists(part)]  # noqa: PTH110 - Path raises at long ones
    return [name for part in parts for name in ([part] if part in whole else listed([part]))]


def listed(parts: Sequence[str]) -> list[str]:
    """Split a list that is separated by commas or spaces.

    Example:
        >>> listed(["svhn,places", " textures"])
        ['svhn', 'places', 'textures']
    """
    return [name for part in parts for name in map(str.strip, part.split(",")) if name]
