"""The paper's page without a browser."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from lresnet.plots.poincare_disk import DiskEmbedding
from lresnet_paper.cli import pages
from lresnet_paper.pages import html_tables
from lresnet_paper.pages.claims import answer_claims
from lresnet_paper.pages.depth_table import depth_sheets
from lresnet_paper.pages.html_page import html_page
from lresnet_paper.pages.terminal import ours_and_paper
from lresnet_paper.results import aggregate, read_runs
from tests.plots.html_reader import Reader

RESULTS = Path(__file__).parents[2] / "results"
PAIR = DiskEmbedding("a pair", np.array([[0.0, 0.0], [0.5, 0.25]]), np.array([[0], [1]]))


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


@pytest.mark.slow
def test_the_committed_results_have_pictures() -> None:
    runs = read_runs(RESULTS)
    page = html_page(runs, answer_claims([]))
    for table in {run["table"] for run in runs}:
        section = page[page.index(f'<section id="{table}"') :].partition("</section>")[0]
        assert "<figure><svg" in section, table


def test_report_writes_the_page_and_the_claims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few").mkdir()  # one table: the whole is drawn once, above
    shutil.copy(RESULTS / "commutativity.jsonl", "few")
    assert pages.report(Path("few"), out=Path("r.html"), markdown=Path("r.md")) == 0
    assert "The page: r.html" in capsys.readouterr().out
    assert "## The paper's claims" in Path("r.md").read_text()
    assert 'id="disk"' not in Path("r.html").read_text()
