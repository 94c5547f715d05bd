"""The page of Markdown: order, lines a cell, what was released, what it all took, and the table between marks."""

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from lresnet_paper.cli import pages
from lresnet_paper.pages.computing_time import computing_time
from lresnet_paper.pages.markdown_page import markdown_page
from lresnet_paper.pages.overview import overview, summary_sentence
from lresnet_paper.pages.paired import paired_differences
from lresnet_paper.results import aggregate, in_order
from lresnet_paper.tables import released_figure

MARKS = "<!-- lresnet report --overview: begin -->\nold\n<!-- lresnet report --overview: end -->"


def run(cell: str, method: str, seed: int, value: float | None, **change: Any) -> dict[str, Any]:
    record = {"table": "gnn", "cell": cell, "method": method, "protocol": "legacy", "seed": seed, "stage": "final"}
    return record | {"value": value, "validation": value, "config": {}, "hardware": "CPU, x86_64"} | change


RUNS = [
    run(cell, method, seed, None if method == "tangent" else value + seed)
    for cell in ("cora/nc", "disease/lp")
    for method, value in (("euclidean", 70.0), ("lorentz", 90.0), ("none", 80.0), ("tangent", 0.0))
    for seed in (0, 1)
]


def test_cells_and_methods_are_in_the_papers_order() -> None:
    figures = in_order(aggregate(RUNS))
    assert [f.cell for f in figures[::4]] == ["disease/lp", "cora/nc"]
    assert [f.method for f in figures[:4]] == ["none", "tangent", "lorentz", "euclidean"]
    tables = [run("x", "none", 0, 1.0, table=table) for table in ("train", "oversmoothing", "curvature", "gnn")]
    assert [f.table for f in in_order(aggregate(tables))] == ["gnn", "curvature", "oversmoothing", "train"]
    deep = [run(f"disease/lp/{n}", "none", 0, 1.0, table="oversmoothing") for n in (16, 4, 64)]
    assert [f.cell for f in in_order(aggregate(deep))] == ["disease/lp/4", "disease/lp/16", "disease/lp/64"]


def test_a_method_without_a_finite_run_has_a_row_that_says_so() -> None:
    page = markdown_page(aggregate(RUNS))
    assert page.count("| tangent | diverged | 0 of 2 |  | ") == 2
    assert "nan" not in page


def test_no_table_is_wider_than_a_page_and_every_table_has_its_sentence() -> None:
    page = markdown_page(aggregate(RUNS), paired_differences(RUNS))
    assert max(len(line) for line in page.splitlines() if line.startswith("|")) <= 120
    assert "## gnn\n\nThe Lorentz residual has the highest mean in 2 of 2 lines; its figures are, against" in page


def test_a_line_a_cell_compares_with_the_best_of_the_others() -> None:
    lines = overview(aggregate(RUNS), paired_differences(RUNS))
    assert [(line.cell, line.best.name if line.best else "", line.is_best) for line in lines] == [
        ("disease/lp", "none", True),
        ("cora/nc", "none", True),
    ]
    difference = lines[0].difference
    assert difference is not None
    assert (difference.mean, difference.verdict) == (10.0, "better")
    both = RUNS + [one | {"protocol": "disjoint"} for one in RUNS if one["cell"] == "cora/nc"]
    assert [line.cell for line in overview(aggregate(both), [])] == [
        "disease/lp",
        "cora/nc, legacy",
        "cora/nc, disjoint",
    ]
    assert summary_sentence(overview(aggregate(RUNS[:2]), [])) == ""


def test_a_sentence_ends_with_one_dot() -> None:
    close = [run("disease/lp", "lorentz", seed, value) for seed, value in enumerate((97.0, 97.6))]  # the paper has 97.3
    assert summary_sentence(overview(aggregate(close), [])).endswith(": 1 within one s.e.")
    assert "paper's beside them: 1 within one s.e.\n" in markdown_page(aggregate(close))


