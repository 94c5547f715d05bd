"""The measurement of test-selected epochs: what its lines hold, and that no table of results reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lresnet.data import NodeTask, load_task
from lresnet.runs import tasks as tasks_of_runs
from lresnet_paper import selected_on_test
from lresnet_paper.__main__ import main
from lresnet_paper.pages.results_page import markdown_page
from lresnet_paper.results import aggregate, read_runs
from lresnet_paper.run import Run, execute
from lresnet_paper.selected_on_test import published_config, run_selected_on_test, selections

CONFIG = published_config("chameleon") | {"hidden": 4, "epochs": 12, "lr": 0.05}


@pytest.fixture
def tiny(monkeypatch) -> None:
    """Replace chameleon by a small tree with one seed for each split, and the published settings by small ones."""

    def load(cell: str, index: int | None = None, **_: object) -> NodeTask:
        assert index is not None
        task = load_task("disease_tree/nc", seed=index)
        assert isinstance(task, NodeTask)
        return task

    monkeypatch.setattr(tasks_of_runs, "load_task", load)
    monkeypatch.setattr(selected_on_test, "published_config", lambda cell, method, epochs: CONFIG | {"epochs": epochs})
    tasks_of_runs._graph_task.cache_clear()
    yield
    tasks_of_runs._graph_task.cache_clear()


def test_both_scores_are_of_one_training(tiny) -> None:
    line = run_selected_on_test("chameleon", CONFIG, "euclidean", 3, command="test")
    run = Run("graph_transformer", "chameleon", "euclidean", "official_splits", 3, CONFIG, 3)
    expected, _ = execute(run, command="test")
    assert line["test_at_best_validation"] == expected["value"]  # reading the test set changes nothing
    assert (line["best_epoch"], line["validation"]) == (expected["best_epoch"], expected["validation"])
    assert line["highest_test"] >= line["test_at_best_validation"]
    assert 1 <= line["highest_test_epoch"] <= line["epochs"] == 12


def test_no_table_of_results_reads_the_lines(tiny, tmp_path: Path) -> None:
    line = run_selected_on_test("chameleon", CONFIG, "euclidean", 0, command="test")
    assert "value" not in line
    (tmp_path / "selected_on_test.jsonl").write_text(json.dumps(line) + "\n")
    assert read_runs(tmp_path) == []
    assert aggregate([line]) == []


def test_the_verb_measures_what_is_missing_and_prints_both_scores(tiny, tmp_path: Path, capsys) -> None:
    out = tmp_path / "selected_on_test.jsonl"
    call = ["selected_on_test", "--cells", "chameleon", "--epochs", "4", "--device", "cpu", "--out", str(out)]
    assert main(call) == 0
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert [(line["split"], line["seed"]) for line in lines] == [(i, i) for i in range(10)]
    assert "highest test" in capsys.readouterr().out
    out.write_text("".join(json.dumps(line) + "\n" for line in lines[1:]))
    assert main(call) == 0
    assert [json.loads(text)["split"] for text in out.read_text().splitlines()] == [*range(1, 10), 0]


def test_an_unknown_cell_or_method_is_an_error(capsys) -> None:
    assert main(["selected_on_test", "--cells", "cora"]) != 0
    assert "unknown cell 'cora'" in capsys.readouterr().err
    assert main(["selected_on_test", "--methods", "tangent"]) != 0
    assert "unknown method 'tangent'" in capsys.readouterr().err


def line(honest: float, highest: float, split: int = 0, **change: Any) -> dict[str, Any]:
    place = {"table": "selected_on_test", "cell": "chameleon", "method": "euclidean", "split": split, "hardware": "CPU"}
    return (
        place
        | {"config": {"epochs": 200}}
        | {"test_at_best_validation": honest, "highest_test": highest, "command": "test"}
        | change
    )


def test_the_results_page_names_the_figures_as_a_measurement() -> None:
    lines = [line(44.0, 47.0), line(42.0, 47.0, 1)]
    lines += [line(41.0, 49.0, method="lorentz"), line(42.0, 45.0, 1, method="lorentz")]
    place = {"table": "graph_transformer", "cell": "actor", "protocol": "official_splits"}
    final = [place | {"method": "lorentz", "seed": 0, "value": 36.0}]
    page = markdown_page(final, selected=selections(lines))
    assert "Choosing the epoch on the test set adds 4.0 to 5.5 points here. This is a measurement and not" in page
    rows = [row for row in page.splitlines() if row.startswith("| chameleon ")]
    assert rows == [
        "| chameleon | euclidean | 200 | 2 | 43.00 ± 1.41 | 47.00 ± 0.00 | +4.00 ± 17.20 | 44.9 ± 3.9 |",
        "| chameleon | lorentz | 200 | 2 | 41.50 ± 0.71 | 47.00 ± 2.83 | +5.50 ± 43.01 | 47.8 ± 1.3 |",
    ]
    assert "on the test set adds" not in markdown_page(final)


def test_means_and_gain_by_hand() -> None:
    lines = [line(44.0, 47.0, 0), line(42.0, 47.0, 1), line(43.0, 47.0, 2), line(10.0, 20.0, cell="squirrel")]
    chameleon, squirrel, longer = selections([*lines, {"table": "gnn"}, line(50.0, 51.0, config={"epochs": 500})])
    assert (chameleon.epochs, longer.epochs, longer.by_test.n) == (200, 500, 1)
    assert (chameleon.by_validation.mean, chameleon.by_test.mean, chameleon.by_test.n) == (43.0, 47.0, 3)
    assert chameleon.gain is not None
    half_width = 4.302653 * (1 / 3 + 20 / 48) ** 0.5  # the deviation of the gains is 1
    assert (chameleon.gain.mean, chameleon.gain.half_width) == pytest.approx((4.0, half_width), rel=1e-6)
    assert (squirrel.by_test.mean, squirrel.gain) == (20.0, None)
