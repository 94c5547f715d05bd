"""Ranked links: the pairs of nodes without an edge whose points are nearest."""

from __future__ import annotations

import csv
import heapq
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from lresnet._files import has_file
from lresnet.data import LinkTask
from lresnet.data.formats.text_rows import Table
from lresnet.geometry import Lorentz
from lresnet.geometry.distance import cross_separation
from lresnet.runs.defaults import LISTED_LINKS
from lresnet.runs.embedding import space_of_run
from lresnet.runs.node_inputs import NodeInputs, inputs_of_run
from lresnet.runs.run import Run
from lresnet.runs.text import require_no_text

__all__ = ["Link", "Ranking", "links_as_csv", "links_as_json", "rank_links", "read_pairs", "score_pairs"]

# Pairs whose distances are computed at once: 2^24 float32 values are 64 MB.
_PAIRS = 2**24


class Link(NamedTuple):
    """A pair of nodes and how near their points are."""

    first: str
    second: str
    distance: float
    """Distance of the two points, geodesic in a hyperbolic space."""
    score: float
    """Score of the run's decoder, the negative squared distance it was trained with; higher for a more likely edge."""
    known: bool
    """Whether the graph has this edge."""


@dataclass(frozen=True)
class Ranking:
    """Ranked links of one graph.

    Args:
        source: the graph.
        links: the links, the most likely first.
        candidates: number of pairs that were ranked.
    """

    source: str
    links: list[Link]
    candidates: int


