"""Where each residual connection puts two points: as a table and as a picture of the Poincaré disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lresnet.functional import equivalent_weights, lorentz_residual
from lresnet.geometry import Lorentz
from lresnet.plots.palette import method_look
from lresnet.residual import METHODS, make_residual

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = ["Landing", "draw_residuals", "landings", "residual_table"]


_DRAWN = tuple(
    sorted(
        (method for method in METHODS.values() if method.role != "textbook" and method.name != "euclidean"),
        key=lambda method: method.picture_rank,
    )
)
_INK, _GREY, _LIGHT = "#222222", "#777777", "#D9D9D9"


class Landing(NamedTuple):
    """Where one residual connection lands, and how far that is from the three points that matter."""

    kind: str
    label: str
    space: tuple[float, float]
    from_origin: float
    from_x: float
    from_y: float


def landings(
    x: Sequence[float] = (2.0, -2.0), y: Sequence[float] = (2.0, 2.0), curvature: float = -1.0
) -> list[Landing]:
    """Apply every residual connection to the points with space coordinates ``x`` and ``y``, in float64.

    Example:
        >>> landings()[0].kind
        'lorentz'
    """
    M, p, q = Lorentz(curvature), _point(x, "x"), _point(y, "y")
    found = []
    for method in _DRAWN:
        with torch.no_grad():
            z = make_residual(method.name, M)(p, q)
        distances = [float(M.dist(other, z)) for other in (torch.zeros_like(z), p, q)]
        found.append(Landing(method.name, method.label, (float(z[0]), float(z[1])), *distances))
    return found


def residual_table(x: Sequence[float] = (2.0, -2.0), y: Sequence[float] = (2.0, 2.0), curvature: float = -1.0) -> Table:
    """The landings as a table for the terminal."""
    from rich.table import Table

    table = Table(
        title=_question(x, y, curvature),
        caption="result: space coordinates; from o, x, y: distance to it",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("residual connection", no_wrap=True)
    for heading in ("result", "from o", "from x", "from y"):
        table.add_column(heading, justify="right", no_wrap=True)
    for landing in landings(x, y, curvature):
        distances = (landing.from_origin, landing.from_x, landing.from_y)
        table.add_row(landing.kind, _coordinates(landing.space), *(f"{distance:.3f}" for distance in distances))
    return table


def draw_residuals(
    path: str | Path,
    x: Sequence[float] = (2.0, -2.0),
    y: Sequence[float] = (2.0, 2.0),
    curvature: float = -1.0,
) -> Path:
    """Draw the landings in the Poincaré disk and write the picture to ``path`` (.png, .svg or .pdf).

    The solid arc is the geodesic from x to y. The dashed lines are geodesics from the origin to the result of each
    method; where one crosses the arc (white dot) lies the Lorentz residual with the weights of Proposition 4.2.

    Returns:
        The path of the picture.
    """
    from matplotlib.figure import Figure

    path = Path(path)
    M, p, q = Lorentz(curvature), _point(x, "x"), _point(y, "y")
    found = landings(x, y, curvature)
    figure = Figure(figsize=(10.0, 5.6), facecolor="white")
    disk = figure.add_axes((0.01, 0.02, 0.55, 0.96))
    _draw_disk(disk, curvature, away_from=_disk(M, p + q))
    _draw_geodesics(disk, M, p, q, found)
    _draw_points(disk, M, p, q, found)
    legend = figure.add_axes((0.60, 0.02, 0.39, 0.96))
    _draw_legend(legend, x, y, curvature, found)
    # Without the writer's name and version the same picture is the same file everywhere.
    figure.savefig(path, dpi=160, metadata={"Software": None} if path.suffix == ".png" else None)
    return path


def _draw_disk(axes: Axes, curvature: float, away_from: Tensor) -> None:
    """The boundary, the origin, and circles of equal distance, labelled where the points are not."""
    from matplotlib.patches import Circle

    axes.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    axes.set_axis_off()
    axes.add_patch(Circle((0, 0), 1, facecolor="#FAFAFA", edgecolor=_INK, linewidth=1.4, zorder=0))
    norm = float(away_from.norm())
    u, v = (-away_from / norm).tolist() if norm > 1e-9 else (-1.0, 0.0)
    for distance in _ring_distances(curvature):
        radius = math.tanh(math.sqrt(-curvature) * distance / 2)
        axes.add_patch(Circle((0, 0), radius, fill=False, edgecolor=_LIGHT, linewidth=0.9, zorder=1))
        label = axes.text(u * radius, v * radius, f"{distance:g}", fontsize=8, color=_GREY, ha="center", va="center")
        label.set(zorder=1.5, bbox={"facecolor": "#FAFAFA", "edgecolor": "none", "pad": 1.2})
    axes.plot(0, 0, marker="+", color=_INK, markersize=9, markeredgewidth=1.4, zorder=4)
    axes.annotate("$o$", (0, 0), xytext=(10 * u, 10 * v - 10), **_near(13))


def _draw_geodesics(axes: Axes, M: Lorentz, p: Tensor, q: Tensor, found: list[Landing]) -> None:
    """The geodesic from x to y, and those from the origin to the results."""
    steps = torch.linspace(0, 1, 200, dtype=torch.float64).unsqueeze(-1)
    arc = _disk(M, M.expmap(p.expand(200, 2), steps * M.logmap(p, q)))
    axes.plot(arc[:, 0], arc[:, 1], color=_INK, linewidth=2.2, solid_capstyle="round", zorder=2)
    # The longest first: where several run along one ray, each colour ends at its own result.
    for landing in sorted(found, key=lambda landing: -landing.from_origin):
        z = torch.tensor(landing.space, dtype=torch.float64)
        if landing.kind == "none" or not z.any():
            continue
        u, v = _disk(M, z).tolist()
        axes.plot([0, u], [0, v], color=METHODS[landing.kind].colour, linewidth=1.5, linestyle=(0, (5, 3)), zorder=3)
        if METHODS[landing.kind].has_equivalent_weights:
            u, v = _disk(M, _meeting_point(M, p, q, landing.kind)).tolist()
            axes.plot(u, v, "o", markersize=5, color="white", markeredgecolor=_INK, markeredgewidth=1.1, zorder=5)


def _draw_points(axes: Axes, M: Lorentz, p: Tensor, q: Tensor, found: list[Landing]) -> None:
    """x and y, and the result of each method."""
    for point, other, name, side in ((p, q, "$x$", 1.0), (q, p, "$y$", -1.0)):
        u, v = _disk(M, point).tolist()
        axes.plot(u, v, "o", color=_INK, markersize=7.5, zorder=6)
        back = _disk(M, point) - _disk(M, M.expmap(point, 0.01 * M.logmap(point, other)))
        du, dv = (back / back.norm()).tolist() if back.any() else (0.0, side)  # the name continues the arc
        axes.annotate(name, (u, v), xytext=(18 * du, 18 * dv), **_near(15))
    for landing in found:
        u, v = _disk(M, torch.tensor(landing.space, dtype=torch.float64)).tolist()
        axes.plot(u, v, linestyle="none", zorder=7, **_marker(landing.kind))


def _draw_legend(axes: Axes, x: Sequence[float], y: Sequence[float], curvature: float, found: list[Landing]) -> None:
    """One line per method, with its marker, its space coordinates and its distance from the origin."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    axes.text(0, 0.93, "Where residual connections land", fontsize=14.5, fontweight="bold", color=_INK)
    axes.text(0, 0.872, _question(x, y, curvature).replace("-", "−"), fontsize=10.5, color=_GREY)
    for row, landing in enumerate(found):
        height = 0.78 - 0.105 * row
        axes.plot(0.03, height, linestyle="none", **_marker(landing.kind))
        axes.text(0.10, height, landing.label, fontsize=12, color=_INK, va="center")
        where = f"{_coordinates(landing.space)},  {landing.from_origin:.2f} from o"
        axes.text(0.10, height - 0.043, where.replace("-", "−"), fontsize=9.5, color=_GREY, va="center")
    notes = (
        "solid: the geodesic from x to y",
        "dashed: the geodesics from the origin o to the results",
        "white dots: Lorentz residuals of other weights (Proposition 4.2)",
        "grey circles: equal distance from o",
    )
    for row, note in enumerate(notes):
        axes.text(0, 0.125 - 0.038 * row, note, fontsize=8.8, color=_GREY)


