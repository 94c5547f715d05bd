"""The verbs ``embed`` and ``neighbours``: the points of a trained network, and the nearest points to one of them."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.console import image_notes, print_skipped, print_table

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.runs.embedding import Embedding
    from lresnet.runs.neighbours import Neighbour, Neighbours

__all__ = ["embed", "neighbours"]


def embed(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    out: Annotated[Path | None, arg(metavar="FILE")] = None,
    images: Annotated[tuple[Path, ...] | None, arg(metavar="IMAGE|FOLDER ...")] = None,
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
    found = embed_run(opened, _paths(images))
    _print_notes(found, verbose)
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

    For a graph, the list says which points share an edge with the node, and how many hops away the others are.

    Example: lresnet neighbours runs/tree 17 --count 5

    Example: lresnet neighbours runs/cifar10 cat.png --images holiday/

    Args:
        run: The folder of a run.
        item: The number of a node, its name if the nodes have names, the number of a test image, or an image file.
        count: Number of neighbours.
        images: Image files, or folders of images, to search, for a run on images. None: its test images.
        json: Also write the neighbours to this file; - prints JSON instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: List the files that could not be read, and why.
    """
    require_run_folder(run)
    from lresnet.runs.neighbours import neighbours_in_run
    from lresnet.runs.run import Run

    found = neighbours_in_run(Run.open(run, device=device), item, count=count, images=_paths(images))
    if json != "-":
        print(neighbour_line(found))
    print_table(neighbour_table(found) if found.found else None, neighbour_json(found), json)
    _print_notes(found.among, verbose)
    return 0 if found.found else 1


def _paths(images: tuple[Path, ...] | None) -> tuple[Path, ...]:
    """Return the paths after ``--images``; the option without paths is an error, as it may be a mistake."""
    if images == ():
        raise ValueError("--images names no image and no folder; leave it out for the test images")
    return images or ()


def _print_notes(embedding: "Embedding", verbose: bool) -> None:
    if embedding.size is not None:
        for note in image_notes(len(embedding), embedding.size, embedding.resized, len(embedding.skipped)):
            print(note, file=sys.stderr)
    if verbose:
        print_skipped(embedding.skipped)


def embedding_line(embedding: "Embedding") -> str:
    """Return number of points, dimension, space, and distances to the origin in one line."""
    radii = embedding.radii()
    return (
        f"{_count(embedding)}: {embedding.points.shape[1]} dimensions, {_space(embedding)}; "
        f"distance to the origin: median {float(radii.quantile(0.5)):.4g}, maximum {float(radii.max()):.4g}"
    )


def neighbour_line(neighbours: "Neighbours") -> str:
    """Return the item, its class, and where its neighbours were searched, in one line."""
    from lresnet.runs.one_line import one_line

    among = neighbours.among
    label = "" if neighbours.label is None else f" (class {one_line(neighbours.label)})"
    return f"{neighbours.kind} {one_line(neighbours.name)}{label} among {_count(among)}, {_space(among)}"


def neighbour_table(neighbours: "Neighbours") -> "Table":
    """Return one row per neighbour, the nearest first, for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from lresnet.runs.one_line import one_line

    among = neighbours.among
    has_names = among.kind == "node" and any(one.name != str(one.number) for one in neighbours.found)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column(among.kind, overflow="fold")
    if has_names:
        table.add_column("number", justify="right", no_wrap=True)
    if among.labels is not None:
        table.add_column("class", overflow="fold")
    table.add_column("distance", justify="right", no_wrap=True)
    if among.edges is not None:
        table.add_column("in the graph", no_wrap=True)
    for rank, one in enumerate(neighbours.found, 1):
        values = [str(rank), one_line(one.name), *([str(one.number)] if has_names else [])]
        values += [one_line(one.label or "")] if among.labels is not None else []
        values += [f"{one.distance:.4g}", *([_path(one)] if among.edges is not None else [])]
        table.add_row(*map(Text, values))
    return table


def neighbour_json(neighbours: "Neighbours") -> str:
    """Return one JSON object: the ``item``, the ``curvature`` (0: flat), its ``neighbours`` and ``skipped`` files."""
    among = neighbours.among
    item = {"kind": neighbours.kind, "name": neighbours.name, "class": neighbours.label}
    found = [
        {"rank": rank, "name": one.name, "number": one.number, "class": one.label, "distance": one.distance}
        | ({} if among.edges is None else {"edge": one.hops == 1, "hops": one.hops})
        for rank, one in enumerate(neighbours.found, 1)
    ]
    content: dict[str, Any] = {"item": item, "curvature": among.curvature, "neighbours": found}
    content["skipped"] = [{"file": str(file), "reason": reason} for file, reason in among.skipped]
    return json.dumps(content, indent=2)


def _count(embedding: "Embedding") -> str:
    from lresnet.runs.one_line import one_line

    plural = "" if len(embedding) == 1 else "s"
    source = "" if embedding.kind == "image" else f" of {one_line(embedding.source)}"
    return f"{len(embedding):,} {embedding.kind}{plural}{source}"


def _space(embedding: "Embedding") -> str:
    return "flat space" if embedding.manifold is None else f"curvature {embedding.curvature:g}"


def _path(one: "Neighbour") -> str:
    if one.hops is None:
        return "no path"
    return "edge" if one.hops == 1 else f"{one.hops} hops"
