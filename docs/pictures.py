"""Pictures of the theory pages, drawn from the library's own functions and from results/.

python docs/pictures.py                  # all pictures, to docs/images
python docs/pictures.py depth numerics   # some of them
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon
from numpy.typing import NDArray
from torch import Tensor

from lresnet import Lorentz
from lresnet.functional import lorentz_residual
from lresnet.plots.picture import GREY, INK, method_style, save_picture
from lresnet.plots.residuals import draw_residuals

ROOT = Path(__file__).parent.parent
IMAGES, RESULTS = ROOT / "docs" / "images", ROOT / "results"

# The colours of methods are the registry's. Everything else has the colours of viridis.
LORENTZ, SPACE, NONE = (method_style(name)[0] for name in ("lorentz", "space", "none"))
PURPLE, TEAL, GREEN = "#440154", "#31688E", "#2A9D6E"
TEXT, LIGHT, PAPER, SURFACE = "#555555", "#D9D9D9", "#FAFAFA", "#9DB7D5"
WIDTH = 8.75  # inches: 1,400 pixels, legible at half that width


def draw_hyperboloid(path: Path) -> None:
    """Draw the hyperboloid above the Poincaré disk, and a cross-section with all three charts."""
    M = Lorentz(-1.0)
    figure = Figure(figsize=(WIDTH, 4.3))
    space: Any = figure.add_axes((-0.085, -0.13, 0.66, 1.2), projection="3d")
    _draw_surface(space, M)
    _draw_projection(space, M)
    _draw_section(figure.add_axes((0.575, 0.03, 0.42, 0.88)), M)
    save_picture(figure, path)


def _draw_surface(axes: Any, M: Lorentz) -> None:
    """Draw the hyperboloid as a surface, the disk in the plane of time 0, and the foot of the rays."""
    turn = np.linspace(0, 2 * np.pi, 73)
    radius, angle = np.meshgrid(np.sinh(np.linspace(0, 1.6, 15)), turn)
    x = torch.tensor(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1))
    axes.plot_surface(
        *x.movedim(-1, 0).numpy(), M.time(x).numpy(), color=SURFACE, alpha=0.28, linewidth=0.4, edgecolor="#7E97B3"
    )
    axes.plot(np.cos(turn), np.sin(turn), 0 * turn, color=INK, linewidth=1.6)
    axes.plot_trisurf(
        np.append(np.cos(turn[:-1]), 0), np.append(np.sin(turn[:-1]), 0), np.zeros(73), color="#EFEFEF", alpha=0.6
    )
    axes.set_axis_off()
    axes.set_box_aspect((4.8, 4.8, 3.7), zoom=1.32)
    axes.view_init(elev=14, azim=-62)
    axes.set(xlim=(-2.4, 2.4), ylim=(-2.4, 2.4), zlim=(-1.1, 2.6))


def _draw_projection(axes: Any, M: Lorentz) -> None:
    """Draw a geodesic on the surface, its image in the disk, and the rays between them."""
    ends = torch.tensor([[1.93, -0.22], [-0.54, -1.75]], dtype=torch.float64)
    path = _geodesic(M, *ends)
    axes.plot(path[:, 0], path[:, 1], M.time(path), color=PURPLE, linewidth=2.6, zorder=10)
    disk = M.to_poincare(path)
    axes.plot(disk[:, 0], disk[:, 1], 0 * disk[:, 0], color=PURPLE, linewidth=2.6, zorder=10)
    for end, name in zip(ends, ("$x$", "$y$"), strict=True):
        u, v, t = *end.tolist(), float(M.time(end))
        p, q = M.to_poincare(end).tolist()
        axes.plot([0, u], [0, v], [-1, t], color=GREY, linewidth=1.1, linestyle=(0, (4, 2)), zorder=5)
        axes.plot(u, v, t, "o", color=INK, markersize=6, zorder=12)
        axes.plot(p, q, 0, "o", color=INK, markersize=5, zorder=12)
        axes.text(u * 1.06, v * 1.06, t + 0.17, name, fontsize=14, color=INK, zorder=13)
    axes.plot(0, 0, -1, "o", color=GREY, markersize=5)
    axes.plot(0, 0, 1, "+", color=INK, markersize=9, markeredgewidth=1.6, zorder=12)
    axes.text(-0.08, 0, 1.16, "$o$", fontsize=13, color=INK, ha="right", zorder=13)
    axes.text2D(0.27, 0.58, "hyperboloid", fontsize=11, color=TEAL, ha="right", transform=axes.transAxes)
    axes.text2D(0.345, 0.345, "Poincaré disk", fontsize=11, color=TEXT, ha="right", transform=axes.transAxes)
    axes.text(0.25, 0, -1.08, "time −1", fontsize=10, color=TEXT, zorder=13)


def _draw_section(axes: Axes, M: Lorentz) -> None:
    """Draw the hyperboloid of one space dimension, and one point in all coordinates."""
    steps = torch.linspace(-2.6, 2.6, 201, dtype=torch.float64).unsqueeze(-1)
    point = torch.tensor([1.9], dtype=torch.float64)
    x, t = float(point), float(M.time(point))
    p, k = float(M.to_poincare(point)), float(M.to_klein(point))
    axes.plot(steps, M.time(steps), color=TEAL, linewidth=2.2)
    axes.axhline(0, color=INK, linewidth=1.0)
    axes.plot([-1, 1], [0, 0], color=INK, linewidth=3.2, solid_capstyle="round")
    axes.plot([-1, 1], [1, 1], color=GREEN, linewidth=2.2, solid_capstyle="round", zorder=3)
    axes.plot([0, x], [-1, t], color=PURPLE, linewidth=1.3, linestyle=(0, (5, 3)))
    axes.plot([0, x], [0, t], color=GREEN, linewidth=1.3, linestyle=(0, (5, 3)))
    axes.plot([x, x], [0, t], color=LORENTZ, linewidth=1.6, linestyle=(0, (2, 2)))
    for u, v, colour in ((x, t, INK), (x, 0, LORENTZ), (p, 0, PURPLE), (k, 1, GREEN), (0, -1, GREY)):
        axes.plot(u, v, "o", color=colour, markersize=7, markeredgecolor="white", zorder=6)
    axes.text(x - 0.1, t + 0.12, f"time {t:.2f}, space {x:g}", fontsize=10, color=INK, ha="right", va="bottom")
    axes.text(x, -0.14, f"space part\n{x:g}", fontsize=10, color=LORENTZ, ha="center", va="top")
    axes.text(0.3, -0.14, f"Poincaré {p:.2f}", fontsize=10, color=PURPLE, ha="right", va="top")
    axes.text(-1.0, 0.88, f"Klein {k:.2f}", fontsize=10, color=GREEN, ha="center", va="top")
    axes.text(0, 1.62, "$t = \\sqrt{x^2 - 1/K}$", fontsize=12, color=TEAL, ha="center")
    axes.text(2.75, 0.1, "space", fontsize=10, color=TEXT, ha="right")
    axes.text(-2.6, 1.0, "time", fontsize=10, color=TEXT, ha="center", rotation=90)
    axes.text(0.12, -1.06, "time −1", fontsize=10, color=TEXT)
    axes.set(xlim=(-2.75, 2.75), ylim=(-1.15, 2.85), aspect="equal")
    axes.set_title("Cross-section: one space dimension, K = −1", fontsize=11, color=INK, loc="left")
    _plain(axes)


def draw_charts(path: Path) -> None:
    """Draw one triangle in space coordinates, in the Poincaré disk and in the Klein disk."""
    M = Lorentz(-1.0)
    corners = torch.tensor([[2.4, 0.3], [-1.3, 2.0], [-1.2, -2.2]], dtype=torch.float64)
    sides = [_geodesic(M, corners[i], corners[(i + 1) % 3]) for i in range(3)]
    charts: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
        ("space coordinates", lambda x: x),
        ("Poincaré disk", M.to_poincare),
        ("Klein disk", M.to_klein),
    )
    figure = Figure(figsize=(WIDTH, 3.25))
    for column, (title, chart) in enumerate(charts):
        axes = figure.add_axes((0.005 + column * 0.333, 0.01, 0.323, 0.89))
        reach = 3.1 if column == 0 else 1.05
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, fontsize=12, color=INK)
        for distance in (1.0, 2.0, 3.0):
            ring = chart(M.expmap0(torch.tensor([distance, 0.0], dtype=torch.float64)))
            axes.add_patch(Circle((0, 0), float(ring[0]), fill=False, edgecolor=LIGHT, linewidth=1))
        if column:
            axes.add_patch(Circle((0, 0), 1, facecolor=PAPER, edgecolor=INK, linewidth=1.3, zorder=0))
        outline = torch.cat([chart(side) for side in sides]).numpy()
        axes.add_patch(Polygon(outline, facecolor=PURPLE, edgecolor="none", alpha=0.12))
        axes.plot(outline[:, 0], outline[:, 1], color=PURPLE, linewidth=2)
        for corner in corners:
            axes.plot(*chart(corner).tolist(), "o", color=INK, markersize=6)
        axes.plot(0, 0, "+", color=INK, markersize=9, markeredgewidth=1.4)
    save_picture(figure, path)


def draw_weights(path: Path) -> None:
    """Draw the Lorentz residual for several weights and scales, and its position on the geodesic by weight."""
    M = Lorentz(-1.0)
    x, y = torch.tensor([[2.0, -2.0], [2.0, 2.0]], dtype=torch.float64)
    figure = Figure(figsize=(WIDTH, 4.5))
    disk = figure.add_axes((0.0, 0.02, 0.5, 0.96))
    _draw_disk(disk)
    path_xy = M.to_poincare(_geodesic(M, x, y))
    disk.plot(path_xy[:, 0], path_xy[:, 1], color=INK, linewidth=2, zorder=2)
    near = {"textcoords": "offset points", "fontsize": 11, "color": INK}
    for weight, label, up in ((0.0, "w = 0:  x", 0), (0.25, "w = 1/4", 0), (1.0, "w = 1", 11), (4.0, "w = 4", 0)):
        u, v = M.to_poincare(lorentz_residual(x, y, weight, K=-1.0)).tolist()
        disk.plot(u, v, "o", color=LORENTZ if weight else INK, markersize=8, markeredgecolor="white", zorder=6)
        disk.annotate(label, (u, v), xytext=(-9, up), ha="right", va="center", **near)
    u, v = M.to_poincare(y).tolist()
    disk.plot(u, v, "o", color=INK, markersize=8, markeredgecolor="white", zorder=6)
    disk.annotate("w → ∞:  y", (u, v), xytext=(-9, 2), ha="right", **near)
    rays = torch.stack([lorentz_residual(x, y, 1.0, scale, K=-1.0) for scale in (1.0, 2.0, 4.0)])
    ends = M.to_poincare(rays)
    disk.plot([0, float(ends[-1, 0])], [0, float(ends[-1, 1])], color=LORENTZ, linestyle=(0, (5, 3)), linewidth=1.4)
    for end, scale, up in zip(ends[1:].tolist(), ("γ = 2", "γ = 4"), (-18, 10), strict=True):
        disk.plot(*end, "o", color="white", markeredgecolor=LORENTZ, markeredgewidth=2, markersize=8, zorder=6)
        disk.annotate(scale, end, xytext=(0, up), ha="center", **near)
    disk.annotate("$o$", (0, 0), xytext=(-10, -6), ha="center", **(near | {"fontsize": 13}))
    _draw_share(figure.add_axes((0.585, 0.14, 0.40, 0.74)), M)
    save_picture(figure, path)


def _draw_share(axes: Axes, M: Lorentz) -> None:
    """Draw where the Lorentz residual is on the way from x to y, by weight."""
    weights = np.logspace(-2, 2, 81)
    for distance, colour, style in ((0.1, TEAL, "-"), (3.0, GREEN, "--"), (8.0, PURPLE, "-.")):
        ends = M.expmap0(torch.tensor([[-distance / 2, 0.0], [distance / 2, 0.0]], dtype=torch.float64))
        z = lorentz_residual(ends[0].expand(81, 2), ends[1].expand(81, 2), torch.tensor(weights), K=-1.0)
        share = M.dist(ends[0].expand(81, 2), z) / M.dist(ends[0], ends[1])
        axes.plot(weights, share, color=colour, linestyle=style, linewidth=2.2, label=f"d(x, y) = {distance:g}")
    axes.plot(1, 0.5, "o", color=LORENTZ, markersize=9, markeredgecolor="white", zorder=6)
    axes.annotate("midpoint", (1, 0.5), xytext=(10, -12), textcoords="offset points", fontsize=11, color=INK)
    axes.set(xscale="log", ylim=(-0.02, 1.02), yticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_yticklabels(["x", "¼", "½", "¾", "y"])
    axes.set_title("Position on the way from x to y", fontsize=11.5, color=INK, loc="left")
    axes.set_xlabel("weight w of y", fontsize=11, color=TEXT)
    axes.legend(fontsize=10, frameon=False, loc="upper left")
    _plain(axes, ticks=True)


def draw_curvature(path: Path) -> None:
    """Draw a tree with edges of length 1 at two curvatures, and the circumference of a circle by its radius."""
    figure = Figure(figsize=(WIDTH, 3.4))
    for column, K in enumerate((-0.1, -1.5)):
        axes = figure.add_axes((0.003 + 0.33 * column, 0.012, 0.32, 0.84))
        M = Lorentz(K)
        points, edges, level = tree(M)
        _draw_disk(axes, rings=False)
        unit = math.sqrt(-K)
        for a, b in edges:
            arc = M.to_poincare(_geodesic(M, points[a], points[b])) * unit
            axes.plot(arc[:, 0], arc[:, 1], color=GREY, linewidth=1.1, zorder=2)
        seen = (M.to_poincare(points) * unit).numpy()
        leaf = level == level.max()
        axes.scatter(*seen[~leaf].T, s=20, color=INK, zorder=3)
        axes.scatter(*seen[leaf].T, s=14, color=GREEN, zorder=4)
        gap = nearest_leaves(M, points, level)
        axes.set_title(f"K = −{-K:g}\nnearest leaves: {gap:.2f} apart", fontsize=11, color=INK)
    axes = figure.add_axes((0.735, 0.15, 0.26, 0.69))
    radius = np.linspace(0.01, 4, 100)
    curves = ((-2.0, PURPLE, "-."), (-1.0, GREEN, "--"), (-0.1, TEAL, "-"))
    for K, colour, style in curves:
        around = circumference(Lorentz(K), radius)
        axes.plot(radius, around, color=colour, linestyle=style, linewidth=2.2)
        axes.text(4.12, around[-1] * (1.15 if K == -0.1 else 1), f"K = −{-K:g}", fontsize=10, color=INK, va="center")
    axes.plot(radius, 2 * np.pi * radius, color=GREY, linewidth=2, linestyle=":")
    axes.text(4.12, 2 * np.pi * 4 * 0.75, "flat", fontsize=10, color=TEXT, va="center")
    axes.set(yscale="log", ylim=(3, 1200), xlim=(0, 6.0), xticks=range(5))
    axes.set_title("circumference\nof a circle", fontsize=11, color=INK)
    axes.set_xlabel("radius", fontsize=10.5, color=TEXT)
    _plain(axes, ticks=True)
    save_picture(figure, path)


def tree(M: Lorentz, levels: int = 6, edge: float = 1.0) -> tuple[Tensor, list[tuple[int, int]], NDArray[np.int64]]:
    """Return a binary tree whose edges are geodesics of equal length: points, edges and the level of each node.

    The root has three children, every other inner node two. At a node, edges leave in three equal directions.
    """
    points, edges, level = [torch.zeros(2, dtype=torch.float64)], [], [0]
    turn = 2 * math.pi / 3
    frontier = [(0, number * turn) for number in range(3)]
    # A node is reached by a chain of isometries: a turn, then a step along the first axis.
    isometries: list[Callable[[Tensor], Tensor]] = [lambda x: x]
    step = M.expmap0(torch.tensor([edge, 0.0], dtype=torch.float64))
    for depth in range(1, levels):
        following = []
        for parent, angle in frontier:
            move = _then(isometries[parent], angle, step, M)
            points.append(move(torch.zeros(2, dtype=torch.float64)))
            isometries.append(move)
            edges.append((parent, len(points) - 1))
            level.append(depth)
            following += [(len(points) - 1, side * math.pi / 3) for side in (-1, 1)]
        frontier = following
    return torch.stack(points), edges, np.array(level)


def _then(before: Callable[[Tensor], Tensor], angle: float, step: Tensor, M: Lorentz) -> Callable[[Tensor], Tensor]:
    """Return the isometry that moves by ``step`` along the first axis, turns by ``angle``, then applies ``before``."""
    c, s = math.cos(angle), math.sin(angle)
    turned = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    return lambda x: before(turned @ M.boost(step, x))


def nearest_leaves(M: Lorentz, points: Tensor, level: NDArray[np.int64]) -> float:
    """Return the smallest distance between two leaves of the tree."""
    leaves = points[torch.tensor(level == level.max())]
    distances = M.dist(leaves.unsqueeze(0), leaves.unsqueeze(1))
    distances.fill_diagonal_(math.inf)
    return float(distances.min())


def circumference(M: Lorentz, radius: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the circumference of circles around the origin: 2 pi times the norm of the space part."""
    along = torch.tensor(np.stack([radius, np.zeros_like(radius)], axis=-1))
    lengths: NDArray[np.float64] = 2 * math.pi * M.expmap0(along).norm(dim=-1).numpy()
    return lengths


