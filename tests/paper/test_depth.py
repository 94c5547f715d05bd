"""The table of depths: its cells, its runs, and the diagnosis of layers."""

import dataclasses
from pathlib import Path

import pytest
import torch

from lresnet.metrics import roc_auc
from lresnet.models import create_model
from lresnet.residual.registry import compared_methods
from lresnet.train import NonFiniteError
from lresnet.train.results import read_results
from lresnet_paper import sweep
from lresnet_paper.depth import diagnose, training_state
from lresnet_paper.plan import cells_of, final_runs, plan_of, recipe, search_runs
from lresnet_paper.run import Run, build, complete, depth_cell, graph_cell, split_depth
from lresnet_paper.sweep import run_all

DEPTHS = [4, 8, 16, 32, 64]
NOWHERE = Path("no.jsonl")  # runs on graphs write no checkpoint next to their results
CONFIG = {"hidden": 4, "num_layers": 4, "epochs": 4, "eval_every": 2, "lr": 0.01, "curvature": -2.0}


def run(seed: int = 0, method: str = "lorentz", **change: object) -> Run:
    return Run("oversmoothing", "disease_tree/lp/4", method, "disjoint", seed, CONFIG | change)


# --- names and plans --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["disease/lp", "chameleon", "2048/10000", "cifar10/svhn/20", "disease/lp/x"])
def test_cells_without_a_depth_are_unchanged(cell):
    assert split_depth(cell) == (cell, None)


def test_a_depth_does_not_change_the_data_of_a_cell():
    assert split_depth(depth_cell("airport/lp", 16)) == ("airport/lp", 16)
    assert graph_cell("airport/lp/16") == "airport/lp"
    assert cells_of("gnn").count("disease/lp") == 1
    assert cells_of("oversmoothing") == [f"{data}/lp/{layers}" for data in ("airport", "disease") for layers in DEPTHS]


@pytest.mark.parametrize("cell", ["disease/lp", "airport/lp"])
def test_only_the_number_of_layers_differs_from_the_settings_chosen_in_gnn(cell, tmp_path):
    runs, like = final_runs("oversmoothing", cell, tmp_path / "o.jsonl"), recipe("gnn", cell)
    assert search_runs("oversmoothing", cell) == []
    assert len({one.key() for one in runs}) == len(runs) == 7 * len(DEPTHS) * 5
    assert {one.method for one in runs} == {*compared_methods(), "parallel_transport_textbook"}
    assert {one.seed for one in runs} == set(range(5))
    for one in runs:
        method = one.method.removesuffix("_textbook")
        assert one.config == complete(like, method, like["chosen"][method]) | {"num_layers": one.config["num_layers"]}
        assert one.cell == f"{cell}/{one.config['num_layers']}"
        assert one.protocol == like["protocol"]


def test_one_depth_and_some_seeds(tmp_path):
    runs = final_runs("oversmoothing", "disease/lp/16", tmp_path / "o.jsonl", ["lorentz"], [7])
    assert [(one.cell, one.seed, one.config["num_layers"]) for one in runs] == [("disease/lp/16", 7, 16)]


def test_a_depth_without_a_recipe_is_an_error():
    with pytest.raises(ValueError, match="oversmoothing disease/lp/5; its depths are 4, 8, 16, 32, 64"):
        plan_of("oversmoothing", "disease/lp/5")
    with pytest.raises(ValueError, match="no recipe for gnn disease/lp/5; its depths are none"):
        plan_of("gnn", "disease/lp/5")


# --- the diagnosis ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["lorentz", "none", "euclidean"])
def test_the_diagnosis_agrees_with_its_definition(method):
    """A network with fewer layers gives the outputs of each layer."""
    model, objective, _ = build(run(method=method))
    model, kappa = model.double(), 1.0 if method == "euclidean" else 2.0
    objective.inputs = type(objective.inputs)(objective.task.x.double(), objective.task.edge_index, 1000)
    found = diagnose(model, objective)
    for layer in range(4):
        short, _, _ = build(run(method=method, num_layers=layer + 1))
        short.double().load_state_dict({k: v for k, v in model.state_dict().items() if k in short.state_dict()})
        z = objective.inputs.apply(short).detach()
        assert found["radius"][layer] == pytest.approx(float(kappa**0.5 * z.norm(dim=1).mean()), rel=1e-3)
        if method == "euclidean":
            all_pairs = torch.pdist(z).mean()
        else:
            time = (z.square().sum(1) + 1 / kappa).sqrt()
            cosh = kappa * (time[:, None] * time - z @ z.T)
            all_pairs = torch.acosh(cosh.clamp(min=1)).sum() / (len(z) * (len(z) - 1))
        assert found["distance"][layer] == pytest.approx(float(all_pairs), rel=0.1)  # estimated from a sample of pairs


def test_the_gradient_is_taken_with_respect_to_the_output_of_a_layer():
    model, objective, _ = build(run())
    found, drawn = diagnose(model, objective), objective.state_dict()
    for layer, module in enumerate([model.layers[0], *model.residuals]):
        shift = torch.zeros(1000, 4, requires_grad=True)
        handle = module.register_forward_hook(lambda module, inputs, output, shift=shift: output + shift)
        objective.load_state_dict(drawn)
        objective.loss(model).backward()
        handle.remove()
        assert found["gradient"][layer] == pytest.approx(float(shift.grad.norm()), rel=1e-3)


