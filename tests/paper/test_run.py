"""One run: its key, its model and objective, and its line of results."""

from __future__ import annotations

import json

import pytest
import torch

from lresnet.residual.registry import compared_methods
from lresnet.train import LinkPrediction, NodeClassification
from lresnet_paper.run import Run, build, execute, on_paper_split, run_config

CONFIG = {"hidden": 4, "num_layers": 2, "epochs": 3, "eval_every": 1, "lr": 0.01}


def run(cell: str = "disease_tree/lp", **change: object) -> Run:
    values = {"table": "gnn", "method": "lorentz", "protocol": "disjoint", "seed": 3, "config": CONFIG}
    return Run(**{"cell": cell} | values | change)


def test_the_key_survives_json_and_any_order_of_settings():
    one = run(config={"lr": 0.01, "margin": 2.0, "residual_options": {"weight": "learned"}, "clip": None})
    fields = {name: getattr(one, name) for name in Run.__dataclass_fields__}
    back = Run(**json.loads(json.dumps(fields)))
    assert back.key() == one.key()
    turned = run(config=dict(reversed(one.config.items())))
    assert turned.key() == one.key()
    assert hash(one.key()) == hash(back.key())


@pytest.mark.parametrize(
    "change",
    [
        {"table": "curvature"},
        {"cell": "disease_tree/nc"},
        {"method": "space"},
        {"protocol": "legacy"},
        {"seed": 4},
        {"split": 0},
        {"stage": "search"},
        {"config": CONFIG | {"lr": 0.02}},
        {"config": CONFIG | {"margin": 1.0}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_different_runs_have_different_keys(change):
    assert run(**change).key() != run().key()


@pytest.mark.parametrize(
    ("cell", "protocol", "split", "expected"),
    [
        ("cora/nc", "class-random-deep", 3, ("class-random", 3)),
        ("actor", "fresh_splits", 12, ("fresh_splits", 12)),
        ("actor", "official_splits-released", 3, ("official_splits", 3)),
        ("cora/nc", "legacy-plain", None, ("legacy", None)),
        ("cora/lp", "legacy", None, ("hgcn", None)),
    ],
)
def test_the_split_of_a_run_reaches_its_task(cell, protocol, split, expected):
    task = run_config(run(cell, protocol=protocol, split=split)).task
    assert (task.split, task.split_index) == expected


@pytest.mark.parametrize(
    ("cell", "protocol", "same"),
    [
        ("cora/nc", "legacy-plain", True),
        ("cora/nc", "public", False),
        ("cora/nc", "class-random", False),
        ("airport/nc", "legacy", True),
        ("airport/nc", "hgcn-plain", True),
        ("airport/nc", "disjoint", False),
        ("chameleon", "official_splits-released", True),
        ("chameleon/nc", "fresh_splits", False),
        ("disease/lp/64", "legacy-deep", True),
        ("cifar10", "fast", True),
    ],
)
def test_the_split_of_the_papers_figures(cell, protocol, same):
    assert on_paper_split(cell, protocol) is same


@pytest.mark.parametrize("method", compared_methods())
@pytest.mark.parametrize("cell", ["disease_tree/lp", "disease_tree/nc"])
def test_build_passes_every_setting_to_its_owner(cell, method):
    config = CONFIG | {"margin": 7.0, "loss": "margin", "weight_decay": 0.1, "curvature": -2.0, "dropout": 0.25}
    model, objective, schedule = build(run(cell, method=method, config=config))
    assert isinstance(objective, LinkPrediction if cell.endswith("lp") else NodeClassification)
    assert (objective.margin, objective.kind) == (7.0, "margin")
    assert (schedule.epochs, schedule.lr, schedule.weight_decay, schedule.eval_every) == (3, 0.01, 0.1, 1)
    assert model.config["residual"] == method
    assert (model.config["hidden"], model.config["curvature"], model.config["dropout"]) == (4, -2.0, 0.25)
    assert (model.config["num_classes"] is None) == cell.endswith("lp")


def test_only_the_seed_decides_parameters_and_negatives():
    torch.manual_seed(99)
    a, objective_a, _ = build(run())
    torch.manual_seed(1)
    b, objective_b, _ = build(run())
    c, _, _ = build(run(seed=4))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters(), strict=True))
    assert torch.equal(objective_a.sampler(), objective_b.sampler())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("epochs", 0, "at least 1"),
        ("lr", 0.0, "positive"),
        ("lr", float("inf"), "finite"),
        ("dropout", 1.0, "below 1"),
        ("curvature", 0.5, "negative"),
        ("weight_decay", -0.1, "not negative"),
        ("margin", 0.0, "positive"),
    ],
)
def test_an_invalid_value_is_an_error_with_its_name(name, value, words):
    with pytest.raises(ValueError, match=rf"^{name} must be .*{words}.*, got {value}"):
        build(run(config=CONFIG | {name: value}))


def test_an_unknown_setting_is_an_error():
    with pytest.raises(ValueError, match="'depth' is not a setting of a run"):
        build(run(config=CONFIG | {"depth": 3}))


@pytest.mark.parametrize("cell", ["disease_tree/lp", "disease_tree/nc"])
def test_a_final_run_reads_the_test_set_and_a_search_run_does_not(cell, monkeypatch):
    record, model = execute(run(cell), command="lresnet reproduce gnn")
    assert set(record) >= {
        *("table", "cell", "method", "protocol", "seed", "split", "value", "metrics", "validation"),
        *("config", "command", "versions", "hardware", "seconds", "best_epoch", "epochs"),
    }
    assert record["value"] == next(iter(record["metrics"].values()))
    assert 0 <= record["value"] <= 100
    assert record["command"] == "lresnet reproduce gnn"
    json.dumps(record, allow_nan=False)
    assert not model.training
    again, _ = execute(run(cell), command="lresnet reproduce gnn")
    assert {**again, "seconds": 0} == {**record, "seconds": 0}

    def forbidden(self: object, model: object) -> None:
        raise AssertionError("the test set was read")

    monkeypatch.setattr(LinkPrediction, "test", forbidden)
    monkeypatch.setattr(NodeClassification, "test", forbidden)
    record, _ = execute(run(cell, stage="search"), command="c")
    assert "value" not in record
    assert "metrics" not in record
    assert record["stage"] == "search"
