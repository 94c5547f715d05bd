"""The page without a browser: what stands in it, and that it needs nothing else."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet import Lorentz, cli
from lresnet.plots.disk_embedding import DiskEmbedding, disk_points
from lresnet.plots.html.explorer import embedding_json
from lresnet.runs.run_folders import FolderState
from lresnet_paper.pages import html_tables
from lresnet_paper.pages.claims import answer_claims
from lresnet_paper.pages.depth_table import depth_sheets
from lresnet_paper.pages.html_page import html_page
from lresnet_paper.pages.terminal import ours_and_paper, print_figures
from lresnet_paper.results import aggregate, read_runs

RESULTS = Path(__file__).parents[2] / "results"
VOID = {"meta", "link", "input", "br", "img"}
PAIR = DiskEmbedding(
    "a <pair>",
    np.array([[0.0, 0.0], [0.5, 0.25]]),
    np.array([[0], [1]]),
    np.array([0, 1]),
    ("one", "two </script>"),
    ("a", "b"),
)


class Reader(HTMLParser):
    """Checks that elements close in order and ids are single; keeps the text of all rows, and what is linked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and "svg" not in self.open:
                self.ids.append(value or "")
            if name in ("href", "src") and value:
                (self.links if value.startswith("#") else self.outside).append(value)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass  # within an svg

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def run(seed: int, value: float | None, **change: object) -> dict[str, object]:
    base = {"table": "gnn", "cell": "disease/lp", "method": "lorentz", "protocol": "legacy", "seed": seed}
    base |= {"stage": "final", "config": {"lr": 0.01}, "seconds": 2.0, "command": "lresnet reproduce gnn"}
    return base | {"value": value, "validation": value, "hardware": "CPU <x>"} | change


RUNS = [run(0, 98.0), run(1, 97.0), run(2, None), *(run(k, 80.0 + k, method="space") for k in range(3))]
RUNS += [run(1000, None, stage="search", validation=50.0)]


def test_figures_stand_beside_the_papers_with_the_gap_in_words() -> None:
    page = html_page(RUNS, answer_claims(aggregate(RUNS)), {("gnn", "disease/lp", "legacy"): "Tried <much>."}, None)
    rows = Reader(page).rows
    assert ["lorentz", "97.50 ± 0.71", "2 of 3", "97.50", "97.3 ± 0.4", "● within one s.e. +0.20", ""] in rows
    space = next(row for row in rows if row[:2] == ["space", "81.00 ± 1.00"])
    assert space[2:6] == ["3", "81.00", "83.1 ± 1.2", "▼ worse −2.10"]
    assert "+17.00 ± " in space[6]  # paired, over the two seeds both have
    assert ["disease/lp", "97.50 ± 0.71", "97.3 ± 0.4", "95.6 ± 1.2 (4)", "space 81.00"] in [row[:5] for row in rows]
    assert ["lorentz is best in 8 of 10 cells", "not measured yet", ""] in rows
    assert "Tried &lt;much&gt;." in page
    assert ["lorentz", "2", "", "diverged", "", "", "2.0"] in rows
    assert "CPU &lt;x&gt;" in page
    assert "nan" not in re.sub(r"<svg.*?</svg>|<style>.*?</style>", "", page, flags=re.DOTALL).lower()


def test_of_ones_own_data_there_are_no_columns_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    own = [run | {"table": "train", "cell": "mine"} for run in RUNS]
    rows = Reader(html_page(own, [], None, None)).rows
    assert ["lorentz", "97.50 ± 0.71", "2 of 3", "97.50", ""] in rows
    assert not any("paper" in word for row in rows for word in row)
    print_figures(aggregate(own))
    assert "paper" not in capsys.readouterr().out


def test_the_page_needs_no_network_and_is_well_formed() -> None:
    for embedding in (None, PAIR):
        page = html_page(RUNS, answer_claims([]), None, embedding)
        reader = Reader(page)
        assert reader.outside == ["data:,"]
        assert {link[1:] for link in reader.links if "svg" not in link} >= {"summary", "gnn", "claims", "runs", "main"}
        assert ("disk" in reader.ids) == (embedding is not None)
        assert "https://" not in page
        loads = set(re.findall(r"http://[^\"'\s<]+", page))
        assert loads <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses
        assert {link[1:] for link in reader.links} <= set(reader.ids) | set(re.findall(r'id="([^"]+)"', page))


def test_runtimes_are_seconds_and_have_no_verdict() -> None:
    place = {"table": "runtime", "cell": "2048/10000", "protocol": "kernels", "validation": None, "config": {}}
    page = html_page([run(0, 0.00123456, **place), run(0, 0.5, **place | {"method": "tangent"})], answer_claims([]))
    rows = Reader(page).rows
    assert ["lorentz", "0.00123", "1", "", "0.00025", "", ""] in rows
    assert ["lorentz", "0", "", "0.001235", "", "", "2.0"] in rows
    assert "Seconds for 100 additions, mean" in page


