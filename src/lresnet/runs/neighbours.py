"""Nearest neighbours in the embedding of a trained network, by the distance of its own geometry."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from lresnet.runs.defaults import LISTED_NEIGHBOURS
from lresnet.runs.embedding import Embedding, embed_files, embed_run, embed_test_images
from lresnet.runs.names import composed, did_you_mean
from lresnet.runs.node_inputs import named_by_numbers
from lresnet.runs.run import Run
from lresnet.runs.text import require_no_text

__all__ = ["Neighbour", "Neighbours", "find_node", "hops_from", "nearest", "neighbours_in_run"]

_LISTED = 5  # nodes of one name that an error message lists


class Neighbour(NamedTuple):
    """A point near another."""

    number: int
    """Its index in the embedding, from 0."""
    name: str
    label: str | None
    distance: float
    hops: int | None = None
    """Edges of the shortest path in the graph, 1 for adjacent nodes; None: no graph, or no path."""


@dataclass(frozen=True)
class Neighbours:
    """The nearest points to one item.

    Args:
        kind: what the item is: a node, a test image, an image.
        name: name of the item.
        label: class of the item; None: unknown.
        among: the points that were searched.
        found: the neighbours, the nearest first.
        number: index of the item among the points; None: it is not one of them.
    """

    kind: str
    name: str
    label: str | None
    among: Embedding
    found: list[Neighbour]
    number: int | None = None


def nearest(embedding: Embedding, item: int | Tensor, count: int = LISTED_NEIGHBOURS) -> list[Neighbour]:
    """Return the ``count`` nearest points, or all if there are fewer; points at equal distance keep their order.

    Distances are computed in float64 from the float32 coordinates; time and memory are linear in the number of points
    (:class:`lresnet.geometry.NearestNeighbours`).

    Args:
        item: the index of a point, which is not its own neighbour, or a point ``[n]`` in space coordinates.

    Raises:
        ValueError: count is below 1, or the index does not exist.

    Example:
        >>> import torch
        >>> from lresnet.geometry import Lorentz
        >>> points = torch.tensor([[0.0], [1.0], [-0.5]])
        >>> [one.name for one in nearest(Embedding("three", "node", points, Lorentz(), ("a", "b", "c")), 0)]
        ['c', 'b']
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    own = None if isinstance(item, Tensor) else _require_number(embedding, operator.index(item))
    point = item if isinstance(item, Tensor) else embedding.points[own]
    found = embedding.index.query(point, min(count + 1, len(embedding)))
    near = zip(found.indices.tolist(), found.distances.tolist(), strict=True)
    chosen = [(index, distance) for index, distance in near if index != own][:count]
    graph = None if embedding.edges is None or own is None else hops_from(embedding.edges.numpy(), len(embedding), own)
    return [
        Neighbour(
            index,
            embedding.names[index],
            embedding.label(index),
            distance,
            None if graph is None or np.isinf(graph[index]) else int(graph[index]),
        )
        for index, distance in chosen
    ]


def neighbours_in_run(
    run: Run, item: str, *, count: int = LISTED_NEIGHBOURS, images: Sequence[Path] = (), graph: Any = None
) -> Neighbours:
    """Return the nearest points to ``item`` in the embedding of a run.

    Args:
        run: a finished run.
        item: for a graph, the number or the name of a node; for images, the number of a test image, or an image file.
        count: number of neighbours; all others, if there are fewer.
        images: for a run on images, search among these files, or folders of them, instead of the test images.
        graph: for a run on a graph, search in this new graph, see :func:`lresnet.runs.node_inputs.inputs_of_graph`.

    Raises:
        FileNotFoundError: the data are gone, or an image does not exist.
        ValueError: count is below 1, the item does not exist, or it cannot be read.
    """
    require_no_text(run, "neighbours")
    if count < 1:  # before the network runs
        raise ValueError(f"count must be at least 1, got {count}")
    if run.record.images is not None:
        return _neighbours_of_image(run, item, count, images)
    among = embed_run(run, images, graph)
    node = find_node(among, item)
    return Neighbours("node", among.names[node], among.label(node), among, nearest(among, node, count), node)


def find_node(embedding: Embedding, item: str) -> int:
    """Return the number of the node that ``item`` gives by its unique name or by its number.

    Raises:
        ValueError: there is no such node, or several have the name; the message suggests names or lists their numbers.
    """
    found = [index for index, name in enumerate(embedding.names) if composed(name) == composed(item)]
    if len(found) == 1:
        return found[0]
    only_names = named_by_numbers(embedding.names)
    if _is_number(item) and not only_names:
        return _require_number(embedding, int(item))
    if not found:
        question = did_you_mean(item, list(dict.fromkeys(embedding.names)))
        known = "names are numbers" if only_names else f"nodes are numbered 0 to {len(embedding) - 1}"
        raise ValueError(f"{embedding.source} has no node {item!r}; {question}{'Its' if question else 'its'} {known}")
    listed = ", ".join(_with_label(embedding, index) for index in found[:_LISTED])
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    raise ValueError(f"{len(found)} nodes are called {item!r}: {listed}{more}; use the number of one")


def hops_from(edges: NDArray[np.int64], nodes: int, source: int) -> NDArray[np.float64]:
    """Return the number of edges from ``source`` to every node, ``[N]``; infinity if there is no path.

    Example:
        >>> hops_from(np.array([[0, 1], [1, 2]]), 4, 0)
        array([ 0.,  1.,  2., inf])
    """
    adjacency = sparse.csr_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(nodes, nodes))
    found: NDArray[np.float64] = csgraph.dijkstra(adjacency, directed=False, indices=source, unweighted=True)
    return found


def _neighbours_of_image(run: Run, item: str, count: int, images: Sequence[Path]) -> Neighbours:
    one = _embed_image(run, item)  # before the slow part, so that a wrong item fails at once
    among = embed_run(run, images)
    own = _own_number(among, item, one.kind)
    if own is not None and len(among) == 1:
        raise ValueError(f"{item} is the only image to search among; name others too")
    found = nearest(among, one.points[0] if own is None else own, count) if len(among) else []
    return Neighbours(one.kind, one.names[0], one.label(0), among, found, own)


def _embed_image(run: Run, item: str) -> Embedding:
    """Embed one test image or one file."""
    if _is_number(item):
        return embed_test_images(run, [int(item)])
    file = Path(item)
    if not file.is_file():
        what = f"{item} is a folder" if file.is_dir() else f"no file {item}"
        raise FileNotFoundError(f"{what}; name one image file, or a test image by its number")
    one = embed_files(run, [file])
    if one.skipped:
        raise ValueError(f"{item} cannot be read as an image: {one.skipped[0][1]}")
    return one


def _own_number(among: Embedding, item: str, kind: str) -> int | None:
    """Return the index of the item among the points; None: it is not one of them."""
    if among.kind != kind:
        return None
    if kind == "test image":
        return int(item)
    file = Path(item).resolve()
    return next((index for index, name in enumerate(among.names) if Path(name).resolve() == file), None)


def _with_label(embedding: Embedding, number: int) -> str:
    label = embedding.label(number)
    return str(number) if label is None else f"{number} ({label})"


def _is_number(item: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,18}", item) is not None


def _require_number(embedding: Embedding, number: int) -> int:
    if not 0 <= number < len(embedding):
        raise ValueError(
            f"there is no {embedding.kind} {number}; {embedding.source} has {embedding.kind}s 0 to {len(embedding) - 1}"
        )
    return number
