"""Embedding of a graph by a trained network, in the Poincaré disk."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.plots.hyperbolic_pca import hyperbolic_pca
from lresnet.plots.picture import INK, save_picture
from lresnet.plots.poincare_disk import (
    CLASS_MARKERS,
    DiskEmbedding,
    class_colour,
    draw_disk,
    inside,
    move_to_centre,
)
from lresnet.runs.embedding import embed_nodes
from lresnet.runs.report import BASELINE
from lresnet.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["centred_at", "disk_points", "draw_disk_embedding", "embedding_of_run"]

_TEXT = "#666666"
_CLASSES_IN_LEGEND = 14
_NOTE_WIDTH = 36  # characters per line


def disk_points(x: Tensor, manifold: Lorentz) -> tuple[NDArray[np.float64], str]:
    """Map points of the manifold to the unit Poincaré disk, with their centroid at its centre.

    In two dimensions this is an isometry. Points in more dimensions are projected by
    :func:`~lresnet.plots.hyperbolic_pca.hyperbolic_pca`; points in one dimension lie on a diameter.

    Args:
        x: Space coordinates [N, n] of points of ``manifold``.

    Returns:
        The points [N, 2] and a sentence on how they were mapped.
    """
    wide = x.detach().double()
    n = wide.shape[1]
    note = "Two dimensions: all distances are preserved."
    if n > 2:
        plane = hyperbolic_pca(wide, manifold)
        wide = plane.points
        note = f"Projected from {n} dimensions by hyperbolic PCA, which keeps {100 * plane.kept:.1f} % of the spread."
    wide = torch.nn.functional.pad(wide, (0, 2 - wide.shape[1]))
    wide = manifold.boost(-manifold.centroid(wide), wide)
    points = manifold.to_poincare(wide) * manifold.kappa.detach().double().sqrt()
    return inside(points.cpu().numpy()), note


def embedding_of_run(run: Run) -> DiskEmbedding:
    """Return the graph of a run as its trained network embeds it.

    Raises:
        ValueError: The run is not on a graph, or is a Euclidean baseline.
    """
    if run.record.method == BASELINE:
        raise ValueError(
            f"{run.place} holds a Euclidean baseline, which has no hyperbolic embedding; choose another run"
        )
    nodes = embed_nodes(run)
    assert nodes.manifold is not None
    assert nodes.edges is not None
    points, note = disk_points(nodes.points, nodes.manifold.cpu())
    edges = nodes.edges.numpy()
    numbers = all(name == str(number) for number, name in enumerate(nodes.names))
    return DiskEmbedding(
        title=run.record.name,
        points=points,
        edges=edges[:, edges[0] != edges[1]],
        labels=None if nodes.labels is None else nodes.labels.numpy(),
        classes=tuple(f"class {name}" if name.isdecimal() else name for name in nodes.classes),
        names=None if numbers else nodes.names,
        note=note,
    )


def centred_at(embedding: DiskEmbedding, node: int) -> DiskEmbedding:
    """Return the embedding after the translation that maps ``node`` to the centre; it preserves distances.

    Raises:
        ValueError: There is no such node.
    """
    if not 0 <= node < len(embedding.points):
        raise ValueError(f"there is no node {node}; the nodes are 0 to {len(embedding.points) - 1}")
    points = move_to_centre(embedding.points, embedding.points[node])
    return dataclasses.replace(embedding, points=points)


def draw_disk_embedding(path: str | Path, embedding: DiskEmbedding, centre: int | None = None) -> Path:
    """Draw the graph and write the picture to ``path`` (.png, .svg or .pdf).

    Edges are geodesics; classes differ in colour and marker.

    Args:
        centre: Node to move to the centre; None: the points stay where they are.

    Returns:
        The path of the picture.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    shown = embedding if centre is None else centred_at(embedding, centre)
    labels = np.zeros(len(shown.points), dtype=np.int64) if shown.labels is None else shown.labels
    colours = ListedColormap([class_colour(k) for k in range(labels.min(), labels.max() + 1)])
    # Markers shrink towards the boundary, as lengths do; graphs with many nodes have smaller ones.
    scale = 1 - (shown.points**2).sum(-1)
    largest = float(np.interp(len(labels), [100, 5000], [70.0, 16.0]))
    figure = Figure(figsize=(9.4, 6.4))
    disk = figure.add_axes((0.01, 0.015, 0.67, 0.97))
    draw_disk(disk, shown.points, shown.edges, labels, labels, sizes=3.0 + largest * scale, cmap=colours)
    _draw_legend(figure.add_axes((0.70, 0.015, 0.29, 0.97)), shown, centre)
    return save_picture(figure, path)


def _draw_legend(axes: Axes, embedding: DiskEmbedding, centre: int | None) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    title = "\n".join(textwrap.wrap(embedding.title, 26))
    axes.text(0, 0.95, title, fontsize=12, fontweight="bold", color=INK, va="top")
    counts = f"{len(embedding.points):,} nodes, {embedding.edges.shape[1]:,} edges"
    height = 0.95 - 0.045 * (title.count("\n") + 1)
    axes.text(0, height, counts, fontsize=9.5, color=_TEXT, va="top")
    for row, name in enumerate(embedding.classes[:_CLASSES_IN_LEGEND]):
        y = height - 0.1 - 0.042 * row
        marker = CLASS_MARKERS[row % len(CLASS_MARKERS)]
        axes.scatter(0.04, y, s=55, marker=marker, color=class_colour(row), edgecolors="white", linewidths=0.4)
        axes.text(0.11, y, name, fontsize=10, color=INK, va="center")
    more = len(embedding.classes) - _CLASSES_IN_LEGEND
    if more > 0:
        y = height - 0.1 - 0.042 * _CLASSES_IN_LEGEND
        axes.text(0.11, y, f"and {more} more", fontsize=10, color=_TEXT, va="center")
    moved = "" if centre is None else f"Node {centre} is at the centre (a translation; distances are preserved). "
    note = textwrap.wrap(f"Edges are geodesics. {moved}{embedding.note}", _NOTE_WIDTH)
    axes.text(0, 0.02, "\n".join(note), fontsize=8.8, color=_TEXT, va="bottom", linespacing=1.45)