def test_without_runs_the_page_says_so() -> None:
    assert "No final runs yet" in html_page([], answer_claims([]))


def test_the_data_of_the_disk_come_back_to_the_last_digit() -> None:
    text = embedding_json(PAIR)
    assert "<" not in text
    data = json.loads(text)
    points = np.frombuffer(base64.b64decode(data["points"]), "<f8").reshape(-1, 2)
    np.testing.assert_array_equal(points, PAIR.points)
    assert np.frombuffer(base64.b64decode(data["edges"]), "<u4").tolist() == [0, 1]
    assert np.frombuffer(base64.b64decode(data["labels"]), "<u2").tolist() == [0, 1]
    assert data["classes"] == ["one", "two </script>"]


def test_the_committed_results_make_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its pictures take ten seconds: the next test has them.
    monkeypatch.setattr(html_tables, "inline_svg", lambda figure, words: f"<svg aria-label='{words}'></svg>")
    runs = read_runs(RESULTS)
    page = html_page(runs, answer_claims(aggregate(runs)))
    rows = Reader(page).rows
    for figure in aggregate(runs):
        if figure.table not in ("ood", "oversmoothing"):
            assert any(row[:3] == [figure.name, ours_and_paper(figure)[0], figure.runs] for row in rows), figure
    for sheet in depth_sheets(runs):
        for row in sheet.rows:
            assert [row.name, *(cell.replace("-", "−") for cell in row.cells)] in rows


def test_a_page_of_a_user_s_own_runs_is_about_them() -> None:
    own = [one | {"table": "train"} for one in RUNS]
    page = html_page(own, [])
    assert "<title>lresnet: your runs</title>" in page
    assert "He, Yang and Ying" not in page
    assert 'id="claims"' not in page
    assert f"<b>{sum(figure.n for figure in aggregate(own) if figure.cell == 'disease/lp')}</b> on disease/lp" in page


@pytest.mark.slow
def test_a_single_run_of_ones_own_is_not_compared_with_nothing() -> None:
    own = [one | {"table": "train"} for one in RUNS if one["method"] == "lorentz" and one["cell"] == "disease/lp"][:1]
    state = "not evaluated: `lresnet evaluate runs/b` reads the test set"
    page = html_page(own, [], folders=[FolderState(Path("runs/b"), state, None)])
    assert "highest mean" not in page
    assert "best other" not in page
    assert "hollow the paper" not in page
    assert "<p>1 run. GPU: none" in page
    assert ": 1 final run</summary>" in page
    assert "<code>lresnet evaluate runs/b</code> reads the test set" in page


@pytest.mark.slow
def test_the_committed_results_have_pictures() -> None:
    runs = read_runs(RESULTS)
    page = html_page(runs, [])
    for table in {run["table"] for run in runs}:
        section = page[page.index(f'<section id="{table}"') :].partition("</section>")[0]
        assert "<figure><svg" in section, table


@pytest.mark.parametrize("curvature", [-0.1, -1.0, -10.0])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_points_of_any_dimension_come_into_the_disk(n: int, curvature: float) -> None:
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


def test_points_beyond_float64s_disk_stay_inside() -> None:
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
def test_a_wrong_embedding_is_refused(change: dict[str, object], words: str) -> None:
    facts = {"title": "t", "points": PAIR.points, "edges": PAIR.edges, "labels": PAIR.labels, "classes": PAIR.classes}
    with pytest.raises(ValueError, match=words):
        DiskEmbedding(**(facts | change))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tree"
    options = ["--hidden", "4", "--epochs", "5", "--device", "cpu", "--out", str(folder)]
    assert cli.main(["train", "disease_tree/lp", *options]) == 0
    return folder


def test_report_writes_the_page_and_the_claims(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few").mkdir()  # one table: the whole is drawn once, above
    shutil.copy(RESULTS / "commutativity.jsonl", "few")
    assert cli.main(["report", "few", "-o", "r.html", "--embedding", str(tree), "--markdown", "r.md"]) == 0
    assert "The page: r.html" in capsys.readouterr().out
    page = Path("r.html").read_text()
    assert "disease_tree/lp, lorentz, seed 0: 1,000 nodes, 999 edges" in page
    assert "Projected from 4 dimensions by hyperbolic PCA" in page
    assert "## The paper's claims" in Path("r.md").read_text()
    assert cli.main(["report", "few", "-o", "plain.html", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), list)
    assert 'id="disk"' not in Path("plain.html").read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["report", str(RESULTS), "--embedding", "x"], "--embedding is for a page; name its file with -o FILE.html"),
        (
            ["report", str(RESULTS), "-o", "r.txt"],
            "the name of a page ends with .html, unlike 'r.txt'; --markdown FILE",
        ),
        (["report", str(RESULTS), "-o", "r.html", "--embedding", "nowhere"], "nowhere holds no run"),
        (["plot", "embedding", "nowhere"], "nowhere holds no run"),
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
