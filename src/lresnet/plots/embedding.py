"""A picture of a graph in the Poincaré disk: geodesic edges, colours and markers by class."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lresnet.plots.disk_embedding import DiskEmbedding
from lresnet.plots.palette import class_colour
from lresnet.plots.poincare_disk import draw_disk, move_to_centre

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["centred_at", "draw_disk_embedding"]

_INK, _GREY = "#222222", "#666666"
_MARKERS = "oD^sv"  # those of draw_disk, in its order
_LISTED = 14  # classes in the legend
_WIDTH = 36  # letters a line of the note


def centred_at(embedding: DiskEmbedding, node: int) -> DiskEmbedding:
    """The same after the translation that takes ``node`` to the centre of the disk; no distance changes.

    Raises:
        ValueError: there is no such node.
    """
    if not 0 <= node < len(embedding.points):
        raise ValueError(f"there is no node {node}; the nodes are 0 to {len(embedding.points) - 1}")
    points = move_to_centre(embedding.points, embedding.points[node])
    return dataclasses.replace(embedding, points=points)


def draw_disk_embedding(path: str | Path, embedding: DiskEmbedding, centre: int | None = None) -> Path:
    """Draw the graph and write the picture to ``path`` (.png, .svg or .pdf).

    Args:
        centre: the node to move to the centre; None: the points stay where they are.

    Returns:
        The path of the picture.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    path = Path(path)
    shown = embedding if centre is None else centred_at(embedding, centre)
    labels = np.zeros(len(shown.points), dtype=np.int64) if shown.labels is None else shown.labels
    colours = ListedColormap([class_colour(k) for k in range(labels.min(), labels.max() + 1)])
    # The metric is larger near the centre, and so are the markers; many points get smaller ones.
    room = 1 - (shown.points**2).sum(-1)
    largest = float(np.interp(len(labels), [100, 5000], [70.0, 16.0]))
    figure = Figure(figsize=(9.4, 6.4), facecolor="white")
    disk = figure.add_axes((0.01, 0.015, 0.67, 0.97))
    draw_disk(disk, shown.points, shown.edges, labels, labels, sizes=3.0 + largest * room, cmap=colours)
    _draw_legend(figure.add_axes((0.70, 0.015, 0.29, 0.97)), shown, centre)
    # Without the writer's name and version the same picture is the same file everywhere.
    figure.savefig(path, dpi=160, metadata={"Software": None} if path.suffix == ".png" else None)
    return path


def _draw_legend(axes: Axes, embedding: DiskEmbedding, centre: int | None) -> None:
    import textwrap

    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    title = "\n".join(textwrap.wrap(embedding.title, 26))
    axes.text(0, 0.95, title, fontsize=12, fontweight="bold", color=_INK, va="top")
    counts = f"{len(embedding.points):,} nodes, {embedding.edges.shape[1]:,} edges"
    height = 0.95 - 0.045 * (title.count("\n") + 1)
    axes.text(0, height, counts, fontsize=9.5, color=_GREY, va="top")
    for row, name in enumerate(embedding.classes[:_LISTED]):
        y = height - 0.1 - 0.042 * row
        marker = _MARKERS[row % len(_MARKERS)]
        axes.scatter(0.04, y, s=55, marker=marker, color=class_colour(row), edgecolors="white", linewidths=0.4)
        axes.text(0.11, y, name, fontsize=10, color=_INK, va="center")
    if len(embedding.classes) > _LISTED:
        y = height - 0.1 - 0.042 * _LISTED
        axes.text(0.11, y, f"and {len(embedding.classes) - _LISTED} more", fontsize=10, color=_GREY, va="center")
    moved = "" if centre is None else f"Node {centre} was moved to the centre: no distance changed. "
    note = textwrap.wrap(f"Edges are geodesics. {moved}{embedding.note}", _WIDTH)
    axes.text(0, 0.02, "\n".join(note), fontsize=8.8, color=_GREY, va="bottom", linespacing=1.45)
