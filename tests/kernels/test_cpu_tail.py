"""Tests of the residual of a block on a CPU: equal to the formula in values, gradients and second derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.functional import lorentz_residual
from lresnet.kernels import cpu_tail as module
from lresnet.kernels.cpu_tail import cpu_tail, supports_cpu_tail
from lresnet.kernels.runtime import disabled
from tests.models.resnets import images, make


def points(dtype: torch.dtype, scale: float, seed: int) -> Tensor:
    made = scale * torch.randn(2, 8, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).contiguous(memory_format=torch.channels_last)


def pair(dtype: torch.dtype, scale: float) -> tuple[Tensor, Tensor]:
    """Random pixels, and among them equal ones, nearly equal ones and ones at the origin."""
    x, y = points(dtype, scale, 0), points(dtype, scale, 1)
    y[0, :, 0], y[1, :, 0], x[1, :, 1] = x[0, :, 0], 0, 0
    x[0, :, 1, 0] = y[0, :, 1, 0] = 0
    y[0, :, 2] = x[0, :, 2] * (1 + 1e-6)
    return x, y


def reference(x: Tensor, y: Tensor, w: Tensor, scale: Tensor | None, kappa: Tensor) -> Tensor:
    return lorentz_residual(x, y, w, scale, K=-kappa, dim=1).relu()


@pytest.mark.parametrize("chunk", [8, 100, 2**19])
@pytest.mark.parametrize("kappa", [0.02, 1.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("weight", [-0.7, 1.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_values_and_gradients_are_those_of_the_formula(dtype, tolerance, weight, scale, kappa, chunk, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    x, y = pair(dtype, scale)
    leaves = [x, y, *(torch.tensor(value, dtype=dtype) for value in (weight, 2.0, kappa))]
    for leaf in leaves:
        leaf.requires_grad_()
    assert supports_cpu_tail(x, y, *leaves[2:])
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    z, expected = cpu_tail(*leaves), reference(*wide)
    g = points(torch.float64, 1.0, 2)
    tolerance *= max(1.0, kappa * scale**2 / 10)  # the error of the gradients grows with the times of both points
    found = [z, *torch.autograd.grad(z, leaves, g.to(dtype))]
    for own, other in zip(found, [expected, *torch.autograd.grad(expected, wide, g)], strict=True):
        assert (own.double() - other).abs().max() <= tolerance * other.abs().max()


def test_equal_points_near_the_origin():
    for norm in (1e-11, 1e-6, 1e-4):
        x = points(torch.float32, norm, 0)
        assert torch.equal(cpu_tail(x, x, 0.3), x.relu())


def test_equal_points_return_that_point_times_the_scale():
    x = points(torch.float32, 3.0, 0)
    for weight in (0.3, 1.0, 1.7):
        assert torch.equal(cpu_tail(x, x, weight, 2.0, 0.02), 2 * x.relu())


def test_without_a_scale_and_with_numbers():
    x, y = pair(torch.float64, 1.0)
    torch.testing.assert_close(cpu_tail(x, y, 0.5, None, 0.3), lorentz_residual(x, y, 0.5, K=-0.3, dim=1).relu())


def test_second_derivatives_are_those_of_the_formula():
    x, y = (points(torch.float64, 1.0, seed).requires_grad_() for seed in (0, 1))
    w, kappa = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.5, 0.3))
    results = []
    for function in (cpu_tail, reference):
        (g,) = torch.autograd.grad(function(x, y, w, None, kappa).square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(g.square().sum(), (x, y, w, kappa)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


def test_the_memory_of_y_is_reused_only_without_gradients():
    x, y = pair(torch.float32, 1.0)
    expected = cpu_tail(x, y, 0.5, 2.0, 0.02)
    before = y.clone()
    kept = cpu_tail(x, y.requires_grad_(), 0.5, 2.0, 0.02, overwrite=True)
    assert torch.equal(y, before)
    with torch.no_grad():
        reused = cpu_tail(x, y, 0.5, 2.0, 0.02, overwrite=True)
    assert reused.data_ptr() == y.data_ptr()
    assert torch.equal(reused, expected)
    assert torch.equal(kept, expected)


def test_nan_and_infinity_are_not_hidden():
    x, y = pair(torch.float32, 1.0)
    x[0, 0, 0, 1] = float("nan")
    z = cpu_tail(x, y, 0.5, 2.0, 0.02)
    assert z[0, :, 0, 1].isnan().all()
    assert z.isnan().sum() == 8


def test_unsupported_tensors_use_the_formula():
    x, y = pair(torch.float32, 1.0)
    assert supports_cpu_tail(x, y, 1.0, None, 0.02)
    assert not supports_cpu_tail(x.contiguous(), y, 1.0)
    assert not supports_cpu_tail(x.bfloat16(), y.bfloat16(), 1.0)
    assert not supports_cpu_tail(x, y[:1], 1.0)
    assert not supports_cpu_tail(x, y, torch.ones(2, 1, 1, 1))
    with disabled():
        assert not supports_cpu_tail(x, y, 1.0)


@pytest.mark.parametrize("depth", [8, 18])
def test_a_network_gives_the_same_with_and_without(depth):
    model = make(depth=depth, widths=[4, 4, 8] if depth == 8 else [4, 4, 8, 8], learn_curvature=True).double()
    x = images(4, 16, 16).double()
    found = []
    for training in (True, False):
        for off in (False, True):
            model.zero_grad()
            model.train(training)
            model.blocks[0].residual.register_forward_hook(lambda *_: None) if off else None
            with disabled() if off else torch.enable_grad():
                loss = model(x).square().sum()
                loss.backward()
            found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
            model.blocks[0].residual._forward_hooks.clear()
        torch.testing.assert_close(found[-2], found[-1], rtol=1e-8, atol=1e-10)


def test_a_hook_on_the_residual_is_called():
    model, calls = make(), []
    model.blocks[0].residual.register_forward_hook(lambda *_: calls.append(1))
    model(images())
    assert calls == [1]
