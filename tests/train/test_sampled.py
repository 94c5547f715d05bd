"""Training on sampled batches: what a batch holds, its loss, prefetching, and several processes."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import lresnet
from lresnet.data.pairs import PairNumbering
from lresnet.models import LorentzGCN
from lresnet.runs.model_config import GCNConfig
from lresnet.runs.run import Run
from lresnet.train import (
    LinkPrediction,
    NodeClassification,
    SampledLinkPrediction,
    SampledNodeClassification,
    TrainConfig,
    TrainingState,
    train_model,
)
from lresnet.train.distributed import ONE_PROCESS, Processes, join_processes
from tests.processes import run_in_two_processes
from tests.train import tree

OBJECTIVES = {"node": SampledNodeClassification, "link": SampledLinkPrediction}
Sampled = SampledNodeClassification | SampledLinkPrediction


def task_of(kind: str) -> lresnet.data.LinkTask | lresnet.data.NodeTask:
    task = tree.node_task(200) if kind == "node" else tree.link_task(200)
    return dataclasses.replace(task, x=task.x.double())


def objective_of(kind: str, **options: object) -> Sampled:
    given = {"batch_size": 16, "neighbours": (2,), "seed": 5} | options
    return OBJECTIVES[kind](task_of(kind), **given)


def network(kind: str, **options: object) -> LorentzGCN:
    torch.manual_seed(3)
    task = task_of(kind)
    classes = task.num_classes if kind == "node" else None
    given = {"num_layers": 2, "learn_curvature": True, "residual_options": {"weight": "learned"}} | options
    return LorentzGCN(task.x.shape[1], 6, num_classes=classes, **given).double()


def batches(objective: Sampled, model: LorentzGCN, epochs: int = 1) -> list:
    found = []
    for _ in range(epochs):
        objective.start_epoch()
        for step in range(objective.steps_per_epoch):
            objective.advance(step)
            found.append(objective.current(model))
    return found


def test_an_epoch_visits_every_training_node_once_in_a_new_order() -> None:
    objective = objective_of("node")
    nodes = objective.task.train_index
    found = batches(objective, network("node"), epochs=2)
    steps = objective.steps_per_epoch
    assert steps == -(-len(nodes) // 16)
    sizes = [batch.targets[0].numel() for batch in found]
    assert sizes == [16] * (steps - 1) + [len(nodes) - 16 * (steps - 1)] + sizes[:steps]
    orders = [torch.cat([b.graph.node[: len(b.targets[0])] for b in part]) for part in (found[:steps], found[steps:])]
    for order in orders:
        assert torch.equal(order.sort().values, nodes.sort().values)
    assert not torch.equal(*orders)
    assert all(torch.equal(b.targets[0], objective.task.y[b.graph.node[: len(b.targets[0])]]) for b in found)
    assert {batch.scale for batch in found} == {1.0}


def test_an_epoch_visits_every_training_edge_once_with_negatives_that_are_no_edges() -> None:
    objective = objective_of("link")
    task, numbering = objective.task, PairNumbering(200)
    found = batches(objective, network("link"), epochs=2)
    edges, negatives = (
        [numbering.encode(batch.graph.node[batch.targets[part]]) for batch in found] for part in range(2)
    )
    half = objective.steps_per_epoch
    expected = numbering.encode(task.train_edges).sort().values
    for part in (edges[:half], edges[half:]):
        assert torch.equal(torch.cat(part).sort().values, expected)
    used = torch.cat([task.train_edges, task.val_edges, task.test_edges, task.val_negatives, task.test_negatives], 1)
    assert not torch.isin(torch.cat(negatives), numbering.encode(used)).any()
    assert [part.numel() for part in edges] == [part.numel() for part in negatives]
    assert torch.cat(negatives).unique().numel() > 0.9 * torch.cat(negatives).numel()


@pytest.mark.parametrize("loss", ["margin", "cross_entropy"])
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_one_batch_with_all_neighbours_has_the_loss_of_the_whole_graph(kind: str, loss: str) -> None:
    sampled, model = objective_of(kind, batch_size=10**6, neighbours=(-1,), loss=loss), network(kind)
    (batch,) = batches(sampled, model)
    assert sampled.steps_per_epoch == 1
    if kind == "node":
        whole = NodeClassification(task_of(kind), loss=loss)
        expected = whole.loss(model)
    else:
        pairs = [batch.graph.node[part] for part in batch.targets]
        whole = LinkPrediction(task_of(kind), loss=loss)
        expected = whole.loss_of_pairs(model, whole.inputs.apply(model), *pairs)
    torch.testing.assert_close(sampled.loss(model), expected, rtol=1e-12, atol=0)
    model.eval()
    assert sampled.test(model) == whole.test(model)
    torch.testing.assert_close(sampled.validation(model), whole.validation(model), rtol=1e-12, atol=0)


def parameters(model: LorentzGCN) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


CONFIG = TrainConfig(epochs=4, lr=0.05, optimizer="sgd", eval_every=2, clip=0.5, weight_decay=0.01, average=0.7)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_prefetching_does_not_change_a_number(kind: str) -> None:
    results = []
    for prefetch in (0, 1, 5):
        model = network(kind, dropout=0.3)
        torch.manual_seed(0)
        outcome = train_model(model, objective_of(kind, prefetch=prefetch), CONFIG)
        results.append((parameters(model), outcome.curve))
    for state, curve in results[1:]:
        assert curve == results[0][1]
        for name, values in results[0][0].items():
            np.testing.assert_array_equal(state[name], values, err_msg=name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_gpu_takes_the_steps_of_the_cpu(kind: str) -> None:
    states = []
    for device in ("cpu", "cuda"):
        model = network(kind).to(device)
        train_model(model, objective_of(kind, device=device), CONFIG)
        states.append(parameters(model.cpu()))
    for name, values in states[0].items():
        # Edge weights are float32, and Adam divides by the root of the squared gradient: it amplifies their rounding.
        np.testing.assert_allclose(states[1][name], values, rtol=1e-6, atol=1e-7, err_msg=name)


def test_the_seed_decides_the_batches() -> None:
    model = network("link")
    first, again, other = (
        torch.cat([batch.graph.node for batch in batches(objective_of("link", seed=seed), model)]) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_error_in_the_thread_reaches_the_loop() -> None:
    objective, model = objective_of("node"), network("node")

    def fail(*_: object) -> None:
        raise OSError("the features are gone")

    objective.start_epoch()
    objective.advance(0)
    objective.inputs.sample = fail
    with pytest.raises(OSError, match="the features are gone"):
        objective.current(model)


def test_steps_are_not_captured_because_batches_have_different_sizes() -> None:
    assert not SampledNodeClassification.captures
    assert not SampledLinkPrediction.captures
    assert NodeClassification.captures


def test_models_and_neighbours_that_do_not_fit_are_refused_before_the_first_step() -> None:
    task = task_of("node")
    former = lresnet.create_model("lorentz_sgformer", in_features=task.x.shape[1], num_classes=2)
    with pytest.raises(ValueError, match="lorentz_sgformer needs the whole graph in every step; leave batch_size out"):
        TrainingState(former, objective_of("node"), TrainConfig())
    words = "neighbours has 3 numbers, but the model has 2 layers; give one number for all layers, or one for each"
    with pytest.raises(ValueError, match=words):
        TrainingState(network("node"), objective_of("node", neighbours=(2, 2, 2)), TrainConfig())
    with pytest.raises(ValueError, match="batch_size 1 is smaller than the number of processes, 2; use at least 2"):
        objective_of("node", batch_size=1, processes=Processes(0, 2))


# --- Several processes ------------------------------------------------------------------------------------------------


def trained(kind: str, processes: Processes, neighbours: tuple[int, ...], batch_size: int = 16) -> dict[str, Tensor]:
    model = network(kind)
    train_model(model, objective_of(kind, neighbours=neighbours, batch_size=batch_size, processes=processes), CONFIG)
    return parameters(model)


CASES = [("node", (2,), 16), ("link", (2,), 16), ("node", (-1,), 16), ("node", (2,), 15), ("link", (3,), 13)]


def _shared() -> list[dict[str, Tensor]]:
    with join_processes("cpu") as (processes, _):
        return [trained(kind, processes, neighbours, size) for kind, neighbours, size in CASES]


def test_two_processes_take_the_steps_of_one_on_the_same_sampled_subgraphs() -> None:
    """In float64, without dropout; the sizes of the shares are equal and unequal."""
    first, second = run_in_two_processes(_shared)
    start = parameters(network("node"))
    for case, one, other in zip(CASES, first, second, strict=True):
        kind, neighbours, size = case
        alone = trained(kind, ONE_PROCESS, neighbours, size)
        for name, values in alone.items():
            np.testing.assert_allclose(one[name], values, rtol=1e-9, atol=1e-11, err_msg=f"{case} {name}")
            np.testing.assert_array_equal(other[name], one[name])
    assert any(np.abs(first[0][name] - values).max() > 1e-2 for name, values in start.items())  # it was trained


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_the_shares_of_a_batch_are_the_batch(kind: str) -> None:
    """Also of a last batch that is smaller than the number of processes, in which one takes part with weight 0."""
    count = objective_of(kind).samples
    size = next(size for size in range(3, count) if count % size == 2)
    model = network(kind)
    whole, *shares = (
        batches(objective_of(kind, batch_size=size, processes=processes), model)
        for processes in (ONE_PROCESS, *(Processes(rank, 3) for rank in range(3)))
    )
    for number, batch in enumerate(whole):
        own = [share[number] for share in shares]
        assert sum(part.scale for part in own) == pytest.approx(3.0)
        parts = [part for part in own if part.scale]
        assert len(parts) == min(3, batch.targets[0].shape[-1])

        def global_targets(one: object) -> Tensor:
            return one.graph.node[one.targets[1]] if kind == "link" else one.targets[0]

        joined = torch.cat([global_targets(part) for part in parts], dim=-1)
        assert torch.equal(joined, global_targets(batch))


def _interrupted(kind: str, folder: Path) -> list[dict[str, Tensor]]:
    """Train with dropout to epoch 3, resume from the checkpoint of epoch 2, and train again uninterrupted."""

    def stop(epoch: int, best: float | None) -> None:
        if epoch == 3:
            raise InterruptedError

    states = []
    with join_processes("cpu") as (processes, _):
        for name, on_epoch in (("run", stop), ("run", None), ("whole", None)):
            model = network(kind, dropout=0.4)
            options = {"checkpoint": folder / f"{name}.pt", "checkpoint_every": 2, "on_epoch": on_epoch}
            with contextlib.suppress(InterruptedError):
                train_model(model, objective_of(kind, processes=processes, batch_size=15), CONFIG, **options)
                states.append(parameters(model))
    return states


@pytest.mark.slow
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_two_processes_resume_bit_identically_with_dropout(kind: str, tmp_path: Path) -> None:
    for resumed, whole in run_in_two_processes(_interrupted, kind, tmp_path):
        for name, values in whole.items():
            np.testing.assert_array_equal(resumed[name], values, err_msg=name)


# --- Runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_sampled_run_evaluates_predicts_and_embeds_exactly(kind: str, tmp_path: Path) -> None:
    name = "disease_tree/nc" if kind == "node" else "disease_tree/lp"
    config = TrainConfig(epochs=2, batch_size=64, neighbours="3,3", lr=0.02)
    model = GCNConfig("lorentz_gcn", num_layers=2)
    run = lresnet.fit(name, model, config, out=tmp_path / "run")
    opened = Run.open(tmp_path / "run")
    assert opened.train_config == config
    assert "--batch-size 64 --neighbours 3,3" in opened.record.command
    task, place = run.task, run.device
    whole = (NodeClassification if kind == "node" else LinkPrediction)(task, device=place)
    expected = {name: round(value, 4) for name, value in whole.test(run.model).items()}
    assert opened.evaluate() == pytest.approx(expected, abs=0.2)  # float32: a tie may be ranked the other way
    with torch.no_grad():
        points = run.model.embed(task.x.to(place), task.edge_index.to(place)).cpu()
        output = run.model(task.x.to(place), task.edge_index.to(place)).cpu()
    torch.testing.assert_close(opened.embed().points, points, rtol=1e-4, atol=1e-4)
    if kind == "node":
        classes = torch.tensor([node.classes[0] for node in opened.predict()])
        assert float((classes == output.argmax(-1)).float().mean()) > 0.99
    else:
        scores = opened.predict(torch.tensor([[0, 3], [1, 5]]))
        assert scores.shape == (2,)
        assert scores.isfinite().all()


@pytest.mark.slow
def test_a_sampled_graph_trains_to_about_the_score_of_the_whole_graph() -> None:
    scores = []
    for objective in (NodeClassification(task_of("node")), objective_of("node", neighbours=(3,))):
        model = network("node")
        steps = 200 // objective.steps_per_epoch
        scores.append(train_model(model, objective, TrainConfig(epochs=steps, lr=0.02)).validation)
    assert min(scores) > 80
