"""Names of nodes in a picture: which ones to draw, and places where they do not overlap each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lresnet.plots.picture import INK
from lresnet.plots.poincare_disk import DiskEmbedding
from lresnet.runs.names import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

__all__ = ["draw_names", "name_count", "nodes_by_degree", "short_name"]

_ALL = 40  # a graph of at most this many nodes has all names
_HUBS = 30  # names in a larger graph
_TRIES = 8  # nodes that are tried for each name, because there is no room for some
_LONGEST = 28  # characters
_FONT = 8.0  # points
_GAPS = (2.0, 9.0, 18.0)  # points between a marker and its name; a line connects those that are further apart
_PADDING = 1.0  # points around a name
# Directions from the node to its name, the most legible first.
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


def name_count(embedding: DiskEmbedding) -> int:
    """Return how many names to draw by default.

    All names of a small graph, about 30 in a larger one, and none in a larger one whose names are numbers.

    Example:
        >>> pair = DiskEmbedding("a pair", np.array([[0.0, 0.0], [0.5, 0.0]]), np.array([[0], [1]]))
        >>> name_count(pair)
        2
    """
    n = len(embedding.points)
    if n <= _ALL:
        return n
    is_named = embedding.names is not None and not all(name.isdecimal() for name in embedding.names)
    return _HUBS if is_named else 0


def nodes_by_degree(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Return the numbers of the nodes by descending degree; nodes of equal degree keep their order.

    Example:
        >>> nodes_by_degree(np.array([[0, 1], [1, 2]]), 3)
        array([1, 0, 2])
    """
    return np.argsort(-np.bincount(edges.reshape(-1), minlength=nodes), kind="stable")


def short_name(name: str, longest: int = _LONGEST) -> str:
    """Return the name in one line, cut if it is long.

    Example:
        >>> short_name("a long name", longest=7)
        'a long…'
    """
    shown = one_line(name[: longest + 1])
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def draw_names(
    axes: Axes, points: ArrayLike, names: Sequence[str], order: Sequence[int], limit: int, sizes: ArrayLike
) -> list[Text]:
    """Draw up to ``limit`` names next to their points. A name for which there is no room is skipped.

    Each name gets the place, out of those around its point, that overlaps no other name and covers the fewest points;
    a place further from the point must cover fewer.

    Args:
        axes: Where the points are drawn. Its limits must be final.
        points: [N, 2].
        names: N names.
        order: Numbers of points, the most important first; names are drawn for the first ones that have room.
        limit: Number of names.
        sizes: [N], areas of the markers in square points.

    Returns:
        The names as drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke

    figure = axes.figure
    assert isinstance(figure, Figure)
    renderer: Any = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    axes.apply_aspect()
    pixels = figure.dpi / 72
    centres = axes.transData.transform(np.asarray(points, dtype=np.float64))
    ring = np.repeat(np.arange(len(_GAPS)), len(_DIRECTIONS))
    radii = np.sqrt(np.asarray(sizes, dtype=np.float64)) / 2 * pixels
    frame = axes.get_window_extent(renderer)
    taken = np.empty((0, 4))
    drawn: list[Text] = []
    for node in order[: _TRIES * limit]:
        if len(drawn) == limit:
            break
        text = axes.text(0, 0, short_name(names[node]), fontsize=_FONT, color=INK, zorder=5, parse_math=False)
        text.set_path_effects([withStroke(linewidth=2.4, foreground="white", alpha=0.9)])
        box = text.get_window_extent(renderer)
        padding = _PADDING * pixels
        places = np.array(list(_places(centres[node], radii[node], pixels, box.width + padding, box.height + padding)))
        inside = (places[:, :2] >= frame.min).all(-1) & (places[:, 2:] <= frame.max).all(-1)
        free = inside & ~_overlap(places, taken).any(-1)
        if not free.any():
            text.remove()
            continue
        cost = np.where(free, _covered(places, centres, radii) + ring, np.inf)
        place = int(cost.argmin())
        best = places[place]
        middle, nearest = axes.transData.inverted().transform(
            [(best[:2] + best[2:]) / 2, np.clip(centres[node], best[:2], best[2:])]
        )
        text.set(position=middle, ha="center", va="center")
        if ring[place]:
            x, y = zip(np.asarray(points)[node], nearest, strict=True)
            axes.plot(x, y, color=INK, linewidth=0.4, zorder=4)
        taken = np.vstack([taken, best])
        drawn.append(text)
    return drawn


def _places(
    centre: NDArray[np.float64], radius: float, pixels: float, width: float, height: float
) -> Iterator[tuple[float, float, float, float]]:
    """Yield boxes (left, bottom, right, top) around a marker, the best first."""
    for gap, (dx, dy) in itertools.product(_GAPS, _DIRECTIONS):
        reach = (radius + gap * pixels) * (0.7 if dx and dy else 1.0)
        x, y = centre[0] + dx * (reach + width / 2), centre[1] + dy * (reach + height / 2)
        yield x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _covered(
    places: NDArray[np.float64], centres: NDArray[np.float64], radii: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return how many markers each box [m, 4] touches, [m]."""
    apart = centres - np.clip(centres, places[:, None, :2], places[:, None, 2:])
    touched: NDArray[np.int64] = (np.hypot(apart[..., 0], apart[..., 1]) < radii).sum(-1)
    return touched


def _overlap(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which boxes [m, 4] and [k, 4] overlap, [m, k]."""
    found: NDArray[np.bool_] = np.all((a[:, None, :2] < b[:, 2:]) & (b[:, :2] < a[:, None, 2:]), axis=-1)
    return found
