"""The page in headless Chromium: its content, and its reaction to mouse, touch and keyboard."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lresnet.plots.html.page import Heading, Row, Section, Table, html_page, html_table, html_verdict
from lresnet.plots.poincare_disk import DiskEmbedding, class_colour, move_to_centre
from lresnet_paper.pages.html_page import html_page as results_page
from lresnet_paper.pages.results_page import claims_of_folder, notes_of
from lresnet_paper.results import read_runs
from tests.browser.conftest import settle
from tests.browser.graphs import HOSTILE, tree_embedding

RESULTS = Path(__file__).parents[2] / "results"
TREE = tree_embedding(121)
DISK = "document.getElementById('disk').disk"


def points(page: Any) -> np.ndarray:
    return np.array(page.evaluate(f"Array.from({DISK}.points)")).reshape(-1, 2)


def node_at(page: Any, node: int) -> tuple[float, float]:
    x, y = page.evaluate(f"{DISK}.toWindow({DISK}.position({node}))")
    return x, y


def centre(page: Any) -> tuple[float, float]:
    x, y = page.evaluate(f"{DISK}.toWindow([0, 0])")
    return x, y


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()
    settle(page)


def pixel(page: Any, x: float, y: float) -> list[int]:
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        return list(picture.convert("RGB").getpixel((int(x), int(y))))


def distances(p: np.ndarray) -> np.ndarray:
    z = p[:, 0] + 1j * p[:, 1]
    ratio = np.abs((z[:, None] - z) / (1 - z.conj() * z[:, None]))
    return 2 * np.arctanh(ratio)


def test_the_disk_has_its_points_in_the_colours_of_their_classes(open_page: Any) -> None:
    page = open_page()
    np.testing.assert_allclose(points(page), TREE.points, atol=1e-15)
    assert page.evaluate(f"{DISK}.edges.length") == 2 * TREE.edges.shape[1]
    assert TREE.labels is not None
    for node in (0, 1, 5, 13):
        wanted = class_colour(int(TREE.labels[node]))
        assert pixel(page, *node_at(page, node)) == pytest.approx(rgb(wanted), abs=2)


def test_a_node_dragged_to_the_centre_is_moebius_translated_there(open_page: Any) -> None:
    page = open_page()
    node = 17
    (x, y), (cx, cy) = node_at(page, node), centre(page)
    drag(
        page, (x + 4, y - 3), (cx + 3, cy + 4)
    )  # inexact on purpose: the drag starts at the node and snaps to the centre
    expected = move_to_centre(TREE.points, TREE.points[node])
    np.testing.assert_allclose(points(page), expected, atol=1e-6)
    focus = page.evaluate(f"focusOf({DISK}.view)")
    np.testing.assert_allclose(focus, TREE.points[node], atol=1e-6)


def test_a_drag_is_the_translation_from_its_start_to_its_end(open_page: Any) -> None:
    page = open_page()
    x, y = centre(page)
    start, end = (x + 40.0, y + 33.0), (x - 90.0, y - 60.0)
    assert (
        page.evaluate(f"{DISK}.nearest({DISK}.toDisk({start[0]}, {start[1]}), 10)") == -1
    )  # the drag starts at no node
    u, v = (complex(*page.evaluate(f"{DISK}.toDisk({a}, {b})")) for a, b in (start, end))
    drag(page, start, end)
    z = TREE.points[:, 0] + 1j * TREE.points[:, 1]
    # The translation with u -> v maps the centre to t, found here by fixed-point iteration.
    t = v - u
    for _ in range(50):
        t += v - (u + t) / (1 + np.conj(t) * u)
    moved = (z + t) / (1 + np.conj(t) * z)
    np.testing.assert_allclose(points(page), np.stack([moved.real, moved.imag], -1), atol=1e-9)


def test_many_drags_preserve_distances(open_page: Any) -> None:
    page = open_page()
    x, y = centre(page)
    rng = np.random.default_rng(0)
    for _ in range(25):
        (a, b), (c, d) = rng.uniform(-150, 150, (2, 2))
        drag(page, (x + a, y + b), (x + c, y + d))
    np.testing.assert_allclose(distances(points(page)), distances(TREE.points), rtol=1e-6, atol=1e-6)


def test_a_long_key_press_stops_at_the_limit_of_float64(open_page: Any) -> None:
    page = open_page()
    page.locator("#disk").focus()
    for _ in range(80):
        page.keyboard.press("Shift+ArrowRight")
    settle(page)
    assert np.isfinite(points(page)).all()
    assert np.linalg.norm(points(page), axis=-1).max() <= 1 + 1e-12
    for _ in range(80):
        page.keyboard.press("Shift+ArrowLeft")
    page.fill("#search", TREE.names[17])
    page.press("#search", "Enter")
    settle(page)
    np.testing.assert_allclose(points(page)[17], 0.0, atol=1e-6)
    np.testing.assert_allclose(distances(points(page)), distances(TREE.points), rtol=1e-6, atol=1e-6)


def test_nodes_at_the_boundary_are_found_by_the_search(browser: Any, tmp_path: Any) -> None:
    edge = 1 - 2.0**-52
    boundary = np.array([[edge, 0.0], [-edge, 0.0], [0.0, edge], [0.999999, 0.0]])
    ring = DiskEmbedding("boundary", boundary, np.array([[0, 0, 1, 2], [1, 2, 2, 3]]))
    (tmp_path / "boundary.html").write_text(html_page([], ring, title="boundary"), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "boundary.html").as_uri())
    for node in (1, 0, 2, 3):
        page.fill("#search", str(node))
        page.press("#search", "Enter")
        settle(page)
        assert np.isfinite(points(page)).all()
        assert page.locator("#selection").inner_text().startswith(f"Node {node}: ")
    np.testing.assert_allclose(points(page)[3], 0.0, atol=1e-6)
    page.close()


def test_hover_shows_the_node_its_class_and_its_neighbours(open_page: Any) -> None:
    page = open_page()
    assert page.locator("#tip").is_hidden()
    for node in (1, 5):
        page.mouse.move(*node_at(page, node))
        text = page.locator("#tip").inner_text()
        assert TREE.names is not None
        around = [int(j if i == node else i) for i, j in TREE.edges.T if node in (i, j)]
        listed = ", ".join(TREE.names[k] for k in around)
        kind = TREE.classes_of_nodes()[node]
        assert text == f"node {TREE.names[node]} · {kind} · {len(around)} neighbours: {listed}"
    page.mouse.move(*centre(page))
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_hidden()


def test_search_selects_centres_and_lists_the_neighbours(open_page: Any) -> None:
    page = open_page()
    page.locator("h1").click()
    page.keyboard.press("/")
    page.keyboard.type("N17")
    page.keyboard.press("Enter")
    assert page.locator("#selection").inner_text().startswith("Node n17, ")
    np.testing.assert_allclose(points(page), move_to_centre(TREE.points, TREE.points[17]), atol=1e-6)
    rows = page.locator("#rows tr")
    shown = [text.split("\t") for text in rows.all_inner_texts()]
    assert TREE.names is not None
    around = [5, 52, 53, 54]
    assert [name.strip() for name, _, _ in shown] == [TREE.names[k] for k in around]
    assert [kind for _, kind, _ in shown] == [TREE.classes_of_nodes()[k] for k in around]
    lengths = [float(length) for _, _, length in shown]
    np.testing.assert_allclose(lengths, distances(TREE.points)[17, around], atol=0.006)
    page.locator("#rows button").first.click()
    assert "17" not in page.locator("#selection").inner_text()
    page.locator("#search").fill("nobody")
    page.keyboard.press("Enter")
    assert page.locator("#search-status").inner_text() == "There is no node nobody."


def test_a_search_hides_the_tip_of_the_node_that_was_under_the_pointer(open_page: Any) -> None:
    page = open_page()
    page.mouse.move(*page.evaluate("document.getElementById('disk').disk.toWindow([0, 0])"))
    assert page.locator("#tip").is_visible()
    page.locator("#search").fill("n17")
    page.keyboard.press("Enter")
    assert page.locator("#tip").is_hidden()
    assert page.evaluate("document.getElementById('disk').disk.hovered") == -1


def test_a_name_without_room_on_the_right_is_on_the_left_of_its_node(open_page: Any) -> None:
    page = open_page(1093)
    disk = "document.getElementById('disk').disk"
    edge = f"{disk}.canvas.width / 2 / {disk}.radius - 0.01"  # of the window, where no name of three letters has room
    page.evaluate(f"{disk}.setZoom({disk}.zoom * 4)")
    page.evaluate(f"{disk}.setView(compose(translation([{edge}, 0]), translation({disk}.position(0).map((x) => -x))))")
    settle(page)
    assert 0 in page.evaluate(f"{disk}.names.shown")


def test_the_keyboard_moves_zooms_selects_and_clears(open_page: Any) -> None:
    page = open_page()
    page.locator("#disk").focus()
    page.keyboard.press("ArrowRight")
    focus = page.evaluate(f"focusOf({DISK}.view)")
    np.testing.assert_allclose(focus, [np.tanh(0.125), 0], atol=1e-12)
    page.keyboard.press("Shift+ArrowUp")
    assert page.evaluate(f"focusOf({DISK}.view)")[1] > 0.4
    page.keyboard.press("+")
    assert page.evaluate(f"{DISK}.zoom") == 1.25
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert page.evaluate(f"{DISK}.zoom") == 1
    page.keyboard.press("0")
    np.testing.assert_allclose(points(page), TREE.points, atol=1e-15)
    page.keyboard.press("Enter")
    assert "Node n0" in page.locator("#selection").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#selection").inner_text() == "No node is selected."


def test_tab_reaches_the_disk_the_search_and_the_buttons_in_order(open_page: Any) -> None:
    page = open_page()
    page.evaluate("document.querySelector('nav li:last-child a').focus()")
    order = []
    for _ in range(5):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert order == ["disk", "search", "Show", "+", "−"]
    for name in ("#disk", "#buttons button"):
        assert page.locator(name).first.get_attribute("aria-label")


def test_a_click_selects_a_node_and_enables_zooming_by_the_wheel(open_page: Any) -> None:
    page = open_page()
    page.mouse.move(*centre(page))
    page.mouse.wheel(0, -100)
    settle(page)
    assert page.evaluate(f"{DISK}.zoom") == 1
    page.evaluate("document.getElementById('embedding-section').scrollIntoView()")
    settle(page)
    page.mouse.click(*node_at(page, 2))
    assert page.locator("#selection").inner_text().startswith("Node n2")
    page.mouse.wheel(0, -100)
    settle(page)
    assert page.evaluate(f"{DISK}.zoom") > 1.2


def test_two_fingers_zoom_and_one_drags(open_page: Any) -> None:
    page = open_page(has_touch=True, viewport={"width": 400, "height": 800})
    x, y = centre(page)
    session = page.context.new_cdp_session(page)

    def touch(kind: str, *places: tuple[float, float]) -> None:
        fingers = [{"x": a, "y": b, "id": k} for k, (a, b) in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})

    touch("touchStart", (x - 30, y))
    touch("touchStart", (x - 30, y), (x + 30, y))
    touch("touchMove", (x - 60, y), (x + 60, y))
    touch("touchEnd")
    settle(page)
    assert page.evaluate(f"{DISK}.zoom") == pytest.approx(2.0, rel=0.05)
    before = points(page)
    touch("touchStart", (x + 40, y + 50))
    touch("touchMove", (x + 70, y + 50))
    touch("touchMove", (x + 90, y + 50))
    touch("touchEnd")
    settle(page)
    assert (points(page)[:, 0] > before[:, 0]).mean() > 0.9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_light_and_dark_mode(open_page: Any, scheme: str) -> None:
    page = open_page(color_scheme=scheme)
    style = "getComputedStyle(document.documentElement).getPropertyValue"
    colour = {name: page.evaluate(f"{style}.call(getComputedStyle(document.documentElement), '--{name}')") for name in
              ("page", "panel", "ink", "soft", "link", "better", "worse", "within")}  # fmt: skip
    for name in ("ink", "soft", "link", "better", "worse", "within"):
        for ground in ("page", "panel"):
            assert contrast(colour[name], colour[ground]) >= 4.5, (name, ground)
    box = page.locator("#disk").bounding_box()
    assert pixel(page, box["x"] + 12, box["y"] + 12) == rgb(colour["page"])
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb({}, {}, {})".format(
        *rgb(colour["page"])
    )


def rgb(colour: str) -> list[int]:
    digits = re.sub(r"[^0-9a-fA-F]", "", colour)
    return [int(digits[k : k + 2], 16) for k in (0, 2, 4)]


def contrast(one: str, other: str) -> float:
    """WCAG 2: ratio of relative luminances."""

    def light(colour: str) -> float:
        parts = [c / 255 for c in rgb(colour)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    a, b = sorted((light(one), light(other)))
    return b / a


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (1000, "dark"), (390, "light"), (360, "dark")])
def test_the_page_does_not_scroll_sideways(open_page: Any, width: int, scheme: str) -> None:
    page = open_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


# The first screen and the sidebar ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_the_disk_is_the_first_screen(open_page: Any, width: int, height: int) -> None:
    page = open_page(viewport={"width": width, "height": height})
    page.evaluate("window.scrollTo(0, 0)")
    box = page.locator("#disk").bounding_box()
    assert box["y"] > 0
    assert box["y"] + box["height"] <= height
    assert box["width"] >= 0.5 * min(width, height)
    assert page.locator("#results").bounding_box()["y"] > box["y"] + box["height"]


def test_the_sidebar_stays_and_marks_the_section_that_is_read(open_page: Any) -> None:
    page = open_page(viewport={"width": 1400, "height": 900})
    assert page.locator("#menu").is_hidden()
    current = "document.querySelector('#sections [aria-current]').hash"
    page.evaluate("window.scrollTo(0, 0)")
    settle(page)
    assert page.evaluate(current) == "#embedding-section"
    page.evaluate("document.getElementById('results').scrollIntoView()")
    settle(page)
    assert page.evaluate(current) == "#results"
    assert page.locator("#sections").bounding_box()["y"] < 200


def test_the_sidebar_collapses_on_a_narrow_screen(open_page: Any) -> None:
    page = open_page(viewport={"width": 390, "height": 844})
    menu, links = page.locator("#menu"), page.locator("#sections")
    assert links.is_hidden()
    menu.focus()
    page.keyboard.press("Enter")
    assert menu.get_attribute("aria-expanded") == "true"
    assert links.is_visible()
    page.keyboard.press("Escape")
    assert menu.get_attribute("aria-expanded") == "false"
    menu.click()
    page.locator("#sections a", has_text="Results").click()
    assert links.is_hidden()
    settle(page)
    top = page.locator("#results").bounding_box()["y"]
    assert page.locator("#sidebar").bounding_box()["height"] - 2 <= top < 200  # the bar does not cover the heading


# Tables --------------------------------------------------------------------------------------------------------------

SCORES = Table(
    ("method", "test", "runs", "verdict"),
    [
        Heading("first <b>"),
        Row("lorentz", ["97.50 ± 0.71", "2 of 3"], [html_verdict("better")]),
        Row("space", ["-1.50", "10"], [html_verdict("worse")]),
        Row("tangent", ["diverged", "1"], [""]),
        Row("none", ["1,200.5", "3"], [html_verdict("no difference shown")]),
        Heading("second"),
        *(Row(f"row {k}", [f"{k}.5", "1"], ["z"]) for k in (10, 9, 2, 1)),
    ],
    "A caption that is much longer than the table is wide, and that therefore needs the whole width of the page. " * 2,
)


@pytest.fixture
def table_page(browser: Any, tmp_path: Any) -> Any:
    file = tmp_path / "tables.html"
    body = html_table(SCORES) + html_table(Table(("a", "b"), [Row("x", ["1"])]))
    file.write_text(html_page([Section("scores", "Scores", body)], title="tables"), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(file.as_uri())
    yield page
    page.close()
    assert errors == []


def shown_names(page: Any) -> list[str]:
    return page.locator("table").first.locator("tbody th:visible").all_inner_texts()


def test_a_column_sorts_within_groups_by_mouse_and_keyboard(table_page: Any) -> None:
    first, second = ["lorentz", "space", "tangent", "none"], ["row 10", "row 9", "row 2", "row 1"]
    original = ["first <b>", *first, "second", *second]
    assert shown_names(table_page) == original
    heads = table_page.locator("table").first.locator("thead th")
    button = heads.nth(1).locator("button")
    button.click()
    assert heads.nth(1).get_attribute("aria-sort") == "descending"
    order = ["none", "lorentz", "space", "tangent"]  # 1200.5, 97.5, -1.5; a cell without a number comes last
    assert shown_names(table_page) == ["first <b>", *order, "second", "row 10", "row 9", "row 2", "row 1"]
    button.focus()
    table_page.keyboard.press("Enter")
    assert heads.nth(1).get_attribute("aria-sort") == "ascending"
    order = ["space", "lorentz", "none", "tangent"]
    assert shown_names(table_page) == ["first <b>", *order, "second", "row 1", "row 2", "row 9", "row 10"]
    table_page.keyboard.press("Space")
    assert heads.nth(1).get_attribute("aria-sort") is None
    assert shown_names(table_page) == original


def test_texts_sort_in_alphabetical_and_numerical_order_without_their_signs(table_page: Any) -> None:
    heads = table_page.locator("table").first.locator("thead th")
    heads.nth(0).locator("button").click()
    order = ["lorentz", "none", "space", "tangent"]
    assert shown_names(table_page) == ["first <b>", *order, "second", "row 1", "row 2", "row 9", "row 10"]
    heads.nth(3).locator("button").click()
    assert heads.nth(0).get_attribute("aria-sort") is None
    assert shown_names(table_page)[1:5] == ["lorentz", "none", "space", "tangent"]  # better, no difference, worse, ""


def test_a_filter_shows_the_rows_and_groups_with_all_words(table_page: Any) -> None:
    field = table_page.get_by_label("Filter rows")
    assert field.count() == 1  # the table with one row has none
    field.fill("ROW 2")
    assert shown_names(table_page) == ["second", "row 2"]
    assert table_page.locator("output").inner_text() == "1 of 8"
    field.fill("first better")
    assert shown_names(table_page) == ["first <b>", "lorentz"]
    table_page.locator("thead th").nth(1).locator("button").click()
    assert shown_names(table_page) == ["first <b>", "lorentz"]
    field.fill("<b> nobody")
    assert shown_names(table_page) == []
    assert table_page.locator("output").inner_text() == "0 of 8"
    field.fill("")
    assert len(shown_names(table_page)) == 10
    assert table_page.locator("output").inner_text() == ""


def test_a_caption_is_wider_than_a_narrow_table(table_page: Any) -> None:
    caption, table = (table_page.locator(one).first.bounding_box() for one in ("figcaption", "table"))
    assert caption["width"] > 1.5 * table["width"]


# The page of the paper's results -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_committed_results_take_at_most_eight_screens(browser: Any, tmp_path: Any) -> None:
    """At 1,400 x 900 pixels, with an embedding; everything else is folded, and nothing scrolls sideways."""
    runs = read_runs(RESULTS)
    file = tmp_path / "results.html"
    file.write_text(results_page(runs, claims_of_folder(runs, RESULTS), notes_of(runs), TREE), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(file.as_uri())
    settle(page)
    assert page.evaluate("document.documentElement.scrollHeight") <= 8 * 900
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_names_are_shown_as_text(open_page: Any) -> None:
    page = open_page()
    page.locator("#search").fill(HOSTILE)
    page.keyboard.press("Enter")
    assert page.locator("#selection").inner_text().startswith(f"Node {HOSTILE}, ")
    page.locator("#search").fill("n17")  # a neighbour of it
    page.keyboard.press("Enter")
    assert HOSTILE in [text.strip() for text in page.locator("#rows button").all_inner_texts()]
    assert page.locator("main img").count() == 0
    assert "third </script><b>class</b>" in page.locator(".legend").inner_text()
    assert "lorentz, note <much>" in page.locator("#results").inner_text()


def test_a_large_graph_has_less_detail_during_a_movement_only(open_page: Any) -> None:
    page = open_page(6000)
    x, y = centre(page)
    full = page.evaluate(f"{DISK}.fullFrames")
    page.mouse.move(x + 30, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=4)
    settle(page)
    assert page.evaluate(f"{DISK}.fullFrames") == full
    page.mouse.up()
    for _ in range(600):  # the page's policy forbids the eval with which wait_for_function repeats its question
        if page.evaluate(f"{DISK}.fullFrames") > full:
            break
        page.wait_for_timeout(50)
    assert page.evaluate(f"{DISK}.fullFrames") > full


def test_nodes_without_a_label_are_grey_and_named_and_a_small_cloud_is_zoomed(browser: Any, tmp_path: Any) -> None:
    points = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1]])
    labels = np.array([-1, 0, -1])
    graph = DiskEmbedding("few", points, np.array([[0], [1]]), labels, ("red",), ("Ada", "Bob", "Cy"))
    (tmp_path / "few.html").write_text(html_page([], graph, title="few"), encoding="utf-8")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "few.html").as_uri())
    settle(page)
    groups = page.evaluate(f"[...{DISK}.byClass].map(([label, nodes]) => [label, [...nodes]])")
    assert groups == [[-1, [0, 2]], [0, [1]]]
    assert page.evaluate(f"{DISK}.zoom") == pytest.approx(1 / 0.115)
    page.evaluate("document.getElementById('embedding-section').scrollIntoView()")
    x, y = page.evaluate(f"{DISK}.toWindow({DISK}.position(2))")
    page.mouse.move(x, y)
    assert page.inner_text("#tip") == "node Cy · no label · 0 neighbours"
    assert "no label (2)" in page.inner_text(".legend")
    for act, zoom in (("out", 0.8 / 0.115), ("reset", 1 / 0.115)):
        page.click(f"[data-act={act}]")
        assert page.evaluate(f"{DISK}.zoom") == pytest.approx(zoom)
    page.close()
    assert errors == []


def test_names_of_general_nodes_are_shown_first_and_that_of_a_leaf_unfolds(open_page: Any) -> None:
    page = open_page(1093)
    disk = "document.getElementById('disk').disk"
    shown = page.evaluate(f"{disk}.names.shown")
    order = page.evaluate(f"Array.from({disk}.names.order)")
    assert shown[0] == order[0]  # the root, at the centre
    assert 3 < len(shown) <= 30
    place = {node: rank for rank, node in enumerate(order)}
    assert sorted(shown, key=place.__getitem__) == shown
    leaf = 1000
    assert leaf not in shown
    page.evaluate(f"{disk}.setView(translation({disk}.position({leaf}).map((x) => -x)))")
    page.evaluate(f"{disk}.setZoom({disk}.zoom * 2)")
    settle(page)
    assert leaf in page.evaluate(f"{disk}.names.shown")
