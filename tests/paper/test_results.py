"""Lines of results: reading, checking and aggregation, with the paper's values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats

from lresnet.train.results import append_result
from lresnet_paper.results import DIVERGED, aggregate, read_runs
from lresnet_paper.tables import paper_figure

BY_LAYER = ("radius", "distance", "gradient")


def record(value: float | None, **change: object) -> dict[str, object]:
    base = {"table": "gnn", "cell": "disease/lp", "method": "lorentz", "protocol": "legacy", "seed": 0}
    return base | {"stage": "final", "value": value, "validation": None if value is None else 90.0} | change


def test_mean_deviation_and_the_paper():
    (result,) = aggregate([record(96.0), record(97.0, seed=1), record(98.0, seed=2, validation=93.0)])
    assert (result.mean, result.std, result.n, result.diverged) == (97.0, 1.0, 3, 0)
    assert result.validation == pytest.approx(91.0)
    assert (result.paper_mean, result.paper_std) == (97.3, 0.4)
    assert result.verdict == "no difference shown"


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0.7, "no difference shown"), (1.1, "better"), (-1.1, "worse"), (-0.7, "no difference shown")],
)
def test_a_verdict_against_the_paper_holds_for_three_and_for_ten_published_runs(shift, verdict):
    values = [97.3 + shift + noise for noise in (-0.3, -0.1, 0.1, 0.3)]
    (result,) = aggregate([record(value, seed=seed) for seed, value in enumerate(values)])
    assert result.verdict == verdict
    intervals = [
        stats.ttest_ind_from_stats(result.mean, result.std, result.n, 97.3, 0.4, n, equal_var=False).pvalue
        for n in (3, 10)
    ]
    assert (max(intervals) < 0.05) == (verdict != "no difference shown")
    assert min(intervals) < 0.05  # ten published runs alone would decide it


def test_a_single_run_has_no_verdict():
    (result,) = aggregate([record(99.0)])
    assert (result.std, result.verdict) == (0.0, "")


def test_results_on_another_split_have_no_verdict():
    lines = [record(50.0 + seed, seed=seed, cell="airport/nc") for seed in range(3)]
    (legacy,) = aggregate(lines)
    (disjoint,) = aggregate([line | {"protocol": "disjoint"} for line in lines])
    assert (legacy.verdict, disjoint.verdict, disjoint.paper_mean) == ("worse", "", 93.9)


def test_groups_by_table_cell_method_and_protocol_in_order_of_appearance():
    results = aggregate(
        [
            record(1.0, method="space"),
            record(2.0),
            record(3.0, protocol="disjoint"),
            record(4.0, cell="cora/nc"),
            record(5.0, table="curvature"),
            record(6.0, method="space", seed=1),
        ]
    )
    assert [result.mean for result in results] == [3.5, 2.0, 3.0, 4.0, 5.0]


def test_search_runs_do_not_count_and_diverged_runs_are_counted():
    results = aggregate([record(99.0, stage="search"), record(90.0), record(None, seed=1), record(None, seed=2)])
    assert [(result.mean, result.n, result.diverged) for result in results] == [(90.0, 1, 2)]
    assert aggregate([]) == []


def test_values_that_the_paper_does_not_print():
    assert paper_figure("gnn", "disease/lp", "lorentz") == (97.3, 0.4)
    assert paper_figure("gnn", "cora/nc", "none") == (80.2, 1.3)
    for missing in (("gnn", "mars/lp", "lorentz"), ("astrology", "disease/lp", "lorentz"), ("gnn", "cora/nc", "gat")):
        assert paper_figure(*missing) == (None, None)
    (result,) = aggregate([record(90.0, method="gat")])
    assert result.verdict == ""
    json.dumps(result.as_dict(), allow_nan=False)


def test_results_of_a_folder(tmp_path):
    append_result(tmp_path / "gnn.jsonl", record(90.0))
    append_result(tmp_path / "more.jsonl", record(92.0, seed=1))
    append_result(tmp_path / "bench.jsonl", {"milliseconds": 3.0})
    (result,) = aggregate(read_runs(tmp_path))
    assert (result.mean, result.n) == (91.0, 2)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_runs(tmp_path / "nowhere")


def test_every_curvature_has_its_own_result():
    def line(value: float, seed: int, **config: object) -> dict[str, object]:
        facts = {
            "table": "curvature",
            "cell": "disease/lp",
            "method": "lorentz",
            "protocol": "legacy",
            "stage": "final",
        }
        return facts | {"seed": seed, "value": value, "validation": value, "config": config}

    lines = [line(96.0, 0, curvature=-0.5), line(97.0, 1, curvature=-0.5), line(90.0, 0, curvature=-2.0)]
    results = aggregate([*lines, line(80.0, 0, curvature=-1.0, learn_curvature=True)])
    assert [(one.name, one.mean, one.n, one.paper_mean) for one in results] == [
        ("lorentz, K = -0.5", 96.5, 2, 96.7),
        ("lorentz, K = -2.0", 90.0, 1, 97.3),
        ("lorentz, K = trainable", 80.0, 1, 96.5),
    ]
    assert results[0].as_dict()["curvature"] == "-0.5"


def test_one_run_has_no_deviation_in_json():
    alone, two = (aggregate([record(float(seed), seed=seed) for seed in range(n)])[0].as_dict() for n in (1, 2))
    assert (alone["mean"], alone["std"], alone["n"]) == (0.0, None, 1)
    assert two["std"] == pytest.approx(0.5**0.5)


def test_both_directions_of_parallel_transport_find_their_rows():
    assert paper_figure("commutativity", "disease/lp", "parallel_transport") == (86.8, 0.8)
    assert paper_figure("commutativity", "disease/lp", "parallel_transport_reversed") == (67.7, 1.4)


def test_a_method_whose_runs_all_diverged_has_a_result():
    (result,) = aggregate([record(None), record(None, seed=1)])
    assert (result.n, result.diverged, result.runs, result.verdict) == (0, 2, "0 of 2", DIVERGED)
    assert result.mean != result.mean
    read = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert (read["mean"], read["std"], read["n"], read["paper"]["mean"]) == (None, None, 0, 97.3)


@pytest.mark.parametrize(
    "change",
    [
        {"value": "80"},
        {"value": True},
        {"value": float("nan")},
        {"cell": 3},
        {"config": []},
        {"seconds": "1"},
        {"seed": [0]},
        {"split": {}},
        {"command": None},
        {"hardware": 3},
        {"note": 3},
        {"table": "curvature", "config": {"curvature": "-1"}},
        {"table": "oversmoothing", "cell": "cora/lp/2", "layers": None},
        {"table": "oversmoothing", "cell": "cora/lp/2", "layers": {"radius": [1.0, 1.0]}},
        {"table": "oversmoothing", "cell": "cora/lp/2", "initial_layers": {name: [1.0] for name in BY_LAYER}},
        {"table": "ood", "cell": "cifar10"},
        {"table": "ood", "cell": "cifar10/svhn/r20", "metrics": {"auroc": 80.0}},
    ],
)
def test_a_line_from_another_version_is_skipped_with_a_warning(change: dict[str, object], tmp_path: Path) -> None:
    good = {"table": "gnn", "cell": "cora/nc", "method": "none", "protocol": "legacy", "seed": 0, "value": 80.0}
    (tmp_path / "gnn.jsonl").write_text(json.dumps(good) + "\n" + json.dumps(good | change) + "\n")
    with pytest.warns(UserWarning, match=r"gnn\.jsonl: skipped the run \w+, .*: not in the format of this version"):
        assert read_runs(tmp_path) == [good]


def test_a_timing_marked_missing_is_not_a_diverged_run(tmp_path: Path) -> None:
    run = {
        "table": "runtime",
        "cell": "2048/10000",
        "method": "lorentz",
        "protocol": "kernels",
        "seed": 0,
        "value": 1.0,
    }
    none = run | {"protocol": "geoopt", "value": None, "missing": "geoopt has no such operation"}
    (tmp_path / "runtime.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (run | {"missing": ""}, none)))
    assert [found["protocol"] for found in read_runs(tmp_path)] == ["kernels"]


def test_the_later_line_of_a_repeated_run_counts(tmp_path: Path) -> None:
    run = {"table": "gnn", "cell": "cora/nc", "method": "none", "protocol": "legacy", "seed": 0, "value": 80.0}
    same = run | {"value": 70.0, "stage": "final", "split": None, "hardware": "another"}
    others = [run | {"seed": 1}, run | {"config": {"lr": 0.1}}, run | {"stage": "search"}]
    (tmp_path / "gnn.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (run, *others, same)))
    assert read_runs(tmp_path) == [same, *others]
