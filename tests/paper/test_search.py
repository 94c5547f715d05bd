"""Recipes: configurations drawn once from the stated space, and selected on validation data."""

from __future__ import annotations

import pytest

from lresnet.residual.registry import compared_methods
from lresnet.runs.model_config import GCNConfig, SGFormerConfig
from lresnet.runs.search import best_configuration, draw, smoothed_best
from lresnet.runs.task_config import GraphTaskConfig
from lresnet.train import TrainConfig
from lresnet_paper.plan import FINAL_SEEDS, SEARCH_SEEDS, protocols, recipe, recipe_cells
from lresnet_paper.run import split_name
from tests.paper.settings import settings_of

CELLS = recipe_cells("gnn")
PLANS = [(cell, protocol) for cell in CELLS for protocol in protocols("gnn", cell)]


# --- the recipes ------------------------------------------------------------------------------------------------------


def test_the_three_cells_have_a_recipe():
    assert {"disease/lp", "airport/lp", "cora/nc"} <= set(CELLS)


@pytest.mark.parametrize(("cell", "protocol"), PLANS)
def test_configurations_are_what_the_stated_seed_draws(cell, protocol):
    plan = recipe("gnn", cell, protocol)
    assert plan["configurations"] == draw(plan["space"], plan["count"], plan["seed"])
    assert 1 <= len(plan["configurations"]) <= 24


@pytest.mark.parametrize(("cell", "protocol"), PLANS)
def test_every_setting_exists(cell, protocol):
    plan = recipe("gnn", cell, protocol)
    known = settings_of(GCNConfig, GraphTaskConfig, TrainConfig)
    used = set(plan["space"]) | set(plan["fixed"])
    for options in plan.get("only", {}).values():
        used |= set(options)
    assert used <= known
    assert not set(plan["space"]) & set(plan["fixed"])
    assert set(plan.get("only", {})) <= set(compared_methods())
    assert split_name(plan["protocol"]) in ("legacy", "disjoint", "official", "official_splits")
    assert not set(plan.get("search_seeds", ())) & set(FINAL_SEEDS)


@pytest.mark.parametrize("cell", ["cora/nc", "pubmed/nc"])
def test_the_second_recipe_is_selected_by_name(cell):
    third = ["legacy-hyperplane"] * (cell == "cora/nc")
    assert protocols("gnn", cell) == ["legacy", *third, "legacy-plain"]
    assert recipe("gnn", cell)["protocol"] == "legacy"
    plain = recipe("gnn", cell, "legacy-plain")
    assert (plain["fixed"]["layer"], plain["fixed"]["optimizer"]) == ("space", "adam_l2")
    for name in third:  # the same configurations with another layer
        other = recipe("gnn", cell, name)
        assert other["configurations"] == plain["configurations"]
        assert other["fixed"] == plain["fixed"] | {"layer": "hyperplane"}


def test_the_second_recipe_of_chameleons_transformer_is_what_its_seed_draws():
    later = ["fresh_splits-sgformer", "official_splits-released", "official_splits-sgformer"]
    assert protocols("graph_transformer", "chameleon") == ["official_splits", *later]
    plan = recipe("graph_transformer", "chameleon", "official_splits-released")
    assert plan["configurations"] == draw(plan["space"], plan["count"], plan["seed"])
    known = settings_of(SGFormerConfig, GraphTaskConfig, TrainConfig) | {"model"}
    assert set(plan["space"]) | set(plan["fixed"]) <= known


def test_every_recipe_of_every_table_can_be_read():
    for table in ("gnn", "commutativity", "curvature", "graph_transformer", "image_classification", "demo"):
        for cell in recipe_cells(table):
            plan = recipe(table, cell)
            assert {"protocol"} < plan.keys()
            assert ("configurations" in plan) != ("variants" in plan)
            assert len(plan.get("configurations", [])) == plan.get("count", 0)


@pytest.mark.parametrize("cell", ["disease/lp", "airport/lp"])
def test_both_directions_of_parallel_transport_have_the_configurations_of_the_table_gnn(cell):
    assert recipe("commutativity", cell)["configurations"] == recipe("gnn", cell)["configurations"]


def test_search_seeds_are_not_final_seeds():
    assert not set(SEARCH_SEEDS) & set(FINAL_SEEDS)
    assert len(set(SEARCH_SEEDS)) == 2
    assert len(set(FINAL_SEEDS)) == 10


def test_an_unknown_recipe_is_an_error_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no recipe for gnn mars/lp; there are: .*disease_lp"):
        recipe("gnn", "mars/lp")
    with pytest.raises(ValueError, match="there are: none"):
        recipe("astrology", "mars/lp")