def _meeting_point(M: Lorentz, p: Tensor, q: Tensor, kind: str) -> Tensor:
    """The Lorentz residual on the geodesic from the origin to what ``kind`` gives: Proposition 4.2."""
    w_x, w_y, _ = equivalent_weights(p, q, kind, K=M.curvature)
    return lorentz_residual(p, q, w_y / w_x, K=M.curvature)


def _disk(M: Lorentz, x: Tensor) -> Tensor:
    """Poincaré coordinates, scaled so that the disk has radius 1 whatever the curvature."""
    return M.to_poincare(x) * M.kappa.sqrt()


def _ring_distances(curvature: float) -> list[float]:
    """Three round distances, one apart from the next by about the radius of curvature."""
    unit = 1 / math.sqrt(-curvature)
    power = 10.0 ** math.floor(math.log10(unit))
    step = min((power * digit for digit in (1, 2, 5, 10)), key=lambda candidate: abs(math.log(candidate / unit)))
    return [step, 2 * step, 3 * step]


def _point(values: Sequence[float], name: str) -> Tensor:
    if len(values) != 2 or not all(math.isfinite(value) for value in values):
        raise ValueError(f"{name} must be two finite numbers (the space coordinates of a point), got {tuple(values)}")
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


def _question(x: Sequence[float], y: Sequence[float], curvature: float) -> str:
    return f"x = {_coordinates(x)},  y = f(x) = {_coordinates(y)},  curvature {curvature:g}"


def _coordinates(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value + 0.0:.4g}" for value in values) + ")"


def _marker(kind: str) -> dict[str, Any]:
    """Return the marker of a method's point: filled, except for "none", whose ring leaves y visible."""
    colour, marker = method_look(kind)
    if kind == "none":
        ring = {"markerfacecolor": "none", "markeredgecolor": colour, "markeredgewidth": 2.2}
        return {"marker": "o", "markersize": 13, "color": colour, **ring}
    return {"marker": marker, "markersize": 10.5, "markeredgecolor": "white", "color": colour}


def _near(size: float) -> dict[str, Any]:
    """How a name is written beside its point: the offset of the annotation is in points."""
    return {"textcoords": "offset points", "fontsize": size, "color": _INK, "ha": "center", "va": "center", "zorder": 8}
