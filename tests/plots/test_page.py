"""HTML pages without a browser: their content, and that they need nothing else."""

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from markupsafe import Markup

from lresnet import Lorentz, cli
from lresnet.plots.comparison import MethodResult, Panel, comparison_picture
from lresnet.plots.embedding import disk_points
from lresnet.plots.html.page import (
    Heading,
    Row,
    Section,
    Table,
    embedding_json,
    html_page,
    html_table,
    html_verdict,
    inline_svg,
)
from lresnet.plots.html.runs_page import runs_page
from lresnet.plots.poincare_disk import DiskEmbedding
from lresnet.runs.report import FolderState, Report
from tests.plots.html_reader import Reader
from tests.runs.run_records import report_of, run_record

PAIR = DiskEmbedding(
    "a <pair>",
    np.array([[0.0, 0.0], [0.5, 0.25]]),
    np.array([[0], [1]]),
    np.array([0, 1]),
    ("one", "two </script>"),
    ("a", "b"),
)
RECORDS = [run_record("lorentz", seed, 97.0 + seed, lr=0.01) for seed in range(3)]
RECORDS += [run_record("euclidean", seed, 80.0 + seed, lr=0.01) for seed in range(3)]


# Pages of sections ---------------------------------------------------------------------------------------------------


def test_sections_are_linked_and_the_disk_comes_first() -> None:
    sections = [
        Section("one", "One", Markup("<p>1</p>"), "The first"),
        Section("two", "Two & more", Markup("<p>2</p>")),
    ]
    page = html_page(sections, PAIR, title="a <title>", introduction="x < y", footer=Markup("<b>end</b>"))
    reader = Reader(page)
    assert reader.links == ["#main", "#embedding-section", "#one", "#two"]
    places = [page.index(f'id="{key}"') for key in ("embedding-section", "one", "two")]
    assert places == sorted(places)
    assert places[0] < page.index("x &lt; y") < places[1]
    assert "<title>lresnet: a &lt;title&gt;</title>" in page
    assert '<h2 id="one-title">The first</h2>' in page
    assert '<h2 id="two-title">Two &amp; more</h2>' in page
    assert "<footer><b>end</b> Rendered by lresnet " in page


@pytest.mark.parametrize("disk", [None, PAIR], ids=["no disk", "disk"])
def test_the_page_needs_no_network_and_is_well_formed(disk: DiskEmbedding | None) -> None:
    page = runs_page(report_of(RECORDS), disk)
    reader = Reader(page)
    assert reader.outside == ["data:,"]
    assert {link[1:] for link in reader.links} >= {"results", "runs", "main"}
    assert ("disk" in reader.ids) == (disk is not None)
    assert "https://" not in page
    loads = set(re.findall(r"http://[^\"'\s<]+", page))
    assert loads <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses
    assert {link[1:] for link in reader.links} <= set(reader.ids) | set(re.findall(r'id="([^"]+)"', page))


def test_a_table_escapes_text_keeps_markup_and_has_minus_signs() -> None:
    rows = [
        Row("before", ["1", "2"]),
        Heading("a & b"),
        Row("<x>", ["-1.5e-3", "2"], [Markup("<b>y</b>"), "<z>"], highlighted=True),
    ]
    html = html_table(Table(("name", "one", "two", "text", "more"), rows, "What <this> is", "overview"))
    assert '<figure class="table"><figcaption>What &lt;this&gt; is</figcaption>' in html  # as wide as the page
    assert '<table class="overview"><thead>' in html
    assert '<th scope="col" class="number">one</th><th scope="col" class="number">two</th><th scope="col">text' in html
    assert '</tbody><tbody><tr class="group"><th colspan="5" scope="rowgroup">a &amp; b</th>' in html
    assert '<tr class="highlighted"><th scope="row">&lt;x&gt;</th><td class="number">−1.5e-3</td>' in html
    assert "<td><b>y</b></td><td>&lt;z&gt;</td></tr>" in html


def test_a_verdict_has_a_sign_a_colour_and_a_number() -> None:
    assert html_verdict("better", "+0.5 ± 0.1") == '<span class="better">▲ better</span> +0.5 ± 0.1'
    assert html_verdict("no difference shown") == '<span class="within">● no difference shown</span>'
    assert html_verdict("<odd>") == '<span class="soft">&lt;odd&gt;</span>'
    assert html_verdict("") == ""
    assert html_verdict("kept", signs={"kept": ("✓", "better")}) == '<span class="better">✓ kept</span>'