def draw_depth(path: Path) -> None:
    """Draw distances by layer of 64-layer networks, and AUC by depth, from results/oversmoothing.jsonl."""
    runs = [run for run in _lines("oversmoothing") if run["stage"] == "final"]
    figure = Figure(figsize=(WIDTH, 7.4))
    for column, cell in enumerate(("disease/lp", "airport/lp")):
        axes = figure.add_axes((0.085 + 0.49 * column, 0.635, 0.41, 0.31))
        for protocol, method, when, look in _DEPTH_CURVES:
            curves = [
                run[when]["distance"]
                for run in runs
                if (run["cell"], run["method"], run["protocol"]) == (f"{cell}/64", method, protocol) and run.get(when)
            ]
            middle = [statistics.median(layer) for layer in zip(*curves, strict=True)]
            axes.plot(range(1, 65), middle, **look)
        axes.set(yscale="log", ylim=(2e-7, 1e2), xticks=[1, 16, 32, 48, 64])
        axes.set_title(f"{cell}, 64 layers: distance between nodes", fontsize=11, color=INK, loc="left")
        axes.set_xlabel("layer", fontsize=10.5, color=TEXT)
        _plain(axes, ticks=True)
        if column == 0:
            axes.set_ylabel("mean, in radii of curvature", fontsize=10.5, color=TEXT)
            place = {"loc": "center", "bbox_to_anchor": (0.53, 0.525), "ncols": 2, "fontsize": 10.5, "frameon": False}
            figure.legend(*axes.get_legend_handles_labels(), **place)
        _draw_auc(figure.add_axes((0.085 + 0.49 * column, 0.075, 0.41, 0.33)), runs, cell, column == 0)
    save_picture(figure, path)


