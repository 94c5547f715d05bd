"""The kernel of pooling in the Poincare ball against torch operations in float64; interpreted without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.kernels import enabled
from lresnet.nn.pooling import _ball_mean, poincare_mean
from tests.families import pairs

kernels = pytest.importorskip("lresnet.kernels.pooling", reason="triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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


def images(*shape: int, seed: int = 0, scale: float = 3.0, dtype: torch.dtype = torch.float32) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(*shape, generator=g, dtype=torch.float64) + 0.5
    return x.to(DEVICE, dtype).to(memory_format=torch.channels_last)


def results(x: Tensor, K: float, dtype: torch.dtype | None = None) -> list[Tensor]:
    """Return the points, and the gradient of the images."""
    leaf = x.detach().to(dtype or x.dtype).requires_grad_()
    z = poincare_mean(leaf, K=K)
    g = torch.Generator().manual_seed(8)
    weights = torch.randn(*z.shape, generator=g, dtype=torch.float64).to(z)
    return [z.detach(), *torch.autograd.grad(z, leaf, weights)]


def assert_near(found: list[Tensor], exact: list[Tensor], tolerance: float = 1e-6) -> None:
    for got, value in zip(found, exact, strict=True):
        assert got.shape == value.shape
        assert (got.double() - value).abs().max() <= tolerance * value.abs().max()


@pytest.mark.parametrize("K", [-0.02, -1.0, -10.0])
@pytest.mark.parametrize("shape", [(3, 5, 3, 4), (2, 32, 8, 8), (1, 1, 1, 1), (2, 300, 5, 7), (1, 2048, 1, 3)])
def test_same_numbers_as_torch_operations(shape, K, launched):
    x = images(*shape)
    with enabled():
        found = results(x, K)
    assert launched == ["_forward", "_backward"]
    assert_near(found, results(x, K, torch.float64))


@pytest.mark.parametrize("norm", [1e-3, 10.0, 1e4])
@pytest.mark.parametrize("family", ["random", "near", "equal", "radial", "zero"])
def test_accuracy_up_to_the_boundary(family, norm):
    """The kernel is as accurate as torch operations in float32."""
    x, y = pairs(family, norm, count=6, n=5)
    image = torch.cat([x, y]).mT.reshape(1, 5, 3, 4).to(DEVICE, torch.float32).to(memory_format=torch.channels_last)
    exact, plain = results(image, -1.0, torch.float64), results(image, -1.0)
    with enabled():
        found = results(image, -1.0)
    for got, usual, value in zip(found, plain, exact, strict=True):
        bound = (usual.double() - value).abs().max() + 2e-7 * value.abs().max()
        assert (got.double() - value).abs().max() <= 4 * bound


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype):
    x = images(2, 6, 3, 5, dtype=dtype)
    with enabled():
        z, gx = results(x, -0.5)
    exact, gradient = results(x, -0.5, torch.float64)
    assert z.dtype == torch.float32
    assert gx.dtype == dtype
    assert gx.is_contiguous(memory_format=torch.channels_last)
    assert_near([z], [exact])
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
        (g,) = torch.autograd.grad(poincare_mean(leaf, K=-0.3).square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(g.square().sum(), leaf)[0]

    with enabled():
        found = penalty(torch.float32)
    assert_near([found], [penalty(torch.float64)], 1e-5)


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
    call = torch.compile(poincare_mean, backend="eager") if case == "compiled" else poincare_mean
    with enabled():
        found = call(x, K=K)
    assert launched == []
    assert_near([found.detach()], [_ball_mean(x.double().flatten(2).mT, 1.0)])


def test_images_larger_than_a_program_holds(monkeypatch):
    monkeypatch.setattr(kernels, "_HELD", 16)  # two pixels of eight channels
    x = images(2, 7, 3, 5)
    with enabled():
        found = results(x, -0.1)
    assert_near(found, results(x, -0.1, torch.float64))
