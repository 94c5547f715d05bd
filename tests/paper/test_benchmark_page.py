"""Tables of benchmarks, their targets, and docs/performance/benchmarks.md."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lresnet_paper.pages.benchmark_tables import benchmark_tables, markdown_table, terminal_table
from lresnet_paper.pages.benchmarks import benchmark_page, read_benchmarks, stack_bounds, target_rows
from lresnet_paper.pages.results_page import markdown_page
from lresnet_paper.results import aggregate, read_runs
from lresnet_paper.tables import paper_figure

Record = dict[str, Any]
ROOT = Path(__file__).parents[2]


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


def test_one_table_per_study_cell_and_part_in_a_fixed_order() -> None:
    assert [table.title for table in benchmark_tables(ALL)] == [
        "Copy rate: 4361 GB/s",
        "One residual, forward: 10,000 points of dimension 2,048, float32",
        "One residual, backward: 10,000 points of dimension 2,048, float32",
        "A stack of 64 residuals, forward + backward: 10,000 points of dimension 2,048, float32",
        "100 additions without and with GPU synchronisation: 100,000 points of dimension 4,096",
        "Training step of lorentz_resnet18, batch size 512",
        "Training epoch of lorentz_gcn: disease/lp",
        "100 additions: 100,000 points of dimension 4,096",
    ]


def test_rows_and_notes() -> None:
    _, forward, _, stack, clock, resnet, gcn, runtime = benchmark_tables(ALL)
    assert forward.rows == [
        ("lorentz",),
        ("  kernels", "2", "5%", "4012", "92%", "1.25", "", "5.5x", ""),
        ("  geoopt", "-"),
    ]
    assert forward.notes[-1] == "Not measured: geoopt (no such operation)"
    # 64 x 8 passes over 82 MB at 4361 GB/s, in 2 ms
    assert stack.rows[1] == ("  kernels", "2", "5%", "481%", "", "4x", "")
    assert stack.notes[0].startswith(
        "The column bound is the share of the time that the memory traffic takes at least: 8 passes over memory per "
        "level (3 for x + y) at the copy rate."
    )
    assert clock.rows[1] == ("  kernels", "0.002", "0.12", "245760", "4096")
    assert resnet.rows == [("lorentz", "2", "5%", "1.25", "5.25", "1.21", "0.6", "1.02")]
    assert resnet.notes[1:] == ["Peak memory of lorentz: not measured: busy"]
    assert gcn.rows[1] == ("  10 seeds", "2", "5%", "2", "", "")
    assert runtime.rows[1] == ("  kernels", "0.131", "0.13 - 0.133", "0.0006")


def test_tables_fit_a_terminal_and_markdown_is_rectangular() -> None:
    wide = KERNELS | {"method": "parallel_transport", "protocol": "reference compiled"}
    for table in benchmark_tables([*ALL, wide]):
        written = io.StringIO()
        Console(width=80, file=written).print(terminal_table(table))
        assert "…" not in written.getvalue()
        rows = markdown_table(table).splitlines()
        assert {row.count("|") for row in rows} == {len(table.columns) + 1}


def test_targets_are_met_or_missed() -> None:
    assert [row[1:] for row in target_rows([*ALL, RESNET | {"cell": "lorentz_resnet20/512"}])] == [
        ("0.92", "≥ 0.85", True),
        ("0.79", "≥ 0.80", False),
        ("12.50", "≥ 10.00", True),
        ("4.00", "≥ 3.00", True),
        ("1.25", "≤ 1.05", False),
        ("1.21", "≤ 1.10", False),
        ("1.02", "≤ 1.15", True),
        ("1.25", "≤ 1.10", False),
        ("2.00", "≤ 1.50", False),
    ]
    assert target_rows([MISSING]) == []
    page = benchmark_page(ALL)
    assert "Targets that the Lorentz residual meets: 4 of 8." in page
    assert "| 2048/10000, backward: share of the copy rate | 0.79 | ≥ 0.80 | missed |" in page


def whole_training(model: str, epochs: int, seconds: float) -> Record:
    cell, figures = f"cifar10, {epochs} epochs", {"accuracy": 90.0, "training_seconds": 1.0, "epochs": epochs}
    part, facts = "training and test", {"model": model}
    return record("training", cell, "lorentz", "fast, batch 512", part, value=seconds, metrics=figures, config=facts)


def test_a_whole_training_has_the_target_of_its_network(tmp_path: Path) -> None:
    lines = [
        whole_training("lorentz_resnet20", 100, 50.0),
        whole_training("lorentz_resnet18", 100, 100.0),  # same cell: it does not replace the first, and has no target
        whole_training("lorentz_resnet18", 200, 190.0),
    ]
    (tmp_path / "benchmarks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert target_rows(read_benchmarks(tmp_path)) == [
        ("cifar10, 200 epochs, training and test: seconds, batch 512", "190.00", "≤ 180.00", False),
        ("cifar10, 100 epochs, training and test: seconds, lorentz_resnet20", "50.00", "≤ 60.00", True),
    ]


def test_a_cpu_has_its_own_targets() -> None:
    lines = [line | {"hardware": "CPU, x86_64"} for line in ALL]
    assert [row[1:] for row in target_rows(lines)] == [("1.25", "≤ 1.20", False)]


def test_the_target_of_one_seed_is_in_milliseconds() -> None:
    assert target_rows([GCN | {"protocol": "1 seed", "faster_than": {}}]) == [
        ("disease/lp, training epoch: 1 seed, ms", "2.00", "≤ 1.00", False)
    ]


@pytest.mark.parametrize(("ratio", "out_of_reach"), [(1.02, True), (1.4, False)])
def test_the_page_says_if_the_memory_bandwidth_puts_a_target_out_of_reach(ratio: float, out_of_reach: bool) -> None:
    # 64 x 8 x 81.92 MB at 4194.304 GB/s are 10 ms
    copy = COPY | {"metrics": {"gigabytes_per_second": 4194.304}}
    stack = STACK | {"value": 0.0107, "faster_than": {"reference compiled": ratio}}
    assert len(stack_bounds([copy, stack])) == out_of_reach
    page = " ".join(benchmark_page([copy, stack]).split())
    reason = (
        "take 10.00 ms. The compiled reference takes 10.91 ms and the kernels 10.70 ms, which is 92% and 93% of the "
        "memory bandwidth. No implementation can be more than 1.09 times as fast as the compiled reference, so that "
        "the target of 1.3 times is out of reach."
    )
    assert (reason in page) == out_of_reach
    assert stack_bounds([stack]) == []  # without a copy rate the bound is unknown


def test_a_stack_that_fits_into_the_cache_of_a_cpu_has_no_bound() -> None:
    (table,) = benchmark_tables([STACK | {"hardware": "CPU, x86_64"}])
    on_gpu = [one for one in benchmark_tables([STACK, COPY | {"hardware": "CPU, x86_64"}]) if "stack" in one.title]
    for one in (table, *on_gpu):
        assert "bound" not in one.columns
        assert one.rows[1] == ("  kernels", "2", "5%", "", "4x", "")


def test_the_page_has_the_newest_lines_of_every_device(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run `lresnet bench residual` to write some"):
        read_benchmarks(tmp_path)
    newer, cpu = KERNELS | {"value": 0.001}, KERNELS | {"hardware": "CPU, x86_64"}
    lines = [cpu, KERNELS, MISSING, CLOCK, newer]
    (tmp_path / "benchmarks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "runtime.jsonl").write_text(json.dumps(RUNTIME) + "\n")
    records = read_benchmarks(tmp_path)
    assert len(records) == 5
    page = benchmark_page(records)
    assert page.index("## NVIDIA H200") < page.index("## CPU, x86_64") < page.index("## The paper's table of runtimes")
    assert "| kernels | 1 | 10% | 4012 |" in page
    assert "- `lresnet bench residual`\n- `lresnet reproduce runtime`\n\nThe torch version is 2.11." in page
    assert "820 TB/s" in page
    assert "nan" not in page
    assert "\n\n\n" not in page


def test_the_page_in_docs_is_rendered_from_results() -> None:
    assert (ROOT / "docs/performance/benchmarks.md").read_text() == benchmark_page(read_benchmarks(ROOT / "results"))


def test_runtimes_in_the_report_are_seconds_without_a_verdict(tmp_path: Path) -> None:
    assert paper_figure("runtime", "4096/100000", "lorentz") == (0.0006, None)
    (tmp_path / "runtime.jsonl").write_text(json.dumps(RUNTIME) + "\n")
    (tmp_path / "benchmarks.jsonl").write_text(json.dumps(KERNELS) + "\n")
    (figure,) = aggregate(read_runs(tmp_path))  # a benchmark is not a run
    assert (figure.mean, figure.paper_mean, figure.paper_std, figure.verdict) == (0.131, 0.0006, None, "")
    page = markdown_page(read_runs(tmp_path))
    assert "### 4096/100000\n\n| method |" in page
    assert "| lorentz, kernels | 0.131 | 1 |  | 0.0006 |  |" in page