_THICK: dict[str, Any] = {"color": LORENTZ, "linewidth": 2.2}
_DEPTH_CURVES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("legacy", "lorentz", "layers", {**_THICK, "label": "Lorentz, weight 1, trained"}),
    ("legacy", "lorentz", "initial_layers", {**_THICK, "ls": ":", "label": "Lorentz, weight 1, before training"}),
    ("legacy-deep", "lorentz", "layers", {**_THICK, "ls": "--", "label": "Lorentz, weight 1/64, trained"}),
    ("legacy", "space", "layers", {**_THICK, "color": SPACE, "ls": "-.", "label": "space addition, trained"}),
)


def _draw_auc(axes: Axes, runs: list[dict[str, Any]], cell: str, left: bool) -> None:
    """Draw the mean test AUC by the number of layers, with the settings of a shallow network and tuned by depth."""
    names = {"lorentz": "Lorentz", "space": "space addition", "none": "no residual"}
    settings = (("legacy", "-", "settings of 2–3 layers"), ("legacy-deep", "--", "tuned by depth"))
    for method, (protocol, style, tuning) in itertools.product(names, settings):
        colour, marker = method_style(method)
        layers, means = [], []
        for depth in (4, 8, 16, 32, 64):
            values = [
                run["value"]
                for run in runs
                if (run["cell"], run["method"], run["protocol"]) == (f"{cell}/{depth}", method, protocol)
            ]
            if values:
                layers.append(depth)
                means.append(statistics.mean(values))
        fill = colour if style == "-" else "white"
        look = {"color": colour, "linestyle": style, "marker": marker, "linewidth": 2, "markersize": 6.5}
        axes.plot(layers, means, markerfacecolor=fill, label=f"{names[method]}, {tuning}", **look)
    axes.set(xscale="log", ylim=(40, 101), xticks=[4, 8, 16, 32, 64], xlim=(3.6, 71))
    axes.set_xticks([], minor=True)
    axes.set_xticklabels(["4", "8", "16", "32", "64"])
    axes.set_title(f"{cell}: test AUC in percent", fontsize=11, color=INK, loc="left")
    axes.set_xlabel("number of layers", fontsize=10.5, color=TEXT)
    if not left:
        axes.legend(fontsize=9.5, frameon=False, loc="lower left")
    _plain(axes, ticks=True)


