"""A search at every depth that starts from the settings chosen for shallow networks."""

import pytest

from lresnet.train.results import append_result
from lresnet_paper.plan import cell_plan, cells_of, final_runs, recipe, search_runs


def test_a_configuration_changes_the_settings_chosen_for_shallow_networks():
    chosen = recipe("gnn", "disease/lp")["chosen"]["lorentz"]
    runs = search_runs("oversmoothing", "disease/lp/32", ["lorentz"], "legacy-deep")
    assert len(runs) == 4 * 2
    for run in runs:
        assert run.config["num_layers"] == 32
        assert run.config["epochs"] == 500
        assert run.config["margin"] == chosen["margin"]
    assert {run.config.get("weight") for run in runs} == {None, 1 / 32}


def test_the_best_configuration_runs_on_all_seeds_for_all_epochs(tmp_path):
    file = tmp_path / "oversmoothing.jsonl"
    for run in search_runs("oversmoothing", "disease/lp/16", ["lorentz"], "legacy-deep"):
        good = run.config.get("weight") == 1 / 16 and run.config["lr"] == 0.002
        append_result(file, run.__dict__ | {"validation": 90.0 if good else 80.0})
    runs = final_runs("oversmoothing", "disease/lp/16", file, ["lorentz"], protocol="legacy-deep")
    assert [run.seed for run in runs] == [0, 1, 2, 3, 4]
    assert {(run.config["weight"], run.config["lr"], run.config["epochs"]) for run in runs} == {(1 / 16, 0.002, 1500)}


def test_recipes_without_a_search_at_depth_are_unchanged():
    assert [variant["num_layers"] for variant in cell_plan("oversmoothing", "disease/lp/64")["variants"]] == [64]
    assert "configurations" in cell_plan("gnn", "disease/lp")


def test_cells_of_a_protocol():
    assert "disease/lp/4" in cells_of("oversmoothing")
    assert "disease/lp/4" not in cells_of("oversmoothing", "legacy-deep")
    assert cells_of("gnn", "disjoint") == ["airport/nc", "disease_tree/nc"]
    with pytest.raises(ValueError, match="no cell of gnn has a recipe with protocol nosuch"):
        cells_of("gnn", "nosuch")


def test_a_search_without_a_depth_is_an_error():
    with pytest.raises(ValueError, match=r"name one, e\.g\. disease/lp/16"):
        cell_plan("oversmoothing", "disease/lp", "legacy-deep")
