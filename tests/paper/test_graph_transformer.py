"""The table of graph transformers: its recipes, its ten splits, and runs of lorentz_sgformer."""

from __future__ import annotations

import tomllib
from importlib import resources

import pytest
import torch

from lresnet.data import TASKS, NodeTask, load_task
from lresnet.models import LorentzGCN, LorentzSGFormer
from lresnet.runs import tasks as tasks_of_runs
from lresnet.runs.model_config import SGFormerConfig
from lresnet.runs.search import draw
from lresnet.runs.task_config import GraphTaskConfig
from lresnet.train import TrainConfig
from lresnet.train.results import append_result
from lresnet_paper.plan import FINAL_SEEDS, SEARCH_SEEDS, final_runs, recipe, recipe_cells, search_runs
from lresnet_paper.run import Run, build, complete, execute, graph_cell
from lresnet_paper.sweep import execute_many, group_runs
from tests.paper.settings import settings_of

TABLE = "graph_transformer"
CELLS_OF_TABLE = ("actor", "chameleon", "squirrel")
PAPER = tomllib.loads(resources.files("lresnet_paper").joinpath("tables.toml").read_text())[TABLE]
METHODS = ("parallel_transport", "tangent", "space", "lorentz", "euclidean")
CONFIG = {"model": "lorentz_sgformer", "hidden": 4, "num_layers": 2, "epochs": 4, "eval_every": 2, "lr": 0.01}


def run(seed: int = 0, cell: str = "disease_tree/nc", **change: object) -> Run:
    values = {"table": TABLE, "method": "lorentz", "protocol": "disjoint", "config": CONFIG}
    return Run(**{"cell": cell, "seed": seed} | values | change)


# --- the recipes ------------------------------------------------------------------------------------------------------


def test_cells_and_methods_are_those_of_the_paper():
    assert tuple(recipe_cells(TABLE)) == CELLS_OF_TABLE == tuple(sorted(PAPER["columns"]))
    for cell in CELLS_OF_TABLE:
        assert tuple(recipe(TABLE, cell)["methods"]) == METHODS
        assert set(METHODS) <= set(PAPER)


@pytest.mark.parametrize("cell", CELLS_OF_TABLE)
def test_configurations_are_what_the_stated_seed_draws_and_every_setting_exists(cell):
    plan = recipe(TABLE, cell)
    assert plan["configurations"] == draw(plan["space"], plan["count"], plan["seed"])
    assert len(plan["configurations"]) == 24
    known = settings_of(SGFormerConfig, GraphTaskConfig, TrainConfig) | {"model"}
    assert set(plan["space"]) | set(plan["fixed"]) <= known
    assert not set(plan["space"]) & set(plan["fixed"])
    assert plan["fixed"]["model"] == "lorentz_sgformer"
    assert "only" not in plan  # the same for every method
    assert -1.0 in plan["space"]["curvature"]


STUDIES = [(cell, f"{split}-sgformer") for cell in CELLS_OF_TABLE for split in ("official_splits", "fresh_splits")]


@pytest.mark.parametrize(("cell", "protocol"), STUDIES)
def test_the_recipe_at_sgformers_settings_draws_the_same_for_all_methods(cell, protocol):
    plan = recipe(TABLE, cell, protocol)
    *drawn, published = plan["configurations"]
    assert drawn == draw(plan["space"], plan["count"], plan["seed"], ignoring=["curvature"])
    assert len(drawn) == plan["count"]
    for name in ("lr", "weight_decay", "dropout", "graph_weight", "num_layers"):
        assert {each[name] for each in drawn} == set(plan["space"][name])
    assert set(plan["space"]) <= set(published)  # every method has its own value of each
    known = settings_of(SGFormerConfig, GraphTaskConfig, TrainConfig) | {"model"}
    assert set(published) | set(plan["fixed"]) <= known
    for method in plan["methods"]:
        ignored = () if method == "lorentz" else ("curvature",)
        configs = [complete(plan, method, each, "search") for each in plan["configurations"]]
        kept = {str(sorted((name, one[name]) for name in one if name not in ignored)) for one in configs}
        assert len(kept) == len(plan["configurations"])


@pytest.mark.parametrize("cell", CELLS_OF_TABLE)
def test_fresh_splits_repeat_the_search_of_the_official_ones(cell):
    official, fresh = (recipe(TABLE, cell, f"{split}-sgformer") for split in ("official_splits", "fresh_splits"))
    assert {name for name in official if official[name] != fresh[name]} == {"protocol", "note"}
    runs = search_runs(TABLE, cell, ["lorentz"], official["protocol"])
    assert {(run.seed, run.split) for run in runs} == {(seed, split) for seed in (1000, 1001) for split in range(10)}


