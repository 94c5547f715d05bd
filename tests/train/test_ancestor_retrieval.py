"""The objective of ancestor retrieval: what it draws, what it measures, and that networks learn it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

import lresnet
from lresnet.data import AncestorTask, ancestor_task, random_tree
from lresnet.models import LorentzGCN
from lresnet.train import (
    NonFiniteError,
    Outcome,
    StackError,
    TrainConfig,
    make_objective,
    train_many,
    train_model,
)
from lresnet.train.ancestor_retrieval import AncestorForest, AncestorRetrieval
from lresnet.train.config import Augment
from tests.train.tree import link_task

TASK = ancestor_task(random_tree(3, depth=3, parts=24), 2, codes=4)


class Oracle(torch.nn.Module):
    """k hops of plain propagation: the logits are the codes that have arrived."""

    self_loops, euclidean = False, True

    def __init__(self, hops: int) -> None:
        super().__init__()
        self.hops, self.calls = hops, list[Tensor]()

    def graph(self, edge_index: Tensor, num_nodes: int) -> Any:
        return lresnet.nn.adjacency(edge_index, num_nodes, self_loops=False)

    def input_points(self, x: Tensor) -> Tensor:
        self.calls.append(x)
        return x

    def forward(self, x: Tensor, A: Any) -> Tensor:
        for _ in range(self.hops):
            x = A @ x
        return 1e3 * x


def network(task: AncestorTask = TASK, seed: int = 0, **options: Any) -> LorentzGCN:
    torch.manual_seed(seed)
    options = {"hidden": 8, "num_layers": task.hops, "layer": "space"} | options
    model = lresnet.create_model("lorentz_gcn", in_features=task.num_codes, num_classes=task.num_classes, **options)
    assert isinstance(model, LorentzGCN)
    return model


def test_k_hops_of_propagation_score_100_and_fewer_exactly_chance() -> None:
    objective = AncestorRetrieval(TASK)
    assert float(objective.validation(Oracle(2))) == pytest.approx(1.0)
    assert objective.test(Oracle(2)) == {"accuracy": pytest.approx(100.0)}
    assert float(objective.loss(Oracle(2))) < 1e-6
    for fewer in (0, 1):  # none at all: the features alone
        assert objective.test(Oracle(fewer)) == {"accuracy": pytest.approx(TASK.chance)}


@pytest.mark.parametrize("method", ["lorentz", "none", "euclidean"])
def test_a_trained_network_of_too_few_layers_scores_exactly_chance(method: str) -> None:
    model, objective = network(residual=method, num_layers=1), AncestorRetrieval(TASK)
    outcome = train_model(model, objective, TrainConfig(epochs=20, lr=0.05))
    assert outcome.validation == pytest.approx(TASK.chance)
    assert objective.test(model)["accuracy"] == pytest.approx(TASK.chance)


@pytest.mark.parametrize("method", ["lorentz", "none", "euclidean"])
def test_a_network_of_k_layers_learns_it(method: str) -> None:
    model, objective = network(residual=method), AncestorRetrieval(TASK)
    train_model(model, objective, TrainConfig(epochs=150, lr=0.03, eval_every=50))
    assert objective.test(model)["accuracy"] > 90


def test_codes_are_redrawn_at_every_step_and_balanced() -> None:
    objective, oracle = AncestorRetrieval(TASK, seed=3), Oracle(2)
    trees = objective.train_forest.trees.numel()
    assert trees % 4 != 0  # balanced up to one
    for _ in range(200):
        objective.loss(oracle)
    draws = torch.stack([x.argmax(1)[x.any(1)] for x in oracle.calls])
    assert draws.shape == (200, trees)
    assert draws.unique(dim=0).shape[0] > 190
    counts = torch.nn.functional.one_hot(draws).sum(1)
    assert counts.min() >= trees // 4
    assert counts.max() <= -(-trees // 4)
    assert (torch.nn.functional.one_hot(draws).float().mean(0) - 0.25).abs().max() < 0.15  # each anchor sees each code
    again = AncestorRetrieval(TASK, seed=3)
    assert torch.equal(again.draw(), draws[0])
    assert not torch.equal(AncestorRetrieval(TASK, seed=4).draw(), draws[0])


def test_a_resumed_objective_draws_the_next_codes() -> None:
    one, other = AncestorRetrieval(TASK), AncestorRetrieval(TASK)
    one.draw()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.draw(), other.draw())


def test_every_tree_has_the_same_share_of_the_accuracy() -> None:
    forest = AncestorForest(TASK, TASK.test_index, copies=3)
    logits, answers = forest.logits(Oracle(2), torch.zeros(3 * forest.trees.numel(), dtype=torch.int64))
    assert logits.shape == (3 * TASK.test_index.numel(), 4)
    assert not answers.any()
    share = torch.zeros(forest.trees.numel(), dtype=torch.float64).index_add(
        0, torch.searchsorted(forest.trees, TASK.anchor[TASK.test_index].repeat(3)), forest.weight
    )
    torch.testing.assert_close(share, torch.full_like(share, 1 / share.numel()))


def test_the_objective_of_a_task_and_what_it_refuses() -> None:
    assert isinstance(make_objective(TASK, TrainConfig(loss="cross_entropy")), AncestorRetrieval)
    refused: dict[str, Any] = {"batch_size": 8, "loss": "margin", "margin": 2.0, "neighbours": "5"}
    for name, value in (refused | {"augment": Augment(cutout=4)}).items():
        with pytest.raises(ValueError, match=f"leave out {name}="):
            make_objective(TASK, TrainConfig(**{name: value}))


def test_fit_trains_evaluates_and_resumes_in_a_folder(tmp_path: Any) -> None:
    config = TrainConfig(epochs=30, lr=0.03)
    run = lresnet.fit(TASK, network(), config, out=tmp_path / "run", device="cpu")
    found = run.evaluate()
    assert found.keys() == {"accuracy"}
    again = lresnet.fit(TASK, network(), config, out=tmp_path / "run", device="cpu")
    assert again.evaluate() == found
    with pytest.raises(ValueError, match="in_features=3"):
        lresnet.fit(TASK, lresnet.create_model("lorentz_gcn", in_features=3, num_classes=4), config, device="cpu")


# --- stacks -----------------------------------------------------------------------------------------------------------


def _stackable(**options: Any) -> tuple[list[LorentzGCN], list[AncestorRetrieval]]:
    models = [network(seed=seed, **options).double() for seed in range(3)]
    return models, [AncestorRetrieval(TASK, seed=seed) for seed in range(3)]


@pytest.mark.parametrize("method", ["lorentz", "parallel_transport", "tangent", "space", "none", "euclidean"])
def test_a_stack_trains_every_member_as_it_trains_alone(method: str) -> None:
    config = TrainConfig(epochs=10, lr=0.02, eval_every=5)
    alone, objectives = _stackable(residual=method)
    expected = [train_model(*pair, config) for pair in zip(alone, objectives, strict=True)]
    models, objectives = _stackable(residual=method)
    found = train_many(models, objectives, config)
    for one, other, a, b in zip(expected, found, alone, models, strict=True):
        assert isinstance(other, Outcome)
        assert (one.best_epoch, one.epochs) == (other.best_epoch, other.epochs)
        assert other.validation == pytest.approx(one.validation, rel=1e-12)
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-9)


def test_stacks_need_one_forest_and_one_kind_of_objective() -> None:
    models, objectives = _stackable()
    other = AncestorRetrieval(dataclasses.replace(TASK, val_codes=TASK.test_codes))
    with pytest.raises(StackError, match="different forests or codes"):
        train_many(models[:2], [objectives[0], other], TrainConfig(epochs=1))
    with pytest.raises(StackError, match="AncestorRetrieval objectives only"):
        train_many(models[:2], [objectives[0], make_objective(link_task(), TrainConfig())], TrainConfig(epochs=1))


def test_a_member_that_diverges_does_not_touch_the_others() -> None:
    models, objectives = [network(seed=seed) for seed in range(2)], [AncestorRetrieval(TASK, seed=s) for s in range(2)]
    with torch.no_grad():
        next(models[0].parameters()).fill_(float("nan"))
    found = train_many(models, objectives, TrainConfig(epochs=2))
    assert isinstance(found[0], NonFiniteError)
    assert isinstance(found[1], Outcome)
