"""The Poincaré disk: a graph in it, geodesics, translations, and drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lresnet.plots.picture import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

__all__ = [
    "CLASS_COLOURS",
    "CLASS_MARKERS",
    "NO_LABEL",
    "NO_LABEL_COLOUR",
    "DiskEmbedding",
    "class_colour",
    "class_marker",
    "draw_disk",
    "draw_geodesics",
    "geodesic_arcs",
    "inside",
    "move_to_centre",
    "rotate",
    "view_radius",
]

# Colours of classes, by number; the colours of methods are in residual/registry.py. Okabe and Ito, "Color Universal
# Design" (2008), which colour-blind readers can tell apart; without yellow (hard to see on white) and black (hard to
# see in dark mode).
CLASS_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#8C8C8C")
CLASS_MARKERS = "oD^sv"
"""Markers of matplotlib, one per class, so that classes differ in black and white too."""
NO_LABEL = "no label"
"""What legends call a node whose label is -1; it is a grey circle."""
NO_LABEL_COLOUR = "#B4B4B4"

_BACKGROUND, _EDGE = "#FAFAFA", "#9A9A9A"
_SPARSE = 0.75  # points that fill less than this share of the radius are shown in a zoomed view
_MARGIN = 1.15  # radius of a zoomed view, in radii of the outermost point
_INSIDE = 1 - 2.0**-52  # points more than 36 radii of curvature from the centre would round to the boundary
_MAX_TANH = 1 - 2.0**-53  # the largest float64 below 1
_STEPS, _STEPS_PER_RADIUS = 24, 3  # points on a drawn arc: at least, and per radius of curvature of the longest one


@dataclass(frozen=True)
class DiskEmbedding:
    """A graph in the unit Poincaré disk.

    Args:
        title: Title of the picture.
        points: [N, 2], inside the unit disk.
        edges: [2, E], node numbers; each edge once.
        labels: [N], class numbers from 0; -1 for a node without a label.
        classes: Names of the classes.
        names: Names of the N nodes; None: nodes are named by their numbers.
        note: How the points were mapped to the disk.
        order: Numbers of the N nodes, the most general first, in which names are drawn; None: by descending degree.

    Example:
        >>> DiskEmbedding("a pair", np.array([[0.0, 0.0], [0.5, 0.0]]), np.array([[0], [1]])).classes_of_nodes()
        ['', '']
    """

    title: str
    points: NDArray[np.float64]
    edges: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    note: str = ""
    order: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n = len(self.points)
        if self.points.shape != (n, 2) or n == 0 or not bool(((self.points**2).sum(-1) < 1).all()):
            raise ValueError(f"points must be [N, 2], N >= 1, inside the unit disk; got {list(self.points.shape)}")
        if self.edges.size and not 0 <= self.edges.min() <= self.edges.max() < n:
            raise ValueError(f"edges must name nodes from 0 to {n - 1}, got {self.edges.min()} to {self.edges.max()}")
        for what, value in (("labels", self.labels), ("names", self.names), ("order", self.order)):
            if value is not None and len(value) != n:
                raise ValueError(f"{what} must be one for each of the {n} nodes, got {len(value)}")
        if self.labels is not None and not -1 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise ValueError(f"labels must be from 0 to {len(self.classes) - 1}, one per class, or -1 for no label")

    def classes_of_nodes(self) -> list[str]:
        """Return the class name of each node; empty strings without labels."""
        if self.labels is None:
            return [""] * len(self.points)
        return [NO_LABEL if k < 0 else self.classes[k] for k in self.labels]

    def most_general_first(self) -> NDArray[np.int64]:
        """Return the numbers of the nodes in the order in which names are drawn: :attr:`order`, or by degree.

        Example:
            >>> path = DiskEmbedding("path", np.zeros((3, 2)), np.array([[0, 1], [1, 2]]))
            >>> path.most_general_first()
            array([1, 0, 2])
        """
        if self.order is not None:
            return self.order
        return np.argsort(-np.bincount(self.edges.reshape(-1), minlength=len(self.points)), kind="stable")

    @property
    def unlabelled(self) -> int:
        """Number of nodes without a label in a graph with labels."""
        return 0 if self.labels is None else int((self.labels < 0).sum())


def class_colour(label: int) -> str:
    """Return the colour of class ``label``; -1 is grey. Colours repeat after seven classes, markers after five.

    Example:
        >>> class_colour(1), class_colour(-1)
        ('#D55E00', '#B4B4B4')
    """
    return NO_LABEL_COLOUR if label < 0 else CLASS_COLOURS[label % len(CLASS_COLOURS)]


def class_marker(label: int) -> str:
    """Return the matplotlib marker of class ``label``; -1 is a circle.

    Example:
        >>> class_marker(1), class_marker(-1)
        ('D', 'o')
    """
    return CLASS_MARKERS[0 if label < 0 else label % len(CLASS_MARKERS)]


def view_radius(points: ArrayLike) -> float:
    """Return the radius of the part of the unit disk to show: 1, or less if all points are close to the centre.

    Example:
        >>> view_radius([[0.9, 0.0]]), round(view_radius([[0.2, 0.0], [0.0, 0.1]]), 3)
        (1.0, 0.23)
    """
    outermost = float(np.abs(_complex(points, "points")).max())
    return _MARGIN * outermost if 0 < outermost < _SPARSE else 1.0


def geodesic_arcs(starts: ArrayLike, ends: ArrayLike, steps: int = _STEPS) -> NDArray[np.float64]:
    r"""Return points along the geodesics of the unit disk from ``starts`` to ``ends``, equally spaced on each.

    A translation maps the start to the origin, where geodesics are straight lines, and back:
    :math:`a \oplus w = (a + w) / (1 + \bar a w)` in complex numbers.

    Args:
        starts, ends: [E, 2], inside the unit disk.
        steps: Number of points on each arc, both ends included.

    Returns:
        [E, steps, 2]

    Example:
        >>> geodesic_arcs([[0.0, 0.0]], [[0.5, 0.0]], steps=2).round(12).tolist()
        [[[0.0, 0.0], [0.5, 0.0]]]
    """
    a, b = _complex(starts, "starts")[:, None], _complex(ends, "ends")[:, None]
    seen_from_a = (b - a) / (1 - a.conj() * b)
    length = np.abs(seen_from_a)
    direction = np.divide(seen_from_a, length, out=np.ones_like(seen_from_a), where=length > 0)
    distance = np.arctanh(np.minimum(length, _MAX_TANH))
    w = np.tanh(np.linspace(0, 1, steps) * distance) * direction
    return _real((a + w) / (1 + a.conj() * w))


def inside(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the points [N, 2]; those that rounding put on the boundary of the disk or beyond are moved inside.

    Example:
        >>> bool((inside(np.array([[0.6, 0.8]])) ** 2).sum() < 1)
        True
    """
    norm = np.hypot(points[:, :1], points[:, 1:])
    return points * np.divide(_INSIDE, norm, out=np.ones_like(norm), where=norm > _INSIDE)


