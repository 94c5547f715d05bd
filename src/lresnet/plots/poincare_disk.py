"""The Poincaré disk: points, and edges drawn as the geodesics they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

__all__ = ["draw_disk", "draw_geodesics", "geodesic_arcs", "inside", "move_to_centre", "turn"]

_INK, _PAPER, _EDGE = "#222222", "#FAFAFA", "#9A9A9A"
_MARKERS = "oD^sv"  # one a class: told apart without colour too
_INSIDE = 1 - 2.0**-52  # points further out than 36 radii of curvature would round to the boundary itself
_MAX_TANH = 1 - 2.0**-53  # the largest float64 below 1; two ends further apart than this says look the same on paper


def geodesic_arcs(starts: ArrayLike, ends: ArrayLike, steps: int = 24) -> NDArray[np.float64]:
    r"""Points along the geodesics of the unit disk from ``starts`` to ``ends``, equally far apart on each.

    A translation carries the start to the origin, where geodesics are straight, and back:
    :math:`a \oplus w = (a + w) / (1 + \bar a w)` in complex numbers.

    Args:
        starts, ends: [E, 2], inside the unit disk.
        steps: number of points on each arc, both ends included.

    Returns:
        [E, steps, 2]

    Example:
        >>> geodesic_arcs([[0.0, 0.0]], [[0.5, 0.0]], steps=2).tolist()
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
    """The points [N, 2] of the disk, those that rounding has put on its boundary or beyond drawn back inside.

    Example:
        >>> bool((inside(np.array([[0.6, 0.8]])) ** 2).sum() < 1)
        True
    """
    norm = np.hypot(points[:, :1], points[:, 1:])
    return points * np.divide(_INSIDE, norm, out=np.ones_like(norm), where=norm > _INSIDE)


def move_to_centre(points: ArrayLike, centre: ArrayLike) -> NDArray[np.float64]:
    """The points [N, 2] after the translation that takes ``centre`` [2] to the origin; distances stay.

    As far as float64 tells them: a point more than 36 radii of curvature from the centre is drawn at the boundary.
    """
    a, z = _complex(np.reshape(centre, (1, 2)), "centre"), _complex(points, "points")
    return inside(_real((z - a) / (1 - a.conj() * z)))


def turn(points: ArrayLike, angle: float) -> NDArray[np.float64]:
    """The points [N, 2] after a rotation by ``angle`` (radians, counterclockwise) about the origin; distances stay."""
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
) -> None:
    """Draw points of the unit Poincaré disk, and the edges between them as geodesics.

    Args:
        axes: where to draw; its limits are set and its frame is removed.
        points: [N, 2], inside the unit disk. For points ``x`` [N, 2] of a :class:`lresnet.Lorentz` manifold ``M`` these
            are ``M.to_poincare(x) * M.kappa.sqrt()``.
        edges: [2, E], numbers of points.
        labels: [N], whole numbers from 0, shown by the marker: circle, diamond, triangle, square.
        values: [N], shown by colour; viridis grows lighter with the value, so it reads in black and white. Without
            values the labels have the colours too.
        sizes: area of the markers in square points, one for all or one each.
        cmap: of the values.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.patches import Circle

    where = _real(_complex(points, "points"))
    label = np.zeros(len(where), dtype=np.int64) if labels is None else np.asarray(labels)
    value = label if values is None else np.asarray(values)
    size = np.broadcast_to(np.asarray(sizes), len(where))
    axes.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    axes.set_axis_off()
    axes.add_patch(Circle((0, 0), 1, facecolor=_PAPER, edgecolor=_INK, linewidth=1.2, zorder=0))
    if edges is not None:
        draw_geodesics(axes, where, edges)
    colours = ScalarMappable(cmap=cmap).to_rgba(value.astype(np.float64))
    for kind in np.unique(label):
        chosen = label == kind
        look: dict[str, Any] = {"marker": _MARKERS[int(kind) % len(_MARKERS)], "edgecolors": "white", "linewidths": 0.4}
        axes.scatter(where[chosen, 0], where[chosen, 1], s=size[chosen], c=colours[chosen], zorder=3, **look)


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

    where = np.asarray(points, dtype=np.float64)
    i, j = np.asarray(edges)
    arcs = list(geodesic_arcs(where[i], where[j]))
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
