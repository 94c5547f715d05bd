"""Keys of recipes of a study: splits times seeds, selection by a smoothed curve, methods with names of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lresnet.models import LorentzSGFormer
from lresnet.train.results import append_result
from lresnet_paper import plan as plans
from lresnet_paper.plan import final_runs, search_runs
from lresnet_paper.run import Run, build, complete, execute, run_config

RECIPE: dict[str, Any] = {
    "protocol": "official_splits-study",
    "methods": ["lorentz", "lorentz_limit", "euclidean"],
    "select": "smoothed",
    "search_seeds": [1000, 1001],
    "search_splits": [0, 4, 7],
    "final_seeds": [0, 1],
    "splits": [3, 5, 9],
    "fixed": {"model": "lorentz_sgformer", "epochs": 4},
    "space": {"lr": [0.01, 0.1], "curvature": [-1.0, -4.0]},
    "configurations": [{"lr": 0.01, "curvature": -4.0}, {"lr": 0.1, "curvature": -1.0}],
    "only": {"lorentz_limit": {"residual": "lorentz"}},
    "own": {"lorentz": {"lr": [0.001, 0.02]}, "lorentz_limit": {"lr": [0.001, 0.02], "curvature": -1e-6}},
}


@pytest.fixture
def recipe(monkeypatch) -> dict[str, Any]:
    """The recipe of a cell, to be changed by a test."""
    own = dict(RECIPE)
    monkeypatch.setattr(plans, "recipe", lambda table, cell, protocol=None: own)
    return own


def searched(results: Path, scores: dict[float, tuple[float, float]]) -> None:
    """Write lines of a complete search: ``validation`` and ``validation_smoothed`` by learning rate."""
    for run in search_runs("study", "chameleon"):
        maximum, smoothed = scores[run.config["lr"]]
        record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
        append_result(results, record | {"validation": maximum, "validation_smoothed": smoothed})


# --- which runs -------------------------------------------------------------------------------------------------------


def test_the_search_runs_every_split_with_every_seed(recipe):
    runs = search_runs("study", "chameleon", ["euclidean"])
    pairs = [(run.seed, run.split) for run in runs if run.config["lr"] == 0.01]
    assert pairs == [(seed, split) for seed in (1000, 1001) for split in (0, 4, 7)]
    assert len({run.key() for run in runs}) == len(runs) == 2 * len(pairs)


def test_final_runs_are_every_split_with_every_seed(recipe, tmp_path):
    results = tmp_path / "study.jsonl"
    searched(results, {0.001: (70.0, 60.0), 0.02: (60.0, 50.0), 0.01: (70.0, 60.0), 0.1: (60.0, 50.0)})
    pairs = [(run.seed, run.split) for run in final_runs("study", "chameleon", results, ["lorentz"])]
    assert pairs == [(seed, split) for seed in (0, 1) for split in (3, 5, 9)]
    pairs = [(run.seed, run.split) for run in final_runs("study", "chameleon", results, ["lorentz"], seeds=[8])]
    assert pairs == [(8, 3), (8, 5), (8, 9)]


def test_one_missing_pair_of_seed_and_split_is_an_incomplete_search(recipe, tmp_path):
    results = tmp_path / "study.jsonl"
    for run in search_runs("study", "chameleon", ["euclidean"])[:-1]:
        record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
        append_result(results, record | {"validation": 1.0, "validation_smoothed": 1.0})
    assert final_runs("study", "chameleon", results, ["euclidean"]) == []


def test_without_splits_the_seed_decides_the_split(recipe):
    del recipe["search_splits"]
    recipe["search_seeds"] = [1000, 1013]
    pairs = {(run.seed, run.split) for run in search_runs("study", "chameleon")}
    assert pairs == {(1000, 0), (1013, 3)}


# --- selection --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "lr"), [("smoothed", 0.1), ("maximum", 0.01)])
def test_the_recipe_names_what_selects(recipe, tmp_path, rule, lr):
    recipe["select"], results = rule, tmp_path / "study.jsonl"
    searched(results, {0.01: (70.0, 50.0), 0.1: (60.0, 55.0), 0.001: (70.0, 50.0), 0.02: (60.0, 55.0)})
    assert {run.config["lr"] for run in final_runs("study", "chameleon", results, ["euclidean"])} == {lr}


def test_an_unknown_rule_is_an_error(recipe, tmp_path):
    recipe["select"], results = "mean", tmp_path / "study.jsonl"
    searched(results, {0.01: (1.0, 1.0), 0.1: (2.0, 2.0), 0.001: (1.0, 1.0), 0.02: (2.0, 2.0)})
    with pytest.raises(ValueError, match="select must be one of maximum, minimum, smoothed, got 'mean'"):
        final_runs("study", "chameleon", results)


@pytest.mark.parametrize("stage", ["search", "final"])
def test_a_line_has_the_smoothed_validation_score(stage):
    config = {"model": "lorentz_sgformer", "hidden": 4, "num_layers": 2, "epochs": 6, "eval_every": 1, "lr": 0.05}
    line, _ = execute(Run("study", "disease_tree/nc", "euclidean", "disjoint", 0, config, stage=stage), command="test")
    assert 0 < line["validation_smoothed"] <= line["validation"]


# --- methods ----------------------------------------------------------------------------------------------------------


def test_a_method_has_its_own_values_in_the_order_of_the_space():
    low, high = RECIPE["configurations"]
    assert complete(RECIPE, "lorentz", low)["lr"] == 0.001
    assert complete(RECIPE, "lorentz", high) == RECIPE["fixed"] | {"lr": 0.02, "curvature": -1.0}
    assert complete(RECIPE, "euclidean", high) == RECIPE["fixed"] | high
    limit = {"lr": 0.02, "curvature": -1e-6, "residual": "lorentz"}
    assert complete(RECIPE, "lorentz_limit", high) == RECIPE["fixed"] | limit


def test_a_method_may_name_its_residual():
    config = complete(RECIPE, "lorentz_limit", RECIPE["configurations"][0])
    run = Run("study", "disease_tree/nc", "lorentz_limit", "disjoint", 0, config)
    assert run_config(run).model.residual == "lorentz"
    model = build(run)[0]
    assert isinstance(model, LorentzSGFormer)
    assert model.config["residual"] == "lorentz"
    assert float(model.manifold.K) == pytest.approx(-1e-6)


def test_a_line_keeps_the_name_of_its_method():
    config = complete(RECIPE, "lorentz_limit", RECIPE["configurations"][0]) | {"hidden": 4, "num_layers": 2}
    line, _ = execute(Run("study", "disease_tree/nc", "lorentz_limit", "disjoint", 0, config), command="test")
    assert line["method"] == "lorentz_limit"
    assert line["config"]["residual"] == "lorentz"