def move_to_centre(points: ArrayLike, centre: ArrayLike) -> NDArray[np.float64]:
    """Return the points [N, 2] after the translation that maps ``centre`` [2] to the origin.

    The translation preserves distances, as far as float64 can represent them: a point more than 36 radii of curvature
    from the centre is drawn at the boundary.
    """
    a, z = _complex(np.reshape(centre, (1, 2)), "centre"), _complex(points, "points")
    return inside(_real((z - a) / (1 - a.conj() * z)))


def rotate(points: ArrayLike, angle: float) -> NDArray[np.float64]:
    """Return the points [N, 2], rotated by ``angle`` (radians, counterclockwise) about the origin."""
    return _real(_complex(points, "points") * np.exp(1j * angle))


def draw_disk(
    axes: Axes,
    points: ArrayLike,
    edges: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    values: ArrayLike | None = None,
    *,
    sizes: ArrayLike = 14.0,
    cmap: str | Colormap = "viridis",
    radius: float = 1.0,
    edge_width: float = 0.5,
) -> None:
    """Draw points of the unit Poincaré disk, with the edges between them as geodesics.

    Args:
        axes: Where to draw. Its limits are set and its frame is removed.
        points: [N, 2], inside the unit disk. For points ``x`` [N, 2] of a :class:`lresnet.Lorentz` manifold ``M`` these
            are ``M.to_poincare(x) * M.kappa.sqrt()``.
        edges: [2, E], numbers of points.
        labels: [N], whole numbers from 0, shown by the marker: circle, diamond, triangle, square; -1 is a circle.
        values: [N], shown by colour; default: the labels. Viridis grows lighter with the value, so it reads in black
            and white.
        sizes: Area of the markers in square points, one for all or one each.
        cmap: Colour map of the values.
        radius: Radius of the part of the disk that is shown, see :func:`view_radius`. Below 1, its rim is dashed.
        edge_width: Width of the edges in points.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.patches import Circle

    positions = _real(_complex(points, "points"))
    label = np.zeros(len(positions), dtype=np.int64) if labels is None else np.asarray(labels)
    value = label if values is None else np.asarray(values)
    size = np.broadcast_to(np.asarray(sizes), len(positions))
    limit = 1.03 * radius
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
    axes.set_axis_off()
    rim: dict[str, Any] = {"linewidth": 1.2} if radius >= 1 else {"linewidth": 0.9, "linestyle": (0, (5, 4))}
    axes.add_patch(Circle((0, 0), radius, facecolor=_BACKGROUND, edgecolor=INK, zorder=0, **rim))
    if edges is not None:
        draw_geodesics(axes, positions, edges, width=edge_width)
    colours = ScalarMappable(cmap=cmap).to_rgba(value.astype(np.float64))
    for kind in np.unique(label):
        chosen = label == kind
        style: dict[str, Any] = {"marker": class_marker(int(kind)), "edgecolors": "white", "linewidths": 0.4}
        axes.scatter(positions[chosen, 0], positions[chosen, 1], s=size[chosen], c=colours[chosen], zorder=3, **style)


def draw_geodesics(
    axes: Axes,
    points: ArrayLike,
    edges: ArrayLike,
    *,
    colour: str = _EDGE,
    width: float = 0.5,
    style: str | tuple[float, tuple[float, ...]] = "solid",
) -> None:
    """Draw edges [2, E] between points [N, 2] of the unit disk: arcs of circles orthogonal to the boundary."""
    from matplotlib.collections import LineCollection

    positions = np.asarray(points, dtype=np.float64)
    i, j = np.asarray(edges)
    a, b = _complex(positions[i], "points"), _complex(positions[j], "points")
    longest = 2 * np.arctanh(np.minimum(np.abs((b - a) / (1 - a.conj() * b)), _MAX_TANH)).max(initial=0)
    arcs = list(geodesic_arcs(positions[i], positions[j], max(_STEPS, int(np.ceil(_STEPS_PER_RADIUS * longest)))))
    axes.add_collection(LineCollection(arcs, colors=colour, linewidths=width, linestyles=[style], zorder=2))


def _complex(points: ArrayLike, name: str) -> NDArray[np.complex128]:
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"{name} must have shape [N, 2], got {list(array.shape)}")
    outside = np.flatnonzero(~((array**2).sum(-1) < 1))  # a NaN compares false
    if outside.size:
        x, y = array[outside[0]]
        raise ValueError(f"{name} must lie inside the unit disk; number {outside[0]} is ({x:g}, {y:g})")
    return array[:, 0] + 1j * array[:, 1]


def _real(z: NDArray[np.complex128]) -> NDArray[np.float64]:
    return np.stack([z.real, z.imag], axis=-1)
