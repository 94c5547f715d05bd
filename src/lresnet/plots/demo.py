"""The demo's picture: a tree that a network has laid out in the hyperbolic plane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lresnet.plots.poincare_disk import draw_disk, draw_geodesics, move_to_centre, turn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap

    from lresnet.runs.demo import Embedding

__all__ = ["draw_embedding", "require_drawable"]

_INK, _GREY, _HIDDEN = "#222222", "#666666", "#D55E00"
_LIGHTEST = 0.88  # of viridis, whose yellow end is hard to see on white
_FORMATS = (".png", ".svg", ".pdf")
_DASHES = (0.0, (3.0, 1.5))


def draw_embedding(path: str | Path, embedding: Embedding) -> Path:
    """Draw the tree in the Poincaré disk, its root in the centre, and write the picture to ``path``.

    Returns:
        The path of the picture.
    """
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    path = Path(path)
    levels = int(embedding.depth.max()) + 1
    colours = ListedColormap(mpl.colormaps["viridis"](np.linspace(0, _LIGHTEST, levels)))
    sizes = np.interp(embedding.depth, [0, levels - 1], [80.0, 8.0])
    figure = Figure(figsize=(10.0, 6.2), facecolor="white")
    disk = figure.add_axes((0.01, 0.015, 0.6, 0.97))
    points, seen = _arranged(embedding), embedding.seen
    draw_disk(disk, points, embedding.edges[:, :seen], embedding.labels, embedding.depth, sizes=sizes, cmap=colours)
    draw_geodesics(disk, points, embedding.edges[:, seen:], colour=_HIDDEN, width=0.9, style=_DASHES)
    _draw_legend(figure.add_axes((0.645, 0.015, 0.35, 0.97)), embedding, colours)
    # Without the writer's name and version the same picture is the same file everywhere.
    figure.savefig(path, dpi=160, metadata={"Software": None} if path.suffix == ".png" else None)
    return path


def require_drawable(path: Path) -> None:
    """Fail now if a picture cannot be written to ``path``.

    Raises:
        ValueError: no picture has such a name.
        OSError: there is no such folder, or it cannot be written to.
    """
    if path.suffix not in _FORMATS:
        raise ValueError(f"a picture's name ends with one of {', '.join(_FORMATS)}, unlike {str(path)!r}")
    new = not path.exists()
    path.open("ab").close()
    if new:
        path.unlink()


def _arranged(embedding: Embedding) -> NDArray[np.float64]:
    """The root in the centre and the widest gap below: a translation and a rotation, which change no distance."""
    points = move_to_centre(embedding.points, embedding.points[0])
    angles = np.sort(np.arctan2(points[1:, 1], points[1:, 0]))
    gaps = np.diff(angles, append=angles[0] + 2 * np.pi)
    widest = int(gaps.argmax())
    return turn(points, -np.pi / 2 - (angles[widest] + gaps[widest] / 2))


def _draw_legend(axes: Axes, embedding: Embedding, colours: ListedColormap) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    axes.text(0, 0.93, "A tree in the hyperbolic plane", fontsize=13.5, fontweight="bold", color=_INK)
    about = (
        "Learned by link prediction: a graph network with",
        "Lorentz residual connections, in 2 dimensions.",
        f"Validation (mean of AUC and AP): {embedding.validation:.1f} %",
    )
    for row, text in enumerate(about):
        axes.text(0, 0.88 - 0.042 * row, text, fontsize=9.3, color=_GREY)
    axes.text(0, 0.70, "steps from the root", fontsize=10.5, color=_INK)
    for level, colour in enumerate(colours(range(colours.N))):
        x = 0.035 + 0.1 * level
        axes.scatter(x, 0.65, s=90, color=colour, edgecolors="white", linewidths=0.4)
        axes.text(x, 0.595, str(level), fontsize=9.3, color=_GREY, ha="center")
    for row, (marker, text) in enumerate((("o", "never infected"), ("D", "infected at some time"))):
        height = 0.50 - 0.055 * row
        axes.scatter(0.035, height, s=60, color=_GREY, marker=marker, edgecolors="white", linewidths=0.4)
        axes.text(0.11, height, text, fontsize=10.5, color=_INK, va="center")
    hidden = embedding.edges.shape[1] - embedding.seen
    lines: tuple[tuple[str, dict[str, Any]], ...] = (
        (f"{embedding.seen} edges given in training", {"color": _GREY, "linewidth": 1.0}),
        (f"{hidden} edges that were hidden", {"color": _HIDDEN, "linewidth": 1.6, "linestyle": _DASHES}),
    )
    for row, (text, look) in enumerate(lines):
        height = 0.37 - 0.055 * row
        axes.plot([0, 0.075], [height, height], **look)
        axes.text(0.11, height, text, fontsize=10.5, color=_INK, va="center")
    notes = ("Edges are geodesics. The root was moved to the", "centre and the disk turned: no distance changed.")
    for row, text in enumerate(notes):
        axes.text(0, 0.09 - 0.04 * row, text, fontsize=8.8, color=_GREY)
