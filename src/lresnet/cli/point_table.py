"""Points of a run and their neighbours, for the terminal and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from lresnet.runs.one_line import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lresnet.runs.embedding import Embedding
    from lresnet.runs.neighbours import Neighbour, Neighbours

__all__ = ["embedding_line", "neighbour_json", "neighbour_line", "neighbour_table", "reading_notes"]


def embedding_line(embedding: Embedding) -> str:
    """How many points there are, in which space, and how far out."""
    radii = embedding.radii()
    return (
        f"{_counted(embedding)}: {embedding.points.shape[1]} dimensions, {_space(embedding)}; "
        f"distance to the origin {float(radii.quantile(0.5)):.4g} in the median, {float(radii.max()):.4g} at most"
    )


def neighbour_line(neighbours: Neighbours) -> str:
    """What the neighbours are those of, its class, and among whom they were looked for."""
    among = neighbours.among
    label = "" if neighbours.label is None else f" (class {one_line(neighbours.label)})"
    return f"{neighbours.kind} {one_line(neighbours.name)}{label} among {_counted(among)}, {_space(among)}"


def neighbour_table(neighbours: Neighbours) -> Table:
    """A row for each neighbour, the nearest first."""
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
        cells = [str(rank), one_line(one.name), *([str(one.number)] if has_names else [])]
        cells += [one_line(one.label or "")] if among.labels is not None else []
        cells += [f"{one.distance:.4g}", *([_path(one)] if among.edges is not None else [])]
        table.add_row(*map(Text, cells))
    return table


def neighbour_json(neighbours: Neighbours) -> str:
    """One object: the ``item``, the ``curvature`` (0: flat), and its ``neighbours``; of files what was ``skipped``."""
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


def reading_notes(embedding: Embedding) -> Iterator[str]:
    """What became of a user's image files, a line each."""
    from lresnet.cli.prediction_table import image_notes

    if embedding.size is not None:
        yield from image_notes(len(embedding), embedding.size, embedding.resized, len(embedding.skipped))


def _counted(embedding: Embedding) -> str:
    plural = "" if len(embedding) == 1 else "s"
    of = "" if embedding.kind == "image" else f" of {one_line(embedding.source)}"
    return f"{len(embedding):,} {embedding.kind}{plural}{of}"


def _space(embedding: Embedding) -> str:
    return "flat space" if embedding.manifold is None else f"curvature {embedding.curvature:g}"


def _path(one: Neighbour) -> str:
    if one.hops is None:
        return "no path"
    return "edge" if one.hops == 1 else f"{one.hops} hops"
