"""ModelStack: stacked parameters, and the one model that computes with all of them."""

from __future__ import annotations

import geoopt
import pytest
import torch

from lresnet.models import LorentzGCN
from lresnet.optim import parameter_groups
from lresnet.train.stacking.model import ModelStack, StackError

X, EDGES = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).double(), torch.tensor([[0, 1, 5], [1, 2, 6]])


def models(count: int = 3, **options: object) -> list[LorentzGCN]:
    torch.manual_seed(0)
    options = {"num_layers": 2, "num_classes": 3, "learn_curvature": True} | options
    made = [LorentzGCN(4, 5, residual_options={"weight": "learned"}, **options).double() for _ in range(count)]
    with torch.no_grad():
        for parameter in (p for model in made for p in model.parameters()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def stack_of(made: list[LorentzGCN]) -> ModelStack[LorentzGCN]:
    groups = parameter_groups(made[0])
    return ModelStack(made, [[*groups.decayed], [*groups.plain, *groups.geometric]], [*groups.manifold])


def output(model: LorentzGCN) -> torch.Tensor:
    x = X.unsqueeze(1) if model.layers[0].linear.weight.dim() == 3 else X
    return model(model.input_points(x), model.graph(EDGES, 9))


def test_one_call_equals_all_calls_and_gradients_reach_the_leaves():
    made = models()
    stack = stack_of(made)
    y = stack.call(output)
    expected = torch.stack([output(model) for model in made], dim=1)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    y.square().sum().backward()
    expected.square().sum().backward()
    gradients = stack.views([leaf.grad for leaf in stack.leaves])
    for name, gradient in gradients.items():
        own = torch.stack([model.get_parameter(name).grad for model in made])
        torch.testing.assert_close(gradient.reshape(own.shape), own, rtol=1e-9, atol=1e-11)


def test_one_leaf_per_section_and_one_per_point_parameter():
    stack = stack_of(models())
    assert [leaf.shape for leaf in stack.leaves] == [(3, 6 * 4 + 6 * 5), (3, 2 * 2 * 6 + 3 + 2 + 1 + 1), (3, 3, 5)]
    assert all(leaf.is_leaf and leaf.requires_grad for leaf in stack.leaves)
    assert not any(isinstance(leaf, geoopt.ManifoldTensor) for leaf in stack.leaves)


def test_write_copies_the_parameters_of_one_member():
    made, others = models(), models(count=1)
    stack_of(made).write(2, others[0])
    assert all(torch.equal(p, q) for p, q in zip(made[2].parameters(), others[0].parameters(), strict=True))


def test_curvature_broadcasts_against_points_of_members():
    made = models()
    K = stack_of(made).curvature()
    assert K.shape == (3, 1, 1)
    torch.testing.assert_close(K.flatten(), torch.stack([model.manifold.K for model in made]).detach())
    assert stack_of(models(learn_curvature=False)).curvature() == -1.0


def test_the_models_do_not_change():
    made = models()
    before = [model.get_parameter("layers.0.linear.weight").clone() for model in made]
    stack = stack_of(made)
    with torch.no_grad():
        stack.leaves[0].zero_()
    assert all(torch.equal(model.layers[0].linear.weight, own) for model, own in zip(made, before, strict=True))


def test_models_that_cannot_be_stacked_are_refused():
    with pytest.raises(StackError, match="at least one model"):
        ModelStack([], [])
    with pytest.raises(StackError, match="different classes or configurations"):
        stack_of([*models(count=1), *models(count=1, curvature=-2.0)])
    mixed = models(count=2)
    mixed[1].float()
    with pytest.raises(StackError, match="differs in shape, dtype or device"):
        stack_of(mixed)
    frozen = models()
    for model in frozen:
        model.head.bias.requires_grad_(False)
    with pytest.raises(StackError, match=r"head\.bias are in no section"):
        stack_of(frozen)
    buffers = [LorentzGCN(4, 5, num_layers=2) for _ in range(2)]
    buffers[1].residuals[0].raw_weight.fill_(0.5)
    with pytest.raises(StackError, match=r"buffer 'residuals\.0\.raw_weight' differs"):
        stack_of(buffers)