def test_the_diagnosis_changes_no_state():
    model, objective, _ = build(run(dropout=0.5, learn_curvature=True))
    model.train()
    state, before = objective.state_dict()["0"].clone(), torch.get_rng_state()
    first = diagnose(model, objective)
    assert first == diagnose(model, objective)
    assert torch.equal(objective.state_dict()["0"], state)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_non_finite_numbers_are_none():
    model, objective, _ = build(run())
    with torch.no_grad():
        next(model.layers[2].parameters()).fill_(float("nan"))
    found = diagnose(model, objective)
    assert [value is None for value in found["radius"]] == [False, False, True, True]
    assert found["distance"][1] is not None
    assert found["gradient"] == [None] * 4


def test_other_models_are_an_error():
    _, objective, _ = build(run())
    for name in ("lorentz_mlp", "lorentz_sgformer"):
        with pytest.raises(TypeError, match="network with layer_modules"):
            diagnose(create_model(name, in_features=3), objective)


@pytest.mark.parametrize("network", ["lorentz_gcn", "lorentz_sage"])
def test_the_last_layer_of_a_network_is_its_embedding(network):
    model, objective, _ = build(run(model=network))
    outputs = []
    modules = model.layer_modules()
    modules[-1].register_forward_hook(lambda module, inputs, output: outputs.append(output))
    assert torch.equal(objective.inputs.apply(model.eval()), outputs[0])
    assert len(diagnose(model, objective)["distance"]) == len(modules) == 4


# --- during training --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["lorentz", "euclidean"])
def test_the_state_of_a_training_agrees_with_the_objective(method):
    model, objective, _ = build(run(method=method))
    model.train()
    drawn = objective.state_dict()
    state = training_state(model, objective)
    assert model.training
    assert state["distance"] == diagnose(model, objective)["distance"]
    loss = objective.loss(model.eval())
    objective.load_state_dict(drawn)
    assert state["loss"] == pytest.approx(loss.item(), rel=1e-3)
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    squares = sum(float(g.square().sum()) for g in gradients if g is not None)
    assert state["parameter_gradient"] == pytest.approx(squares**0.5, rel=1e-3)
    task = objective.task
    pairs = torch.cat([task.val_edges, task.val_negatives], dim=1)
    z = model.embed(task.x, task.edge_index).detach()
    d = torch.cdist(z, z)[tuple(pairs)] if method == "euclidean" else model.manifold.dist(*z[pairs])
    auc = 100 * float(roc_auc(-d, torch.arange(len(d)) < task.val_edges.shape[1]))
    assert state["ranking"][-1] == pytest.approx(auc, abs=0.5)


def test_nodes_at_one_point_are_ranked_by_chance_and_get_no_gradient():
    model, objective, _ = build(run(method="euclidean"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state = training_state(model, objective)
    assert state["ranking"] == [50.0] * 4
    assert state["distance"] == state["gradient"] == [0.0] * 4
    assert state["parameter_gradient"] == 0.0
    assert state["loss"] == pytest.approx(2.0)  # the margin


# --- the lines --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_lines_hold_the_diagnosis_before_and_after_training(tmp_path):
    path, one = tmp_path / "o.jsonl", run()
    assert run_all([one], path, command="test") == 0
    (record,) = read_results(path)
    model, objective, _ = build(one)
    assert record["initial_layers"] == diagnose(model, objective)
    assert record["layers"] != record["initial_layers"]
    assert [len(values) for values in record["layers"].values()] == [4, 4, 4]


def test_a_stack_diagnoses_each_of_its_runs():
    runs = [run(seed) for seed in range(2)]
    lines = sweep._execute_group(runs, "test", "cpu", NOWHERE)
    assert [line["stacked"] for line in lines] == [2, 2]
    for one, line in zip(runs, lines, strict=True):
        alone = sweep._execute_one(one, "test", "cpu", NOWHERE)
        assert line["initial_layers"] == alone["initial_layers"]
        for name, values in alone["layers"].items():
            assert line["layers"][name] == pytest.approx(values, rel=0.02)
    assert lines[0]["layers"] != lines[1]["layers"]


def test_a_diverged_run_has_only_the_initial_diagnosis(monkeypatch):
    def diverge(*_: object, **__: object) -> None:
        raise NonFiniteError("the loss stopped being finite at step 7")

    monkeypatch.setattr(sweep, "execute", diverge)
    line = sweep._execute_one(run(), "test", "cpu", NOWHERE)
    assert line["value"] is None
    assert len(line["initial_layers"]["radius"]) == 4
    assert "layers" not in line


def test_other_tables_have_no_diagnosis():
    line = sweep._execute_one(dataclasses.replace(run(), cell="disease_tree/lp", table="gnn"), "test", "cpu", NOWHERE)
    assert not {"layers", "initial_layers"} & line.keys()


def test_textbook_parallel_transport_overflows_in_a_deep_network_and_the_boost_does_not():
    config = {"num_layers": 16, "curvature": -0.5, "hidden": 15, "features": "standardised"}
    layers = {
        method: diagnose(*build(run(method=method, **config))[:2])
        for method in ("parallel_transport", "parallel_transport_textbook")
    }
    assert None in layers["parallel_transport_textbook"]["radius"]
    assert None not in layers["parallel_transport"]["radius"] + layers["parallel_transport"]["gradient"]
