"""GraphInputs: the constant part of the input is computed once per model."""

from __future__ import annotations

import gc

import pytest
import torch

import lresnet
from lresnet.models import LorentzGCN
from lresnet.nn.sparse import SparseMatrix
from lresnet.train.graph_inputs import GraphInputs
from tests.train.tree import link_task, node_task

EDGES = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])


def bag(columns: int = 40) -> torch.Tensor:
    x = torch.zeros(5, columns)
    x[torch.arange(5), torch.arange(5) * 3] = torch.linspace(0.5, 1.5, 5)
    return x


def make(residual: str = "lorentz", **options: object) -> LorentzGCN:
    torch.manual_seed(0)
    return LorentzGCN(40, 4, num_classes=2, residual=residual, **options)


def test_features_with_few_non_zeros_are_stored_sparse():
    assert isinstance(GraphInputs(bag(), EDGES, 5).features, SparseMatrix)
    assert isinstance(GraphInputs(torch.randn(5, 40), EDGES, 5).features, torch.Tensor)


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_apply_returns_the_model_s_output(residual, sparse, learned):
    x = bag() if sparse else torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    model = make(residual, learn_curvature=learned)
    inputs = GraphInputs(x, EDGES, 5)
    for _ in range(2):
        torch.testing.assert_close(inputs.apply(model), model(x, EDGES))


def test_constant_parts_are_computed_once_unless_the_curvature_is_learned(monkeypatch):
    calls = []
    original = LorentzGCN.input_points
    monkeypatch.setattr(LorentzGCN, "input_points", lambda self, x: (calls.append(1), original(self, x))[1])
    inputs, model = GraphInputs(bag(), EDGES, 5), make()
    for _ in range(3):
        inputs.apply(model)
    assert len(calls) == 1
    learned, inputs = make(learn_curvature=True), GraphInputs(bag(), EDGES, 5)
    for _ in range(3):
        inputs.apply(learned)
    assert len(calls) == 4
    inputs.apply(learned).sum().backward()
    assert learned.manifold.log_kappa.grad.isfinite()


def test_a_changed_learned_curvature_is_used():
    inputs, model = GraphInputs(bag(), EDGES, 5), make(learn_curvature=True)
    inputs.apply(model)
    with torch.no_grad():
        model.manifold.log_kappa.add_(1.0)
    torch.testing.assert_close(inputs.apply(model), model(bag(), EDGES))


def test_every_model_gets_its_own_inputs_even_at_the_address_of_a_deleted_model():
    """One objective may serve many models, and memory of a deleted model is reused for the next."""
    inputs = GraphInputs(bag(), EDGES, 5)
    for i in range(30):
        model = make("euclidean" if i % 3 == 0 else "lorentz", curvature=-0.1 * (1 + i))
        torch.testing.assert_close(inputs.apply(model), model(bag(), EDGES))
        del model


def test_does_not_keep_a_model_alive():
    import weakref

    inputs, model = GraphInputs(bag(), EDGES, 5), make()
    inputs.apply(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


# --- precision of the model -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lorentz_gcn", "lorentz_gcnii", "lorentz_sage", "lorentz_sgformer"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_features_and_weights_take_the_precision_of_the_model(kind, sparse, weighted):
    x = bag() if sparse else torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    weight = torch.rand(EDGES.shape[1], generator=torch.Generator().manual_seed(2)) if weighted else None
    torch.manual_seed(0)
    model = lresnet.create_model(kind, in_features=40, hidden=4, num_classes=2).double().eval()
    inputs = GraphInputs(x, EDGES, 5, weight)
    wide = None if weight is None else weight.double()
    expected = model(x.double(), EDGES, wide)
    assert expected.dtype == torch.float64
    torch.testing.assert_close(inputs.apply(model), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(inputs.embed(model), model.embed(x.double(), EDGES, wide), rtol=1e-12, atol=1e-12)
    narrow = lresnet.create_model(kind, in_features=40, hidden=4, num_classes=2).eval()
    assert inputs.apply(narrow).dtype == torch.float32  # one objective serves models of any precision


@pytest.mark.parametrize("kind", ["lorentz_gcn", "lorentz_gcnii", "lorentz_sage", "lorentz_sgformer"])
@pytest.mark.parametrize("task", [link_task(), node_task()], ids=["lp", "nc"])
def test_a_model_in_float64_trains_and_is_saved_in_it(kind, task, tmp_path):
    classes = {"num_classes": task.num_classes} if hasattr(task, "num_classes") else {}
    model = lresnet.create_model(kind, in_features=task.x.shape[1], hidden=4, **classes).double()
    run = lresnet.fit(task, model, lresnet.TrainConfig(epochs=2), out=tmp_path)
    assert run.evaluate()
    assert run.embed().points.isfinite().all()
    saved = lresnet.from_pretrained(tmp_path / "model")
    assert {parameter.dtype for parameter in saved.parameters()} == {torch.float64}
