"""Table and picture of residual connections: the points are those of the paper, and the picture shows them."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread
from rich.console import Console

from lresnet import Lorentz
from lresnet.plots import residuals as residual_picture
from lresnet.plots.residuals import draw_residuals, residual_points, residual_table
from lresnet.residual.registry import METHODS


def test_the_paper_s_example() -> None:
    found = {point.kind: point for point in residual_points()}
    expected = {
        "lorentz": (2 / math.sqrt(5), 0.0),
        "parallel_transport": (8.0, -4.0),
        "parallel_transport_reversed": (8.0, 4.0),
        "tangent": (math.sinh(math.sqrt(2) * math.asinh(math.sqrt(8))), 0.0),
        "space": (4.0, 0.0),
        "none": (2.0, 2.0),
    }
    assert {kind: found[kind].space for kind in expected} == {
        kind: pytest.approx(space, abs=1e-12) for kind, space in expected.items()
    }


@pytest.mark.parametrize("curvature", [-0.1, -1.0, -4.0])
def test_distances_are_those_of_the_hyperboloid(curvature: float) -> None:
    x, y = (1.0, 3.0), (-2.0, 0.5)

    def distance(a: tuple[float, float], b: tuple[float, float]) -> float:
        p, q = (np.array([math.sqrt(v[0] ** 2 + v[1] ** 2 - 1 / curvature), *v]) for v in (a, b))
        return math.acosh(max(1.0, -curvature * (p[0] * q[0] - p[1:] @ q[1:]))) / math.sqrt(-curvature)

    for point in residual_points(x, y, curvature):
        expected = [distance(point.space, other) for other in ((0.0, 0.0), x, y)]
        assert [point.from_origin, point.from_x, point.from_y] == pytest.approx(expected, abs=1e-6)


def test_the_table_fits_a_terminal_and_holds_every_method() -> None:
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(residual_table())
    lines = capture.get().splitlines()
    for point in residual_points():
        row = next(line for line in lines if line.startswith(f"│ {point.kind} "))
        assert f"{point.from_origin:.3f}" in row
    assert max(map(len, lines)) <= 80


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, to look into."""
    drawn: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: object, **options: object) -> None:
        drawn.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return drawn


@pytest.mark.parametrize("curvature", [-0.1, -1.0, -4.0])
def test_the_picture_shows_the_results_where_they_are(tmp_path: Path, figures: list[Figure], curvature: float) -> None:
    x, y = (1.0, 3.0), (-2.0, 0.5)
    assert draw_residuals(tmp_path / "picture.png", x, y, curvature) == tmp_path / "picture.png"
    lines = figures[0].axes[0].get_lines()
    shown = {tuple(np.round(np.ravel(line.get_xydata()), 6)) for line in lines if len(line.get_xydata()) == 1}
    M = Lorentz(curvature)
    for point in residual_points(x, y, curvature):
        in_disk = M.to_poincare(torch.tensor(point.space, dtype=torch.float64)) * math.sqrt(-curvature)
        assert tuple(np.round(in_disk.numpy(), 6)) in shown, point.kind
        legend = [text.get_text() for text in figures[0].axes[1].texts]
        assert point.label in legend
        assert f"{METHODS[point.kind].summary}, {point.from_origin:.2f} from o" in legend


def test_the_arc_is_the_geodesic_and_the_white_dots_lie_on_it(tmp_path: Path, figures: list[Figure]) -> None:
    draw_residuals(tmp_path / "picture.png", (1.0, 3.0), (-2.0, 0.5), -0.5)
    lines = figures[0].axes[0].get_lines()
    arc = next(line.get_xydata() for line in lines if len(line.get_xydata()) > 2)
    # A geodesic is a circle that meets the unit circle at right angles: |p|^2 + 1 = 2 p.c for one centre c.
    ends = arc[[0, -1]]
    centre = np.linalg.solve(2 * ends, (ends**2).sum(-1) + 1)
    assert np.allclose((arc**2).sum(-1) + 1, 2 * arc @ centre, atol=1e-12)
    dots = [line.get_xydata()[0] for line in lines if line.get_markerfacecolor() == "white"]
    assert len(dots) == 4
    for dot in dots:
        assert dot @ dot + 1 == pytest.approx(2 * dot @ centre, abs=1e-12)
        # ... and on a dashed ray: in the direction of one of the results.
        rays = [line.get_xydata()[1] for line in lines if len(line.get_xydata()) == 2]
        assert min(abs(dot[0] * ray[1] - dot[1] * ray[0]) for ray in rays) < 1e-12


def test_methods_differ_in_colour_and_in_marker(tmp_path: Path) -> None:
    looks = [residual_picture._marker(point.kind) for point in residual_points()]
    assert len({look["color"] for look in looks}) == len(looks)
    assert len({(look["marker"], look.get("markerfacecolor")) for look in looks}) == len(looks)


def test_the_picture_is_the_same_file_every_time_and_not_empty(tmp_path: Path) -> None:
    first, second = (draw_residuals(tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert first == second
    image = imread(tmp_path / "a.png")
    assert image.shape[0] > 800
    assert len(np.unique((image[..., :3] * 255).astype(int).reshape(-1, 3), axis=0)) > 50


@pytest.mark.parametrize(
    ("x", "y"),
    [((0.0, 0.0), (0.0, 0.0)), ((1.0, 1.0), (1.0, 1.0)), ((1.0, 1.0), (-1.0, -1.0)), ((0.0, 0.0), (300.0, 20.0))],
    ids=["both at the origin", "equal", "opposite", "far out"],
)
def test_degenerate_points_are_drawn_too(tmp_path: Path, x: tuple[float, float], y: tuple[float, float]) -> None:
    assert draw_residuals(tmp_path / "picture.svg", x, y).stat().st_size > 1000
    assert all(math.isfinite(point.from_x) for point in residual_points(x, y))


@pytest.mark.parametrize("x", [(1.0,), (1.0, 2.0, 3.0), (math.nan, 0.0), (math.inf, 0.0)])
def test_an_invalid_point_is_an_error(x: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="x must be two finite numbers"):
        residual_points(x)


def test_the_circles_have_round_distances() -> None:
    assert residual_picture._ring_distances(-1.0) == [1, 2, 3]
    assert residual_picture._ring_distances(-0.1) == [2, 4, 6]
    assert residual_picture._ring_distances(-10.0) == pytest.approx([0.5, 1.0, 1.5])
