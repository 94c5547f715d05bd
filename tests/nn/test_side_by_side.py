"""Images side by side: the same numbers as one after the other."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lresnet.models import LorentzResNet
from lresnet.nn.side_by_side import conv2d_side_by_side, separate, side_by_side


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


def test_only_narrow_networks_in_half_precision_on_a_gpu_that_are_trained():
    model = LorentzResNet(8, 5)
    assert model.images_side_by_side(torch.zeros(16, 3, 8, 8)) == 1  # a CPU multiplies the zeros

    class OnGPU:
        def __init__(self, batch: int, dtype: torch.dtype = torch.bfloat16) -> None:
            self.shape, self.dtype, self.device = (batch, 3, 8, 8), dtype, torch.device("cuda")

    assert model.images_side_by_side(OnGPU(16)) == 8
    assert model.images_side_by_side(OnGPU(16, torch.float32)) == 1
    assert model.images_side_by_side(OnGPU(12)) == 1  # eight do not divide it
    assert LorentzResNet(18).images_side_by_side(OnGPU(16)) == 1
    assert model.eval().images_side_by_side(OnGPU(16)) == 1
