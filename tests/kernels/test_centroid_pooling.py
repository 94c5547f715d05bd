"""The kernel of centroid pooling against torch operations in float64; interpreted without a GPU."""

from __future__ import annotations

import pytest
import torch

from lresnet import Lorentz
from lresnet.geometry.centroid import centroid
from lresnet.kernels import enabled
from lresnet.nn.pooling import centroid_pool
from tests.families import pairs
from tests.kernels.test_pooling import DEVICE, assert_near, images

kernels = pytest.importorskip("lresnet.kernels.centroid_pooling", reason="triton is not installed")


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    """Record the names of launched kernels."""
    names = []

    def recorded(kernel, grid, *arguments, **options):
        names.append(kernel.fn.__name__)
        return actual(kernel, grid, *arguments, **options)

    actual = kernels.launch
    monkeypatch.setattr(kernels, "launch", recorded)
    return names


def results(x, K, dtype=None):
    """Return the points, and the gradient of the images."""
    leaf = x.detach().to(dtype or x.dtype).requires_grad_()
    z = centroid_pool(leaf, K=K)
    g = torch.randn(*z.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64).to(z)
    return [z.detach(), *torch.autograd.grad(z, leaf, g)]


@pytest.mark.parametrize("K", [-0.02, -1.0, -10.0])
@pytest.mark.parametrize("shape", [(3, 5, 3, 4), (2, 32, 8, 8), (1, 1, 1, 1), (2, 300, 5, 7), (1, 2048, 1, 3)])
def test_same_numbers_as_torch_operations(shape, K, launched):
    x = images(*shape)
    with enabled():
        found = results(x, K)
    assert launched == ["_forward", "_backward"]
    assert_near(found, results(x, K, torch.float64), 2e-7)


@pytest.mark.parametrize("norm", [1e-3, 10.0, 1e4, 1e8])
@pytest.mark.parametrize("family", ["random", "near", "equal", "radial", "zero"])
def test_accuracy_is_that_of_float64(family, norm):
    """Near and equal points, opposite points far out: the value and the gradient are rounded once."""
    x, y = pairs(family, norm, count=6, n=5)
    image = torch.cat([x, y]).mT.reshape(1, 5, 3, 4).to(DEVICE, torch.float32).to(memory_format=torch.channels_last)
    with enabled():
        found = results(image, -0.3)
    assert_near(found, results(image, -0.3, torch.float64), 2e-7)


def test_equal_pixels_give_the_pixel():
    x = torch.tensor([0.1, -3e5, 7.0], device=DEVICE).reshape(1, 3, 1, 1).expand(2, 3, 5, 7)
    with enabled():
        z = centroid_pool(x.contiguous(memory_format=torch.channels_last), K=-1.0)
    assert torch.equal(z, x[:, :, 0, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype):
    x = images(2, 6, 3, 5, dtype=dtype)
    with enabled():
        z, gx = results(x, -0.5)
    exact, gradient = results(x, -0.5, torch.float64)
    assert z.dtype == torch.float32
    assert gx.dtype == dtype
    assert gx.is_contiguous(memory_format=torch.channels_last)
    assert_near([z], [exact], 2e-7)
    assert ((gx.double() - gradient).abs() <= torch.finfo(dtype).eps * gradient.abs() + 1e-7).all()


def test_a_nan_stays_in_its_image():
    x = images(3, 4, 2, 3)
    x[1, 2, 0, 1] = torch.nan
    with enabled():
        z, gx = results(x, -1.0)
    assert z[1].isnan().all()
    assert z[[0, 2]].isfinite().all()
    assert gx[[0, 2]].isfinite().all()


def test_second_derivatives():
    x = images(1, 3, 2, 2)

    def penalty(dtype):
        leaf = x.detach().to(dtype).requires_grad_()
        (g,) = torch.autograd.grad(centroid_pool(leaf, K=-0.3).square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(g.square().sum(), leaf)[0]

    with enabled():
        found = penalty(torch.float32)
    assert_near([found], [penalty(torch.float64)], 1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer
@pytest.mark.parametrize("case", ["rows first", "learned", "float64", "compiled", "one axis of pixels"])
def test_unsupported_images_use_torch_operations(case, launched):
    x, K = images(2, 4, 3, 5), -1.0
    if case == "rows first":
        x = x.contiguous()
    elif case == "learned":
        K = torch.tensor(-1.0, device=DEVICE, requires_grad=True)
    elif case == "float64":
        x = x.double()
    elif case == "one axis of pixels":
        x = x.flatten(2)
    call = torch.compile(centroid_pool, backend="eager") if case == "compiled" else centroid_pool
    with enabled():
        found = call(x, K=K)
    assert launched == []
    points = x.double().flatten(2).mT
    assert_near([found.detach()], [centroid(points, torch.ones_like(points[..., :1]), 1.0)])


def test_images_larger_than_a_program_holds(monkeypatch):
    monkeypatch.setattr(kernels, "_HELD", 16)  # two pixels of eight channels
    x = images(2, 7, 3, 5)
    with enabled():
        found = results(x, -0.1)
    assert_near(found, results(x, -0.1, torch.float64), 2e-7)


def test_the_default_device_does_not_matter():
    """On a GPU, reading the curvature from there would wait for the GPU and fail in a CUDA graph."""
    x = images(2, 4, 3, 5)
    with enabled():
        expected = centroid_pool(x, K=-0.3)
        with torch.device("meta"):
            assert torch.equal(centroid_pool(x, K=-0.3), expected)


def test_a_vision_transformer_pools_by_the_kernel(launched):
    from lresnet.models import create_model

    model = create_model("lorentz_vit", layers=1, width=32, heads=2, num_classes=3).to(DEVICE)
    with enabled():
        model(torch.randn(2, 3, 16, 16, device=DEVICE)).sum().backward()
    assert launched == ["_forward", "_backward"]
    assert isinstance(model.manifold, Lorentz)
