"""Blocks whose branches can be merged, and blocks whose backward pass relies on the sum."""

from __future__ import annotations

import copy

import torch
from torch import nn

import lresnet
from tests.convert.own_networks import residuals


class Merged(nn.Module):
    """x + conv(x), which fuse() merges into one convolution."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 1)

    def forward(self, x):
        return x + self.conv(x)

    def fuse(self):
        merged = copy.deepcopy(self.conv)
        with torch.no_grad():
            merged.weight += torch.eye(len(merged.weight))[:, :, None, None]
        return merged


class Folded(nn.Module):
    """x + f(x), whose reparameterize() changes f and keeps the sum."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.f, self.scale, self.g = nn.Conv2d(width, width, 1), nn.Parameter(torch.tensor(2.0)), nn.ReLU()

    def forward(self, x):
        return x + self.g(self.f(x)) * self.scale

    def reparameterize(self):
        with torch.no_grad():
            self.f.weight *= self.scale
            self.f.bias *= self.scale
            self.scale.fill_(1.0)


def test_a_sum_that_merging_removes_is_not_converted_and_one_that_it_keeps_is():
    net, x = nn.Sequential(Merged(), Folded()), torch.randn(2, 4, 5, 5)
    plan = lresnet.find_sums(net, x)
    assert [one.converted for one in plan] == [False, True]
    assert plan.sums[0].reason == "re-parametrisable: Merged.fuse() merges its branches"
    assert residuals(lresnet.lorentzify(net, plan=plan)).keys() == {"1.residual"}


def test_merging_after_the_conversion_keeps_the_numbers():
    net, x = nn.Sequential(Merged(), Folded()), torch.randn(2, 4, 5, 5)
    plan = lresnet.find_sums(net, x)
    converted = lresnet.lorentzify(net, plan=plan, curvature=-0.5).eval()
    expected = converted(x)
    converted[0] = converted[0].fuse()
    converted[1].reparameterize()
    torch.testing.assert_close(converted(x), expected)


def test_a_merging_method_that_fails_counts_as_merging():
    class Broken(Folded):
        def reparameterize(self):
            raise RuntimeError("trained networks only")

    (one,) = lresnet.find_sums(nn.Sequential(Broken()), torch.randn(2, 4, 5, 5))
    assert one.reason == "re-parametrisable: Broken.reparameterize() merges its branches"


class Reversible(torch.autograd.Function):
    """y = x + f(x), whose backward pass computes x = y - f(x) again, as reversible networks do."""

    @staticmethod
    def forward(ctx, x, block):
        ctx.block = block
        return block.join(x)

    @staticmethod
    def backward(ctx, g):
        return g, None


def test_a_sum_in_an_autograd_function_is_not_converted():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(6, 6)

        def join(self, x):
            return x + self.f(x)

        def forward(self, x):
            return Reversible.apply(x, self)

    (one,) = lresnet.find_sums(Block(), torch.randn(2, 6))
    assert not one.converted
    assert "autograd function" in one.reason


def test_a_projected_shortcut_with_an_instance_norm_is_converted():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(3, 4, 1)
            self.norm = nn.InstanceNorm2d(4)

        def forward(self, x):
            return self.b(self.a(x).relu()) + self.norm(self.c(x))

    (one,) = lresnet.find_sums(Block(), torch.randn(2, 3, 6, 6))
    assert one.converted
    assert not one.skip_first


def test_noise_times_a_deviation_is_no_branch():
    class Sampled(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.mean, self.log_deviation = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x):
            deviation = self.log_deviation(self.f(x).relu()).exp()
            return self.mean(x) + torch.randn_like(deviation) * deviation

    (one,) = lresnet.find_sums(Sampled(), torch.randn(2, 6))
    assert one.reason == "one side is noise times a value"
