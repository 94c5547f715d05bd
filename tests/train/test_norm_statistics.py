"""Batch norms in evaluation: running statistics of training with dropout, and statistics re-estimated without it."""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lresnet
from lresnet import create_model
from lresnet.data import graph_task
from lresnet.models import LorentzResNet, LorentzSAGE
from lresnet.train import (
    ImageClassification,
    NodeClassification,
    Objective,
    SampledLinkPrediction,
    SampledNodeClassification,
    StackError,
    TrainConfig,
    TrainingState,
    train_many,
    train_model,
)
from lresnet.train.checkpoint import load_checkpoint
from lresnet.train.distributed import join_processes
from lresnet.train.graph_classification import GraphClassification
from lresnet.train.norm_statistics import reestimate_statistics, running_statistics, tracking_norms
from tests.coloured import coloured_task
from tests.processes import run_in_two_processes
from tests.train import tree
from tests.train.toy import Line
from tests.version_0_2 import save_checkpoint_as_0_2

METHODS = ["lorentz", "none", "euclidean"]
CONFIG = TrainConfig(epochs=20, lr=0.01, eval_every=5)


@functools.cache
def task() -> lresnet.data.NodeTask:
    made = tree.node_task(200)
    return dataclasses.replace(made, x=made.x.double())


def network(method: str = "lorentz", dropout: float = 0.7, norm: str = "batch", **options: Any) -> LorentzSAGE:
    torch.manual_seed(4)
    sizes = {"in_features": task().x.shape[1], "hidden": 16, "num_layers": 3, "num_classes": 2} | options
    return LorentzSAGE(residual=method, dropout=dropout, norm=norm, **sizes).double()


def buffers(model: torch.nn.Module) -> list[Tensor]:
    return [buffer.clone() for buffer in running_statistics(tracking_norms(model))]


@torch.no_grad()
def logits_by_batch_statistics(model: LorentzSAGE, objective: NodeClassification) -> Tensor:
    """The logits without dropout if every norm uses the statistics of the graph: with copied norms in train mode."""
    model = copy.deepcopy(model).eval()
    for norm in tracking_norms(model):
        norm.train()
    return objective.inputs.apply(model)


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- the function -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_statistics_are_mean_and_unbiased_variance_without_dropout(method):
    """Each norm sees what the one before it makes with the statistics of the same batch."""
    model, objective = network(method), NodeClassification(task())
    expected_output = logits_by_batch_statistics(model, objective)
    inputs: dict[torch.nn.Module, Tensor] = {}
    for norm in tracking_norms(model):
        norm.register_forward_hook(lambda module, given, output: inputs.update({module: given[0]}))
    reestimate_statistics(model, lambda: objective.forward_training_data(model))
    assert len(inputs) == 4
    for norm, x in inputs.items():
        torch.testing.assert_close(norm.running_mean, x.mean(0), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(norm.running_var, x.var(0), rtol=1e-12, atol=1e-14)
    for norm, x in list(inputs.items()):  # with the biased variance, evaluation is exactly normalisation by the batch
        norm.running_var.mul_((len(x) - 1) / len(x))
    model.eval()
    torch.testing.assert_close(objective.inputs.apply(model), expected_output, rtol=1e-9, atol=1e-9)


def test_several_batches_give_the_mean_of_their_statistics():
    net, batches = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)), torch.randn(4, 10, 3)
    net.train()(torch.randn(7, 3) + 5)
    reestimate_statistics(net, lambda: [net(batch) for batch in batches])
    torch.testing.assert_close(net[1].running_mean, batches.mean((0, 1)))
    torch.testing.assert_close(net[1].running_var, batches.var(1).mean(0))


