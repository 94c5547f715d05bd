"""Images side by side: the same numbers as one after the other."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lresnet.models import LorentzResNet, residual_block
from lresnet.nn.side_by_side import conv2d_side_by_side, separate, side_by_side
from lresnet.residual import RESIDUALS
from lresnet.testing import assert_compiles


@settings(deadline=None)
@given(
    images=st.integers(1, 4),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    kernel=st.sampled_from([1, 3]),
    stride=st.integers(1, 2),
)
def test_a_convolution_and_its_gradients(images, groups, channels, size, kernel, stride):
    torch.manual_seed(0)
    x = torch.randn(images * groups, channels[0], *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(channels[1], channels[0], kernel, kernel, dtype=torch.float64, requires_grad=True)
    where = {"stride": (stride, stride), "padding": (kernel // 2, kernel // 2)}
    expected = torch.nn.functional.conv2d(x, weight, **where)
    found = separate(conv2d_side_by_side(side_by_side(x, images), weight, images, **where), images)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    g = torch.randn_like(expected)
    for a, b in zip(*(torch.autograd.grad(y, (x, weight), g) for y in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_both_lie_in_memory_with_channels_last():
    x = side_by_side(torch.randn(4, 3, 6, 5), 2)
    assert x.shape == (2, 3, 6, 10)
    for y in (x, separate(x, 2), conv2d_side_by_side(x, torch.randn(7, 3, 3, 3), 2, (2, 2), (1, 1))):
        assert y.is_contiguous(memory_format=torch.channels_last)


def test_a_convolution_side_by_side_copies_nothing(monkeypatch):
    seen = []
    conv2d = torch.nn.functional.conv2d
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda x, *a, **k: seen.append(x) or conv2d(x, *a, **k))
    x = side_by_side(torch.randn(4, 3, 6, 5), 2)
    conv2d_side_by_side(x, torch.randn(7, 3, 1, 1), 2)
    assert seen[0].shape == (2, 6, 6, 5)
    assert seen[0].data_ptr() == x.data_ptr()


@pytest.mark.parametrize("residual", ["lorentz", "euclidean", "none"])
def test_a_network_learns_the_same(residual, monkeypatch):
    x = torch.randn(8, 3, 8, 12, dtype=torch.float64)
    found = []
    for images in (1, 4):
        torch.manual_seed(1)
        model = LorentzResNet(8, 5, residual=residual).double()
        monkeypatch.setattr(model, "images_side_by_side", lambda x, images=images: images)
        out = model(x)
        out.square().sum().backward()
        found.append([out, *(p.grad for p in model.parameters()), *model.buffers()])
    for one, many in zip(*found, strict=True):
        torch.testing.assert_close(many, one, rtol=1e-9, atol=1e-11)


class OnGPU:
    """What is asked of a batch of images."""

    def __init__(self, batch: int, dtype: torch.dtype = torch.bfloat16) -> None:
        self.shape, self.dtype, self.device = (batch, 3, 8, 8), dtype, torch.device("cuda")


def test_only_narrow_networks_in_half_precision_on_a_gpu_that_are_trained():
    model = LorentzResNet(8, 5)
    assert model.images_side_by_side(torch.zeros(16, 3, 8, 8)) == 1  # a CPU multiplies the zeros
    assert model.images_side_by_side(OnGPU(16)) == 8
    assert model.images_side_by_side(OnGPU(16, torch.float32)) == 1
    assert model.images_side_by_side(OnGPU(12)) == 1  # eight do not divide it
    assert model.images_side_by_side(OnGPU(0)) == 1
    assert LorentzResNet(18).images_side_by_side(OnGPU(16)) == 1
    assert model.eval().images_side_by_side(OnGPU(16)) == 1


def test_every_residual_goes_side_by_side_and_so_do_copies_and_synchronised_norms():
    for residual in RESIDUALS:
        model = LorentzResNet(8, 5, residual=residual)
        assert model.images_side_by_side(OnGPU(16)) == 8, residual
    assert copy.deepcopy(model).images_side_by_side(OnGPU(16)) == 8
    assert torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).images_side_by_side(OnGPU(16)) == 8


def test_not_through_parts_of_another_kind():
    """A group norm would take neighbours for one image; a torch convolution knows of none."""
    for name, part in (("bn1", torch.nn.GroupNorm(2, 8)), ("conv2", torch.nn.Conv2d(8, 8, 3, padding=1))):
        model = LorentzResNet(8, 5)
        setattr(model.blocks[0], name, part)
        assert model.images_side_by_side(OnGPU(16)) == 1
    model = LorentzResNet(8, 5)
    model.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU())
    assert model.images_side_by_side(OnGPU(16)) == 1


def test_not_through_parts_in_another_order_or_with_a_way_of_their_own():
    class Own(residual_block.ResidualBlock):
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
        assert model.images_side_by_side(OnGPU(16)) == 1, change


@pytest.mark.parametrize("name", ["stem", "stem.0", "blocks", "blocks.1", "blocks.1.conv1"])
def test_a_hook_sees_the_usual_shapes(name):
    model = LorentzResNet(8, 5)
    hook = model.get_submodule(name).register_forward_hook(lambda module, inputs, output: None)
    assert model.images_side_by_side(OnGPU(16)) == 1
    hook.remove()
    assert model.images_side_by_side(OnGPU(16)) == 8


def test_the_choice_and_the_way_compile_to_one_graph(monkeypatch):
    model = LorentzResNet(8, 5, residual="euclidean")

    def choice(self: LorentzResNet, x: Tensor) -> int:
        return 4 if residual_block.is_as_built(self.stem, self.blocks) else 1

    monkeypatch.setattr(LorentzResNet, "images_side_by_side", choice)
    assert_compiles(model, torch.randn(8, 3, 8, 8), tolerance=1e-3)
