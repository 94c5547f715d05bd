"""The verb ``neighbours``: the nearest points to a node or an image in the space of a run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.console import given_images, point_count, print_embedding_notes, print_table, space_name
from lresnet.runs.defaults import LISTED_NEIGHBOURS

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.runs.neighbours import Neighbour, Neighbours

__all__ = ["neighbours"]


def neighbours(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    item: Annotated[Positional[str], arg(metavar="ITEM")],
    count: int = LISTED_NEIGHBOURS,
    images: Annotated[tuple[Path, ...] | None, arg(metavar="IMAGE|FOLDER ...")] = None,
    graph: Annotated[str | None, arg(metavar="GRAPH")] = None,
    out: Annotated[Path | None, arg(metavar="FILE")] = None,
    json: Annotated[str | None, arg(metavar="FILE|-")] = None,
    device: str = "auto",
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
) -> int:
    """List the points nearest to a node or an image, by the distance in the space of the run's network.

    For a graph, the list says which points share an edge with the node, and how many hops away the others are.

    Example: lresnet neighbours runs/tree 17 --count 5

    Example: lresnet neighbours runs/friends-link-0 "Ada Lovelace"

    Example: lresnet neighbours runs/cifar10 cat.png --images holiday/

    Args:
        run: The folder of a run.
        item: The number of a node, its name if the nodes have names, the number of a test image, or an image file.
        count: Number of neighbours.
        images: Image files, or folders of images, to search, for a run on images. None: its test images.
        graph: A new graph to search, in any format that `lresnet train` reads, for a run on your own graph.
        out: For a graph, also draw the embedding with this node at the centre and the names of its neighbours; .png,
            .svg or .pdf.
        json: Also write the neighbours to this file; - prints JSON instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: List the files that could not be read, and why.
    """
    require_run_folder(run)
    from lresnet.runs.neighbours import neighbours_in_run
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    if out is not None:
        from lresnet.plots.picture import require_writable_picture

        require_writable_picture(out)
    found = neighbours_in_run(opened, item, count=count, images=given_images(images), graph=graph)
    if json != "-":
        print(neighbour_line(found))
    print_table(neighbour_table(found) if found.found else None, neighbour_json(found), json)
    print_embedding_notes(found.among, verbose)
    if out is not None:
        from lresnet.plots.embedding import draw_neighbours

        print(f"The picture: {draw_neighbours(out, found)}")
    return 0 if found.found else 1


def neighbour_line(neighbours: "Neighbours") -> str:
    """Return the item, its class, and where its neighbours were searched, in one line."""
    from lresnet.runs.names import one_line

    among = neighbours.among
    label = "" if neighbours.label is None else f" (class {one_line(neighbours.label)})"
    return f"{neighbours.kind} {one_line(neighbours.name)}{label} among {point_count(among)}, {space_name(among)}"


def neighbour_table(neighbours: "Neighbours") -> "Table":
    """Return one row per neighbour, the nearest first, for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from lresnet.runs.names import one_line

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


def _path(one: "Neighbour") -> str:
    if one.hops is None:
        return "no path"
    return "edge" if one.hops == 1 else f"{one.hops} hops"
