"""A batch norm as an affine map: the module's numbers, gradients and running statistics."""

import copy

import pytest
import torch

from lresnet.nn.batch_norm import batch_norm_affine


def norms(channels: int = 5, **options: object) -> tuple[torch.nn.BatchNorm2d, torch.nn.BatchNorm2d]:
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(channels, dtype=torch.float64, **options)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(channels))
        norm.bias.copy_(torch.randn(channels))
        norm.running_var.copy_(torch.rand(channels) + 0.5)
    return norm, copy.deepcopy(norm)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_module_s_numbers_gradients_and_statistics(mode: str, momentum: float | None) -> None:
    ours, theirs = norms(momentum=momentum)
    getattr(ours, mode)()
    getattr(theirs, mode)()
    for seed in range(3):
        x = torch.randn(4, 5, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 3 + 1
        x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
        a, b = batch_norm_affine(ours, x1)
        z1, z2 = x1 * a.view(5, 1, 1) + b.view(5, 1, 1), theirs(x2)
        torch.testing.assert_close(z1, z2)
        weight = torch.randn_like(z1)
        (z1 * weight).sum().backward()
        (z2 * weight).sum().backward()
        torch.testing.assert_close(x1.grad, x2.grad)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    for p, q in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(p, q)


def test_half_precision_is_summed_in_float32() -> None:
    norm = torch.nn.BatchNorm2d(3)
    x = (torch.randn(8, 3, 16, 16) + 100).bfloat16()
    a, b = batch_norm_affine(norm, x)
    assert a.dtype == b.dtype == torch.float32
    exact = x.double().var((0, 2, 3), correction=0)
    torch.testing.assert_close(a.double(), (exact + norm.eps).rsqrt(), rtol=1e-4, atol=0)


def test_a_single_pixel_is_refused_in_training() -> None:
    with pytest.raises(ValueError, match=r"more than one pixel a channel, got 1; use eval\(\)"):
        batch_norm_affine(torch.nn.BatchNorm2d(3), torch.randn(1, 3, 1, 1))
