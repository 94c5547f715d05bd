"""Stacks of lorentz_sgformer on sparse features: every run ends as it does alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lresnet.data import NodeTask
from lresnet.models import LorentzSGFormer
from lresnet.nn.sparse import BlockDiagonal, SparseMatrix
from lresnet.train import NodeClassification, Outcome, TrainConfig, train_model
from lresnet.train.stacking import StackedTrainingState, fork_generator, train_many
from tests.train.tree import node_task

S, WIDTH = 3, 20
CONFIG = TrainConfig(epochs=8, lr=0.02, weight_decay=0.01, optimizer="adam_l2", decay="all", eval_every=2)


def sparse_task(seed: int) -> NodeTask:
    """The tree with one entry in each row of the features, in float64."""
    task = node_task()
    x = torch.zeros(task.num_nodes, WIDTH, dtype=torch.float64)
    columns = torch.randint(WIDTH, (task.num_nodes,), generator=torch.Generator().manual_seed(seed))
    x[torch.arange(task.num_nodes), columns] = 1.0
    return dataclasses.replace(task, x=x)


def runs(
    tasks: list[NodeTask], options: dict[str, object]
) -> list[tuple[LorentzSGFormer, NodeClassification, torch.Generator]]:
    made = []
    for seed, task in enumerate(tasks):
        torch.manual_seed(seed)
        model = LorentzSGFormer(WIDTH, 6, 2, task.num_classes, dropout=0.6, **options).double()
        made.append((model, NodeClassification(task), fork_generator("cpu")))
    return made


@pytest.mark.parametrize("features", ["shared", "own"])
@pytest.mark.parametrize(
    "options",
    [
        {"residual": "lorentz", "graph_input": "features", "values": "identity"},
        {"residual": "euclidean", "graph_input": "features", "values": "identity"},
        {"residual": "lorentz"},
        {"residual": "lorentz", "branches": "lorentz"},
        {"residual": "lorentz", "branches": "lorentz", "learn_curvature": True},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_stacked_runs_end_as_they_do_alone(options: dict[str, object], features: str) -> None:
    tasks = [sparse_task(seed if features == "own" else 0) for seed in range(S)]
    models, objectives, generators = zip(*runs(tasks, options), strict=True)
    outcomes = train_many(models, objectives, CONFIG, generators=generators)
    alone = runs(tasks, options)
    for model, outcome, (single, objective, generator) in zip(models, outcomes, alone, strict=True):
        torch.set_rng_state(generator.get_state())
        expected = train_model(single, objective, CONFIG)
        assert isinstance(outcome, Outcome), outcome
        assert dict(outcome.curve) == pytest.approx(dict(expected.curve))
        assert outcome.best_epoch == expected.best_epoch
        for name, parameter in single.named_parameters():
            torch.testing.assert_close(model.get_parameter(name), parameter, rtol=1e-6, atol=1e-9)


def test_shared_features_are_stored_once_for_all_runs() -> None:
    models, objectives, generators = zip(*runs([sparse_task(0)] * S, {"graph_input": "features"}), strict=True)
    inputs = StackedTrainingState(models, objectives, CONFIG, generators).objective.inputs  # type: ignore[attr-defined]
    assert isinstance(inputs._features, SparseMatrix)
    assert not isinstance(inputs._features, BlockDiagonal)


@pytest.mark.parametrize("width", [WIDTH - 1, S * WIDTH])
def test_features_of_the_wrong_width_are_an_error(width: int) -> None:
    model = LorentzSGFormer(WIDTH, 6, 2, 2)
    rows = SparseMatrix.from_dense(torch.eye(4, width))
    with pytest.raises(ValueError, match=rf"built for features \[N, {WIDTH}\], got shape \(4, {width}\)"):
        model.input_points(rows)
    with pytest.raises(ValueError, match=rf"built for features \[N, {WIDTH}\], got shape \(4, {width}\)"):
        model.input_points(BlockDiagonal.of([rows] * S))