def draw_training(path: Path) -> None:
    """Draw chains of 32 and 16 layers during training, from results/collapse.jsonl."""
    lines = _lines("collapse")
    figure = Figure(figsize=(WIDTH, 5.9))
    panels: tuple[tuple[str, int, Callable[[dict[str, Any]], list[float]]], ...] = (
        ("distance between nodes, last layer", 32, lambda line: [state["distance"][-1] for state in line["states"]]),
        ("gradient at the first layer", 32, lambda line: [state["gradient"][0] for state in line["states"]]),
        ("training loss / margin", 16, _share_of_margin),
        ("AUC after each layer, percent", 16, lambda line: line["states"][-1]["ranking"]),
    )
    for number, (name, layers, values_of) in enumerate(panels):
        axes = figure.add_axes((0.085 + 0.49 * (number % 2), 0.63 - 0.55 * (number // 2), 0.41, 0.32))
        for setting, look in _TRAINING_CURVES.items():
            found = [line for line in lines if (line["setting"], line["config"]["num_layers"]) == (setting, layers)]
            curves = [values_of(line) for line in found if "error" not in line]
            middle = [statistics.median(values) for values in zip(*curves, strict=True)]
            axes.plot(range(number == 3, len(middle) + (number == 3)), middle, **look)
        axes.set_title(f"{layers} layers: {name}", fontsize=11, color=INK, loc="left")
        _plain(axes, ticks=True)
        if number == 3:
            axes.set_xlabel("layer", fontsize=10.5, color=TEXT)
            axes.set(xticks=[1, 4, 8, 12, 16], ylim=(25, 100))
            axes.axhline(50, color=LIGHT, zorder=0)
            continue
        epochs = lines[0]["state_epochs"]
        axes.set_xticks(range(len(epochs)), [str(epoch) for epoch in epochs])
        axes.set_xlabel("training step", fontsize=10.5, color=TEXT)
        if number < 2:
            axes.set_yscale("log")
    place = {"loc": "center", "bbox_to_anchor": (0.53, 0.5), "ncols": 4, "fontsize": 9.5, "frameon": False}
    figure.legend(*figure.axes[0].get_legend_handles_labels(), **place)
    save_picture(figure, path)


def _share_of_margin(line: dict[str, Any]) -> list[float]:
    """Return the training loss as a share of its value where all nodes coincide."""
    margin = line["config"]["margin"] / (1 if line["method"] == "euclidean" else -line["config"]["curvature"])
    return [state["loss"] / margin for state in line["states"]]


_TRAINING_CURVES: dict[str, dict[str, Any]] = {
    "average": {**_THICK, "label": "weight 1, average"},
    "average, rate / 10": {**_THICK, "ls": "--", "label": "the same, rate / 10"},
    "average, warm-up": {**_THICK, "ls": ":", "label": "the same, warm-up"},
    "sum": {**_THICK, "color": PURPLE, "label": "weight 1, sum"},
    "weight 1/L": {**_THICK, "color": GREEN, "label": "weight 1/L, average"},
    "sum, weight 1/L": {**_THICK, "color": GREEN, "ls": "--", "label": "weight 1/L, sum"},
    "none": {**_THICK, "color": NONE, "label": "no residual"},
    "euclidean": {**_THICK, "color": "#8C8C8C", "ls": "--", "label": "Euclidean baseline"},
}


def draw_numerics(path: Path) -> None:
    """Draw the float32 error by norm of our forms and of the textbook forms, from results/numerics.jsonl."""
    lines = [line for line in _lines("numerics") if line["dtype"] == "float32" and line["K"] == -1.0]
    figure = Figure(figsize=(WIDTH, 4.2))
    panels = (
        ("lorentz", "near", "Lorentz residual, y near x"),
        ("parallel_transport", "random", "Parallel transport, random pairs"),
    )
    for column, (method, family, title) in enumerate(panels):
        axes = figure.add_axes((0.085 + 0.49 * column, 0.135, 0.41, 0.77))
        chosen = [line for line in lines if (line["method"], line.get("family")) == (method, family)]
        chosen.sort(key=lambda line: line["norm"])
        norms = [line["norm"] for line in chosen]
        colour, marker = method_style(method)
        kinds = (
            ("textbook", "--", "textbook formula"),
            ("ours", "-", "this library"),
            ("floor", ":", "rounding alone"),
        )
        for key, style, label in kinds:
            shade = GREY if key == "floor" else colour
            values = [_finite(line[key]) for line in chosen]
            shape = {"marker": marker, "markersize": 6} if key == "ours" else {}
            axes.plot(norms, values, color=shade, linestyle=style, linewidth=2.2, label=label, **shape)
        broken = [norm for norm, line in zip(norms, chosen, strict=True) if _finite(line["textbook"]) is None]
        for norm in broken:
            axes.text(norm, 25, "NaN", fontsize=11, color=colour, ha="center", va="bottom")
        axes.axhline(1, color=INK, linewidth=0.8)
        axes.text(1.1e-3, 1.5, "above: no digit is correct", fontsize=10, color=TEXT)
        axes.set(xscale="log", yscale="log", ylim=(2e-11, 200), xticks=[1e-3, 1e-1, 1e1, 1e3], xlim=(5e-4, 4e4))
        axes.set_title(title, fontsize=11.5, color=INK, loc="left")
        axes.set_xlabel("norm of the space part", fontsize=10.5, color=TEXT)
        if column == 0:
            axes.set_ylabel("largest error, in radii of curvature", fontsize=10.5, color=TEXT)
        axes.legend(fontsize=10.5, frameon=False, loc="lower right")
        _plain(axes, ticks=True)
    save_picture(figure, path)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(float(value)) else None


def _lines(table: str) -> list[dict[str, Any]]:
    text = (RESULTS / f"{table}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _geodesic(M: Lorentz, x: Tensor, y: Tensor, steps: int = 80) -> Tensor:
    share = torch.linspace(0, 1, steps, dtype=torch.float64).unsqueeze(-1)
    return M.expmap(x.expand(steps, 2), share * M.logmap(x, y))


def _draw_disk(axes: Axes, rings: bool = True) -> None:
    """Draw the Poincaré disk of radius 1 with its origin and, for curvature -1, circles of distance 1, 2 and 3."""
    axes.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    axes.set_axis_off()
    axes.add_patch(Circle((0, 0), 1, facecolor=PAPER, edgecolor=INK, linewidth=1.4, zorder=0))
    if rings:
        for distance in (1, 2, 3):
            axes.add_patch(
                Circle((0, 0), math.tanh(distance / 2), fill=False, edgecolor=LIGHT, linewidth=0.9, zorder=1)
            )
        axes.plot(0, 0, "+", color=INK, markersize=9, markeredgewidth=1.4, zorder=4)


def _plain(axes: Axes, ticks: bool = False) -> None:
    """Remove the frame; keep the axes' ticks if they carry numbers."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if ticks:
        axes.grid(color=LIGHT, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=10, colors=TEXT)
        return
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set(xticks=[], yticks=[])


PICTURES: dict[str, Callable[[Path], object]] = {
    "residuals": draw_residuals,
    "hyperboloid": draw_hyperboloid,
    "charts": draw_charts,
    "weights": draw_weights,
    "curvature": draw_curvature,
    "depth-by-layer": draw_depth,
    "depth-training": draw_training,
    "numerics": draw_numerics,
}


def main(names: Iterable[str] = (), folder: Path = IMAGES) -> None:
    """Draw the named pictures, or all of them, into ``folder``."""
    chosen = list(names) or list(PICTURES)
    unknown = [name for name in chosen if name not in PICTURES]
    if unknown:
        raise SystemExit(f"unknown picture {unknown[0]!r}; known: {', '.join(PICTURES)}")
    for name in chosen:
        PICTURES[name](folder / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
