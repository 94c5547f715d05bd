"""The verb ``ood``: out-of-distribution detection with a trained network."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.console import print_skipped
from lresnet.cli.options import require_seeds
from lresnet.runs.defaults import OOD_DRAWS

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.data import OodSet

__all__ = ["detection_notes", "listed", "listed_sets", "ood"]

_COLUMNS = {"fpr95": "FPR95 ↓", "auroc": "AUROC ↑", "aupr": "AUPR ↑"}


def ood(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    ood: Annotated[tuple[str, ...], arg(metavar="SET,SET,...")] = ("svhn,places,textures",),
    scores: Annotated[tuple[str, ...], arg(metavar="SCORE,SCORE,...")] = ("energy",),
    full: Annotated[bool, FlagCreatePairsOff] = False,
    draws: int = OOD_DRAWS,
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
    require_run_folder(run)
    from rich.console import Console

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
        print_skipped(entry for one in sets for entry in one.skipped)
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


def detection_table(rows: Sequence[dict[str, Any]]) -> "Table":
    """Return one row per set and score, for the terminal; metrics in percent, each set is named once."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from lresnet.runs.names import one_line

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=escape(_caption(rows)), caption_justify="left")
    table.add_column("set", overflow="fold")
    table.add_column("score")
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    before = None
    for row in rows:
        name = "" if row["ood"] == before else escape(one_line(row["ood"]))
        table.add_row(name, row["score"], *(_value(row, metric) for metric in _COLUMNS))
        before = row["ood"]
    return table


def detection_notes(sets: "Sequence[OodSet]") -> Iterator[str]:
    """Yield notes on the sets, one line each: what they are, and how many files could not be read."""
    from lresnet.runs.names import one_line

    for ood in sets:
        if ood.note:
            yield f"{one_line(ood.name)}: {ood.note}"
        if ood.skipped:
            files = len(ood.skipped) + len(ood.images)
            yield f"{one_line(ood.name)}: {len(ood.skipped)} of {files} files could not be read as images"


def detection_json(rows: Sequence[dict[str, Any]], sets: "Sequence[OodSet]") -> str:
    """Return one JSON object with the ``rows`` and the ``skipped`` files."""
    skipped = [{"ood": ood.name, "file": str(file), "reason": why} for ood in sets for file, why in ood.skipped]
    rounded = [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]
    return json.dumps({"rows": rounded, "skipped": skipped}, indent=2)


def _value(row: dict[str, Any], metric: str) -> str:
    deviation = f" ± {row[f'{metric}_std']:.1f}" if f"{metric}_std" in row else ""
    return f"{row[metric]:.1f}{deviation}"


def _caption(rows: Sequence[dict[str, Any]]) -> str:
    from lresnet.metrics.ood import draw_size
    from lresnet.runs.names import one_line

    counts = sorted({row["n_ood"] for row in rows})
    others = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    inside, kind = rows[0]["n_id"], "images of a set"
    if rows[0]["sampling"] == "draws":
        once, size = "auroc_std" not in rows[0], draw_size(inside, inside)
        kind = "images drawn once from a set" if once else "images drawn from a set: mean and deviation over the draws"
        small = dict.fromkeys(f"{one_line(row['ood'])} has {row['n_ood']:,}" for row in rows if row["n_ood"] < size)
        if small:
            equal = "" if once else ", so the draws do not differ"
            kind += f". Sets with fewer than {size:,} images are used in full{equal} ({', '.join(small)})"
    return f"Percent. {inside:,} test images (the positives) against {others} {kind}."