def test_nothing_else_changes():
    model, objective = network(), NodeClassification(task())
    model.train()
    model.layers[1].eval()
    modes = [module.training for module in model.modules()]
    places = [buffer.data_ptr() for buffer in model.buffers()]
    parameters, state = [p.clone() for p in model.parameters()], torch.get_rng_state()
    before = buffers(model)
    reestimate_statistics(model, lambda: objective.forward_training_data(model))
    assert not any(map(torch.equal, before, buffers(model)))
    assert [module.training for module in model.modules()] == modes
    assert [norm.momentum for norm in tracking_norms(model)] == [0.1] * 4
    assert [buffer.data_ptr() for buffer in model.buffers()] == places  # a captured step writes there
    assert all(map(torch.equal, parameters, model.parameters()))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_and_momenta_return_after_an_error():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    net.train()(torch.randn(6, 2))
    before = buffers(net)
    with pytest.raises(ZeroDivisionError):
        reestimate_statistics(net, lambda: 1 / 0)
    assert net.training
    assert net[1].momentum == 0.1
    assert all(map(torch.equal, before, buffers(net)))


def test_a_norm_that_the_pass_does_not_reach_keeps_its_statistics():
    used, unused = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)
    net = torch.nn.ModuleList([used, unused])
    for norm in net:
        norm(torch.randn(6, 2) + 3)
    before = unused.running_mean.clone()
    reestimate_statistics(net, lambda: used(torch.zeros(4, 2)))
    assert torch.equal(used.running_mean, torch.zeros(2))
    assert torch.equal(unused.running_mean, before)


class KeepsItsStatistics(torch.nn.BatchNorm1d):
    def train(self, mode: bool = True) -> torch.nn.BatchNorm1d:
        return super().train(False)


def test_norms_that_training_does_not_update_are_left_alone():
    frozen = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2, affine=False)).requires_grad_(False)
    trained, own = torch.nn.BatchNorm1d(2), KeepsItsStatistics(2)
    without = torch.nn.BatchNorm1d(2, track_running_stats=False)
    net = torch.nn.Sequential(frozen, trained, own, without, torch.nn.InstanceNorm1d(2), torch.nn.Linear(2, 1))
    assert tracking_norms(net) == [trained]
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    reestimate_statistics(net, lambda: net[:3](torch.randn(9, 2)))
    changed = [name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])]
    assert changed == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]


def test_without_batch_norms_nothing_runs():
    model = network(norm="layer")
    reestimate_statistics(model, lambda: pytest.fail("the pass ran"))


# --- the defect -------------------------------------------------------------------------------------------------------


def trained(method: str, chosen: str) -> tuple[LorentzSAGE, NodeClassification]:
    model, objective = network(method), NodeClassification(task())
    train_model(model, objective, dataclasses.replace(CONFIG, norm_statistics=chosen))
    return model, objective


@pytest.mark.parametrize("method", METHODS)
def test_running_statistics_of_training_with_dropout_are_not_those_of_evaluation(method):
    errors = {}
    for chosen in ("running", "reestimated"):
        model, objective = trained(method, chosen)
        exact = logits_by_batch_statistics(model, objective)
        with torch.no_grad():
            errors[chosen] = float((objective.inputs.apply(model) - exact).norm() / (exact - exact.mean(0)).norm())
    assert errors["running"] > 0.3
    assert errors["reestimated"] < 0.05  # the unbiased variance of 200 nodes, through three blocks


# --- in a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"average": 0.8}, {"keep": "last"}, {"average": 0.8, "keep": "last"}])
def test_a_run_keeps_the_statistics_that_it_was_validated_with(options):
    model, objective = network(), NodeClassification(task())
    config = dataclasses.replace(CONFIG, norm_statistics="reestimated", **options)
    outcome = train_model(model, objective, config)
    assert outcome.norm_statistics == "reestimated"
    assert not model.training
    assert 100 * float(objective.validation(model)) == outcome.validation
    kept = buffers(model)
    reestimate_statistics(model, lambda: objective.forward_training_data(model))
    assert all(map(torch.equal, kept, buffers(model)))


