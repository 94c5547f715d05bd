"""The benchmark of the Lorentz SGFormer: implementations, sizes, figures; tiny graphs, nothing is really timed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from lresnet import cli
from lresnet.train.results import read_results
from lresnet_paper.bench import bench_sgformer, line
from lresnet_paper.bench import sgformer as scale
from lresnet_paper.bench.sgformer import GRAPHS, RANDOM, available_graphs, measure_sgformer, random_training
from lresnet_paper.pages.benchmark_tables import markdown_sheet, sheets
from tests.paper.fake_clock import TaskClock

CPU = torch.device("cpu")


def test_epochs_beside_the_twin() -> None:
    measured = measure_sgformer("random/50", ["lorentz", "tangent"], CPU, TaskClock(), rounds=2)
    assert [(m.method, m.missing) for m in measured] == [("lorentz", ""), ("tangent", ""), ("euclidean", "")]
    assert [m.faster_than for m in measured] == [{"euclidean": 1.0}, {"euclidean": 1.0}, {}]
    assert measured[0].facts.items() >= {"clock": "fake", "layers": 3, "width": 64}.items()


def test_the_random_graph_has_eight_neighbours_a_node_and_networks_of_one_size_learn_it() -> None:
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


def test_without_data_the_random_graph_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def task(run: object) -> None:
        raise FileNotFoundError("no file")

    monkeypatch.setattr("lresnet_paper.bench.sgformer.graph_task", task)
    assert available_graphs() == [RANDOM]
    monkeypatch.setattr("lresnet_paper.bench.sgformer.graph_task", lambda run: None)
    assert available_graphs() == [*GRAPHS, RANDOM]
    assert "wordnet" in GRAPHS


# --- growing graphs ---------------------------------------------------------------------------------------------------


def by_formula(nodes: int, method: str, device: torch.device, tunables: str) -> dict[str, Any]:
    """Time that grows with the square, memory that grows with the nodes."""
    if nodes == 500:
        return {"missing": "no memory"}
    return {"seconds": [1e-6 * nodes**2] * 3, "peak": 2**20 * nodes, "clock": "fake"}


def test_growth_is_told_for_ten_times_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "_in_fresh_process", by_formula)
    measured = scale.measure_growth([2000, 100, 1000, 500], ["lorentz"], CPU)
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


def test_a_process_that_is_ended_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        returncode = -9

        def __init__(self, command: list[str], **options: object) -> None: ...

        def communicate(self) -> tuple[str, str]:
            return "", ""

    monkeypatch.setattr(subprocess, "Popen", Killed)
    one, _ = scale.measure_growth([100], ["lorentz"], CPU)
    assert (one.seconds, one.missing) == (None, "the process ended with code -9 and without a message")


def test_what_a_fresh_process_prints(capsys: pytest.CaptureFixture[str]) -> None:
    scale.print_growth("60", "lorentz", "cpu")
    found = json.loads(capsys.readouterr().out)
    assert len(found["seconds"]) == 3
    assert min(found["seconds"]) > 0
    assert found["clock"] == "process time"
    scale.print_growth("60", "lorenz", "cpu")
    assert "did you mean 'lorentz'" in json.loads(capsys.readouterr().out)["missing"]


@pytest.mark.slow
def test_time_and_memory_are_linear_in_the_nodes() -> None:
    """A quadratic attention would take 100 times as long, and 40 GB, on the larger one."""
    _, large, _, _ = scale.measure_growth([10_000, 100_000], ["lorentz"], CPU)
    assert large.figures["time_growth"] < 20
    assert large.figures["memory_growth"] < 12
    assert large.figures["peak_gibibytes"] < 3


# --- the command ------------------------------------------------------------------------------------------------------


def test_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "_in_fresh_process", by_formula)
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
    assert "### A training epoch of lorentz_sgformer: random/40" in page
    assert "| 1,000 nodes | 1 | 0% | 0.977 | 100 | 10 |" in page
    assert "-: 500 nodes, 500 nodes, kept (no memory)" in page
    assert "kept: memory is not given back" in page


def test_the_bar_is_in_the_sheet() -> None:
    (measured, twin) = measure_sgformer("random/40", ["lorentz"], CPU, TaskClock(), rounds=2)
    for ratio, verdict in ((1.29, "met"), (1.31, "missed")):
        measured.faster_than["euclidean"] = 1 / ratio
        (sheet,) = sheets([line(one, "test", CPU) for one in (measured, twin)])
        assert f"lorentz: at most 1.3 times the twin is {verdict}." in markdown_sheet(sheet)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cells": ["chamelon"]}, "unknown graph 'chamelon'; did you mean 'chameleon'"),
        ({"methods": ["spase"]}, "did you mean 'space'"),
        ({"nodes": [1, 100]}, "a graph needs at least 2 nodes, got 1"),
        ({"rounds": 1}, "rounds must be at least 2"),
    ],
)
def test_wrong_calls(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bench_sgformer(**{"cells": [], "methods": [], "nodes": []} | options, device=CPU)
