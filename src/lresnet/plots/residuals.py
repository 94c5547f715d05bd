"""Results of all residual connections for two points: a table and a picture of the Poincaré disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lresnet.functional import equivalent_weights, lorentz_residual
from lresnet.geometry import Lorentz
from lresnet.plots.picture import INK, method_style, save_picture
from lresnet.residual.registry import METHODS, make_residual

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = ["ResidualPoint", "draw_residuals", "residual_points", "residual_table"]


_DRAWN = tuple(
    sorted(
        (method for method in METHODS.values() if method.role != "textbook" and method.name != "euclidean"),
        key=lambda method: method.picture_rank,
    )
)
_TEXT, _LIGHT = "#777777", "#D9D9D9"


class ResidualPoint(NamedTuple):
    """Result of one residual connection, with its distances from the origin, x and y."""

    kind: str
    label: str
    space: tuple[float, float]
    from_origin: float
    from_x: float
    from_y: float


def residual_points(
    x: Sequence[float] = (2.0, -2.0), y: Sequence[float] = (2.0, 2.0), curvature: float = -1.0
) -> list[ResidualPoint]:
    """Apply every residual connection to the points with space coordinates ``x`` and ``y``, in float64.

    Example:
        >>> residual_points()[0].kind
        'lorentz'
    """
    M, p, q = Lorentz(curvature), _point(x, "x"), _point(y, "y")
    found = []
    for method in _DRAWN:
        with torch.no_grad():
            z = make_residual(method.name, M)(p, q)
        distances = [float(M.dist(other, z)) for other in (torch.zeros_like(z), p, q)]
        found.append(ResidualPoint(method.name, method.label, (float(z[0]), float(z[1])), *distances))
    return found


def residual_table(x: Sequence[float] = (2.0, -2.0), y: Sequence[float] = (2.0, 2.0), curvature: float = -1.0) -> Table:
    """Return the results as a table for the terminal."""
    from rich.table import Table

    table = Table(
        title=_description(x, y, curvature),
        caption="result: space coordinates; from o, x, y: distance from that point",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("residual connection", no_wrap=True)
    for heading in ("result", "from o", "from x", "from y"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in residual_points(x, y, curvature):
        distances = (point.from_origin, point.from_x, point.from_y)
        table.add_row(point.kind, _coordinates(point.space), *(f"{distance:.3f}" for distance in distances))
    return table


def draw_residuals(
    path: str | Path,
    x: Sequence[float] = (2.0, -2.0),
    y: Sequence[float] = (2.0, 2.0),
    curvature: float = -1.0,
) -> Path:
    """Draw the results in the Poincaré disk and write the picture to ``path`` (.png, .svg or .pdf).

    The solid arc is the geodesic from x to y. The dashed lines are geodesics from the origin to the results. A white
    dot, where a dashed line crosses the arc, is the Lorentz residual with the weights of Proposition 4.2.

    Returns:
        The path of the picture.
    """
    from matplotlib.figure import Figure

    M, p, q = Lorentz(curvature), _point(x, "x"), _point(y, "y")
    found = residual_points(x, y, curvature)
    figure = Figure(figsize=(8.75, 5.2))  # 1,400 pixels wide: the text is legible at half that width
    disk = figure.add_axes((0.005, 0.02, 0.565, 0.96))
    _draw_disk(disk, curvature, away_from=_disk(M, p + q))
    _draw_geodesics(disk, M, p, q, found)
    _draw_points(disk, M, p, q, found)
    legend = figure.add_axes((0.585, 0.02, 0.41, 0.96))
    _draw_legend(legend, x, y, curvature, found)
    return save_picture(figure, path)


def _draw_disk(axes: Axes, curvature: float, away_from: Tensor) -> None:
    """Draw boundary, origin and circles of equal distance, with their labels on the side away from the points."""
    from matplotlib.patches import Circle

    axes.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    axes.set_axis_off()
    axes.add_patch(Circle((0, 0), 1, facecolor="#FAFAFA", edgecolor=INK, linewidth=1.4, zorder=0))
    norm = float(away_from.norm())
    u, v = (-away_from / norm).tolist() if norm > 1e-9 else (-1.0, 0.0)
    for distance in _ring_distances(curvature):
        radius = math.tanh(math.sqrt(-curvature) * distance / 2)
        axes.add_patch(Circle((0, 0), radius, fill=False, edgecolor=_LIGHT, linewidth=0.9, zorder=1))
        label = axes.text(u * radius, v * radius, f"{distance:g}", fontsize=10, color=_TEXT, ha="center", va="center")
        label.set(zorder=1.5, bbox={"facecolor": "#FAFAFA", "edgecolor": "none", "pad": 1.2})
    axes.plot(0, 0, marker="+", color=INK, markersize=9, markeredgewidth=1.4, zorder=4)
    axes.annotate("$o$", (0, 0), xytext=(10 * u, 10 * v - 10), **_near(13))


def _draw_geodesics(axes: Axes, M: Lorentz, p: Tensor, q: Tensor, found: list[ResidualPoint]) -> None:
    """Draw the geodesic from x to y, and those from the origin to the results."""
    steps = torch.linspace(0, 1, 200, dtype=torch.float64).unsqueeze(-1)
    arc = _disk(M, M.expmap(p.expand(200, 2), steps * M.logmap(p, q)))
    axes.plot(arc[:, 0], arc[:, 1], color=INK, linewidth=2.2, solid_capstyle="round", zorder=2)
    # The longest first, so that each colour on a shared ray ends at its own result.
    for point in sorted(found, key=lambda point: -point.from_origin):
        z = torch.tensor(point.space, dtype=torch.float64)
        if point.kind == "none" or not z.any():
            continue
        u, v = _disk(M, z).tolist()
        axes.plot([0, u], [0, v], color=METHODS[point.kind].colour, linewidth=1.5, linestyle=(0, (5, 3)), zorder=3)
        if METHODS[point.kind].has_equivalent_weights:
            u, v = _disk(M, _meeting_point(M, p, q, point.kind)).tolist()
            axes.plot(u, v, "o", markersize=5, color="white", markeredgecolor=INK, markeredgewidth=1.1, zorder=5)


def _draw_points(axes: Axes, M: Lorentz, p: Tensor, q: Tensor, found: list[ResidualPoint]) -> None:
    """Draw x, y and the result of each method."""
    for end, other, name, side in ((p, q, "$x$", 1.0), (q, p, "$y$", -1.0)):
        u, v = _disk(M, end).tolist()
        axes.plot(u, v, "o", color=INK, markersize=7.5, zorder=6)
        back = _disk(M, end) - _disk(M, M.expmap(end, 0.01 * M.logmap(end, other)))
        du, dv = (back / back.norm()).tolist() if back.any() else (0.0, side)  # the label is on the arc's continuation
        axes.annotate(name, (u, v), xytext=(18 * du, 18 * dv), **_near(15))
    for point in found:
        u, v = _disk(M, torch.tensor(point.space, dtype=torch.float64)).tolist()
        axes.plot(u, v, linestyle="none", zorder=7, **_marker(point.kind))


def _draw_legend(
    axes: Axes, x: Sequence[float], y: Sequence[float], curvature: float, found: list[ResidualPoint]
) -> None:
    """Draw one entry per method: marker, name, what it does, and the distance of its result from the origin."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    axes.text(0, 0.945, "What each residual returns", fontsize=14, fontweight="bold", color=INK)
    for row, line in enumerate(_description(x, y, curvature).replace("-", "−").rsplit(",  ", 1)):
        axes.text(0, 0.888 - 0.045 * row, line, fontsize=10.5, color=_TEXT)
    for row, point in enumerate(found):
        height = 0.775 - 0.1 * row
        axes.plot(0.03, height, linestyle="none", **_marker(point.kind))
        axes.text(0.10, height, point.label, fontsize=12, color=INK, va="center")
        summary = METHODS[point.kind].summary
        where = f"{summary}{', ' if summary else ''}{point.from_origin:.2f} from o"
        axes.text(0.10, height - 0.044, where, fontsize=10, color=_TEXT, va="center")
    notes = (
        "black arc: shortest path (geodesic) from x to y",
        "dashed: shortest paths from the origin o",
        "white dots: Lorentz residual with other weights",
        "grey circles: points at equal distance from o",
    )
    for row, note in enumerate(notes):
        axes.text(0, 0.138 - 0.043 * row, note, fontsize=10, color=_TEXT)


