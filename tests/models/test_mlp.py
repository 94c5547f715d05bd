"""Tests of lorentz_mlp, Algorithm 1 on plain vectors."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from lresnet.models import LorentzMLP
from lresnet.optim import make_adam
from tests.models.common import CLASSES, FEATURES, RESIDUALS, features

every_residual = pytest.mark.parametrize("residual", RESIDUALS)


def make(residual: str = "lorentz", **options: object) -> LorentzMLP:
    torch.manual_seed(0)
    return LorentzMLP(**{"in_features": FEATURES, "hidden": 5, "num_classes": CLASSES, "residual": residual} | options)


@every_residual
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_shapes_and_finite_gradients(residual, learned):
    model = make(residual, learn_curvature=learned, curvature=-2.0, dropout=0.2)
    logits = model(features())
    assert logits.shape == (14, CLASSES)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    keys = [key for key in model.state_dict() if "kappa" in key]
    assert keys == (["manifold.log_kappa"] if learned and residual != "euclidean" else [])
    assert make(residual, num_classes=None)(features()).shape == (14, 5)


@every_residual
def test_the_model_is_the_sequence_of_its_layers(residual):
    model = make(residual, curvature=-0.5, num_layers=4).double()
    x = features(torch.float64)
    z = model.layers[0](x if residual == "euclidean" else model.manifold.expmap0(x))
    for layer, join in zip(model.layers[1:], model.residuals, strict=True):
        z = join(z, layer(z))
    torch.testing.assert_close(model(x), model.head(z))
    torch.testing.assert_close(model.embed(x), z)


def toy(count: int = 150) -> tuple[Tensor, Tensor]:
    """Return three rings around the origin, which no line separates."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(count) % 3
    angle = 6.2832 * torch.rand(count, generator=g)
    radius = 1.0 * (y + 1) + 0.1 * torch.randn(count, generator=g)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), y


def test_training_solves_a_problem_that_no_linear_model_solves():
    x, y = toy()
    torch.manual_seed(0)
    model = LorentzMLP(2, hidden=8, num_layers=3, num_classes=3)
    optimizers = make_adam(model, lr=0.02)
    first = None
    for _ in range(80):
        optimizers.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizers.step()
        first = loss.item() if first is None else first
    accuracy = (model(x).argmax(1) == y).double().mean()
    assert accuracy > 0.95
    assert loss.item() < 0.5 * first


def test_dropout_is_active_in_training_only_and_seeds_reproduce():
    model = make(dropout=0.5)
    assert not torch.equal(model(features()), model(features()))
    assert torch.equal(model.eval()(features()), make().eval()(features()))
    assert torch.equal(make()(features()), make()(features()))


@every_residual
def test_features_in_half_precision(residual):
    if residual == "euclidean":
        model = make(residual).bfloat16()
        assert model(features(torch.bfloat16)).dtype == torch.bfloat16
        return
    model = make(residual, learn_curvature=True, curvature=-2.0)
    y = model(features(torch.bfloat16))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), model(features(torch.bfloat16).float()), rtol=0.1, atol=0.1)


def test_state_dict_keys():
    names = ("weight", "time_weight", "bias", "log_scale")
    linear = [f"layers.{i}.{name}" for i in range(2) for name in names]
    assert list(make(num_layers=2, learn_curvature=True).state_dict()) == [
        "manifold.log_kappa",
        *linear,
        "residuals.0.raw_weight",
        "head.points",
        "head.bias",
    ]
    assert list(make("euclidean", num_layers=2).state_dict()) == [
        "manifold._extra_state",
        "layers.0.0.weight",
        "layers.0.0.bias",
        "layers.1.0.weight",
        "layers.1.0.bias",
        "head.weight",
        "head.bias",
    ]


def test_a_deep_copy_gives_the_same_output():
    model = make(learn_curvature=True)
    assert torch.equal(copy.deepcopy(model)(features()), model(features()))


def test_wrong_arguments_are_rejected():
    with pytest.raises(ValueError, match="need num_layers >= 1"):
        make(num_layers=0)
    with pytest.raises(ValueError, match="0 <= dropout < 1"):
        make(dropout=-0.1)