def test_what_was_released() -> None:
    chameleon = released_figure("gnn", "chameleon/nc")
    assert chameleon is not None
    assert (chameleon.mean, chameleon.std, chameleon.n, chameleon.over) == (37.9, 2.8, 10, "splits")
    assert str(released_figure("gnn", "airport/nc", "legacy")) == "93.3 (1) *"
    assert released_figure("gnn", "airport/nc", "disjoint") is None
    assert released_figure("gnn", "pubmed/nc") is released_figure("runtime", "2048/10000") is None
    known = tomllib.loads(resources.files("lresnet_paper").joinpath("released.toml").read_text())
    paper = tomllib.loads(resources.files("lresnet_paper").joinpath("tables.toml").read_text())
    for table, cells in known.items():
        assert set(cells) <= set(paper[table]["columns"])
        assert all(
            (line["n"] > 1) == ("std" in line) and line["over"] in ("seeds", "splits") for line in cells.values()
        )
    page = markdown_page(aggregate(RUNS))
    assert "| 95.6 ± 1.2 (4) |" in page
    assert "\n\\* cora/nc: stopped after 1,485 of 5,000 epochs, still rising.\n" in page


def test_a_second_recipe_stands_behind_the_first_and_shares_its_footnote() -> None:
    second = [one | {"protocol": "legacy-plain"} for one in RUNS if one["cell"] == "cora/nc"]
    page = markdown_page(aggregate(second + RUNS))
    lines = [line.partition(" |")[0] for line in page.splitlines() if line.startswith("| cora/nc")]
    assert lines == ["| cora/nc, legacy", "| cora/nc, legacy-plain"]
    assert page.count("stopped after 1,485 of 5,000 epochs") == 1
    assert "names a second recipe on the same split" in page.partition("## gnn")[0].replace("\n", " ")
    assert "stands in for disease/nc" in page.partition("## gnn")[0]


def test_what_it_took() -> None:
    on_gpu = [run("cora/nc", "none", seed, 1.0, seconds=1800.0, hardware="NVIDIA H200") for seed in range(4)]
    on_cpu = [run("cora/nc", "none", 9, 1.0, seconds=360.0), run("cora/nc", "none", 10, None)]
    words = computing_time(on_gpu + on_cpu)
    assert words.startswith("GPU: 2.0 hours (4 runs on NVIDIA H200); CPU: 0.1 hours (2 runs on CPU, x86_64). ")
    assert words.endswith("; 1 run that broke off has no time.")
    assert "CPU: none." in computing_time(on_gpu)
    assert computing_time([]) == ""
    assert computing_time(on_cpu).startswith("GPU: none; CPU: 0.1 hours")
    brief = [run("cora/nc", "none", 9, 1.0, seconds=11.4)]
    assert computing_time(brief).startswith("GPU: none; CPU: 11 seconds (1 run on CPU, x86_64). ")
    thirds = [{"seconds": 1200.0, "hardware": "NVIDIA H200", "served": 3} for _ in range(6)]
    assert computing_time(thirds).startswith("GPU: 2.0 hours (2 runs on NVIDIA H200)")
    assert "**Time of all runs.** GPU: 2.0 hours" in markdown_page(aggregate(on_gpu), time=computing_time(on_gpu))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "gnn.jsonl").write_text("".join(json.dumps(one) + "\n" for one in RUNS))
    return folder


def test_the_short_table_goes_between_the_marks(results: Path, tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text(f"# Title\n{MARKS}\nrest\n")
    for _ in range(2):  # twice the same
        assert pages.report(results, overview=file) == 0
        text = file.read_text()
        assert text.startswith("# Title\n<!--")
        assert text.endswith("end -->\nrest\n")
        assert "old" not in text
        assert (
            text.count("| disease/lp | 90.50 ± 0.71 | 97.3 ± 0.4 | worse, -6.80 | 95.6 ± 1.2 (4) | none 80.50 |") == 1
        )


def test_the_readmes_table_is_the_reports() -> None:
    root = Path(__file__).parents[2]
    table = (root / "README.md").read_text().partition(MARKS.partition("\n")[0])[2].partition("<!-- lresnet report")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert [row for row in rows if row not in (root / "docs" / "results.md").read_text()] == []


@pytest.mark.parametrize("text", ["no marks", MARKS * 2, MARKS.partition("\n")[0]])
def test_a_file_without_the_marks_is_left_alone(text: str, results: Path, tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text(text)
    with pytest.raises(ValueError, match="has no place for the table"):
        pages.report(results, overview=file)
    assert file.read_text() == text
