"""Tests of lorentz_resnet in training: gradients at any depth, initial norms, learned parameters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.models import LorentzResNet
from lresnet.testing import assert_finite_gradients
from tests.models.resnets import backward, every_residual, images, make


@every_residual
@pytest.mark.parametrize("depth", [18, 20, 32, 56, 110])
def test_gradients_are_finite_at_any_depth(depth, residual):
    model = make(residual, depth, widths=[8, 8, 16, 16] if depth == 18 else None, learn_curvature=True)
    assert backward(model, images()).isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or "bias" in name, name


@every_residual
def test_gradients_are_finite_for_images_of_zeros(residual):
    model = make(residual, 20)
    assert_finite_gradients(model, torch.zeros(4, 3, 8, 8))
    assert backward(model, torch.zeros(4, 3, 8, 8)).isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("depth", [18, 20])
@pytest.mark.parametrize("gain", [1e-9, 1e9])
def test_gradients_are_finite_for_batch_norms_of_any_gain(gain, depth):
    model = make(depth=depth, learn_curvature=True)
    for block in model.blocks:
        torch.nn.init.constant_(block.bn2.weight, gain)
    for x in (images(), torch.zeros(4, 3, 8, 8)):
        model.zero_grad()
        assert backward(model, x).isfinite()
        assert all(p.grad.isfinite().all() for p in model.parameters())


def norms(model: LorentzResNet, x: Tensor) -> Tensor:
    """Return the mean norm of the pixels after each block."""
    found: list[Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _, __, output: found.append(output.norm(dim=1).mean()))
    with torch.no_grad():
        model(x)
    return torch.stack(found)


@pytest.mark.parametrize(("depth", "low", "high"), [(18, 0.37, 0.85), (20, 0.7, 1.0), (32, 0.6, 1.0), (110, 0.3, 1.0)])
def test_initial_norms_are_near_those_of_the_euclidean_baseline(depth, low, high):
    """The figures are in the module's docstring."""
    x = images(8, 32, 32)
    ratio = norms(make(depth=depth), x) / norms(make("euclidean", depth), x)
    assert ratio.min() > low
    assert ratio.max() < high


@pytest.mark.parametrize("residual", ["lorentz", "parallel_transport", "tangent", "space"])
def test_a_learned_curvature_changes_and_stays_negative(residual):
    model = make(residual, learn_curvature=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = float(model.manifold.K.detach())
    for _ in range(3):
        optimizer.zero_grad()
        backward(model, images())
        optimizer.step()
    after = float(model.manifold.K.detach())
    assert after != before
    assert after < 0
    assert [name for name, _ in model.named_parameters() if "kappa" in name] == ["manifold.log_kappa"]


def test_an_unused_curvature_is_not_trained():
    for model in (make("euclidean", learn_curvature=True), make("space", pooling="mean", head="linear")):
        assert not list(model.manifold.parameters())
    assert list(make("euclidean", head="mlr", learn_curvature=True).manifold.parameters())


def test_there_are_no_unused_parameters():
    """A network without skips has no shortcuts, and convolutions before a batch norm have no bias."""
    assert not any("shortcut" in name for name, _ in make("none").named_parameters())
    convolutions = [m for m in make(depth=18).modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 1 + 2 * 8 + 3
    assert all(conv.bias is None for conv in convolutions)


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_training_separates_four_images(residual):
    model, x = make(residual), images(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(12):
        optimizer.zero_grad()
        loss = backward(model, x + 0.1 * torch.randn(x.shape))
        optimizer.step()
    assert loss < 0.1
