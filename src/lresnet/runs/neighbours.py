"""Who is near whom in the embedding of a trained network, by the distance of its own geometry."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from lresnet.runs.embedding import Embedding, embed_files, embed_run, embed_test_images
from lresnet.runs.folder import finished_run
from lresnet.runs.single import did_you_mean

__all__ = ["Neighbour", "Neighbours", "find_node", "hops_from", "nearest", "neighbours_in_run"]

_LISTED = 5  # nodes of one name that an error lists


class Neighbour(NamedTuple):
    """A point near another."""

    number: int
    """Its place in the embedding, from 0."""
    name: str
    label: str | None
    distance: float
    hops: int | None = None
    """Edges of the shortest path in the graph, 1 for neighbours there; None: no graph, or no path."""


@dataclass(frozen=True)
class Neighbours:
    """The points nearest to one of them.

    Args:
        kind: of what they are near to: a node, a test image, an image.
        name: its name.
        label: its class, where that is known.
        among: the points that were looked at.
        found: the nearest first.
    """

    kind: str
    name: str
    label: str | None
    among: Embedding
    found: list[Neighbour]


def nearest(embedding: Embedding, item: int | Tensor, count: int = 10) -> list[Neighbour]:
    """The ``count`` points nearest to one of them, or all if there are fewer; those equally near in their order.

    Distances are float64, of the float32 coordinates; time and memory grow with the number of points.

    Args:
        item: the number of a point, which is no neighbour of its own, or a point ``[n]`` in space coordinates.

    Raises:
        ValueError: count is below 1, or there is no such point.

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
    distances = embedding.distances(item if isinstance(item, Tensor) else embedding.points[own])
    order = distances.argsort(stable=True)[: count + 1].tolist()
    chosen = [index for index in order if index != own][:count]
    graph = None if embedding.edges is None or own is None else hops_from(embedding.edges.numpy(), len(embedding), own)
    return [
        Neighbour(
            index,
            embedding.names[index],
            embedding.label(index),
            float(distances[index]),
            None if graph is None or np.isinf(graph[index]) else int(graph[index]),
        )
        for index in chosen
    ]


def neighbours_in_run(
    folder: Path, item: str, *, count: int = 10, images: Sequence[Path] = (), device: str = "cpu"
) -> Neighbours:
    """The nearest points to ``item`` in the embedding that the network of the run in ``folder`` makes.

    Args:
        folder: of a finished run.
        item: of a graph, the number or the name of a node; of images, the number of a test image, or an image file.
        count: how many; all others, if there are fewer.
        images: of a run on images: look among these files, or folders of them, instead of the test images.
        device: see :func:`lresnet.runs.folder.usable_device`.

    Raises:
        FileNotFoundError: there is no run in the folder, its data are gone, or there is no such image.
        ValueError: the run has not finished, count is below 1, there is no such item, or it cannot be read.
    """
    if count < 1:  # said before the network is run
        raise ValueError(f"count must be at least 1, got {count}")
    if "images" in finished_run(folder):
        return _of_image(folder, item, count, images, device)
    among = embed_run(folder, images, device=device)
    node = find_node(among, item)
    return Neighbours("node", among.names[node], among.label(node), among, nearest(among, node, count))


def find_node(embedding: Embedding, item: str) -> int:
    """The number of the node that ``item`` names: by its number, or by a name that no other node has.

    Raises:
        ValueError: there is no such node, or there are several; names that come near, or their numbers, are given.
    """
    if _is_number(item):
        return _require_number(embedding, int(item))
    found = [index for index, name in enumerate(embedding.names) if name == item]
    if len(found) == 1:
        return found[0]
    if not found:
        question = did_you_mean(item, list(dict.fromkeys(embedding.names)))
        raise ValueError(
            f"{embedding.source} has no node {item!r}; {question}Its nodes are numbered 0 to {len(embedding) - 1}"
        )
    listed = ", ".join(_with_label(embedding, index) for index in found[:_LISTED])
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    raise ValueError(f"{len(found)} nodes are called {item!r}: {listed}{more}; name one by its number")


def hops_from(edges: NDArray[np.int64], nodes: int, source: int) -> NDArray[np.float64]:
    """How many edges it takes from ``source`` to every node, ``[N]``; infinity where there is no path.

    Example:
        >>> hops_from(np.array([[0, 1], [1, 2]]), 4, 0)
        array([ 0.,  1.,  2., inf])
    """
    adjacency = sparse.csr_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(nodes, nodes))
    found: NDArray[np.float64] = csgraph.dijkstra(adjacency, directed=False, indices=source, unweighted=True)
    return found


def _of_image(folder: Path, item: str, count: int, images: Sequence[Path], device: str) -> Neighbours:
    one = _image(folder, item, device)  # first what can be wrong, then what takes its time
    among = embed_run(folder, images, device=device)
    own = _own_number(among, item, one.kind)
    if own is not None and len(among) == 1:
        raise ValueError(f"{item} is the only image to look among; name others beside it")
    found = nearest(among, one.points[0] if own is None else own, count) if len(among) else []
    return Neighbours(one.kind, one.names[0], one.label(0), among, found)


def _image(folder: Path, item: str, device: str) -> Embedding:
    """The embedding of one test image or one file."""
    if _is_number(item):
        return embed_test_images(folder, [int(item)], device=device)
    file = Path(item)
    if not file.is_file():
        what = f"{item} is a folder" if file.is_dir() else f"no file {item}"
        raise FileNotFoundError(f"{what}; name one image file, or a test image by its number")
    one = embed_files(folder, [file], device=device)
    if one.skipped:
        raise ValueError(f"{item} cannot be read as an image: {one.skipped[0][1]}")
    return one


def _own_number(among: Embedding, item: str, kind: str) -> int | None:
    """Where the item is itself among the points; None: it is not."""
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
            f"there is no {embedding.kind} {number}: those of {embedding.source} are 0 to {len(embedding) - 1}"
        )
    return number
