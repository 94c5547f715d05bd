"""The tables of depth from artificial runs; docs/reproduction/depth.md agrees with the results."""

from pathlib import Path
from typing import Any

from rich.console import Console

from lresnet_paper.pages.claims import depth_claims
from lresnet_paper.pages.depth_page import depth_causes, depth_markdown, depth_tables, depth_terminal
from lresnet_paper.pages.results_page import markdown_page
from lresnet_paper.results import read_runs

ROOT = Path(__file__).parents[2]


def run(method: str, depth: int, seed: int, value: float | None, **change: Any) -> dict[str, Any]:
    layers = {name: [5.0 + seed, 3e-7] for name in ("radius", "distance", "gradient")}
    record = {"table": "oversmoothing", "cell": f"disease/lp/{depth}", "method": method, "protocol": "legacy"}
    record |= {"seed": seed, "stage": "final", "value": value, "initial_layers": layers}
    return record | ({} if value is None else {"layers": layers}) | change


RUNS = [
    *(run("none", depth, seed, 80.0 + seed) for depth in (4, 64) for seed in range(3)),
    *(run("lorentz", depth, seed, 90.0 + seed - depth) for depth in (4, 64) for seed in range(3)),
    *(run("parallel_transport_textbook", 4, seed, None if seed else 70.0) for seed in range(3)),
    *(run("parallel_transport_textbook", 64, seed, None) for seed in range(3)),
]


def test_values_and_differences() -> None:
    values, differences = depth_tables(RUNS)
    assert values.columns == ("4", "64")
    assert [(row.name, row.cells) for row in values.rows] == [
        ("none", ("81.0 ± 1.0", "81.0 ± 1.0")),
        ("parallel transport, exp and log", ("70.0 (1 of 3)", "diverged")),
        ("lorentz", ("87.0 ± 1.0", "27.0 ± 1.0")),
    ]
    assert [(row.name, row.cells) for row in differences.rows] == [
        ("none", ("+6.0 ± 0.0", "-54.0 ± 0.0")),
        ("parallel transport, exp and log", ("", "")),
    ]


def test_distances_and_gradients_are_medians_before_and_after_training() -> None:
    distance, gradient = depth_causes(RUNS)
    by_name = {row.name: row.cells for row in distance.rows}
    assert by_name["lorentz"] == ("3e-7 → 3e-7", "3e-7 → 3e-7")
    assert {row.name: row.cells for row in gradient.rows}["none"] == ("6 → 6", "6 → 6")
    assert by_name["parallel transport, exp and log"] == ("3e-7 → 3e-7", "3e-7 → diverged")
    not_finite = {name: [None, None] for name in ("radius", "distance", "gradient")}
    found = depth_causes([run("none", 4, seed, None, initial_layers=not_finite) for seed in range(3)])
    assert found[0].rows[0].cells == ("diverged",)
    huge = {name: [0.0, 123.4] for name in ("radius", "distance", "gradient")}
    found = depth_causes([run("none", 4, 0, 80.0, initial_layers=huge, layers=not_finite)])
    assert [table.rows[0].cells for table in found] == [("123 → not finite",), ("0 → not finite",)]


def test_markdown_and_terminal() -> None:
    assert depth_markdown([]) == ""
    page = depth_markdown(RUNS)
    assert "| lorentz | 87.0 ± 1.0 | 27.0 ± 1.0 |" in page
    assert page.count("### disease/lp: ") == 4
    assert "- Parallel_transport yields NaN from 16 layers on: **holds**." in markdown_page(RUNS)
    console = Console(width=80, record=True)
    with console.capture() as capture:
        console.print(depth_terminal(RUNS))
    assert max(map(len, capture.get().splitlines())) <= 80
    assert "70.0 (1 of 3)" in capture.get()


def test_the_tables_of_docs_depth_are_those_of_the_results() -> None:
    rendered = depth_markdown(read_runs(ROOT / "results")).splitlines()
    rows = [
        line for line in (ROOT / "docs" / "reproduction" / "depth.md").read_text().splitlines() if line.startswith("|")
    ]
    assert len(rows) == 4 * 9 + 2 * 8
    assert [row for row in rows if row not in rendered] == []


def test_the_verdicts_of_docs_depth_are_those_of_the_results() -> None:
    untuned = [run for run in read_runs(ROOT / "results") if run["protocol"] == "legacy"]
    verdicts = [claim.verdict for claim in depth_claims(untuned)]
    assert verdicts == ["undecided", "undecided", "holds"]
