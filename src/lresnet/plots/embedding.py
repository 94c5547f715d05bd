"""Embedding of a graph by a trained network, in the Poincaré disk."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data import HierarchyTask
from lresnet.geometry import Lorentz
from lresnet.plots.hyperbolic_pca import hyperbolic_pca, squared_distance_kept
from lresnet.plots.node_names import draw_names, name_count, short_name
from lresnet.plots.picture import INK, save_picture
from lresnet.plots.poincare_disk import (
    NO_LABEL,
    DiskEmbedding,
    class_colour,
    class_marker,
    draw_disk,
    inside,
    move_to_centre,
    view_radius,
)
from lresnet.runs.embedding import Embedding, embed_nodes
from lresnet.runs.neighbours import Neighbours
from lresnet.runs.report import BASELINE
from lresnet.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "centred_at",
    "disk_embedding",
    "disk_points",
    "draw_disk_embedding",
    "draw_neighbours",
    "embedding_figure",
    "embedding_of_run",
    "general_first",
    "hyperbolic_nodes",
    "largest_branches",
]

_TEXT = "#666666"
_CLASSES_IN_LEGEND = 14
_TITLE_WIDTH, _NOTE_WIDTH = 26, 36  # characters per line
_DRAWN_EDGES = 50_000  # edges of a picture; more would cover everything and take minutes
_BRANCHES = 6  # of a taxonomy that have a colour; the other nodes share one more
_ENOUGH_BRANCHES = 4  # that are not split into more than there are colours
_SMALL_BRANCH = 0.02  # share of the nodes


def disk_points(x: Tensor, manifold: Lorentz, items: str = "nodes") -> tuple[NDArray[np.float64], str]:
    """Map points of the manifold to the unit Poincaré disk, with their centroid at its centre.

    In two dimensions this is an isometry. Points in more dimensions are projected by
    :func:`~lresnet.plots.hyperbolic_pca.hyperbolic_pca`; points in one dimension lie on a diameter.

    Args:
        x: Space coordinates [N, n] of points of ``manifold``.
        items: What the sentence calls the points.

    Returns:
        The points [N, 2] and a sentence on how they were mapped.
    """
    wide = x.detach().double()
    n = wide.shape[1]
    note = "Two dimensions: all distances are preserved."
    if n > 2:
        plane = hyperbolic_pca(wide, manifold).points
        kept = squared_distance_kept(wide, plane, manifold)
        wide = plane
        note = (
            f"Two of {n} dimensions, chosen by hyperbolic PCA: they keep {100 * kept:.1f} % of the squared distances "
            f"between {items}."
        )
    wide = torch.nn.functional.pad(wide, (0, 2 - wide.shape[1]))
    wide = manifold.boost(-manifold.centroid(wide), wide)
    points = manifold.to_poincare(wide) * manifold.kappa.detach().double().sqrt()
    return inside(points.cpu().numpy()), note


def embedding_of_run(run: Run) -> DiskEmbedding:
    """Return the graph of a run as its trained network embeds it; raises as :func:`hyperbolic_nodes`."""
    return disk_embedding(hyperbolic_nodes(run), run.record.name, run.task)


def hyperbolic_nodes(run: Run) -> Embedding:
    """Return the points of all nodes of a run's graph.

    Raises:
        ValueError: The run is not on a graph, or is a Euclidean baseline.
    """
    if run.record.method == BASELINE:
        raise ValueError(
            f"{run.place} holds a Euclidean baseline, which has no hyperbolic embedding; choose another run"
        )
    return embed_nodes(run)


def general_first(task: HierarchyTask) -> NDArray[np.int64]:
    """Return the nodes of a taxonomy by descending number of descendants, general ones first."""
    below = torch.bincount(task.closure[1], minlength=task.num_nodes)
    return np.lexsort([task.depths.numpy(), -below.numpy()])


def largest_branches(task: HierarchyTask, most: int = _BRANCHES) -> tuple[NDArray[np.int64], list[int]]:
    """Return the branch of each node ``[n]`` and the top nodes of the branches, the largest branch first.

    Going down from the roots, the largest branch is replaced by those of its children that are not below another one,
    until ``most`` of them have at least 2 % of the nodes; if there are never so many, the first choice with most of
    them counts. Four or more branches stay as they are if a further step would give more than ``most``. Nodes of other
    branches, and those above the branches, have the number ``most`` (or that of the branches, if there are fewer). A
    node of several branches belongs to the largest one.

    Example:
        >>> from lresnet.data import hierarchy_task
        >>> task = hierarchy_task([(str(i), str((i - 1) // 2)) for i in range(1, 63)])
        >>> branch, tops = largest_branches(task, 3)
        >>> [task.graph.names[top] for top in tops], np.bincount(branch).tolist()
        (['2', '3', '4'], [31, 15, 15, 2])
    """
    low, above = task.closure.numpy()
    size = np.bincount(above, minlength=task.num_nodes) + 1
    child, parent = task.parents.numpy()
    tops = set(np.setdiff1d(np.arange(task.num_nodes), child).tolist())
    least = max(2, _SMALL_BRANCH * task.num_nodes)
    kept = list[int]()
    while large := [top for top in tops if size[top] >= least]:
        large.sort(key=lambda top: (-size[top], top))
        if len(large) > most and len(kept) >= _ENOUGH_BRANCHES:
            break
        if len(large) > len(kept):
            kept = large[:most]
        if len(large) >= most:
            break
        tops.remove(large[0])
        tops |= set(child[parent == large[0]].tolist())
        tops -= set(low[np.isin(above, list(tops))].tolist())  # below another one
    branch = np.full(task.num_nodes, len(kept))
    for number, top in reversed(list(enumerate(kept))):
        branch[low[above == top]] = number
        branch[top] = number
    return branch, kept


def disk_embedding(nodes: Embedding, title: str, task: object = None) -> DiskEmbedding:
    """Return the nodes and edges of a graph in the Poincaré disk, see :func:`disk_points`.

    Args:
        nodes: The points of a graph's nodes.
        title: Title of the picture.
        task: Task of the run. A taxonomy has its largest branches as classes, and names of general nodes come first.
    """
    assert nodes.manifold is not None
    assert nodes.edges is not None
    points, note = disk_points(nodes.points, nodes.manifold.cpu())
    edges = nodes.edges.numpy()
    numbers = all(name == str(number) for number, name in enumerate(nodes.names))
    is_labelled = nodes.labels is not None and bool((nodes.labels >= 0).any())
    found = DiskEmbedding(
        title=title,
        points=points,
        edges=edges[:, edges[0] != edges[1]],
        labels=nodes.labels.numpy() if is_labelled and nodes.labels is not None else None,
        classes=tuple(f"class {name}" if name.isdecimal() else name for name in nodes.classes) if is_labelled else (),
        names=None if numbers else nodes.names,
        note=note,
    )
    if not isinstance(task, HierarchyTask):
        return found
    branch, tops = largest_branches(task)
    found = dataclasses.replace(found, order=general_first(task))
    if len(tops) < 2:
        return found
    classes = (*(nodes.names[top] for top in tops), "other nodes")[: branch.max() + 1]
    return dataclasses.replace(found, labels=branch, classes=classes, note=f"{note} Colours show the largest branches.")


def centred_at(embedding: DiskEmbedding, node: int) -> DiskEmbedding:
    """Return the embedding after the translation that maps ``node`` to the centre; it preserves distances.

    Raises:
        ValueError: There is no such node.
    """
    if not 0 <= node < len(embedding.points):
        raise ValueError(f"there is no node {node}; the nodes are 0 to {len(embedding.points) - 1}")
    points = move_to_centre(embedding.points, embedding.points[node])
    return dataclasses.replace(embedding, points=points)


def draw_disk_embedding(
    path: str | Path,
    embedding: DiskEmbedding,
    centre: int | None = None,
    names: int | None = None,
    named: Sequence[int] = (),
) -> Path:
    """Draw the graph, see :func:`embedding_figure`, and write the picture to ``path`` (.png, .svg or .pdf).

    Returns:
        The path of the picture.
    """
    return save_picture(embedding_figure(embedding, centre, names, named), path)


def draw_neighbours(path: str | Path, neighbours: Neighbours) -> Path:
    """Draw the graph with one node at the centre and the names of its neighbours, and write the picture to ``path``.

    Raises:
        ValueError: The neighbours are not nodes of a graph, or the points are vectors of a Euclidean baseline.
    """
    among = neighbours.among
    if among.edges is None or among.manifold is None:
        kind = "images" if among.edges is None else "a Euclidean baseline"
        raise ValueError(f"a picture needs nodes in a hyperbolic space, but {among.source} is a run on {kind}")
    shown = disk_embedding(among, f"{neighbours.name}, {among.source}")
    return draw_disk_embedding(path, shown, neighbours.number, named=[one.number for one in neighbours.found])


def embedding_figure(
    embedding: DiskEmbedding, centre: int | None = None, names: int | None = None, named: Sequence[int] = ()
) -> Figure:
    """Draw the graph. Edges are geodesics; classes differ in colour and marker; nodes without a label are grey.

    Points close to the centre are shown in a zoomed view, and the note in the picture says so.

    Args:
        centre: Node to move to the centre; None: the points stay where they are.
        names: Number of names to draw, the most general nodes first (or those of highest degree); None: see
            :func:`lresnet.plots.node_names.name_count`. Names that would overlap others are left out.
        named: Nodes to name before all others.

    Raises:
        ValueError: There is no such node, or the number of names is negative.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    if names is not None and names < 0:
        raise ValueError(f"names must be at least 0, got {names}")
    shown = embedding if centre is None else centred_at(embedding, centre)
    n, limit = len(shown.points), name_count(shown) if names is None else min(names, len(shown.points))
    labels = np.zeros(n, dtype=np.int64) if shown.labels is None else shown.labels
    colours = ListedColormap([class_colour(k) for k in range(labels.min(), labels.max() + 1)])
    # Markers shrink towards the boundary, as lengths do; graphs with many nodes have smaller ones.
    sizes = 3.0 + 67.0 * min(1.0, (100 / n) ** 0.6) * (1 - (shown.points**2).sum(-1))
    edges = _drawn_edges(shown.edges)
    radius = view_radius(shown.points)
    figure = Figure(figsize=(9.4, 6.4))
    disk = figure.add_axes((0.01, 0.015, 0.67, 0.97))
    width = float(np.clip(16 / max(1, edges.shape[1]) ** 0.5, 0.15, 0.6))
    draw_disk(disk, shown.points, edges, labels, sizes=sizes, cmap=colours, radius=radius, edge_width=width)
    of_nodes = shown.names or tuple(map(str, range(n)))
    order = shown.most_general_first().tolist()
    order = list(dict.fromkeys([*([] if centre is None else [centre]), *named, *order]))
    drawn = len(draw_names(disk, shown.points, of_nodes, order, limit, sizes))
    notes = ["Edges are geodesics."]
    if edges.shape[1] < shown.edges.shape[1]:
        notes.append(f"{edges.shape[1]:,} of the edges are drawn, chosen at random.")
    if 0 < drawn < n:
        first = "the highest degrees" if shown.order is None else "the most general ones"
        others = f"the nearest, then {first}" if named else first
        notes.append(f"{drawn} of {n:,} nodes have their names: {others} for which there is room.")
    if centre is not None:
        name = short_name(of_nodes[centre])
        notes.append(f"Node {name} is at the centre (a translation; distances are preserved).")
    if radius < 1:
        notes.append(
            f"Zoomed: the dashed circle is {2 * np.arctanh(radius):.2g} radii of curvature from the centre, the "
            "boundary of the disk is infinitely far."
        )
    _draw_legend(figure.add_axes((0.70, 0.015, 0.29, 0.97)), shown, " ".join([*notes, embedding.note]))
    return figure


def _drawn_edges(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges [2, E] to draw: all, or a random choice of a very large number."""
    if edges.shape[1] <= _DRAWN_EDGES:
        return edges
    return edges[:, np.random.default_rng(0).choice(edges.shape[1], _DRAWN_EDGES, replace=False)]


def _draw_legend(axes: Axes, embedding: DiskEmbedding, note: str) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    title = _wrapped(short_name(embedding.title, longest=4 * _TITLE_WIDTH), _TITLE_WIDTH)
    axes.text(0, 0.95, title, fontsize=12, fontweight="bold", color=INK, va="top", parse_math=False)
    counts = f"{len(embedding.points):,} nodes, {embedding.edges.shape[1]:,} edges"
    height = 0.95 - 0.045 * (title.count("\n") + 1)
    axes.text(0, height, counts, fontsize=9.5, color=_TEXT, va="top")
    rows = [(label, short_name(name)) for label, name in enumerate(embedding.classes[:_CLASSES_IN_LEGEND])]
    more = len(embedding.classes) - len(rows)
    if embedding.unlabelled:
        rows.append((-1, f"{NO_LABEL} ({embedding.unlabelled:,} nodes)"))
    for row, (label, name) in enumerate(rows):
        y = height - 0.1 - 0.042 * row
        style: dict[str, Any] = {"marker": class_marker(label), "color": class_colour(label)}
        axes.scatter(0.04, y, s=55, edgecolors="white", linewidths=0.4, **style)
        axes.text(0.11, y, name, fontsize=10, color=INK, va="center", parse_math=False)
    if more > 0:
        y = height - 0.1 - 0.042 * len(rows)
        axes.text(0.11, y, f"and {more} more", fontsize=10, color=_TEXT, va="center")
    lines = _wrapped(note, _NOTE_WIDTH)
    axes.text(0, 0.02, lines, fontsize=8.8, color=_TEXT, va="bottom", linespacing=1.45, parse_math=False)


def _wrapped(text: str, width: int) -> str:
    """Return the text in lines; a number stays with its unit."""
    joined = re.sub(r" (?=%|\d+$)", "\N{NO-BREAK SPACE}", text)
    return "\n".join(textwrap.wrap(joined, width)).replace("\N{NO-BREAK SPACE}", " ")
