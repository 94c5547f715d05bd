"""Names and labels in the picture of an embedding: which names are drawn, and that they do not overlap."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from lresnet.plots.embedding import draw_disk_embedding, embedding_figure
from lresnet.plots.node_names import name_count, short_name
from lresnet.plots.poincare_disk import CLASS_COLOURS, NO_LABEL_COLOUR, DiskEmbedding, view_radius


def cloud(nodes: int, radius: float = 0.9, *, named: bool = True, seed: int = 0) -> DiskEmbedding:
    """Points in a square of the disk; node k has edges to the nodes after it up to 2k, so that degrees differ."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-radius, radius, (nodes, 2)) / 2**0.5
    edges = np.array([(k, other) for k in range(nodes) for other in range(k + 1, min(nodes, 2 * k + 1))]).T
    names = tuple(f"person {k}" for k in range(nodes)) if named else None
    return DiskEmbedding("friends.csv, lorentz, seed 0", points, edges.reshape(2, -1), names=names)


def drawn_names(figure: Figure) -> list[Text]:
    return list(figure.axes[0].texts)


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[1].texts]


def note(figure: Figure) -> str:
    return " ".join(legend_texts(figure)[-1].split())


def test_a_small_graph_has_all_names() -> None:
    grid = np.stack(np.meshgrid(np.linspace(-0.6, 0.6, 5), np.linspace(-0.6, 0.6, 8)), -1).reshape(-1, 2)
    picture = dataclasses.replace(cloud(40), points=grid)
    figure = embedding_figure(picture)
    assert {text.get_text() for text in drawn_names(figure)} == set(picture.names or ())
    assert "names" not in note(figure)


def test_a_large_graph_has_the_names_of_about_thirty_hubs() -> None:
    picture = cloud(120)
    degree = np.bincount(picture.edges.reshape(-1), minlength=120)
    figure = embedding_figure(picture)
    numbers = [int(text.get_text().removeprefix("person ")) for text in drawn_names(figure)]
    assert len(numbers) == 30
    assert numbers[0] == degree.argmax()
    assert degree[numbers].min() >= np.sort(degree)[-60]  # names without room are replaced by the next ones
    assert list(degree[numbers]) == sorted(degree[numbers], reverse=True)
    assert "30 of 120 nodes have their names" in note(figure)


def test_numbers_are_no_names_unless_requested() -> None:
    plain = cloud(60, named=False)
    digits = dataclasses.replace(plain, names=tuple(str(1000 + k) for k in range(60)))
    assert name_count(plain) == name_count(digits) == 0
    assert drawn_names(embedding_figure(digits)) == []
    assert len(drawn_names(embedding_figure(plain, names=5))) == 5
    assert all(text.get_text().startswith("10") for text in drawn_names(embedding_figure(digits, names=5)))


@pytest.mark.parametrize(("nodes", "radius", "names"), [(77, 0.8, None), (300, 0.3, 200), (30, 1e-4, None)])
def test_names_overlap_neither_each_other_nor_the_edge_of_the_picture(
    nodes: int, radius: float, names: int | None
) -> None:
    figure = embedding_figure(cloud(nodes, radius), names=names)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    boxes = [text.get_window_extent(renderer) for text in drawn_names(figure)]
    assert len(boxes) >= 20
    frame = figure.axes[0].get_window_extent(renderer)
    for box in boxes:
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        assert frame.y0 <= box.y0 < box.y1 <= frame.y1
    for one, other in itertools.combinations(boxes, 2):
        assert Bbox.intersection(one, other) is None


def test_a_name_is_near_its_point() -> None:
    picture = cloud(50)
    figure = embedding_figure(picture)
    to_pixels = figure.axes[0].transData
    renderer = FigureCanvasAgg(figure).get_renderer()
    for text in drawn_names(figure):
        point = to_pixels.transform(picture.points[int(text.get_text().removeprefix("person "))])
        box = text.get_window_extent(renderer)
        nearest = np.clip(point, box.min, box.max)
        assert 0 < np.hypot(*(point - nearest)) < 40


def test_points_at_one_place_share_the_room_around_it() -> None:
    picture = cloud(40)
    same = dataclasses.replace(picture, points=np.full((40, 2), 0.3))
    assert 2 <= len(drawn_names(embedding_figure(same))) < 40


def test_names_are_text_and_long_ones_are_cut(tmp_path: Path) -> None:
    names = ("$x_1$", "two\nlines", "m" * 10**6, "<b>&")
    picture = DiskEmbedding(
        "$a$ b", np.array([[0.8, 0], [-0.8, 0], [0, 0.8], [0, -0.8]]), np.array([[0], [1]]), names=names
    )
    figure = embedding_figure(picture)
    drawn = {text.get_text() for text in drawn_names(figure)}
    assert drawn == {"$x_1$", r"two\nlines", "m" * 27 + "…", "<b>&"}
    assert all(not text.get_parse_math() for axes in figure.axes for text in axes.texts if "$" in text.get_text())
    assert draw_disk_embedding(tmp_path / "p.png", picture).read_bytes().startswith(b"\x89PNG")
    assert short_name("short") == "short"


def test_the_node_at_the_centre_is_named_first() -> None:
    picture = cloud(120)
    figure = embedding_figure(picture, centre=0, names=1)
    (text,) = drawn_names(figure)
    assert text.get_text() == "person 0"
    assert "Node person 0 is at the centre" in note(figure)
    assert drawn_names(embedding_figure(picture, centre=0, names=0)) == []
    with pytest.raises(ValueError, match="names must be at least 0, got -1"):
        embedding_figure(picture, names=-1)


def test_nodes_without_a_label_are_grey_and_no_class() -> None:
    labels = np.array([0] * 10 + [1] * 5 + [-1] * 25)
    picture = dataclasses.replace(cloud(40), labels=labels, classes=("a", "b"))
    figure = embedding_figure(picture)
    drawn = {
        to_hex(colours[0]): len(collection.get_offsets())
        for collection in figure.axes[0].collections
        if len(collection.get_offsets()) > 1
        for colours in [collection.get_facecolor()]
    }
    assert drawn == {
        CLASS_COLOURS[0].lower(): 10,
        CLASS_COLOURS[1].lower(): 5,
        NO_LABEL_COLOUR.lower(): 25,
    }
    assert legend_texts(figure)[2:5] == ["a", "b", "no label (25 nodes)"]
    assert picture.classes_of_nodes()[-1] == "no label"
    complete = dataclasses.replace(picture, labels=np.abs(labels))
    assert not any("no label" in text for text in legend_texts(embedding_figure(complete)))


def test_points_close_to_the_centre_are_shown_in_a_zoomed_view() -> None:
    small, large = cloud(50, radius=0.2), cloud(50)
    figure = embedding_figure(small)
    low, high = figure.axes[0].get_xlim()
    outermost = np.hypot(*small.points.T).max()
    assert outermost < high == -low < 1.3 * outermost
    distance = 2 * np.arctanh(view_radius(small.points))
    assert f"Zoomed: the dashed circle is {distance:.2g} radii of curvature" in note(figure)
    assert "Zoomed" not in note(embedding_figure(large))
    assert embedding_figure(large).axes[0].get_xlim() == (-1.03, 1.03)
    assert view_radius([[0.0, 0.0]]) == 1.0


def test_titles_keep_a_seed_with_its_number() -> None:
    figure = embedding_figure(dataclasses.replace(cloud(3), title="lesmis.csv, lorentz, seed 0"))
    assert legend_texts(figure)[0] == "lesmis.csv, lorentz,\nseed 0"
