"""Node classification: losses against their formulas, metrics against scikit-learn."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from lresnet.models import LorentzGCN
from lresnet.train import NodeClassification, TrainConfig, train_model
from lresnet.train.node_classification import class_margin_loss
from tests.train.tree import node_task

TASK = node_task()


def make(residual: str = "lorentz", K: float = -1.0, classes: int = 2, **options: object) -> LorentzGCN:
    torch.manual_seed(0)
    return LorentzGCN(TASK.x.shape[1], 6, num_classes=classes, residual=residual, curvature=K, **options)


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_cross_entropy_is_over_the_training_nodes_only(residual):
    model = make(residual)
    loss = NodeClassification(TASK).loss(model)
    logits = model(TASK.x, TASK.edge_index)[TASK.train_index].double()
    chosen = logits.gather(1, TASK.y[TASK.train_index].unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(loss.double(), (logits.logsumexp(1) - chosen).mean(), rtol=1e-5, atol=1e-6)


def test_the_validation_loss_is_that_of_the_validation_nodes():
    model, objective = make().eval(), NodeClassification(TASK)
    score, loss = objective.validation_with_loss(model)
    logits = model(TASK.x, TASK.edge_index)[TASK.val_index].double()
    chosen = logits.gather(1, TASK.y[TASK.val_index].unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(loss.double(), (logits.logsumexp(1) - chosen).mean(), rtol=1e-5, atol=1e-6)
    assert score == objective.validation(model)


@pytest.mark.parametrize("K", [-0.5, -2.0])
@pytest.mark.parametrize("learned", [False, True])
def test_margin_loss_in_units_of_1_over_kappa(K, learned):
    model = make(K=K, learn_curvature=learned)
    loss = NodeClassification(TASK, loss="margin", margin=3.0).loss(model)
    logits, y = model(TASK.x, TASK.edge_index)[TASK.train_index], TASK.y[TASK.train_index]
    rows = [
        [max(0.0, 3.0 / -K - float(row[label]) + float(value)) for value in row]
        for row, label in zip(logits.detach(), y, strict=True)
    ]
    assert float(loss.detach()) == pytest.approx(float(torch.tensor(rows).mean()), rel=1e-5)
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_the_margin_of_the_euclidean_baseline_ignores_the_curvature():
    model = make("euclidean", K=-2.0)
    loss = NodeClassification(TASK, loss="margin", margin=3.0).loss(model)
    logits, y = model(TASK.x, TASK.edge_index)[TASK.train_index], TASK.y[TASK.train_index]
    torch.testing.assert_close(loss, class_margin_loss(logits, y, 3.0))


def test_class_margin_loss_by_hand():
    logits, y = torch.tensor([[1.0, 0.5, -3.0], [0.0, 2.0, 1.5]]), torch.tensor([0, 1])
    # margin 1: rows 1, 0.5, 0 and 0, 1, 0.5; the true class counts the margin itself, as in HyboNet
    assert class_margin_loss(logits, y, 1.0) == pytest.approx(3.0 / 6)


@pytest.mark.parametrize("metric", ["f1_binary", "accuracy"])
def test_metrics_agree_with_scikit_learn(metric):
    task = NodeClassification(dataclasses.replace(TASK, metric=metric))
    model = make().eval()
    answers = model(TASK.x, TASK.edge_index).argmax(1)
    expected = f1_score if metric == "f1_binary" else accuracy_score
    val, test = TASK.val_index, TASK.test_index
    assert float(task.validation(model)) == pytest.approx(expected(TASK.y[val], answers[val]))
    metrics = task.test(model)
    assert next(iter(metrics)) == metric
    assert metrics[metric] == pytest.approx(100 * expected(TASK.y[test], answers[test]))
    assert metrics["accuracy"] == pytest.approx(100 * accuracy_score(TASK.y[test], answers[test]))


def test_the_loss_does_not_read_labels_of_other_nodes():
    y = TASK.y.clone()
    y[TASK.val_index], y[TASK.test_index] = 1 - y[TASK.val_index], 1 - y[TASK.test_index]
    model = make()
    a, b = NodeClassification(TASK).loss(model), NodeClassification(dataclasses.replace(TASK, y=y)).loss(model)
    assert torch.equal(a, b)


def test_training_does_not_read_the_test_set():
    task = NodeClassification(TASK)
    task.task = dataclasses.replace(task.task, test_index=None)
    model = make()
    train_model(model, task, TrainConfig(epochs=6, eval_every=2))
    with pytest.raises(TypeError):
        task.test(model)


def test_it_has_no_random_state():
    task = NodeClassification(TASK)
    assert task.state_dict() == {}
    task.load_state_dict({})


def test_the_training_nodes_are_learned():
    task, model = NodeClassification(TASK), make()
    train_model(model, task, TrainConfig(epochs=80, lr=0.03, eval_every=10))
    answers = model(TASK.x, TASK.edge_index).argmax(1)
    assert (answers == TASK.y)[TASK.train_index].double().mean() > 0.85