def test_a_picture_is_inline_text_in_the_colour_of_the_page() -> None:
    rows = [MethodResult("lorentz, lr 0.1", "lorentz", 97.0, 1.0), MethodResult("none", "none", None)]
    panels = [Panel("a task", rows)]
    first, second = (inline_svg(comparison_picture(panels, "percent"), 'a "name"') for _ in range(2))
    assert first == second
    assert first.startswith('<svg role="img" aria-label="a &#34;name&#34;"')
    assert "currentColor" in first
    assert "#222222" not in first
    assert ">diverged</text>" in first
    with pytest.raises(ValueError, match="no results to compare"):
        comparison_picture([], "percent")


def test_panels_of_one_metric_have_the_same_axis_which_ends_at_100() -> None:
    panels = [
        Panel("high", [MethodResult("lorentz", "lorentz", 99.5, 3.0), MethodResult("none", "none", 97.0)], "AUC"),
        Panel("other", [MethodResult("lorentz", "lorentz", 31.0, 2.0)], "F1"),
        Panel("low", [MethodResult("none", "none", 71.0, 0.5, (62.0, 1.0))], "AUC"),
    ]
    axes = {one.get_title(loc="left"): one for one in comparison_picture(panels, "percent").axes if one.axison}
    assert list(axes) == ["high", "low", "other"]  # the panels of one metric stand together
    assert axes["high"].get_xlim() == axes["low"].get_xlim() == (60.0, 100.0)
    assert axes["other"].get_xlim() == (25.0, 35.0)
    assert [axes[title].get_xlabel() for title in axes] == ["AUC", "", "F1"]
    # One panel names all methods, so that its rows are those of all panels, named once per line.
    names = [[text.get_text() for text in one.get_yticklabels()] for one in axes.values()]
    assert names == [["lorentz", "none"], [], ["lorentz", "none"]]
    assert axes["low"].containers[0].lines[0].get_ydata()[0] == pytest.approx(1 - 0.13)


def test_times_have_a_logarithmic_axis_of_whole_powers() -> None:
    rows = [MethodResult("lorentz", "lorentz", 0.02), MethodResult("none", "none", 3.0)]
    (axes,) = comparison_picture([Panel("t", rows)], "seconds", scale="log").axes
    assert axes.get_xlim() == pytest.approx((0.01, 10.0))


# The page of a user's own runs ---------------------------------------------------------------------------------------


def test_the_page_of_own_runs() -> None:
    page = runs_page(report_of(RECORDS))
    rows = Reader(page).rows
    assert ["lorentz", "98.00 ± 1.00", "3", "98.00", "+17.00 ± 0.00", "▲ better"] in rows
    assert ["euclidean", "81.00 ± 1.00", "3", "81.00", "", ""] in rows
    assert ["lorentz", "2", "", "99", "99.00", "5", "2.0", "runs/2"] in rows
    assert "<title>lresnet: your runs</title>" in page
    assert "Evaluated runs: 6 on cora/nc. Runs are averaged" in " ".join(page.split())
    sentence = (
        "lorentz has the highest mean test accuracy of 98.00 (3 runs); compared with the Euclidean baseline, 1 of 1 "
    )
    sentence += "rows is better and 0 worse, and no difference is shown for 0."
    assert page.index(f'<p class="verdict">{sentence}</p>') < page.index("<table")
    assert "CPU &lt;x&gt;" in page
    assert "6 evaluated runs. CPU: 12 seconds (6 runs on CPU &lt;x&gt;)." in page
    assert (
        "nan" not in re.sub(r"<svg.*?</svg>|<style>.*?</style>|<script>.*?</script>", "", page, flags=re.DOTALL).lower()
    )
    assert '<figure class="picture"><svg' in page
    for word in ("paper", "protocol", "cell", "claim"):
        assert (
            word
            not in re.sub(r"<svg.*?</svg>|<style>.*?</style>|<script>.*?</script>", "", page, flags=re.DOTALL).lower()
        )


def test_a_single_run_has_no_deviation_and_no_comparison() -> None:
    report = report_of(RECORDS[:1])
    state = FolderState(Path("runs/b"), "not evaluated: `lresnet evaluate runs/b` reads the test set")
    page = runs_page(Report(report.root, [*report.folders, state], report.groups))
    assert ["lorentz", "97.00", "1", "97.00"] in Reader(page).rows
    assert "difference" not in page.partition("<script>")[0]
    assert '<p class="verdict">lorentz reaches a test accuracy of 97.00 (1 run).</p>' in page
    assert "Run folders (1 not evaluated)" in page
    assert "1 evaluated run. CPU: 2 seconds (1 run on CPU &lt;x&gt;)." in page
    assert "cora/nc, public: 1 run</summary>" in page
    assert "<code>lresnet evaluate runs/b</code> reads the test set" in page


