"""The kernels of pooling against torch operations in float64; interpreted without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from lresnet.geometry.centroid import centroid
from lresnet.kernels import enabled
from lresnet.models import create_model
from lresnet.nn.pooling import _ball_mean, centroid_pool, poincare_mean
from tests.families import pairs

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Pooling(NamedTuple):
    function: Callable[..., Tensor]
    kernels: ModuleType
    formula: Callable[[Tensor], Tensor]
    """Points [B, N, C] -> [B, C], for K = -1."""
    tolerance: float


POOLINGS = {
    "poincare": Pooling(poincare_mean, import_module("lresnet.kernels.pooling"), lambda x: _ball_mean(x, 1.0), 1e-6),
    "centroid": Pooling(
        centroid_pool,
        import_module("lresnet.kernels.centroid_pooling"),
        lambda x: centroid(x, torch.ones_like(x[..., :1]), 1.0),
        2e-7,
    ),
}


@pytest.fixture(params=POOLINGS)
def pooling(request) -> Pooling:
    return POOLINGS[request.param]


@pytest.fixture
def launched(monkeypatch, pooling):
    """Record the names of launched kernels."""
    names = []

    def recorded(kernel, grid, *arguments, **options):
        names.append(kernel.fn.__name__)
        return actual(kernel, grid, *arguments, **options)

    actual = pooling.kernels.launch
    monkeypatch.setattr(pooling.kernels, "launch", recorded)
    return names


def images(*shape: int, seed: int = 0, scale: float = 3.0, dtype: torch.dtype = torch.float32) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(*shape, generator=g, dtype=torch.float64) + 0.5
    return x.to(DEVICE, dtype).to(memory_format=torch.channels_last)


def results(pooling: Pooling, x: Tensor, K: float, dtype: torch.dtype | None = None) -> list[Tensor]:
    """Return the points, and the gradient of the images."""
    leaf = x.detach().to(dtype or x.dtype).requires_grad_()
    z = pooling.function(leaf, K=K)
    g = torch.Generator().manual_seed(8)
    weights = torch.randn(*z.shape, generator=g, dtype=torch.float64).to(z)
    return [z.detach(), *torch.autograd.grad(z, leaf, weights)]


def assert_near(found: list[Tensor], exact: list[Tensor], tolerance: float) -> None:
    for got, value in zip(found, exact, strict=True):
        assert got.shape == value.shape
        assert (got.double() - value).abs().max() <= tolerance * value.abs().max()


@pytest.mark.parametrize("K", [-0.02, -1.0, -10.0])
@pytest.mark.parametrize("shape", [(3, 5, 3, 4), (2, 32, 8, 8), (1, 1, 1, 1), (2, 300, 5, 7), (1, 2048, 1, 3)])
def test_same_numbers_as_torch_operations(pooling, shape, K, launched):
    x = images(*shape)
    with enabled():
        found = results(pooling, x, K)
    assert launched == ["_forward", "_backward"]
    assert_near(found, results(pooling, x, K, torch.float64), pooling.tolerance)


def _pairs_as_image(family: str, norm: float) -> Tensor:
    x, y = pairs(family, norm, count=6, n=5)
    image = torch.cat([x, y]).mT.reshape(1, 5, 3, 4)
    return image.to(DEVICE, torch.float32).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("norm", [1e-3, 10.0, 1e4])
@pytest.mark.parametrize("family", ["random", "near", "equal", "radial", "zero"])
def test_the_mean_is_accurate_up_to_the_boundary(family, norm):
    """The kernel is as accurate as torch operations in float32."""
    image, own = _pairs_as_image(family, norm), POOLINGS["poincare"]
    exact, plain = results(own, image, -1.0, torch.float64), results(own, image, -1.0)
    with enabled():
        found = results(own, image, -1.0)
    for got, usual, value in zip(found, plain, exact, strict=True):
        bound = (usual.double() - value).abs().max() + 2e-7 * value.abs().max()
        assert (got.double() - value).abs().max() <= 4 * bound


@pytest.mark.parametrize("norm", [1e-3, 10.0, 1e4, 1e8])
@pytest.mark.parametrize("family", ["random", "near", "equal", "radial", "zero"])
def test_the_centroid_is_as_accurate_as_in_float64(family, norm):
    """Near and equal points, opposite points far out: value and gradient are rounded once."""
    image, own = _pairs_as_image(family, norm), POOLINGS["centroid"]
    with enabled():
        found = results(own, image, -0.3)
    assert_near(found, results(own, image, -0.3, torch.float64), 2e-7)


def test_the_centroid_of_equal_pixels_is_the_pixel():
    x = torch.tensor([0.1, -3e5, 7.0], device=DEVICE).reshape(1, 3, 1, 1).expand(2, 3, 5, 7)
    with enabled():
        z = centroid_pool(x.contiguous(memory_format=torch.channels_last), K=-1.0)
    assert torch.equal(z, x[:, :, 0, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(pooling, dtype):
    x = images(2, 6, 3, 5, dtype=dtype)
    with enabled():
        z, gx = results(pooling, x, -0.5)
    exact, gradient = results(pooling, x, -0.5, torch.float64)
    assert z.dtype == torch.float32
    assert gx.dtype == dtype
    assert gx.is_contiguous(memory_format=torch.channels_last)
    assert_near([z], [exact], pooling.tolerance)
    assert ((gx.double() - gradient).abs() <= torch.finfo(dtype).eps * gradient.abs() + 1e-7).all()


def test_a_nan_stays_in_its_image(pooling):
    x = images(3, 4, 2, 3)
    x[1, 2, 0, 1] = torch.nan
    with enabled():
        z, gx = results(pooling, x, -1.0)
    assert z[1].isnan().all()
    assert z[[0, 2]].isfinite().all()
    assert gx[[0, 2]].isfinite().all()


def test_second_derivatives(pooling):
    x = images(1, 3, 2, 2)

    def penalty(dtype):
        leaf = x.detach().to(dtype).requires_grad_()
        (g,) = torch.autograd.grad(pooling.function(leaf, K=-0.3).square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(g.square().sum(), leaf)[0]

    with enabled():
        found = penalty(torch.float32)
    assert_near([found], [penalty(torch.float64)], 1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer
@pytest.mark.parametrize("case", ["rows first", "learned", "float64", "compiled", "one axis of pixels"])
def test_unsupported_images_use_torch_operations(pooling, case, launched):
    x, K = images(2, 4, 3, 5), -1.0
    if case == "rows first":
        x = x.contiguous()
    elif case == "learned":
        K = torch.tensor(-1.0, device=DEVICE, requires_grad=True)
    elif case == "float64":
        x = x.double()
    elif case == "one axis of pixels":
        x = x.flatten(2)
    call = torch.compile(pooling.function, backend="eager") if case == "compiled" else pooling.function
    with enabled():
        found = call(x, K=K)
    assert launched == []
    assert_near([found.detach()], [pooling.formula(x.double().flatten(2).mT)], 1e-6)


def test_images_larger_than_a_program_holds(pooling, monkeypatch):
    monkeypatch.setattr(pooling.kernels, "_HELD", 16)  # two pixels of eight channels
    x = images(2, 7, 3, 5)
    with enabled():
        found = results(pooling, x, -0.1)
    assert_near(found, results(pooling, x, -0.1, torch.float64), pooling.tolerance)


def test_the_default_device_does_not_matter(pooling):
    """On a GPU, reading the curvature from there would wait for the GPU and fail in a CUDA graph."""
    x = images(2, 4, 3, 5)
    with enabled():
        expected = pooling.function(x, K=-0.3)
        with torch.device("meta"):
            assert torch.equal(pooling.function(x, K=-0.3), expected)


@pytest.mark.parametrize("pooling", ["centroid"], indirect=True)
def test_a_vision_transformer_pools_by_the_kernel(launched):
    model = create_model("lorentz_vit", layers=1, width=32, heads=2, num_classes=3).to(DEVICE)
    with enabled():
        model(torch.randn(2, 3, 16, 16, device=DEVICE)).sum().backward()
    assert launched == ["_forward", "_backward"]
