"""Picture of the demo: a tree that a network has embedded in the hyperbolic plane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lresnet.plots.picture import INK, save_picture
from lresnet.plots.poincare_disk import draw_disk, draw_geodesics, move_to_centre, rotate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap

    from lresnet.runs.demo import TreeEmbedding

__all__ = ["draw_embedding"]

_TEXT, _HIDDEN = "#666666", "#D55E00"
_LIGHTEST = 0.88  # share of viridis; its yellow end is hard to see on white
_DASHES = (0.0, (3.0, 1.5))


def draw_embedding(path: str | Path, embedding: TreeEmbedding) -> Path:
    """Draw the tree in the Poincaré disk, with its root at the centre, and write the picture to ``path``.

    Returns:
        The path of the picture.
    """
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    levels = int(embedding.depth.max()) + 1
    colours = ListedColormap(mpl.colormaps["viridis"](np.linspace(0, _LIGHTEST, levels)))
    sizes = np.interp(embedding.depth, [0, levels - 1], [80.0, 8.0])
    figure = Figure(figsize=(10.0, 6.2))
    disk = figure.add_axes((0.01, 0.015, 0.6, 0.97))
    points, seen = _arranged(embedding), embedding.seen
    draw_disk(disk, points, embedding.edges[:, :seen], embedding.labels, embedding.depth, sizes=sizes, cmap=colours)
    draw_geodesics(disk, points, embedding.edges[:, seen:], colour=_HIDDEN, width=0.9, style=_DASHES)
    _draw_legend(figure.add_axes((0.645, 0.015, 0.35, 0.97)), embedding, colours)
    return save_picture(figure, path)


def _arranged(embedding: TreeEmbedding) -> NDArray[np.float64]:
    """Move the root to the centre and rotate the widest gap to the bottom; both preserve distances."""
    points = move_to_centre(embedding.points, embedding.points[0])
    angles = np.sort(np.arctan2(points[1:, 1], points[1:, 0]))
    gaps = np.diff(angles, append=angles[0] + 2 * np.pi)
    widest = int(gaps.argmax())
    return rotate(points, -np.pi / 2 - (angles[widest] + gaps[widest] / 2))


def _draw_legend(axes: Axes, embedding: TreeEmbedding, colours: ListedColormap) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    axes.text(0, 0.93, "A tree in the hyperbolic plane", fontsize=13.5, fontweight="bold", color=INK)
    about = (
        "Learned by link prediction: a graph network with",
        "Lorentz residual connections, in 2 dimensions.",
        f"Validation (mean of AUC and AP): {embedding.validation:.1f} %",
    )
    for row, text in enumerate(about):
        axes.text(0, 0.88 - 0.042 * row, text, fontsize=9.3, color=_TEXT)
    axes.text(0, 0.70, "steps from the root", fontsize=10.5, color=INK)
    for level, colour in enumerate(colours(range(colours.N))):
        x = 0.035 + 0.1 * level
        axes.scatter(x, 0.65, s=90, color=colour, edgecolors="white", linewidths=0.4)
        axes.text(x, 0.595, str(level), fontsize=9.3, color=_TEXT, ha="center")
    for row, (marker, text) in enumerate((("o", "never infected"), ("D", "infected at some time"))):
        height = 0.50 - 0.055 * row
        axes.scatter(0.035, height, s=60, color=_TEXT, marker=marker, edgecolors="white", linewidths=0.4)
        axes.text(0.11, height, text, fontsize=10.5, color=INK, va="center")
    hidden = embedding.edges.shape[1] - embedding.seen
    lines: tuple[tuple[str, dict[str, Any]], ...] = (
        (f"training edges: {embedding.seen}", {"color": _TEXT, "linewidth": 1.0}),
        (f"held-out edges: {hidden}", {"color": _HIDDEN, "linewidth": 1.6, "linestyle": _DASHES}),
    )
    for row, (text, style) in enumerate(lines):
        height = 0.37 - 0.055 * row
        axes.plot([0, 0.075], [height, height], **style)
        axes.text(0.11, height, text, fontsize=10.5, color=INK, va="center")
    notes = ("Edges are geodesics. The root was moved to the", "centre and the disk rotated: distances are preserved.")
    for row, text in enumerate(notes):
        axes.text(0, 0.09 - 0.04 * row, text, fontsize=8.8, color=_TEXT)