@pytest.mark.parametrize("average", [None, 0.8])
def test_training_does_not_depend_on_the_statistics_of_evaluation(average):
    """Parameters, the norms' own averages, and random numbers."""
    states = []
    for chosen in ("running", "reestimated"):
        torch.manual_seed(0)
        config = dataclasses.replace(CONFIG, norm_statistics=chosen, average=average)
        run = TrainingState(network(), NodeClassification(task()), config)
        for _ in range(4):
            run.train_epoch()
            run.validate()
        run.train_epoch()
        states.append((run.model.state_dict(), run.average.state if run.average else {}, torch.get_rng_state()))
    (own, average_state, random), (others, others_average, others_random) = states
    assert equal(own, others)
    assert equal(average_state, others_average)
    assert torch.equal(random, others_random)


class Stops(NodeClassification):
    steps, last = 0, 10**9

    def loss(self, model: LorentzSAGE) -> Tensor:
        if self.steps == self.last:
            raise InterruptedError
        self.steps += 1
        return super().loss(model)


@pytest.mark.parametrize("options", [{}, {"average": 0.8, "keep": "last"}])
def test_a_resumed_run_is_bit_identical(options, tmp_path):
    config = dataclasses.replace(CONFIG, eval_every=3, norm_statistics="reestimated", **options)
    whole, path = network(), tmp_path / "run.pt"
    torch.manual_seed(0)
    expected = train_model(whole, Stops(task()), config)
    first, objective = network(), Stops(task())
    objective.last = 13
    torch.manual_seed(0)
    with pytest.raises(InterruptedError):
        train_model(first, objective, config, checkpoint=path, checkpoint_every=4)
    model = network()
    outcome = train_model(model, Stops(task()), config, checkpoint=path)
    assert (outcome.curve, outcome.best_epoch) == (expected.curve, expected.best_epoch)
    assert equal(model.state_dict(), whole.state_dict())


def test_a_checkpoint_of_an_older_version_resumes_with_running_statistics(tmp_path):
    path = tmp_path / "run.pt"
    running = dataclasses.replace(CONFIG, norm_statistics="running")
    train_model(network(), NodeClassification(task()), dataclasses.replace(running, epochs=20), checkpoint=path)
    save_checkpoint_as_0_2(path, load_checkpoint(path), running)
    outcome = train_model(network(), NodeClassification(task()), CONFIG, checkpoint=path)
    assert outcome.norm_statistics == "running"
    other = dataclasses.replace(CONFIG, norm_statistics="reestimated")
    with pytest.raises(ValueError, match="another run: norm_statistics is running there, not reestimated"):
        train_model(network(), NodeClassification(task()), other, checkpoint=path)


def test_a_checkpoint_keeps_what_it_was_started_with(tmp_path):
    path = tmp_path / "run.pt"
    other = dataclasses.replace(CONFIG, norm_statistics="reestimated")
    train_model(network(), NodeClassification(task()), other, checkpoint=path)
    assert load_checkpoint(path)["identity"]["train"]["norm_statistics"] == "reestimated"
    assert train_model(network(), NodeClassification(task()), CONFIG, checkpoint=path).norm_statistics == "reestimated"
    running = dataclasses.replace(CONFIG, norm_statistics="running")
    with pytest.raises(ValueError, match="another run: norm_statistics is reestimated there, not running"):
        train_model(network(), NodeClassification(task()), running, checkpoint=path)


