"""The benchmark of the Lorentz SGFormer, on tiny graphs with a fake clock."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lresnet import cli
from lresnet.train.results import read_results
from lresnet_paper.bench import bench_sgformer, line, sgformer
from lresnet_paper.bench.sgformer import GRAPHS, RANDOM, available_graphs, measure_sgformer, random_training
from lresnet_paper.pages.benchmark_tables import benchmark_tables
from tests.paper.fake_clock import FakeClock

CPU = torch.device("cpu")


def test_epochs_are_compared_with_the_euclidean_baseline() -> None:
    measured = measure_sgformer("random/50", ["lorentz", "tangent"], CPU, FakeClock(), rounds=2)
    assert [(m.method, m.missing) for m in measured] == [("lorentz", ""), ("tangent", ""), ("euclidean", "")]
    assert [m.faster_than for m in measured] == [{"euclidean": 1.0}, {"euclidean": 1.0}, {}]
    assert measured[0].facts.items() >= {"clock": "fake", "layers": 3, "width": 64}.items()


def test_networks_of_one_size_learn_the_random_graph_of_eight_neighbours_per_node() -> None:
    sizes = {}
    for method in ("lorentz", "euclidean"):
        run = random_training(200, method, CPU)
        assert run.objective.task.edge_index.shape == (2, 200 * 8)
        sizes[method] = {p.shape for p in run.model.branches.parameters()}
        first = run.objective.loss(run.model).item()
        for _ in range(30):
            run.train_epoch()
        assert run.objective.loss(run.model).item() < first
    assert sizes["lorentz"] == sizes["euclidean"]


def test_without_data_the_random_graph_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def require_data(run: object) -> None:
        raise FileNotFoundError("no file")

    monkeypatch.setattr("lresnet_paper.bench.sgformer.require_data", require_data)
    assert available_graphs() == [RANDOM]
    monkeypatch.setattr("lresnet_paper.bench.sgformer.require_data", lambda run: None)
    assert available_graphs() == [*GRAPHS, RANDOM]
    assert "wordnet" in GRAPHS


# --- growing graphs ---------------------------------------------------------------------------------------------------


def quadratic_time(nodes: int, method: str, device: torch.device, tunables: str) -> dict[str, Any]:
    """Return a time that grows with the square of the nodes and a memory that grows with the nodes."""
    if nodes == 500:
        return {"missing": "no memory"}
    return {"seconds": [1e-6 * nodes**2] * 3, "peak": 2**20 * nodes, "clock": "fake"}


def test_growth_is_scaled_to_ten_times_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sgformer, "_in_fresh_process", quadratic_time)
    measured = sgformer.measure_growth([2000, 100, 1000, 500], ["lorentz"], CPU)
    sizes = ("100", "500", "1,000", "2,000")
    assert [m.form for m in measured] == [f"{size} nodes{kept}" for kept in ("", ", kept") for size in sizes]
    measured, kept = measured[:4], measured[4:]
    assert [m.missing for m in measured] == [m.missing for m in kept] == ["", "no memory", "", ""]
    assert measured[0].facts["GLIBC_TUNABLES"] == ""
    assert "mmap_threshold" in kept[0].facts["GLIBC_TUNABLES"]
    assert measured[0].figures == {"nodes": 100, "peak_gibibytes": pytest.approx(100 / 1024)}
    for one in measured[2:]:
        assert one.figures["time_growth"] == pytest.approx(100)
        assert one.figures["memory_growth"] == pytest.approx(10)


def test_a_killed_process_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        returncode = -9

        def __init__(self, command: list[str], **options: object) -> None: ...

        def communicate(self) -> tuple[str, str]:
            return "", ""

    monkeypatch.setattr(subprocess, "Popen", Killed)
    one, _ = sgformer.measure_growth([100], ["lorentz"], CPU)
    assert (one.seconds, one.missing) == (None, "the process ended with code -9 and without a message")


def test_a_fresh_process_prints_its_measurement_or_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    sgformer.print_growth("60", "lorentz", "cpu")
    found = json.loads(capsys.readouterr().out)
    assert len(found["seconds"]) == 3
    assert min(found["seconds"]) > 0
    assert found["clock"] == "process time"
    sgformer.print_growth("60", "lorenz", "cpu")
    assert "did you mean 'lorentz'" in json.loads(capsys.readouterr().out)["missing"]


def test_the_floating_point_operations_of_an_epoch_are_linear_in_the_nodes() -> None:
    """A quadratic attention would need almost 100 times as many on the larger graph."""
    flops = []
    for nodes in (200, 2000):
        run = random_training(nodes, "lorentz", CPU)
        with FlopCounterMode(display=False) as counter:
            run.train_epoch()
        flops.append(counter.get_total_flops())
    assert 9 < flops[1] / flops[0] < 11


@pytest.mark.slow
def test_memory_is_linear_in_the_nodes() -> None:
    """A quadratic attention would need 40 GB on the larger graph."""
    _, large, _, _ = sgformer.measure_growth([10_000, 100_000], ["lorentz"], CPU)
    assert large.figures["memory_growth"] < 12
    assert large.figures["peak_gibibytes"] < 3


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_lines_tables_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sgformer, "_in_fresh_process", quadratic_time)
    monkeypatch.setattr("lresnet_paper.bench.suite.available_graphs", lambda: ["random/40"])
    call = ["bench", "sgformer", "--nodes", "100", "500", "1000", "--rounds", "2", "--device", "cpu"]
    assert cli.main([*call, "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "lorentz_sgformer: random/40" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    lines = list(read_results(tmp_path / "benchmarks.jsonl"))
    assert [(one["study"], one["method"]) for one in lines] == [
        *[("sgformer", method) for method in ("lorentz", "euclidean")],
        *[("scale", method) for method in ("lorentz", "euclidean") for _ in range(6)],
    ]
    assert lines[0]["command"] == "lresnet bench sgformer --nodes 100 500 1000 --rounds 2 --device cpu"
    assert cli.main(["bench", "page", "--results", str(tmp_path), "--out", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "### Training epoch of lorentz_sgformer: random/40" in page
    assert "| 1,000 nodes | 1 | 0% | 0.977 | 100 | 10 |" in page
    assert "Not measured: 500 nodes; 500 nodes, kept (no memory)" in page
    assert "the C library keeps freed memory" in page


def test_the_table_says_whether_the_target_is_met() -> None:
    (measured, baseline) = measure_sgformer("random/40", ["lorentz"], CPU, FakeClock(), rounds=2)
    for ratio, verdict in ((1.29, "meets"), (1.31, "misses")):
        measured.faster_than["euclidean"] = 1 / ratio
        (table,) = benchmark_tables([line(one, "test", CPU) for one in (measured, baseline)])
        assert table.notes == [f"The Lorentz residual {verdict} its target: at most 1.3 times the Euclidean baseline."]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cells": ["chamelon"]}, "unknown graph 'chamelon'; did you mean 'chameleon'"),
        ({"methods": ["spase"]}, "did you mean 'space'"),
        ({"nodes": [1, 100]}, "a graph needs at least 2 nodes, got 1"),
        ({"rounds": 1}, "rounds must be at least 2"),
    ],
)
def test_invalid_options_are_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bench_sgformer(**{"cells": [], "methods": [], "nodes": []} | options, device=CPU)