def _meeting_point(M: Lorentz, p: Tensor, q: Tensor, kind: str) -> Tensor:
    """Return the Lorentz residual on the geodesic from the origin to the result of ``kind`` (Proposition 4.2)."""
    w_x, w_y, _ = equivalent_weights(p, q, kind, K=M.curvature)
    return lorentz_residual(p, q, w_y / w_x, K=M.curvature)


def _disk(M: Lorentz, x: Tensor) -> Tensor:
    """Return Poincaré coordinates, scaled to a disk of radius 1 for every curvature."""
    return M.to_poincare(x) * M.kappa.sqrt()


def _ring_distances(curvature: float) -> list[float]:
    """Return three round distances with a step of about one radius of curvature."""
    unit = 1 / math.sqrt(-curvature)
    power = 10.0 ** math.floor(math.log10(unit))
    step = min((power * digit for digit in (1, 2, 5, 10)), key=lambda candidate: abs(math.log(candidate / unit)))
    return [step, 2 * step, 3 * step]


def _point(values: Sequence[float], name: str) -> Tensor:
    if len(values) != 2 or not all(math.isfinite(value) for value in values):
        raise ValueError(f"{name} must be two finite numbers (the space coordinates of a point), got {tuple(values)}")
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


def _description(x: Sequence[float], y: Sequence[float], curvature: float) -> str:
    return f"x = {_coordinates(x)},  y = f(x) = {_coordinates(y)},  curvature {curvature:g}"


def _coordinates(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value + 0.0:.4g}" for value in values) + ")"


def _marker(kind: str) -> dict[str, Any]:
    """Return the marker of a method's point: filled, except for "none", whose ring leaves y visible."""
    colour, marker = method_style(kind)
    if kind == "none":
        ring = {"markerfacecolor": "none", "markeredgecolor": colour, "markeredgewidth": 2.2}
        return {"marker": "o", "markersize": 13, "color": colour, **ring}
    return {"marker": marker, "markersize": 10.5, "markeredgecolor": "white", "color": colour}


def _near(size: float) -> dict[str, Any]:
    """Return the style of a label next to its point; the offset of the annotation is in points."""
    return {"textcoords": "offset points", "fontsize": size, "color": INK, "ha": "center", "va": "center", "zorder": 8}