# --- draw -------------------------------------------------------------------------------------------------------------


def test_draws_differ_from_each_other_and_follow_the_seed():
    space = {"a": [1, 2, 3], "b": ["x", "y"], "c": [0.1, 0.2]}
    drawn = draw(space, 8, seed=1)
    assert len(drawn) == 8
    assert all(drawn.count(configuration) == 1 for configuration in drawn)
    assert all(configuration[name] in space[name] for configuration in drawn for name in space)
    assert drawn == draw(space, 8, seed=1)
    assert drawn != draw(space, 8, seed=2)
    assert drawn[:3] == draw(space, 3, seed=1)


def test_a_small_space_is_drawn_completely():
    space = {"a": [1, 2], "b": [3]}
    drawn = draw(space, 24, seed=0)
    assert sorted(configuration["a"] for configuration in drawn) == [1, 2]


def test_every_value_is_drawn_about_as_often():
    space = {"a": list(range(5)), "b": list(range(200))}
    drawn = draw(space, 500, seed=3)
    for value in range(5):
        assert 60 <= sum(configuration["a"] == value for configuration in drawn) <= 140


def test_settings_that_are_ignored_do_not_make_two_configurations():
    space = {"a": [1, 2, 3], "b": ["x", "y"], "K": [-1.0, -4.0]}
    drawn = draw(space, 24, seed=1, ignoring=["K"])
    assert sorted((each["a"], each["b"]) for each in drawn) == [(a, b) for a in (1, 2, 3) for b in ("x", "y")]
    assert {each["K"] for each in drawn} == {-1.0, -4.0}
    assert drawn[:4] == draw(space, 4, seed=1, ignoring=["K"])


# --- the choice -------------------------------------------------------------------------------------------------------


def record(lr: float, validation: float | None, **other: object) -> dict[str, object]:
    return {"config": {"lr": lr, "hidden": 15}, "validation": validation, "value": 99.0, **other}


def test_the_best_mean_validation_score_wins_whatever_the_test_score_is():
    records = [record(0.1, 90.0), record(0.2, 80.0, value=100.0), record(0.1, 70.0), record(0.2, 81.0, value=100.0)]
    assert best_configuration(records) == {"lr": 0.2, "hidden": 15}


def test_ties_are_won_by_the_earlier_configuration():
    assert best_configuration([record(0.3, 80.0), record(0.1, 80.0)])["lr"] == 0.3


def test_the_order_of_settings_does_not_matter():
    records = [
        {"config": {"a": 1, "b": 2}, "validation": 90.0},
        {"config": {"b": 2, "a": 1}, "validation": 50.0},
        {"config": {"a": 1, "b": 3}, "validation": 80.0},
    ]
    assert best_configuration(records)["b"] == 3


def test_a_configuration_that_diverged_once_is_never_chosen():
    records = [record(0.1, 99.0), record(0.1, None), record(0.2, 50.0), record(0.2, 51.0)]
    assert best_configuration(records)["lr"] == 0.2


def test_no_search_run_is_an_error():
    with pytest.raises(ValueError, match="there are no search runs to choose from"):
        best_configuration([])


def test_the_choice_may_be_by_another_metric():
    records = [record(0.1, 90.0, validation_smoothed=70.0), record(0.2, 80.0, validation_smoothed=75.0)]
    assert best_configuration(records, "validation_smoothed")["lr"] == 0.2
    diverged = [record(0.2, None, validation_smoothed=None)]
    assert best_configuration(records + diverged, "validation_smoothed")["lr"] == 0.1


# --- the smoothed validation score ------------------------------------------------------------------------------------


def curve(*scores: float) -> list[tuple[int, float]]:
    return [(5 * i, score) for i, score in enumerate(scores, 1)]


def test_the_smoothed_score_is_the_highest_mean_of_five_passes():
    scores = [50.0, 91.0, 52.0, 60.0, 61.0, 63.0, 62.0, 70.0, 58.0, 57.0]
    windows = [sum(scores[i - 2 : i + 3]) / 5 for i in range(2, 8)]
    assert smoothed_best(curve(*scores)) == pytest.approx(max(windows))


def test_one_outlier_counts_a_fifth():
    assert smoothed_best(curve(*[60.0] * 10, 100.0, *[60.0] * 10)) == pytest.approx(68.0)


def test_a_short_curve_is_averaged_whole():
    assert smoothed_best(curve(60.0, 80.0, 70.0)) == pytest.approx(70.0)
    assert smoothed_best(curve(60.0)) == 60.0
    assert smoothed_best([]) is None