@pytest.mark.parametrize("chosen", [None, "reestimated", "running"])
def test_a_model_without_batch_norms_has_no_pass_and_an_old_checkpoint(chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(NodeClassification, "forward_training_data", lambda self, model: pytest.fail("the pass ran"))
    config = dataclasses.replace(CONFIG, norm_statistics=chosen, epochs=5)
    path = tmp_path / "run.pt"
    assert (
        train_model(network(norm="layer"), NodeClassification(task()), config, checkpoint=path).norm_statistics is None
    )
    save_checkpoint_as_0_2(path, load_checkpoint(path), config)
    assert train_model(network(norm="layer"), NodeClassification(task()), config, checkpoint=path).epochs == 5


def test_frozen_norms_keep_their_statistics_in_a_run():
    model = network()
    model.layers[0].norm.requires_grad_(False)
    before = model.layers[0].norm.running_mean.clone(), model.layers[1].norm.running_mean.clone()
    train_model(model, NodeClassification(task()), dataclasses.replace(CONFIG, norm_statistics="reestimated"))
    assert torch.equal(model.layers[0].norm.running_mean, before[0])
    assert not torch.equal(model.layers[1].norm.running_mean, before[1])


def test_an_objective_without_a_pass_evaluates_by_running_statistics():
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    assert TrainingState(net, Line(), TrainConfig()).norm_statistics == "running"
    with pytest.raises(ValueError, match="Line cannot re-estimate statistics of batch norms; use norm_statistics='run"):
        TrainingState(net, Line(), TrainConfig(norm_statistics="reestimated"))


class Reestimates(LorentzSAGE):
    norm_statistics = "reestimated"


@pytest.mark.parametrize("given", [None, "running", "reestimated"])
def test_the_default_is_that_of_the_model(given):
    config = TrainConfig(norm_statistics=given)
    for model, default in ((LorentzSAGE, "running"), (Reestimates, "reestimated"), (LorentzResNet, "running")):
        on_graph = model is not LorentzResNet
        net = model(6, 4, 1, 2, norm="batch") if on_graph else model(8, 3, widths=(4, 6, 8))
        objective = NodeClassification(task()) if on_graph else ImageClassification(coloured_task())
        assert TrainingState(net, objective, config).norm_statistics == (given or default)


def test_the_record_of_a_run_reports_it(tmp_path):
    config = TrainConfig(epochs=2, norm_statistics="reestimated")
    for norm, expected in (("batch", "reestimated"), ("layer", None)):
        model = create_model("lorentz_sage", in_features=task().x.shape[1], num_classes=2, hidden=4, norm=norm)
        run = lresnet.fit(tree.node_task(200), model, config, out=tmp_path / norm, device="cpu")
        assert run.record.norm_statistics == expected
        again = lresnet.Run.open(tmp_path / norm, task=tree.node_task(200), device="cpu")
        assert again.record == run.record
        assert ("norm_statistics" in run.record.as_dict()) == (expected is not None)


def test_a_stack_refuses_running_statistics():
    model = network()
    with pytest.raises(StackError, match="a stack re-estimates the statistics of batch norms, but norm_statistics is"):
        train_many(
            [model],
            [NodeClassification(task())],
            TrainConfig(norm_statistics="running"),
            generators=[torch.Generator()],
        )


# --- batches ----------------------------------------------------------------------------------------------------------


def sampled(kind: str, **options: Any) -> Objective[Any]:
    given = {"batch_size": 40, "neighbours": (2,), "seed": 5} | options
    if kind == "node":
        return SampledNodeClassification(task(), **given)
    link = tree.link_task(200)
    return SampledLinkPrediction(dataclasses.replace(link, x=link.x.double()), **given)


def network_of(kind: str) -> LorentzSAGE:
    return network() if kind == "node" else network(in_features=tree.link_task(200).x.shape[1], num_classes=None)


@pytest.mark.parametrize("kind", ["node", "link"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_sampled_batches_are_the_same_at_every_evaluation_and_change_no_training_batch(kind, prefetch):
    losses: dict[str, list[float]] = {"running": [], "reestimated": []}
    found = []
    for chosen, seen in losses.items():
        torch.manual_seed(0)
        model, objective = network_of(kind), sampled(kind, prefetch=prefetch)
        run = TrainingState(model, objective, TrainConfig(epochs=4, norm_statistics=chosen))
        loss = objective.loss
        objective.loss = lambda net, loss=loss, seen=seen: (seen.append((out := loss(net)).item()), out)[1]
        for _ in range(3):
            run.train_epoch()
            run.validate()
        for _ in range(2):
            reestimate_statistics(
                model, lambda objective=objective, model=model: objective.forward_training_data(model)
            )
            found.append(buffers(model))
    assert losses["running"] == losses["reestimated"]
    assert all(map(torch.equal, found[0], found[1]))
    assert all(map(torch.equal, found[0], found[2]))


def test_sampled_batches_of_all_nodes_with_all_neighbours_are_the_graph():
    model, everything = network(num_layers=1), dataclasses.replace(task(), train_index=torch.arange(200))
    states = []
    for objective in (
        SampledNodeClassification(everything, batch_size=200, neighbours=(-1,)),
        NodeClassification(everything),
    ):
        reestimate_statistics(model, lambda objective=objective: objective.forward_training_data(model))
        states.append(buffers(model))
    for one, other in zip(*states, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def _in_two_processes() -> list[np.ndarray]:
    with join_processes("cpu") as (processes, _):
        model = network()
        objective = sampled("node", batch_size=15, processes=processes)
        train_model(model, objective, TrainConfig(epochs=2, eval_every=1, norm_statistics="reestimated"))
        own = [buffer.numpy() for buffer in buffers(model)]
        reestimate_statistics(model, lambda: objective.forward_training_data(model))
        return own + [buffer.numpy() for buffer in buffers(model)]


@pytest.mark.slow
def test_two_processes_end_with_the_mean_of_their_statistics():
    first, second = run_in_two_processes(_in_two_processes)
    for own, other, share, others_share in zip(first[:8], second[:8], first[8:], second[8:], strict=True):
        np.testing.assert_array_equal(own, other)
        assert not np.array_equal(share, others_share)
        np.testing.assert_allclose(own, (share + others_share) / 2, rtol=1e-12)


def test_graphs_in_batches_and_images_have_a_pass():
    generator = torch.Generator().manual_seed(0)
    edges = [(torch.randint(5, (2, 9), generator=generator), 5) for _ in range(20)]
    graphs = GraphClassification(graph_task(edges, [0, 1] * 10), batch_size=7)
    images = ImageClassification(coloured_task(), batch_size=20)
    in_features = graphs.task.x.shape[1]
    cases: list[tuple[Objective[Any], torch.nn.Module]] = [
        (graphs, create_model("lorentz_sage", in_features=in_features, num_classes=2, hidden=4, norm="batch")),
        (images, LorentzResNet(8, 3, widths=(4, 6, 8))),
    ]
    for objective, model in cases:
        passes: list[list[Tensor]] = []
        state = objective.state_dict()
        for _ in range(2):
            reestimate_statistics(model, lambda o=objective, m=model: o.forward_training_data(m))
            passes.append(buffers(model))
        assert all(map(torch.equal, *passes))
        assert str(objective.state_dict()) == str(state)
        assert {int(norm.num_batches_tracked) for norm in tracking_norms(model)} == {objective.steps_per_epoch}
        train_model(model, objective, TrainConfig(epochs=1, norm_statistics="reestimated"))


def test_the_pass_over_images_sees_them_without_augmentation():
    task = coloured_task()
    objective = ImageClassification(task, batch_size=60)
    norm = torch.nn.BatchNorm2d(3)
    net = torch.nn.Sequential(norm, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    reestimate_statistics(net, lambda: objective.forward_training_data(net))
    pixels = task.data.train.images.double().div(255).sub(torch.tensor(task.data.mean)).div(torch.tensor(task.data.std))
    torch.testing.assert_close(norm.running_mean.double(), pixels.mean((0, 1, 2)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var.double(), pixels.flatten(0, 2).var(0), rtol=1e-4, atol=1e-5)
