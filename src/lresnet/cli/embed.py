"""The verb ``embed``: the points to which a trained network maps its data."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.console import given_images, point_count, print_embedding_notes, space_name

if TYPE_CHECKING:
    from lresnet.runs.embedding import Embedding

__all__ = ["embed"]


def embed(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    out: Annotated[Path | None, arg(metavar="FILE")] = None,
    images: Annotated[tuple[Path, ...] | None, arg(metavar="IMAGE|FOLDER ...")] = None,
    graph: Annotated[str | None, arg(metavar="GRAPH")] = None,
    coordinates: Literal["space", "lorentz", "poincare", "klein"] = "space",
    device: str = "auto",
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
) -> int:
    """Write the points to which the network of a run maps its data, as its head or decoder receives them.

    For a graph these are all nodes; for images the test images, or your own. Image files that cannot be read are
    skipped; the exit code is 1 if none could be read.

    Example: lresnet embed runs/tree --coordinates poincare --out tree.csv

    Example: lresnet embed runs/cifar10 --images holiday/ --out holiday.npz

    Args:
        run: The folder of a run.
        out: .npz (points, names, labels, classes, curvature, coordinates), .csv (one line per point) or .npy (points
            only). None: RUN_DIR/points.npz.
        images: Image files, or folders of images, for a run on images. None: its test images.
        graph: A new graph to embed, in any format that `lresnet train` reads, for a run on your own graph.
        coordinates: space; lorentz, time first; poincare, in a ball of radius 1/sqrt(-K); klein, in the unit ball. A
            Euclidean baseline has space only.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: List the files that could not be read, and why.
    """
    require_run_folder(run)
    from lresnet.runs.embedding import embed_run, space_of_run
    from lresnet.runs.point_file import on_the_boundary, require_coordinates, require_target, write_points
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    target = run / "points.npz" if out is None else out
    require_coordinates(coordinates, flat=space_of_run(opened) is None)  # before the data is read
    require_target(target)
    found = embed_run(opened, given_images(images), graph)
    print_embedding_notes(found, verbose)
    if not len(found):
        return 1
    points = write_points(target, found, coordinates)
    print(embedding_line(found))
    print(f"{coordinates} coordinates, float32 {list(points.shape)}, are written to {target}")
    lost = on_the_boundary(points, found.manifold, coordinates)
    if lost:
        print(
            f"{lost:,} of {len(found):,} points are so far out that float32 rounds them to the boundary of the ball; "
            "--coordinates space separates them",
            file=sys.stderr,
        )
    return 0


def embedding_line(embedding: "Embedding") -> str:
    """Return number of points, dimension, space, and distances to the origin in one line."""
    radii = embedding.radii()
    return (
        f"{point_count(embedding)}: {embedding.points.shape[1]} dimensions, {space_name(embedding)}; "
        f"distance to the origin: median {float(radii.quantile(0.5)):.4g}, maximum {float(radii.max()):.4g}"
    )
