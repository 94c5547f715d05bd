"""The sheets of depth, from runs made for the purpose."""

from typing import Any

from rich.console import Console

from lresnet_paper.pages.depth_table import depth_causes, depth_markdown, depth_sheets, depth_terminal


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


def test_figures_and_differences() -> None:
    figures, gaps = depth_sheets(RUNS)
    assert figures.columns == ("4", "64")
    assert [(row.name, row.cells) for row in figures.rows] == [
        ("none", ("81.0 ± 1.0", "81.0 ± 1.0")),
        ("parallel transport, exp and log", ("70.0 (1 of 3)", "diverged")),
        ("lorentz", ("87.0 ± 1.0", "27.0 ± 1.0")),
    ]
    assert [(row.name, row.cells) for row in gaps.rows] == [
        ("none", ("+6.0 ± 0.0", "-54.0 ± 0.0")),
        ("parallel transport, exp and log", ("", "")),
    ]


def test_causes_are_medians_before_and_after() -> None:
    distance, gradient = depth_causes(RUNS)
    by_name = {row.name: row.cells for row in distance.rows}
    assert by_name["lorentz"] == ("3e-7 → 3e-7", "3e-7 → 3e-7")
    assert {row.name: row.cells for row in gradient.rows}["none"] == ("6 → 6", "6 → 6")
    assert by_name["parallel transport, exp and log"] == ("3e-7 → 3e-7", "3e-7 → diverged")
    lost = {name: [None, None] for name in ("radius", "distance", "gradient")}
    found = depth_causes([run("none", 4, seed, None, initial_layers=lost) for seed in range(3)])
    assert found[0].rows[0].cells == ("diverged",)
    huge = {name: [0.0, 123.4] for name in ("radius", "distance", "gradient")}
    found = depth_causes([run("none", 4, 0, 80.0, initial_layers=huge, layers=lost)])
    assert [sheet.rows[0].cells for sheet in found] == [("123 → not finite",), ("0 → not finite",)]


def test_as_markdown_and_in_a_terminal() -> None:
    assert depth_markdown([]) == ""
    page = depth_markdown(RUNS)
    assert "| lorentz | 87.0 ± 1.0 | 27.0 ± 1.0 |" in page
    assert page.count("### disease/lp: ") == 4
    console = Console(width=80, record=True)
    with console.capture() as capture:
        console.print(depth_terminal(RUNS))
    assert max(map(len, capture.get().splitlines())) <= 80
    assert "70.0 (1 of 3)" in capture.get()
