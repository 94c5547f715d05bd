"""`python -m lresnet_paper report` and `pages`: tables in the terminal, JSON, Markdown and HTML."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lresnet.plots.poincare_disk import DiskEmbedding
from lresnet_paper.__main__ import main
from lresnet_paper.cli.report import show
from lresnet_paper.pages import html_page as html_module
from lresnet_paper.pages.claims import answer_claims
from lresnet_paper.pages.depth_page import depth_tables
from lresnet_paper.pages.features_page import FEATURES_TABLE
from lresnet_paper.pages.html_page import html_page
from lresnet_paper.pages.text_tables import our_value
from lresnet_paper.results import aggregate, read_runs
from tests.plots.html_reader import Reader

RESULTS = Path(__file__).parents[2] / "results"
PAIR = DiskEmbedding("a pair", np.array([[0.0, 0.0], [0.5, 0.25]]), np.array([[0], [1]]))


def run(seed: int, value: float | None, **change: Any) -> dict[str, Any]:
    base = {"table": "gnn", "cell": "disease/lp", "method": "lorentz", "protocol": "legacy", "seed": seed}
    base |= {"stage": "final", "config": {"lr": 0.01}, "seconds": 2.0, "command": "lresnet reproduce gnn"}
    return base | {"value": value, "validation": value, "hardware": "CPU <x>"} | change


RUNS = [run(0, 98.0), run(1, 97.0), run(2, None), *(run(k, 80.0 + k, method="space") for k in range(3))]
RUNS += [run(1000, None, stage="search", validation=50.0)]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    records = [
        run(0, 98.0),
        run(1, 97.0),
        run(2, None),
        run(0, 50.0, stage="search"),
        run(0, 91.0, method="euclidean", cell="disease/nc"),
        run(0, 80.0, protocol="disjoint", validation=None),
    ]
    (folder / "gnn.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "numerics.jsonl").write_text('{"dtype": "float32", "error": 1e-7}\n')
    return folder


# --- terminal and JSON ------------------------------------------------------------------------------------------------


def test_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(results), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["table"], one["cell"], one["method"], one["protocol"], one["n"]) for one in found] == [
        ("gnn", "disease/lp", "lorentz", "legacy", 2),
        ("gnn", "disease/nc", "euclidean", "legacy", 1),
        ("gnn", "disease/lp", "lorentz", "disjoint", 1),
    ]
    first = found[0]
    assert first["mean"] == 97.5
    assert first["std"] == pytest.approx(0.5**0.5)
    assert first["diverged"] == 1
    assert first["paper"] == {"mean": 97.3, "std": 0.4}
    assert first["verdict"] == "no difference shown"
    assert found[1]["paper"] == {"mean": None, "std": None}
    assert found[2]["validation"] is None


def test_terminal_tables(results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert show(results, json=False, out=None, embedding=None) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "disease/lp,\n" in re.sub(" +\n", "\n", out)  # a long heading wraps between words
    assert "97.50 ± 0.71" in out
    assert "97.3 ± 0.4" in out


def test_the_committed_results_fit_eighty_columns_without_cut_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["report", str(RESULTS)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out


def test_the_paper_has_no_columns_for_unknown_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.jsonl").write_text(json.dumps(run(0, 98.0, table="own", cell="mine")) + "\n")
    assert main(["report", str(tmp_path)]) == 0
    assert "paper" not in capsys.readouterr().out


def test_a_folder_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 0
    assert "There are no final runs yet." in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_damaged_line_is_skipped_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gnn.jsonl").write_text("[1]\n")
    with pytest.warns(UserWarning, match=r"gnn\.jsonl:1 is not a result"):
        assert main(["report", str(tmp_path)]) == 0
    assert "There are no final runs yet." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere"], "the results folder nowhere does not exist"),
        ([str(RESULTS), "--embedding", "x"], "--embedding needs a page; name its file with -o FILE.html"),
        ([str(RESULTS), "-o", "r.txt"], "the file name of a page must end with .html, got 'r.txt'"),
        ([str(RESULTS), "-o", "r.html", "--embedding", "nowhere"], "nowhere"),
    ],
)
def test_user_errors_are_one_line(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *args]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# --- Markdown ---------------------------------------------------------------------------------------------------------


def test_the_results_page_is_written(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert main(["pages", "results", str(results), "--out", str(page)]) == 0
    text = page.read_text()
    assert "\n## gnn\n\nCompared with the paper's value for the Lorentz residual, ours is better in 0 rows" in text
    assert "nan" not in text
    assert "\n### disease/lp, legacy\n\n| method |" in text
    assert "| lorentz | 97.50 ± 0.71 | 2 of 3 | 97.50 | 97.3 ± 0.4 | no difference shown, +0.20 |" in text
    assert "[verdict on the paper's claims](index.md)" in text
    (tmp_path / "file").touch()
    assert main(["pages", "results", str(results), "--out", str(tmp_path / "file" / "page.md")]) == 2


def test_the_verdict_is_written(results: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.md"
    assert main(["pages", "verdict", str(results), "--out", str(file)]) == 0
    assert file.read_text().startswith("# Does the paper reproduce?\n")


# --- HTML -------------------------------------------------------------------------------------------------------------


def test_results_are_next_to_the_papers_with_the_difference() -> None:
    page = html_page(RUNS, answer_claims(aggregate(RUNS)), {("gnn", "disease/lp", "legacy"): "Tried <much>."})
    rows = Reader(page).rows
    assert ["lorentz", "97.50 ± 0.71", "2 of 3", "97.50", "97.3 ± 0.4", "", "● no difference shown +0.20", ""] in rows
    space = next(row for row in rows if row[:2] == ["space", "81.00 ± 1.00"])
    assert space[2:5] == ["3", "81.00", "83.1 ± 1.2"]
    assert space[5].startswith("+17.00 ± ")  # paired over the two seeds that both have
    assert space[5].endswith(" (2)")
    assert space[6] == "● no difference shown −2.10"
    assert ["disease/lp", "97.50 ± 0.71", "97.3 ± 0.4", "95.6 ± 1.2 (4)", "space 81.00"] in [row[:5] for row in rows]
    assert ["lorentz is best in 8 of 10 cells", "not measured", "gnn"] in rows
    sentence = (
        "The Lorentz residual has the highest mean in 1 of 1 rows; compared with the best other method of each row,"
    )
    assert page.index(f'<p class="verdict">{sentence}') < page.index("disease/lp, legacy</th>")
    assert "Tried &lt;much&gt;." in page
    assert ["lorentz", "2", "", "diverged", "", "", "2.0"] in rows
    assert "CPU &lt;x&gt;" in page
    text = re.sub(r"<svg.*?</svg>|<style>.*?</style>|<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "nan" not in text.partition('id="gnn"')[2].lower()  # a claim of the paper is about NaN


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
    assert ["lorentz, kernels", "0.00123", "1", "", "0.00025", ""] in rows
    assert ["lorentz", "0", "", "0.001235", "", "", "2.0"] in rows
    assert "Seconds for 100 additions: mean" in page


def test_a_page_without_runs() -> None:
    assert "There are no final runs yet" in html_page([], answer_claims([]))


def test_the_committed_results_make_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its pictures take ten seconds: the next test has them.
    monkeypatch.setattr(html_module, "inline_svg", lambda figure, title: f"<svg aria-label='{title}'></svg>")
    runs = read_runs(RESULTS)
    page = html_page(runs, answer_claims(aggregate(runs)))
    rows = Reader(page).rows
    shown = [result for result in aggregate(runs) if result.table != FEATURES_TABLE]
    for table in {result.table for result in shown}:  # a sentence comes before everything else
        assert re.search(rf'<section id="{table}".*</h2>\s*<p class="verdict">[^<]+\.</p>', page), table
    for result in shown:
        name = f"{result.label}, {result.protocol}" if result.table == "runtime" else result.label
        if result.table not in ("ood", "oversmoothing"):
            assert any(row[:3] == [name, our_value(result), result.runs] for row in rows), result
    # The only lead on graphs has the score beside it that a raw feature reaches without training.
    section = page[page.index('<section id="gnn"') :].partition("<table")[0]
    assert "On disease/lp, one raw feature column reaches 99.31 without any training" in section
    for table in depth_tables(runs):
        for row in table.rows:
            assert [row.name, *(cell.replace("-", "−") for cell in row.cells)] in rows


@pytest.mark.slow
def test_the_committed_results_have_pictures() -> None:
    runs = read_runs(RESULTS)
    page = html_page(runs, answer_claims([]))
    for table in {run["table"] for run in runs} - {FEATURES_TABLE}:
        section = page[page.index(f'<section id="{table}"') :].partition("</section>")[0]
        assert '<figure class="picture"><svg' in section, table


def test_the_html_page_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few").mkdir()
    shutil.copy(RESULTS / "commutativity.jsonl", "few")
    assert main(["report", "few", "-o", "r.html"]) == 0
    assert "The page: r.html" in capsys.readouterr().out
    assert 'id="disk"' not in Path("r.html").read_text()
    assert main(["report", "few", "-o", "r.html", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), list)