def test_settings_that_differ_are_in_the_page() -> None:
    page = runs_page(report_of([*RECORDS, run_record("lorentz", 0, 60.0, lr="<0.2>")]))
    names = [row[0] for row in Reader(page).rows if row]
    assert "lorentz, lr 0.01" in names
    assert "lorentz, lr <0.2>" in names
    assert "other settings: lr &lt;0.2&gt; against 0.01" not in page  # one shared run is not enough to compare


def test_without_evaluated_runs_the_page_says_so() -> None:
    page = runs_page(report_of([]))
    assert "No run has been evaluated yet" in page
    assert "results" not in Reader(page).ids


# The disk ------------------------------------------------------------------------------------------------------------


def test_the_data_of_the_disk_are_exact() -> None:
    text = embedding_json(PAIR)
    assert "<" not in text
    data = json.loads(text)
    points = np.frombuffer(base64.b64decode(data["points"]), "<f8").reshape(-1, 2)
    np.testing.assert_array_equal(points, PAIR.points)
    assert np.frombuffer(base64.b64decode(data["edges"]), "<u4").tolist() == [0, 1]
    assert np.frombuffer(base64.b64decode(data["labels"]), "<i4").tolist() == [0, 1]
    assert data["classes"] == ["one", "two </script>"]


@pytest.mark.parametrize("curvature", [-0.1, -1.0, -10.0])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_points_of_any_dimension_are_mapped_to_the_disk(n: int, curvature: float) -> None:
    M, g = Lorentz(curvature), torch.Generator().manual_seed(n)
    x = torch.randn(30, n, generator=g, dtype=torch.float64)
    points, note = disk_points(x, M)
    assert points.shape == (30, 2)
    assert ((points**2).sum(-1) < 1).all()
    back = M.from_poincare(torch.from_numpy(points) / M.kappa.sqrt())
    assert float(M.dist(M.centroid(back), torch.zeros(2, dtype=torch.float64))) < 1e-7
    if n <= 2:
        torch.testing.assert_close(M.dist(back[:, None], back), M.dist(x[:, None], x), rtol=1e-7, atol=1e-7)
    else:
        assert "hyperbolic PCA" in note


def test_very_distant_points_stay_inside_the_disk() -> None:
    far = torch.tensor([[1e30, 0.0], [-1e30, 1.0], [0.0, -1e20]], dtype=torch.float64)
    points, _ = disk_points(far, Lorentz(-1.0))
    assert ((points**2).sum(-1) < 1).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"points": np.array([[1.0, 0.0], [0.0, 0.0]])}, "inside the unit disk"),
        ({"edges": np.array([[0], [2]])}, "nodes from 0 to 1, got 0 to 2"),
        ({"labels": np.array([0])}, "labels must be one for each of the 2 nodes, got 1"),
        ({"labels": np.array([0, 2])}, "labels must be from 0 to 1"),
        ({"names": ("a",)}, "names must be one for each"),
    ],
)
def test_an_invalid_embedding_is_an_error(change: dict[str, object], words: str) -> None:
    facts = {"title": "t", "points": PAIR.points, "edges": PAIR.edges, "labels": PAIR.labels, "classes": PAIR.classes}
    with pytest.raises(ValueError, match=words):
        DiskEmbedding(**(facts | change))  # type: ignore[arg-type]


# The verb ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tree"
    options = ["--hidden", "4", "--epochs", "5", "--device", "cpu", "--out", str(folder)]
    assert cli.main(["train", "disease_tree/lp", *options]) == 0
    return folder


def test_report_writes_a_page_with_the_embedding(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", str(tree.parent), "-o", "r.html", "--embedding", str(tree)]) == 0
    assert "The page: r.html" in capsys.readouterr().out
    page = Path("r.html").read_text()
    assert "disease_tree/lp, lorentz, seed 0: 1,000 nodes, 999 edges" in page
    assert re.search(
        r"Two of 4 dimensions, chosen by hyperbolic PCA: they keep \d+\.\d % of the squared distances", page
    )
    assert cli.main(["report", str(tree.parent), "-o", "plain.html", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), list)
    assert 'id="disk"' not in Path("plain.html").read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["report", ".", "--embedding", "x"], "--embedding needs a page; name its file with -o FILE.html"),
        (["report", ".", "-o", "r.txt"], "the file name of a page must end with .html, got 'r.txt'"),
        (["report", ".", "-o", "r.html", "--embedding", "nowhere"], "nowhere does not exist"),
        (["plot", "embedding", "nowhere"], "nowhere does not exist"),
    ],
)
def test_user_errors_are_one_line(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(args) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
