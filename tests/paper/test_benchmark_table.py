"""Benchmarks as tables and as a page, from lines as they are kept."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lresnet_paper.pages.benchmark_tables import markdown_sheet, sheets, terminal_sheet
from lresnet_paper.pages.benchmarks import bars_sheet, benchmark_page, read_benchmarks
from lresnet_paper.pages.markdown_page import markdown_page
from lresnet_paper.results import aggregate, read_runs
from lresnet_paper.tables import paper_figure

Record = dict[str, Any]


def record(study: str, cell: str, method: str, form: str, part: str = "forward", **other: Any) -> Record:
    own: Record = {
        "table": "benchmarks",
        "study": study,
        "cell": cell,
        "method": method,
        "protocol": form,
        "part": part,
        "value": 0.002,
        "quartiles": [0.0019, 0.0021],
        "rounds": 20,
        "metrics": {},
        "faster_than": {},
        "missing": "",
        "config": {},
        "command": "lresnet bench residual",
        "versions": {"torch": "2.11"},
        "hardware": "NVIDIA H200",
    }
    return own | other


KERNELS = record(
    "residual",
    "2048/10000",
    "lorentz",
    "kernels",
    metrics={"gigabytes_per_second": 4012.3, "share_of_copy_rate": 0.923},
    faster_than={"x + y": 0.8, "textbook": 5.5, "parallel_transport, textbook": 12.5},
)
BACKWARD = record("residual", "2048/10000", "lorentz", "kernels", "backward", metrics={"share_of_copy_rate": 0.79})
MISSING = record("residual", "2048/10000", "lorentz", "geoopt", value=None, quartiles=None, missing="no such operation")
CLOCK = record(
    "clock",
    "4096/100000",
    "lorentz",
    "kernels",
    metrics={"true_seconds": 0.12, "implied_gigabytes_per_second": 245760.0, "true_gigabytes_per_second": 4096.0},
)
RESNET = record(
    "resnet",
    "lorentz_resnet18/512",
    "lorentz",
    "engine",
    "training step",
    metrics={"peak_gibibytes": 5.25, "peak_over_twin": 1.21, "epoch_seconds": 0.6, "epoch_over_its_steps": 1.02},
    faster_than={"euclidean": 0.8},
    config={"memory": "not measured: busy"},
)
GCN = record("gcn", "disease/lp", "lorentz", "10 seeds", "training epoch", faster_than={"1 seed": 0.5})
STACK = record("stack", "2048/10000 x 64", "lorentz", "kernels", "forward + backward", faster_than={"reference": 4.0})
COPY = record(
    "copy", "cuda", "copy", "best", "", value=None, metrics={"gigabytes_per_second": 4361.0, "-x, 2 GiB": 4361.0}
)
RUNTIME = {
    "table": "runtime",
    "cell": "4096/100000",
    "method": "lorentz",
    "protocol": "kernels",
    "seed": 0,
    "value": 0.131,
    "validation": None,
    "metrics": {"low": 0.13, "high": 0.133},
    "missing": "",
    "command": "lresnet reproduce runtime",
    "versions": {"torch": "2.11"},
    "hardware": "NVIDIA H200",
}
ALL = [GCN, RESNET, KERNELS, MISSING, BACKWARD, STACK, CLOCK, COPY, RUNTIME]


def test_a_sheet_for_each_study_cell_and_part_in_a_fixed_order() -> None:
    assert [sheet.title for sheet in sheets(ALL)] == [
        "Copy rate: 4361 GB/s",
        "One residual, forward: 10,000 points of dimension 2,048, float32",
        "One residual, backward: 10,000 points of dimension 2,048, float32",
        "A stack of 64 residuals, forward + backward: 10,000 points of dimension 2,048, float32",
        "100 additions without waiting, and in truth: 100,000 points of dimension 4,096",
        "A training step of lorentz_resnet18, batch 512",
        "A training epoch of lorentz_gcn: disease/lp",
        "100 additions: 100,000 points of dimension 4,096",
    ]


def test_the_cells_of_the_sheets() -> None:
    _, forward, _, stack, clock, resnet, gcn, runtime = sheets(ALL)
    assert forward.rows == [
        ("lorentz",),
        ("  kernels", "2", "5%", "4012", "92%", "1.25", "", "5.5x", ""),
        ("  geoopt", "-"),
    ]
    assert forward.notes[-1] == "-: geoopt (no such operation)"
    # 64 x 8 passes over 82 MB at 4361 GB/s, in 2 ms
    assert stack.rows[1] == ("  kernels", "2", "5%", "481%", "", "4x", "")
    assert stack.notes[0].startswith("floor: what 8 passes over memory a level (x + y: 3) take at the copy rate")
    assert clock.rows[1] == ("  kernels", "0.002", "0.12", "245760", "4096")
    assert resnet.rows == [("lorentz", "2", "5%", "1.25", "5.25", "1.21", "0.6", "1.02")]
    assert resnet.notes == ["lorentz: memory not measured: busy"]
    assert gcn.rows[1] == ("  10 seeds", "2", "5%", "2", "", "")
    assert runtime.rows[1] == ("  kernels", "0.131", "0.13 - 0.133", "0.0006")


def test_tables_fit_a_terminal_and_markdown_is_rectangular() -> None:
    wide = KERNELS | {"method": "parallel_transport", "protocol": "reference compiled"}
    for sheet in sheets([*ALL, wide]):
        written = io.StringIO()
        Console(width=80, file=written).print(terminal_sheet(sheet))
        assert "…" not in written.getvalue()
        rows = [line for line in markdown_sheet(sheet).splitlines() if line.startswith("|")]
        assert {row.count("|") for row in rows} == {len(sheet.columns) + 1}


def test_bars_are_met_or_missed() -> None:
    assert [row[1:] for row in bars_sheet([*ALL, RESNET | {"cell": "lorentz_resnet20/512"}]).rows] == [
        ("0.92", "≥ 0.85", "met"),
        ("0.79", "≥ 0.80", "missed"),
        ("12.50", "≥ 10.00", "met"),
        ("4.00", "≥ 3.00", "met"),
        ("1.25", "≤ 1.05", "missed"),
        ("1.21", "≤ 1.10", "missed"),
        ("1.02", "≤ 1.15", "met"),
        ("1.25", "≤ 1.10", "missed"),
        ("2.00", "≤ 1.50", "missed"),
    ]
    assert bars_sheet([MISSING]).rows == []


def whole_training(model: str, epochs: int, seconds: float) -> Record:
    cell, figures = f"cifar10, {epochs} epochs", {"accuracy": 90.0, "training_seconds": 1.0, "epochs": epochs}
    part, facts = "training and test", {"model": model}
    return record("training", cell, "lorentz", "fast, batch 512", part, value=seconds, metrics=figures, config=facts)


def test_a_whole_training_has_the_bar_of_its_network(tmp_path: Path) -> None:
    lines = [
        whole_training("lorentz_resnet20", 100, 50.0),
        whole_training("lorentz_resnet18", 100, 100.0),  # of the same cell: it replaces nothing and has no bar
        whole_training("lorentz_resnet18", 200, 190.0),
    ]
    (tmp_path / "benchmarks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert bars_sheet(read_benchmarks(tmp_path)).rows == [
        ("cifar10, 200 epochs, training and test: seconds, batch 512", "190.00", "≤ 180.00", "missed"),
        ("cifar10, 100 epochs, training and test: seconds, lorentz_resnet20", "50.00", "≤ 60.00", "met"),
    ]


def test_a_cpu_has_bars_of_its_own() -> None:
    lines = [line | {"hardware": "CPU, x86_64"} for line in ALL]
    assert [row[1:] for row in bars_sheet(lines).rows] == [("1.25", "≤ 1.20", "missed")]


def test_an_epoch_of_one_seed_is_counted_in_milliseconds() -> None:
    assert bars_sheet([GCN | {"protocol": "1 seed", "faster_than": {}}]).rows == [
        ("disease/lp, training epoch: 1 seed, ms", "2.00", "≤ 1.00", "missed")
    ]


@pytest.mark.parametrize(("ratio", "said"), [(1.02, True), (1.4, False)])
def test_a_bar_below_the_memory_s_floor_is_told_from_one_that_was_missed(ratio: float, said: bool) -> None:
    # 64 x 8 x 81.92 MB at 4194.304 GB/s are 10 ms
    copy = COPY | {"metrics": {"gigabytes_per_second": 4194.304}}
    stack = STACK | {"value": 0.0107, "faster_than": {"reference compiled": ratio}}
    notes = bars_sheet([copy, stack]).notes
    assert len(notes) == said
    if said:
        assert "take 10.00 ms. The reference compiled takes 10.91 ms, the kernels 10.70 ms: 92% and 93% of" in notes[0]
        assert "more than 1.09 times as fast as the reference compiled; 1.3 times cannot be reached" in notes[0]
    assert bars_sheet([stack]).notes == []  # without a copy rate nobody knows the floor


def test_a_stack_that_fits_a_cpu_s_cache_has_no_floor() -> None:
    (sheet,) = sheets([STACK | {"hardware": "CPU, x86_64"}])
    on_gpu = [s for s in sheets([STACK, COPY | {"hardware": "CPU, x86_64"}]) if "stack" in s.title]
    for one in (sheet, *on_gpu):
        assert "floor" not in one.columns
        assert one.rows[1] == ("  kernels", "2", "5%", "", "4x", "")


def test_the_page_takes_the_newest_lines_of_every_device(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="`lresnet bench residual` writes them"):
        read_benchmarks(tmp_path)
    newer, cpu = KERNELS | {"value": 0.001}, KERNELS | {"hardware": "CPU, x86_64"}
    lines = [cpu, KERNELS, MISSING, CLOCK, newer]
    (tmp_path / "benchmarks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "runtime.jsonl").write_text(json.dumps(RUNTIME) + "\n")
    records = read_benchmarks(tmp_path)
    assert len(records) == 5
    page = benchmark_page(records)
    assert page.index("## NVIDIA H200") < page.index("## CPU, x86_64") < page.index("## The paper's clock")
    assert "| kernels | 1 | 10% | 4012 |" in page
    assert "Made by `lresnet bench residual`, `lresnet reproduce runtime`; torch 2.11." in page
    assert "820 TB/s" in page
    assert "nan" not in page


def test_runtimes_in_the_report_are_seconds_without_a_verdict(tmp_path: Path) -> None:
    assert paper_figure("runtime", "4096/100000", "lorentz") == (0.0006, None)
    (tmp_path / "runtime.jsonl").write_text(json.dumps(RUNTIME) + "\n")
    (tmp_path / "benchmarks.jsonl").write_text(json.dumps(KERNELS) + "\n")
    (figure,) = aggregate(read_runs(tmp_path))  # a benchmark is no run
    assert (figure.mean, figure.paper_mean, figure.paper_std, figure.verdict) == (0.131, 0.0006, None, "")
    assert "### 4096/100000\n\n| method |" in markdown_page([figure])
    assert "| lorentz, kernels | 0.131 | 1 |  | 0.0006 |  |" in markdown_page([figure])
