"""The verbs ``embed`` and ``neighbours``: where a trained network puts its data, and who is near whom there."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet.cli.console import name_skipped, show

if TYPE_CHECKING:
    from lresnet.runs.embedding import Embedding

__all__ = ["embed", "neighbours"]


def embed(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    out: Annotated[Path | None, arg(metavar="FILE")] = None,
    images: Annotated[tuple[Path, ...] | None, arg(metavar="IMAGE|FOLDER ...")] = None,
    coordinates: Literal["space", "lorentz", "poincare", "klein"] = "space",
    device: str = "auto",
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
) -> int:
    """Write the points that the network of a run puts its data at: what its head or decoder sees.

    Of a graph all nodes; of images the test images, or your own. Image files that cannot be read are passed over; it
    ends with code 1 if none could be read.

    Example: lresnet embed runs/tree --coordinates poincare --out tree.csv

    Example: lresnet embed runs/cifar10 --images holiday/ --out holiday.npz

    Args:
        run: The folder of a run.
        out: .npz (points, names, labels, classes, curvature, coordinates), .csv (a line a point) or .npy (points
            alone). None: RUN_DIR/points.npz.
        images: Of a run on images: image files, or folders with images. None: its test images.
        coordinates: space; lorentz, the time first; poincare, a ball of radius 1/sqrt(-K); klein, the unit ball. The
            Euclidean twin has space only.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: Name the files that could not be read, and why.
    """
    from lresnet.cli.point_table import embedding_line
    from lresnet.runs.embedding import embed_run, space_of_run
    from lresnet.runs.point_file import on_the_boundary, require_coordinates, require_target, write_points
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    target = run / "points.npz" if out is None else out
    require_coordinates(coordinates, flat=space_of_run(opened) is None)  # before the data are read
    require_target(target)
    found = embed_run(opened, _named(images))
    _say_what_was_read(found, verbose)
    if not len(found):
        return 1
    points = write_points(target, found, coordinates)
    print(embedding_line(found))
    print(f"{coordinates} coordinates, float32 {list(points.shape)}, are written to {target}")
    lost = on_the_boundary(points, found.manifold, coordinates)
    if lost:
        print(
            f"{lost:,} of {len(found):,} points are so far out that float32 puts them on the boundary of the ball; "
            "--coordinates space keeps them apart",
            file=sys.stderr,
        )
    return 0


def neighbours(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    item: Annotated[Positional[str], arg(metavar="ITEM")],
    count: int = 10,
    images: Annotated[tuple[Path, ...] | None, arg(metavar="IMAGE|FOLDER ...")] = None,
    json: Annotated[str | None, arg(metavar="FILE|-")] = None,
    device: str = "auto",
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
) -> int:
    """List the points nearest to a node or an image, by the distance in the space of the run's network.

    Of a graph it says which of them are joined to the node by an edge, and how many hops away the others are.

    Example: lresnet neighbours runs/tree 17 --count 5

    Example: lresnet neighbours runs/cifar10 cat.png --images holiday/

    Args:
        run: The folder of a run.
        item: The number of a node, its name where the nodes have names, the number of a test image, or an image file.
        count: So many neighbours.
        images: Of a run on images: look among these files and folders. None: among its test images.
        json: Write the neighbours to this file too; - for the standard output, instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: Name the files that could not be read, and why.
    """
    from lresnet.cli.point_table import neighbour_json, neighbour_line, neighbour_table
    from lresnet.runs.neighbours import neighbours_in_run
    from lresnet.runs.run import Run

    found = neighbours_in_run(Run.open(run, device=device), item, count=count, images=_named(images))
    if json != "-":
        print(neighbour_line(found))
    show(neighbour_table(found) if found.found else None, neighbour_json(found), json)
    _say_what_was_read(found.among, verbose)
    return 0 if found.found else 1


def _named(images: tuple[Path, ...] | None) -> tuple[Path, ...]:
    """None are not asked for; an option that nothing follows is a slip, and not a wish for the test images."""
    if images == ():
        raise ValueError("--images is followed by no image and no folder; leave it out for the test images")
    return images or ()


def _say_what_was_read(embedding: "Embedding", verbose: bool) -> None:
    from lresnet.cli.point_table import reading_notes

    for note in reading_notes(embedding):
        print(note, file=sys.stderr)
    if verbose:
        name_skipped(embedding.skipped)
