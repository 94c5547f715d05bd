"""The end of a block with affine maps, against batch norm, residual and ReLU in float64."""

from __future__ import annotations

import pytest
import torch

from lresnet.kernels import disabled, enabled
from lresnet.nn.batch_norm import residual_tail
from tests.kernels.cases import DEVICE, on_device, residual
from tests.residual.common import normals, per_point

pytest.importorskip("triton")

KINDS = ("lorentz", "parallel_transport", "tangent", "space")


@pytest.fixture(autouse=True)
def kernels():
    with enabled():
        yield


def images(*shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    tensors = on_device(*(normals(*shape, seed=s).to(dtype) for s in range(3)))
    return [t.to(memory_format=torch.channels_last) for t in tensors]


def by_hand(kind, x, y, weight, scale, kappa, y_affine, x_affine, relu):
    """Compute the definition with the public functions."""
    if y_affine is not None:
        y = y * y_affine[0][:, None, None] + y_affine[1][:, None, None]
    if x_affine is not None:
        x = x * x_affine[0][:, None, None] + x_affine[1][:, None, None]
    z = x + y if kind == "space" else residual(kind, x, y, weight, None, -kappa, dim=1)
    z = z if scale is None else scale * z
    return z.relu() if relu else z


@pytest.mark.parametrize("affine", ["none", "y", "both"])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_same_numbers_as_the_definition(kind, relu, affine):
    x, y, g = images(2, 5, 3, 4)
    factors = on_device(*map(torch.tensor, (0.37, 1.3, 0.7)))
    columns = on_device(*(normals(5, seed=s) + (s < 12) for s in range(10, 14)))
    found = []
    for function, wide in ((residual_tail, False), (by_hand, True)):
        leaves = [(t.double() if wide else t).detach().requires_grad_() for t in (x, y, *factors, *columns)]
        (a, b, weight, scale, kappa), (a_y, a_x, b_y, b_x) = leaves[:5], leaves[5:]
        y_affine = (a_y, b_y) if affine in ("y", "both") else None
        x_affine = (a_x, b_x) if affine == "both" else None
        arguments = (a, b, weight, scale, kappa, y_affine, x_affine, relu)
        z = function(*arguments, kind=kind) if function is residual_tail else function(kind, *arguments)
        used = leaves[:5] + [t for pair in (y_affine, x_affine) if pair for t in pair]
        grads = torch.autograd.grad(z, used, g.to(z.dtype), allow_unused=True, materialize_grads=True)
        found.append([z.detach(), *grads])
    assert found[0][0].is_contiguous(memory_format=torch.channels_last)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    x, y, g = images(2, 5, 3, 4, dtype=dtype)
    a, b = on_device(normals(5) + 1, normals(5, seed=1))
    found = []
    for wide in (False, True):
        leaves = [(t.double() if wide else t).detach().requires_grad_() for t in (x, y, a, b)]
        z = residual_tail(leaves[0], leaves[1], 0.37, 1.3, 0.7, (leaves[2], leaves[3]))
        found.append([z.detach(), *torch.autograd.grad(z, leaves, g.to(z.dtype))])
    ulp = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-10
    assert [t.dtype for t in found[0]] == [dtype, dtype, dtype, torch.float32, torch.float32]
    for got, exact in zip(found[0][:3], found[1][:3], strict=True):
        assert ((got.double() - exact).abs() <= ulp * exact.abs() + 1e-5).all()
    for got, exact in zip(found[0][3:], found[1][3:], strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5)


def test_gradients_flow_into_the_statistics_of_a_batch_norm():
    x, y, g = images(3, 5, 3, 4)
    norm = torch.nn.BatchNorm2d(5).to(DEVICE)
    with torch.no_grad():
        norm.weight.copy_(normals(5) + 1)
    scale = norm.weight
    leaves = [y.detach().requires_grad_(), x.detach().requires_grad_()]
    expected = torch.autograd.grad(residual("lorentz", leaves[1], norm(leaves[0]), dim=1).relu(), [*leaves, scale], g)
    var, mean = torch.var_mean(leaves[0], dim=(0, 2, 3), correction=0)
    a = scale * (var + norm.eps).rsqrt()
    got = torch.autograd.grad(
        residual_tail(leaves[1], leaves[0], y_affine=(a, norm.bias - mean * a)), [*leaves, scale], g
    )
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_weight_per_pixel():
    x, y, _ = images(2, 5, 3, 4)
    weight = per_point(24).reshape(2, 3, 4).to(DEVICE)
    got = residual_tail(x, y, weight, relu=False)
    torch.testing.assert_close(got, residual("lorentz", x.double(), y.double(), weight.double(), dim=1).float())


def test_same_numbers_without_kernels():
    x, y, _ = images(2, 5, 3, 4)
    weight = per_point(12).reshape(3, 4).to(DEVICE)
    a, b = on_device(normals(5), normals(5, seed=1))
    for kind in KINDS:
        got = residual_tail(x, y, weight, 1.3, 0.7, (a, b), kind=kind)
        with disabled():
            torch.testing.assert_close(got, residual_tail(x, y, weight, 1.3, 0.7, (a, b), kind=kind))


def test_nan_passes_through_the_relu():
    x, y, _ = images(1, 5, 1, 2)
    x[0, 3, 0, 1] = torch.nan
    z = residual_tail(x, y)
    assert z[0, :, 0, 1].isnan().all()
    assert z[0, :, 0, 0].isfinite().all()


def test_error_messages():
    x, y, _ = images(1, 5, 2, 2)
    with pytest.raises(ValueError, match=r"y_affine holds torch.float32 of shape \(4,\), but needs float32 \[5\]"):
        residual_tail(x, y, y_affine=(torch.ones(4), torch.ones(4)))
    with pytest.raises(ValueError, match="kappa must be positive and finite, got -1"):
        residual_tail(x, y, kappa=-1.0)
    for context in (enabled(), disabled()):
        with context, pytest.raises(ValueError, match="unknown residual 'mean'"):
            residual_tail(x, y, kind="mean")
