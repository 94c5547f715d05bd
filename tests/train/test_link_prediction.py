"""Link prediction: losses against their formulas, metrics against scikit-learn."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from lresnet.data import NegativeSampler
from lresnet.models import LorentzGCN
from lresnet.nn import FermiDirac
from lresnet.train import LinkPrediction, TrainConfig, train_model
from tests.train.tree import link_task

TASK = link_task()


def make(residual: str = "lorentz", K: float = -1.0, **options: object) -> LorentzGCN:
    torch.manual_seed(0)
    return LorentzGCN(TASK.x.shape[1], 6, residual=residual, curvature=K, **options).double()


def objective(**options: object) -> LinkPrediction:
    return LinkPrediction(dataclasses.replace(TASK, x=TASK.x.double()), **options)


def distance2(model: LorentzGCN, pairs: Tensor) -> Tensor:
    """Squared Lorentzian distance from the geodesic one; Euclidean for the baseline."""
    z = model(TASK.x.double(), TASK.edge_index)
    if model.euclidean:
        return (z[pairs[0]] - z[pairs[1]]).square().sum(-1)
    M = model.manifold
    kappa = M.kappa.double()
    return 2 / kappa * ((kappa.sqrt() * M.dist(z[pairs[0]], z[pairs[1]])).cosh() - 1)


@pytest.mark.parametrize("K", [-0.5, -1.0, -2.0])
@pytest.mark.parametrize("learned", [False, True])
def test_margin_loss_with_its_margin_in_units_of_1_over_kappa(K, learned):
    model = make(K=K, learn_curvature=learned)
    loss = objective(margin=3.0, seed=5).loss(model)
    negative = NegativeSampler(TASK, seed=5)()
    hinge = 3.0 / -K + distance2(model, TASK.train_edges) - distance2(model, negative)
    torch.testing.assert_close(loss, hinge.clamp(min=0).mean(), rtol=1e-7, atol=1e-9)
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_the_margin_of_the_euclidean_baseline_ignores_the_curvature():
    model = make("euclidean", K=-2.0)
    loss = objective(margin=3.0, seed=5).loss(model)
    negative = NegativeSampler(TASK, seed=5)()
    hinge = 3.0 + distance2(model, TASK.train_edges) - distance2(model, negative)
    torch.testing.assert_close(loss, hinge.clamp(min=0).mean())


@pytest.mark.parametrize("K", [-0.5, -2.0])
def test_cross_entropy_of_fermi_dirac_probabilities(K):
    model = make(K=K)
    loss = objective(loss="cross_entropy", seed=5).loss(model)
    z = model(TASK.x.double(), TASK.edge_index)
    decoder, negative = FermiDirac(model.manifold), NegativeSampler(TASK, seed=5)()
    yes = decoder(z[TASK.train_edges[0]], z[TASK.train_edges[1]])
    no = decoder(z[negative[0]], z[negative[1]])
    torch.testing.assert_close(loss, -torch.cat([yes.log(), (1 - no).log()]).mean(), rtol=1e-6, atol=1e-8)


def test_cross_entropy_of_the_euclidean_baseline():
    model = make("euclidean")
    loss = objective(loss="cross_entropy", seed=5).loss(model)
    yes, no = (2 - distance2(model, pairs) for pairs in (TASK.train_edges, NegativeSampler(TASK, seed=5)()))
    expected = torch.cat([torch.nn.functional.softplus(-yes), torch.nn.functional.softplus(no)]).mean()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_metrics_agree_with_scikit_learn(residual):
    model, task = make(residual, K=-2.0).eval(), objective()

    def expected(positive: Tensor, negative: Tensor) -> tuple[float, float]:
        scores = torch.cat([-distance2(model, positive), -distance2(model, negative)]).detach()
        labels = [1] * positive.shape[1] + [0] * negative.shape[1]
        return roc_auc_score(labels, scores), average_precision_score(labels, scores)

    auc, ap = expected(TASK.val_edges, TASK.val_negatives)
    assert float(task.validation(model)) == pytest.approx((auc + ap) / 2)
    auc, ap = expected(TASK.test_edges, TASK.test_negatives)
    metrics = task.test(model)
    assert list(metrics) == ["roc_auc", "average_precision"]
    assert metrics["roc_auc"] == pytest.approx(100 * auc)
    assert metrics["average_precision"] == pytest.approx(100 * ap)


def test_negatives_are_drawn_anew_at_every_step_and_follow_the_seed():
    model = make()
    a, b, c = objective(seed=1), objective(seed=1), objective(seed=2)
    first = a.loss(model)
    assert not torch.equal(first, a.loss(model))
    assert torch.equal(first, b.loss(model))
    assert not torch.equal(first, c.loss(model))


def test_a_loaded_state_continues_the_random_numbers():
    model = make()
    a, b = objective(seed=1), objective(seed=9)
    a.loss(model)
    b.load_state_dict(a.state_dict())
    assert torch.equal(a.loss(model), b.loss(model))


def test_training_does_not_read_the_test_set():
    task = LinkPrediction(TASK)
    hidden = dataclasses.replace(task.task, test_edges=None, test_negatives=None)
    task.task = hidden
    model = make().float()
    train_model(model, task, TrainConfig(epochs=6, eval_every=2))
    with pytest.raises(TypeError):
        task.test(model)


def test_links_are_learned():
    tree = link_task(nodes=300)
    task, model = LinkPrediction(tree, margin=5.0), make().float()
    before = task.test(model.eval())["roc_auc"]  # 53.6 before training
    outcome = train_model(model, task, TrainConfig(epochs=60, lr=0.03, eval_every=10))
    assert outcome.validation > 70
    assert task.test(model)["roc_auc"] > max(60.0, before)
