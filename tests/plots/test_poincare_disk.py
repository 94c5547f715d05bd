"""Geodesics in the Poincaré disk, against the distance of the manifold."""

import math

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from lresnet import Lorentz
from lresnet.plots.poincare_disk import DiskEmbedding, draw_disk, draw_geodesics, geodesic_arcs, move_to_centre, rotate


def disk_points(count: int, seed: int, farthest: float = 4.0) -> np.ndarray:
    """Points up to ``farthest`` radii of curvature from the centre."""
    rng = np.random.default_rng(seed)
    angle, distance = rng.uniform(0, 2 * np.pi, count), rng.uniform(0, farthest, count)
    return np.tanh(distance / 2)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def distance(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Distance of the manifold of curvature -1."""
    M = Lorentz(-1.0)
    return M.dist(*(M.from_poincare(torch.from_numpy(np.ascontiguousarray(x))) for x in (p, q))).numpy()


PAIRS = {
    "random": (disk_points(50, 0), disk_points(50, 1)),
    "far": (disk_points(50, 0, 12.0), disk_points(50, 1, 12.0)),
    "near": (disk_points(50, 0), disk_points(50, 0) * (1 - 1e-6)),
    "on one diameter": (disk_points(50, 0) * 0.9, disk_points(50, 0) * -0.5),
    "from the centre": (np.zeros((50, 2)), disk_points(50, 1)),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_every_point_of_an_arc_lies_between_its_ends(kind: str) -> None:
    a, b = PAIRS[kind]
    arcs = geodesic_arcs(a, b, steps=9)
    assert arcs.shape == (50, 9, 2)
    np.testing.assert_allclose(arcs[:, 0], a, atol=1e-15)
    np.testing.assert_allclose(arcs[:, -1], b, atol=1e-9)
    whole = distance(a, b)
    error = 1e-5 if kind == "far" else 1e-9  # near the boundary, rounding of a coordinate is magnified by e^12
    for k in range(9):
        np.testing.assert_allclose(distance(a, arcs[:, k]), whole * k / 8, rtol=1e-6, atol=error)
        np.testing.assert_allclose(distance(arcs[:, k], b), whole * (8 - k) / 8, rtol=1e-6, atol=error)


def test_an_arc_is_a_circle_orthogonal_to_the_boundary() -> None:
    a, b = PAIRS["random"]
    for arc in geodesic_arcs(a, b):
        ends = arc[[0, -1]]
        centre = np.linalg.solve(2 * ends, (ends**2).sum(-1) + 1)  # |p|^2 + 1 = 2 p.c on such a circle
        assert np.allclose((arc**2).sum(-1) + 1, 2 * arc @ centre, atol=1e-9 * (1 + np.abs(centre).max()))


def test_an_arc_from_a_point_to_itself_stays_there() -> None:
    point = [[0.3, -0.4]]
    np.testing.assert_allclose(geodesic_arcs(point, point, steps=3)[0], np.repeat(point, 3, axis=0), atol=1e-16)


def test_ends_at_the_boundary_give_finite_arcs_inside() -> None:
    rim = math.nextafter(1.0, 0.0)
    arcs = geodesic_arcs([[-rim, 0.0], [0.0, rim]], [[rim, 0.0], [rim, 0.0]])
    assert np.isfinite(arcs).all()
    assert (np.linalg.norm(arcs, axis=-1) <= 1).all()


def test_points_at_the_boundary_stay_inside_when_another_point_is_centred() -> None:
    edge = 1 - 2.0**-52
    rim = np.array([[edge, 0.0], [-edge, 0.0], [0.0, edge], [0.6 * edge, 0.8 * edge], [0.0, 0.0]])
    for node in range(len(rim)):
        moved = move_to_centre(rim, rim[node])
        assert ((moved**2).sum(-1) < 1).all()
        assert moved[node].tolist() == [0.0, 0.0]


def test_translation_and_rotation_preserve_distances() -> None:
    p, q = disk_points(40, 2), disk_points(40, 3)
    moved = [rotate(move_to_centre(x, p[0]), 1.2) for x in (p, q)]
    np.testing.assert_allclose(moved[0][0], 0, atol=1e-16)
    np.testing.assert_allclose(distance(*moved), distance(p, q), rtol=1e-9)
    np.testing.assert_allclose(rotate([[0.5, 0.0]], np.pi / 2), [[0.0, 0.5]], atol=1e-16)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([[0.0, 0.0], [1.0, 0.0]], r"inside the unit disk; number 1 is \(1, 0\)"),
        ([[math.nan, 0.0]], "number 0 is"),
        ([[0.0, 0.0, 0.0]], r"shape \[N, 2\], got \[1, 3\]"),
        ([0.0, 0.0], r"shape \[N, 2\], got \[2\]"),
    ],
)
def test_points_outside_the_disk_are_an_error(points: list[object], words: str) -> None:
    axes = Figure().add_subplot()
    with pytest.raises(ValueError, match=words):
        draw_disk(axes, points)


def test_points_edges_labels_and_values_are_drawn() -> None:
    axes = Figure().add_subplot()
    points = disk_points(6, 4)
    draw_disk(
        axes, points, [[0, 1, 2], [3, 4, 5]], labels=[0, 0, 1, 1, 2, 2], values=[0, 1, 2, 3, 4, 5], sizes=range(1, 7)
    )
    (lines,) = (c for c in axes.collections if isinstance(c, LineCollection))
    segments = lines.get_segments()
    np.testing.assert_allclose([s[0] for s in segments], points[:3])
    np.testing.assert_allclose([s[-1] for s in segments], points[3:], atol=1e-12)
    markers = [c for c in axes.collections if isinstance(c, PathCollection)]
    assert len({c.get_paths()[0].vertices.tobytes() for c in markers}) == 3  # one marker per label
    np.testing.assert_allclose(np.concatenate([c.get_offsets() for c in markers]), points)
    assert [size for c in markers for size in c.get_sizes()] == [1, 2, 3, 4, 5, 6]
    colours = np.concatenate([c.get_facecolors() for c in markers])
    light = colours[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(light) > 0).all()  # readable without colour: larger values are lighter
    assert not axes.axison


def test_labels_alone_have_colours_too_and_edges_a_style() -> None:
    axes = Figure().add_subplot()
    draw_disk(axes, disk_points(4, 5), labels=[0, 1, 1, 0])
    first, second = (c.get_facecolors()[0] for c in axes.collections)
    assert not np.allclose(first, second)
    draw_geodesics(axes, disk_points(4, 5), [[0], [1]], colour="#D55E00", style=(0, (3, 1)))
    arcs = axes.collections[-1]
    assert to_rgba("#D55E00") == pytest.approx(tuple(arcs.get_colors()[0]))
    assert arcs.get_linestyles()[0][1] is not None


def test_long_geodesics_are_drawn_as_smooth_curves() -> None:
    axes = Figure().add_subplot()
    rim = 1 - 1e-12  # 28 radii of curvature from the centre
    draw_geodesics(axes, [[-rim, 0.0], [0.0, rim]], [[0], [1]])
    (arc,) = axes.collections[0].get_segments()
    assert np.linalg.norm(np.diff(arc, axis=0), axis=1).max() < 0.2


def test_names_are_ordered_by_degree_or_as_given() -> None:
    points, edges = np.zeros((4, 2)), np.array([[0, 1, 1], [1, 2, 3]])
    assert DiskEmbedding("star", points, edges).most_general_first().tolist() == [1, 0, 2, 3]
    order = np.array([3, 2, 1, 0])
    assert DiskEmbedding("star", points, edges, order=order).most_general_first().tolist() == [3, 2, 1, 0]
    with pytest.raises(ValueError, match="order must be one for each of the 4 nodes"):
        DiskEmbedding("star", points, edges, order=order[:2])