def test_every_setting_of_sgformers_command_is_in_the_euclidean_run(tiny):
    plan = recipe(TABLE, "chameleon", "official_splits-sgformer")
    config = complete(plan, "euclidean", plan["configurations"][-1])
    model, _, training = build(
        run(0, "chameleon", method="euclidean", protocol=plan["protocol"], split=0, config=config)
    )
    assert (model.config["graph_input"], model.config["values"]) == ("features", "identity")
    assert (training.lr, training.weight_decay, training.optimizer, training.decay) == (0.001, 0.001, "adam_l2", "all")
    assert (training.epochs, training.patience) == (200, None)
    assert (model.dropout, model.config["hidden"], model.config["num_layers"]) == (0.6, 64, 2)


# --- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", CELLS_OF_TABLE)
def test_search_is_on_two_splits_and_reads_no_test_set(cell):
    runs = search_runs(TABLE, cell)
    assert len(runs) == 24 * len(METHODS) * len(SEARCH_SEEDS)
    assert {(run.seed, run.split) for run in runs} == {(1000, 0), (1001, 1)}
    assert {(run.stage, run.protocol) for run in runs} == {("search", "official_splits")}


def test_final_runs_are_split_i_with_seed_i(tmp_path):
    results = tmp_path / "graph_transformer.jsonl"
    for i, searched in enumerate(search_runs(TABLE, "chameleon", ["lorentz"])):
        record = {name: getattr(searched, name) for name in Run.__dataclass_fields__}
        append_result(results, record | {"validation": float(i)})
    runs = final_runs(TABLE, "chameleon", results)
    assert [(run.seed, run.split) for run in runs] == [(seed, seed) for seed in FINAL_SEEDS]
    assert {run.method for run in runs} == {"lorentz"}
    last = recipe(TABLE, "chameleon")["configurations"][-1]
    assert last.items() <= runs[0].config.items()


def test_other_protocols_have_no_split():
    assert {run.split for run in search_runs("gnn", "cora/nc")} == {None}


# --- cells and models -------------------------------------------------------------------------------------------------


def test_the_name_of_a_data_set_means_its_node_classification():
    assert [graph_cell(name) for name in CELLS_OF_TABLE] == ["actor/nc", "chameleon/nc", "squirrel/nc"]
    assert all(graph_cell(name) == name for name in TASKS)
    assert graph_cell("cifar10") is None


@pytest.fixture
def tiny(monkeypatch) -> list[tuple[str, int]]:
    """Replace chameleon by a small tree, with ten seeds in place of its ten splits."""
    asked: list[tuple[str, int]] = []

    def load(cell: str, index: int | None = None, **_: object) -> NodeTask:
        assert index is not None
        asked.append((cell, index))
        task = load_task("disease_tree/nc", seed=index)
        assert isinstance(task, NodeTask)
        return task

    monkeypatch.setattr(tasks_of_runs, "load_task", load)
    tasks_of_runs._graph_task.cache_clear()
    yield asked
    tasks_of_runs._graph_task.cache_clear()


@pytest.mark.parametrize("method", METHODS)
def test_a_run_trains_the_sgformer_on_its_split(tiny, method):
    line, model = execute(run(3, "chameleon", method=method, protocol="official_splits", split=3), command="test")
    assert tiny == [("chameleon/nc", 3)]
    assert isinstance(model, LorentzSGFormer)
    assert model.config["residual"] == method
    assert (line["table"], line["cell"], line["split"], line["seed"]) == (TABLE, "chameleon", 3, 3)
    assert 0 <= line["value"] <= 100
    assert line["config"]["model"] == "lorentz_sgformer"


@pytest.mark.parametrize("branches", ["euclidean", "lorentz"])
def test_stacked_splits_have_the_results_of_single_runs(tiny, branches):
    config = CONFIG | {"dropout": 0.3, "branches": branches}
    runs = [run(i, "chameleon", protocol="official_splits", split=i, config=config, stage="search") for i in range(3)]
    assert [len(group) for group in group_runs(runs)] == [3]
    for one, (line, model) in zip(runs, execute_many(runs, command="test"), strict=True):
        expected, single = execute(one, command="test")
        assert (line["stacked"], line["split"]) == (3, one.split)
        assert line["validation"] == pytest.approx(expected["validation"], abs=0.1)
        for name, parameter in single.named_parameters():
            if parameter.dim() > 1:
                torch.testing.assert_close(model.get_parameter(name), parameter, rtol=1e-2, atol=1e-3)


def test_lorentz_gcn_is_the_default_and_wrong_names_are_errors():
    plain = {name: value for name, value in CONFIG.items() if name != "model"}
    assert isinstance(build(run(config=plain))[0], LorentzGCN)
    with pytest.raises(ValueError, match="unknown model 'lorentz_sgforme'; did you mean 'lorentz_sgformer'"):
        build(run(config=CONFIG | {"model": "lorentz_sgforme"}))
    with pytest.raises(ValueError, match="heads is not a setting of lorentz_gcn, but of lorentz_sgformer"):
        build(run(config=plain | {"heads": 2}))
    with pytest.raises(ValueError, match=r"graph_weight must be above 0 and below 1, got 1\.5"):
        build(run(config=CONFIG | {"graph_weight": 1.5}))


def test_the_seed_decides_the_parameters():
    a, b, c = (build(run(seed))[0].state_dict()["branches.input.weight"] for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
