"""A convolution as a product of matrices, against torch's."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.functional import conv2d

from lresnet.nn.patches import conv2d_by_patches, patches
from lresnet.nn.side_by_side import Conv2d
from tests.residual.common import normals


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 1, 0), (5, 1, 2), (3, 1, 0)], ids=str
)
def test_values_and_gradients(channels, size, stride, padding):
    x = normals(2, channels, 7, 6).double().requires_grad_()
    w = normals(4, channels, size, size, seed=1).double().requires_grad_()
    settings = (stride, stride), (padding, padding)
    found, expected = conv2d_by_patches(x, w, *settings), conv2d(x, w, None, *settings)
    assert found.shape == expected.shape
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert (found - expected).abs().max() < 1e-13
    g = normals(*expected.shape, seed=2).double()
    for a, b in zip(torch.autograd.grad(found, (x, w), g), torch.autograd.grad(expected, (x, w), g), strict=True):
        assert (a - b).abs().max() < 1e-12


def test_an_empty_batch():
    assert conv2d_by_patches(torch.zeros(0, 3, 4, 4), torch.zeros(2, 3, 3, 3), (1, 1), (1, 1)).shape == (0, 2, 4, 4)


def test_neighbourhoods_follow_the_kernel_s_order():
    x = torch.arange(2 * 3 * 3.0).reshape(1, 2, 3, 3)
    assert torch.equal(patches(x, (3, 3), (1, 1), (0, 0)).flatten(), x.flatten())


@pytest.mark.parametrize(
    ("case", "served"),
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
def test_which_convolutions_it_serves(case, served, monkeypatch):
    conv = Conv2d(16 if case == "wide" else 3, 8, 3, padding=1)
    if case == "bias":  # as torch.nn.utils.fusion gives one
        conv.bias = torch.nn.Parameter(torch.zeros(8))
    dtype = {"autocast": torch.float32, "float32": torch.float32, "float64": torch.float64}.get(case, torch.float16)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: case in ("autocast", "float64"))
    with FakeTensorMode():  # a tensor of a GPU that need not be there
        x = torch.empty(2, conv.in_channels, 4, 4, dtype=dtype, device="cpu" if case == "on a CPU" else "cuda")
    assert conv.few_channels(x) is served


@pytest.mark.skipif(not torch.cuda.is_available(), reason="cuDNN's kernels are for GPUs")
def test_on_a_gpu_in_half_precision_as_cudnn():
    conv = Conv2d(3, 64, 3, padding=1).cuda()
    x = normals(16, 3, 32, 32).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        found, expected = conv(x), conv2d(x, conv.weight, padding=1)
    assert found.dtype == torch.bfloat16
    assert (found - expected).abs().max() <= 2**-7 * expected.abs().max()
