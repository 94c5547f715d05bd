"""Tests of interleaved images in a ResNet: the same numbers, and when images are interleaved."""

import copy

import pytest
import torch
from torch import Tensor

from lresnet.models import LorentzResNet, resnet
from lresnet.residual import RESIDUALS
from lresnet.testing import assert_compiles


@pytest.mark.parametrize("residual", ["lorentz", "euclidean", "none"])
def test_interleaving_gives_the_same_results_gradients_and_statistics(residual, monkeypatch):
    x = torch.randn(8, 3, 8, 12, dtype=torch.float64)
    found = []
    for images in (1, 4):
        torch.manual_seed(1)
        model = LorentzResNet(8, 5, residual=residual).double()
        monkeypatch.setattr(model, "num_interleaved", lambda x, images=images: images)
        out = model(x)
        out.square().sum().backward()
        found.append([out, *(p.grad for p in model.parameters()), *model.buffers()])
    for one, many in zip(*found, strict=True):
        torch.testing.assert_close(many, one, rtol=1e-9, atol=1e-11)


class OnGPU:
    """The attributes of a batch of images on a GPU that the choice depends on."""

    def __init__(self, batch: int, dtype: torch.dtype = torch.bfloat16) -> None:
        self.shape, self.dtype, self.device = (batch, 3, 8, 8), dtype, torch.device("cuda")


def test_only_narrow_networks_interleave_and_only_in_training_in_half_precision_on_a_gpu():
    model = LorentzResNet(8, 5)
    assert model.num_interleaved(torch.zeros(16, 3, 8, 8)) == 1  # on a CPU the zeros cost time
    assert model.num_interleaved(OnGPU(16)) == 8
    assert model.num_interleaved(OnGPU(16, torch.float32)) == 1
    assert model.num_interleaved(OnGPU(12)) == 1  # not a multiple of eight
    assert model.num_interleaved(OnGPU(0)) == 1
    assert LorentzResNet(18).num_interleaved(OnGPU(16)) == 1
    assert model.eval().num_interleaved(OnGPU(16)) == 1


def test_networks_with_any_residual_copies_and_synchronised_norms_interleave():
    for residual in RESIDUALS:
        model = LorentzResNet(8, 5, residual=residual)
        assert model.num_interleaved(OnGPU(16)) == 8, residual
    assert copy.deepcopy(model).num_interleaved(OnGPU(16)) == 8
    assert torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).num_interleaved(OnGPU(16)) == 8


def test_networks_with_other_parts_do_not_interleave():
    """A group norm would treat interleaved images as one, and torch's convolution does not support them."""
    for name, part in (("bn1", torch.nn.GroupNorm(2, 8)), ("conv2", torch.nn.Conv2d(8, 8, 3, padding=1))):
        model = LorentzResNet(8, 5)
        setattr(model.blocks[0], name, part)
        assert model.num_interleaved(OnGPU(16)) == 1
    model = LorentzResNet(8, 5)
    model.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU())
    assert model.num_interleaved(OnGPU(16)) == 1


def test_networks_with_reordered_or_modified_parts_do_not_interleave():
    class Own(resnet.ResidualBlock):
        def forward(self, x):
            return super().forward(x)

    for change in ("order", "groups", "class", "forward", "compiled"):
        model = LorentzResNet(8, 5)
        if change == "order":
            model.stem = torch.nn.Sequential(model.stem[0], model.stem[2], model.stem[1])
        elif change == "groups":
            model.blocks = torch.nn.Sequential(model.blocks[:1], model.blocks[1:])
        elif change == "class":
            model.blocks[0].__class__ = Own
        elif change == "forward":
            model.blocks[0].forward = lambda x: x
        else:
            model.blocks[0].compile(backend="eager")
        assert model.num_interleaved(OnGPU(16)) == 1, change


@pytest.mark.parametrize("name", ["stem", "stem.0", "blocks", "blocks.1", "blocks.1.conv1"])
def test_networks_with_hooks_do_not_interleave(name):
    model = LorentzResNet(8, 5)
    hook = model.get_submodule(name).register_forward_hook(lambda module, inputs, output: None)
    assert model.num_interleaved(OnGPU(16)) == 1
    hook.remove()
    assert model.num_interleaved(OnGPU(16)) == 8


@pytest.mark.slow
def test_interleaving_compiles_without_a_graph_break(monkeypatch):
    model = LorentzResNet(8, 5, residual="euclidean")

    def choice(self: LorentzResNet, x: Tensor) -> int:
        return 4 if resnet.is_unmodified(self.stem, self.blocks) else 1

    monkeypatch.setattr(LorentzResNet, "num_interleaved", choice)
    assert_compiles(model, torch.randn(8, 3, 8, 8), tolerance=1e-3)