def rank_links(
    run: Run, *, top: int = LISTED_LINKS, node: str | None = None, inputs: NodeInputs | None = None
) -> Ranking:
    """Rank all pairs of nodes without an edge, or those of one node, by the distance of their points.

    Distances are computed in float32 for all pairs, in blocks, and again exactly for those that are returned.

    Args:
        run: a finished run that predicts links.
        top: number of links.
        node: name or number of a node; None: all pairs.
        inputs: a new graph, see :func:`lresnet.runs.node_inputs.inputs_of_graph`; None: the run's own.

    Raises:
        ValueError: the run does not predict links, ``top`` is below 1, or there is no such node.
    """
    require_no_text(run, "links")
    _require_links(run)
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    inputs = inputs_of_run(run) if inputs is None else inputs
    start = None if node is None else inputs.number(node)
    points, space = inputs.points(run), space_of_run(run)
    known = _adjacency(inputs)
    n, rows = inputs.num_nodes, range(inputs.num_nodes) if start is None else range(start, start + 1)
    block = max(1, _PAIRS // n)
    best: list[tuple[float, int, int]] = []
    candidates = 0
    for first in range(rows.start, rows.stop, block):
        last = min(first + block, rows.stop)
        near = _near(points[first:last], points, space)
        own = known[first:last].tocoo()
        near[torch.from_numpy(own.row).long(), torch.from_numpy(own.col).long()] = torch.inf
        if start is None:  # each pair once
            near.masked_fill_(torch.arange(n) <= torch.arange(first, last).unsqueeze(1), torch.inf)
        else:
            near[0, start] = torch.inf
        candidates += int(near.isfinite().sum())
        flat = near.flatten()
        values, places = flat.topk(min(top, flat.numel()), largest=False)
        found = zip(values.tolist(), (first + places // n).tolist(), (places % n).tolist(), strict=True)
        best = heapq.nsmallest(top, [*best, *(each for each in found if each[0] != float("inf"))])
    if not best:
        return Ranking(inputs.source, [], 0)
    pairs = torch.tensor([(i, j) for _, i, j in best]).T
    links = _links(run, inputs, points, space, pairs, known)
    return Ranking(inputs.source, sorted(links, key=lambda link: link.distance), candidates)


def score_pairs(run: Run, pairs: Tensor, inputs: NodeInputs | None = None, *, top: int | None = None) -> Ranking:
    """Score pairs of nodes ``[2, m]``, and return the ``top`` or all of them with the most likely edge first.

    Raises:
        ValueError: the run does not predict links, ``top`` is below 1, or a node does not exist.
    """
    _require_links(run)
    if top is not None and top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    inputs = inputs_of_run(run) if inputs is None else inputs
    if pairs.numel() and (int(pairs.min()) < 0 or int(pairs.max()) >= inputs.num_nodes):
        raise ValueError(f"there is no node {int(pairs.max())}; {inputs.source} has nodes 0 to {inputs.num_nodes - 1}")
    points = inputs.points(run)
    links = _links(run, inputs, points, space_of_run(run), pairs, _adjacency(inputs))
    return Ranking(inputs.source, sorted(links, key=lambda link: link.distance)[:top], pairs.shape[1])


def read_pairs(path: Path, inputs: NodeInputs) -> Tensor:
    """Read a file with rows ``node, node`` as numbers ``[2, m]``; a first row of unknown nodes is a header.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row has one column only, or a node is unknown; the message has the line.
    """
    if not has_file(path):
        raise FileNotFoundError(f"no file {path}; --pairs names a file with two nodes per row")
    found = []
    for place, (line, fields) in enumerate(Table(path)):
        if len(fields) < 2:
            raise ValueError(f"{path}, line {line}: expected two nodes, found {fields[0][:60]!r}")
        if place == 0 and not any(inputs.has(name) for name in fields[:2]):
            continue  # a header
        try:
            found.append([inputs.number(name) for name in fields[:2]])
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from error
    if not found:
        raise ValueError(f"{path} has no pairs of known nodes")
    return torch.tensor(found).T


def links_as_json(ranking: Ranking) -> str:
    """Return one JSON object: ``source``, ``candidates`` and ``links`` with rank, nodes, distance, score and known."""
    links: list[dict[str, Any]] = [{"rank": rank} | link._asdict() for rank, link in enumerate(ranking.links, 1)]
    return json.dumps({"source": ranking.source, "candidates": ranking.candidates, "links": links}, indent=2)


def links_as_csv(ranking: Ranking) -> str:
    """Return a table with a header: rank, first, second, distance, score, known."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["rank", *Link._fields])
    for rank, link in enumerate(ranking.links, 1):
        writer.writerow([rank, *link[:2], f"{link.distance:.6g}", f"{link.score:.6g}", str(link.known).lower()])
    return buffer.getvalue()


def _require_links(run: Run) -> None:
    if not isinstance(run.task, LinkTask):
        raise ValueError(f"{run.place} holds a run on {run.record.data_name}; this needs one that predicts links")


def _adjacency(inputs: NodeInputs) -> sparse.csr_array:
    low, high = inputs.edges.numpy()
    ones = np.ones(2 * low.size, dtype=np.bool_)
    index = np.concatenate([low, high]), np.concatenate([high, low])
    return sparse.csr_array((ones, index), shape=(inputs.num_nodes, inputs.num_nodes))


def _near(rows: Tensor, points: Tensor, space: Lorentz | None) -> Tensor:
    """Return a number that grows with the distance of every pair ``[rows, n]``."""
    if space is None:
        return torch.cdist(rows, points)
    return cross_separation(rows, points, float(space.kappa))


def _links(
    run: Run, inputs: NodeInputs, points: Tensor, space: Lorentz | None, pairs: Tensor, known: sparse.csr_array
) -> list[Link]:
    x, y = points[pairs[0]].double(), points[pairs[1]].double()
    if space is None:
        distance = (x - y).norm(dim=-1)
        score = -distance.square()
    else:
        distance = space.dist(x, y)
        kappa = float(space.kappa)
        # The squared Lorentzian distance of the decoder, 2/kappa (cosh(d sqrt(kappa)) - 1), without cancellation.
        score = -4 / kappa * (kappa**0.5 * distance / 2).sinh().square()
    if not bool(distance.isfinite().all()):
        raise ValueError(f"the predictions of {run.place} are not finite, so its network cannot be used")
    first, second = pairs.numpy().copy()  # a copy: SciPy changes flags of its arguments
    exists = np.asarray(known[first, second]).reshape(-1).tolist()
    names = inputs.names
    scores = (score + 0.0).tolist()  # 0 instead of -0
    rows = zip(pairs[0].tolist(), pairs[1].tolist(), distance.tolist(), scores, exists, strict=True)
    return [Link(names[i], names[j], d, s, bool(edge)) for i, j, d, s, edge in rows]
