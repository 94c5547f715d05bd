"""Tests of convolutions of interleaved images and of patches, against torch's convolution."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.nn.functional import conv2d

from lresnet.nn.conv2d import Conv2d, deinterleave, interleave, interleaved_conv2d, patch_conv2d, patches
from tests.residual.common import normals

# --- interleaved images -----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    images=st.integers(1, 4),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    kernel=st.sampled_from([1, 3]),
    stride=st.integers(1, 2),
)
def test_interleaved_convolution_and_its_gradients_equal_torch_s(images, groups, channels, size, kernel, stride):
    torch.manual_seed(0)
    x = torch.randn(images * groups, channels[0], *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(channels[1], channels[0], kernel, kernel, dtype=torch.float64, requires_grad=True)
    where = {"stride": (stride, stride), "padding": (kernel // 2, kernel // 2)}
    expected = torch.nn.functional.conv2d(x, weight, **where)
    found = deinterleave(interleaved_conv2d(interleave(x, images), weight, images, **where), images)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    g = torch.randn_like(expected)
    for a, b in zip(*(torch.autograd.grad(y, (x, weight), g) for y in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_interleaved_images_are_channels_last():
    x = interleave(torch.randn(4, 3, 6, 5), 2)
    assert x.shape == (2, 3, 6, 10)
    for y in (x, deinterleave(x, 2), interleaved_conv2d(x, torch.randn(7, 3, 3, 3), 2, (2, 2), (1, 1))):
        assert y.is_contiguous(memory_format=torch.channels_last)


def test_interleaved_convolution_does_not_copy_the_images(monkeypatch):
    inputs = []
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda x, *a, **k: inputs.append(x) or conv2d(x, *a, **k))
    x = interleave(torch.randn(4, 3, 6, 5), 2)
    interleaved_conv2d(x, torch.randn(7, 3, 1, 1), 2)
    assert inputs[0].shape == (2, 6, 6, 5)
    assert inputs[0].data_ptr() == x.data_ptr()


# --- patches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 1, 0), (5, 1, 2), (3, 1, 0)], ids=str
)
def test_patch_convolution_and_its_gradients_equal_torch_s(channels, size, stride, padding):
    x = normals(2, channels, 7, 6).double().requires_grad_()
    w = normals(4, channels, size, size, seed=1).double().requires_grad_()
    settings = (stride, stride), (padding, padding)
    found, expected = patch_conv2d(x, w, *settings), conv2d(x, w, None, *settings)
    assert found.shape == expected.shape
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert (found - expected).abs().max() < 1e-13
    g = normals(*expected.shape, seed=2).double()
    for a, b in zip(torch.autograd.grad(found, (x, w), g), torch.autograd.grad(expected, (x, w), g), strict=True):
        assert (a - b).abs().max() < 1e-12


def test_patch_convolution_of_an_empty_batch():
    assert patch_conv2d(torch.zeros(0, 3, 4, 4), torch.zeros(2, 3, 3, 3), (1, 1), (1, 1)).shape == (0, 2, 4, 4)


def test_patches_are_in_the_order_of_the_kernel():
    x = torch.arange(2 * 3 * 3.0).reshape(1, 2, 3, 3)
    assert torch.equal(patches(x, (3, 3), (1, 1), (0, 0)).flatten(), x.flatten())


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("half", True),
        ("autocast", True),
        ("float32", False),
        ("wide", False),
        ("on a CPU", False),
        ("bias", False),
        ("float64", False),
    ],
)
def test_patches_are_used_for_few_channels_in_half_precision_on_a_gpu(case, expected, monkeypatch):
    conv = Conv2d(16 if case == "wide" else 3, 8, 3, padding=1)
    if case == "bias":  # as after torch.nn.utils.fusion
        conv.bias = torch.nn.Parameter(torch.zeros(8))
    dtype = {"autocast": torch.float32, "float32": torch.float32, "float64": torch.float64}.get(case, torch.float16)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: case in ("autocast", "float64"))
    with FakeTensorMode():  # a CUDA tensor that needs no GPU
        x = torch.empty(2, conv.in_channels, 4, 4, dtype=dtype, device="cpu" if case == "on a CPU" else "cuda")
    assert conv.uses_patches(x) is expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="cuDNN needs a GPU")
def test_patch_convolution_agrees_with_cudnn_in_half_precision():
    conv = Conv2d(3, 64, 3, padding=1).cuda()
    x = normals(16, 3, 32, 32).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        found, expected = conv(x), conv2d(x, conv.weight, padding=1)
    assert found.dtype == torch.bfloat16
    assert (found - expected).abs().max() <= 2**-7 * expected.abs().max()
