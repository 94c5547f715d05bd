"""Tests of lorentz_sgformer: saved and loaded, as a stack, created by name, under autocast."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from lresnet.models import LorentzSGFormer, create_model, from_pretrained
from lresnet.nn import SparseMatrix
from lresnet.train.stacking.model import ModelStack
from tests.models.common import FEATURES, NODES, features, graph
from tests.models.sgformers import every_case, make


@every_case
def test_saved_models_and_copies_give_the_same_output(residual, branches, tmp_path):
    model = make(residual, branches=branches, learn_curvature=True, learn_graph_weight=True).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    read = from_pretrained(model.save_pretrained(tmp_path)).eval()
    assert isinstance(read, LorentzSGFormer)
    assert torch.equal(read(features(), *graph()), model(features(), *graph()))
    copied = copy.deepcopy(model)
    assert torch.equal(copied(features(), *graph()), model(features(), *graph()))


@every_case
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_stack_equals_its_members(residual, branches, sparse):
    """Three networks as one computation, with dropout."""
    assert_stack_equals_members(residual, sparse, branches=branches)


@pytest.mark.parametrize("residual", ["lorentz", "tangent", "euclidean"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_stack_with_the_options_of_the_released_code_equals_its_members(residual, sparse):
    assert_stack_equals_members(residual, sparse, graph_input="features", values="identity")


def assert_stack_equals_members(residual: str, sparse: bool, **branches: str) -> None:
    options = {"dropout": 0.3, "learn_graph_weight": True, "curvature": -2.0} | branches
    members = [make(residual, **options).double() for _ in range(3)]
    for i, member in enumerate(members):
        torch.manual_seed(i)
        for parameter in member.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    stack = ModelStack(members, [[name for name, _ in members[0].named_parameters()]])
    stack.model.generators = [torch.Generator().manual_seed(i) for i in range(3)]
    x, A = features(torch.float64), members[0].graph(graph()[0], NODES)

    def together(model: LorentzSGFormer) -> Tensor:
        points = model.input_points(SparseMatrix.from_dense(x) if sparse else x.unsqueeze(1))
        if sparse and points.time.dim() == 2:
            points = points._replace(time=points.time.unsqueeze(1))
        return model(points, A)

    y = stack.call(together)
    for i, member in enumerate(members):
        torch.manual_seed(i)
        torch.testing.assert_close(y[:, i], member(x, A))


def test_create_model_builds_the_same_model():
    torch.manual_seed(0)
    model = create_model(
        "lorentz_sgformer", residual="tangent", curvature=-2.0, in_features=FEATURES, hidden=5, heads=2
    )
    expected = make("tangent", curvature=-2.0, num_classes=None, attention_layers=1)
    assert torch.equal(model(features(), *graph()), expected(features(), *graph()))


@every_case
def test_autocast_is_close_to_float32(residual, branches):
    model = make(residual, branches=branches)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(features(), *graph())
    expected = model(features(), *graph())
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()  # bfloat16 has eight bits
