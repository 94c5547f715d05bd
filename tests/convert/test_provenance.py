"""Which tensor was computed from which: views, operations in place, autograd functions, contexts, nested blocks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import lresnet
from lresnet.convert.provenance import Kind, Recorder, ancestors, direct_ancestors
from tests.convert.checks import Net, check_same, converted, example, net_with, refused


def recorded(network: nn.Module, function, *inputs: torch.Tensor):
    """Return the recorder, and what the function computed while it was active."""
    recorder = Recorder(network)
    with recorder.following(inputs):
        outputs = function(*inputs)
    return recorder, outputs


# Values


def test_a_view_repeats_the_value():
    x = torch.randn(2, 3, 4)
    recorder, y = recorded(nn.Identity(), lambda x: x.transpose(1, 2).reshape(2, 12).unflatten(1, (4, 3)).mT, x)
    assert recorder.values[y].root is recorder.values[x]


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: x.clone(), Kind.SAME),
        (lambda x: x[:, None], Kind.SAME),
        (lambda x: x.to(torch.float64), Kind.SAME),
        (lambda x: F.dropout(x), Kind.SAME),
        (lambda x: x.mT, Kind.SAME),
        (lambda x: 2 * x, Kind.POINTWISE_LINEAR),
        (lambda x: x / 3, Kind.POINTWISE_LINEAR),
        (lambda x: x + 1, Kind.POINTWISE_LINEAR),
        (lambda x: -x, Kind.POINTWISE_LINEAR),
        (lambda x: x[:, :1], Kind.PART),
        (lambda x: x.narrow(1, 0, 1), Kind.PART),
        (lambda x: F.pad(x, (1, 1)), Kind.PART),
        (lambda x: torch.cat([x, x]), Kind.PART),
        (lambda x: x.relu(), Kind.POINTWISE),
        (lambda x: 1 / x, Kind.POINTWISE),
        (lambda x: x * x.sin(), Kind.POINTWISE),
        (lambda x: x @ torch.ones(4, 4), Kind.LINEAR),
        (lambda x: F.linear(x, torch.ones(2, 4)), Kind.LINEAR),
        (lambda x: F.avg_pool1d(x, 2), Kind.LINEAR),
        (lambda x: x.mean(1), Kind.LINEAR),
        (lambda x: F.layer_norm(x, (4,)), Kind.MIXED),
        (lambda x: x.softmax(-1), Kind.MIXED),
        (lambda x: x @ x.mT, Kind.MIXED),
        (lambda x: torch.fft.rfft(x), Kind.MIXED),
        (lambda x: torch.einsum("bnc,bmc->bnm", x, x.sin()), Kind.MIXED),
    ],
)
def test_an_operation_has_its_kind(function, kind):
    x = torch.randn(2, 3, 4)
    recorder, y = recorded(nn.Identity(), function, x)
    assert {edge.kind for edge in recorder.values[y].edges if edge.source.is_data} == {kind}


def test_ancestors_end_at_the_inputs_and_direct_ancestors_at_layers():
    linear, x = nn.Linear(4, 4), torch.randn(2, 4)
    recorder, (h, y) = recorded(linear, lambda x: ((h := linear(2 * x)), h.relu() + 1), x)
    assert recorder.values[x] in ancestors(recorder.values[y])
    assert recorder.values[h] in direct_ancestors(recorder.values[y])
    assert recorder.values[x] not in direct_ancestors(recorder.values[y])
    assert recorder.values[x].is_data
    assert not recorder.values[linear.weight].is_data


def test_an_operation_in_place_gives_a_tensor_a_new_value():
    x = torch.randn(2, 4)

    def function(x):
        y = x.clone()
        before = recorder.value_of(y)
        y.mul_(2)
        return before, recorder.value_of(y)

    recorder = Recorder(nn.Identity())
    with recorder.following(x):
        before, after = function(x)
    assert before is not after
    assert before in ancestors(after)


def test_writing_into_a_view_changes_its_base():
    x, z = torch.randn(2, 4), torch.randn(2, 2)

    def function(x, z):
        y = x.clone()
        y[:, :2].add_(z)
        w = x.clone()
        w[:, :2] = z
        return y, w

    recorder, (y, w) = recorded(nn.Identity(), function, x, z)
    assert recorder.values[z] in ancestors(recorder.values[y])
    assert recorder.values[z] in ancestors(recorder.values[w])


def test_values_of_dead_tensors_do_not_confuse_new_ones():
    """Python reuses the ids of dead objects."""
    x = torch.randn(2, 4)

    def function(x):
        for _ in range(50):
            x.sin()
        return torch.ones(2, 4)

    recorder, y = recorded(nn.Identity(), function, x)
    assert not recorder.value_of(y).is_data


# Networks


def views(self, x):
    y = self.f(x.view(8, 4)).reshape(2, 2, 2, 4).flatten(1, 2)
    return x.contiguous() + y.view_as(x)


def turned_and_turned_back(self, x):
    y = self.f(x.transpose(0, 1)).transpose(0, 1)
    return x.permute(0, 2, 1).permute(0, 2, 1) + y


def activation_in_place(self, x):
    return x + F.hardtanh(self.f(x).mul_(2).add_(1), inplace=True)


def written_slices(self, x):
    y = self.f(x)
    y[:, 0] = 0
    y[:, 1:].mul_(2)
    return x + y


def without_gradient(self, x):
    with torch.no_grad():
        y = self.f(x)
    return self.g(x + y)


def detached(self, x):
    return x.detach() + self.f(x)


def summed_without_gradient(self, x):
    with torch.no_grad():
        x = x + self.f(x)
    return self.g(x)


def half_precision(self, x):
    y = self.f(x.to(torch.float64).float())
    return x + y.double().float()


def checkpoint_of_a_method(self, x):
    return checkpoint(lambda y: y + self.block(y), x, use_reentrant=False)


def reentrant_checkpoint(self, x):
    x = self.g(x)
    return x + checkpoint(self.f, x, use_reentrant=True)


def dropout(self, x):
    return x + self.drop(F.dropout(self.f(x), 0.3, self.training))


def drop_path(self, x):
    """Stochastic depth: the branch is scaled by random numbers."""
    y = self.f(x)
    if self.training:
        y = y * (torch.rand(2, 1, 1) > 0.3) / 0.7
    return x + y


def squeeze_and_excitation(self, x):
    y = self.f(x)
    return x + y * self.mlp(y.mean(1, keepdim=True)).sigmoid()


def gathered(self, x):
    """Windows of tokens, as in Swin: shifted, cut, put together, shifted back."""
    y = torch.roll(self.norm(x), 1, 1)
    y = torch.cat([self.f(part) for part in y.chunk(2, 1)], 1)
    return x + torch.roll(y, -1, 1)


def attention(self, x):
    y = F.scaled_dot_product_attention(self.f(x), self.g(x), self.proj(x))
    return x + self.shortcut(y)


def attention_by_hand(self, x):
    q, k, v = self.f(x), self.g(x), self.proj(x)
    scores = (q @ k.mT + torch.zeros(4, 4)) / 2
    return x + scores.softmax(-1) @ v


def fourier(self, x):
    return x + self.f(torch.fft.irfft(torch.fft.rfft(x, dim=1) * 2, n=4, dim=1))


def aggregated(self, x):
    """Messages on a graph."""
    flat = x.flatten(0, 1)
    target = torch.tensor([1, 2, 3, 4, 5, 6, 7, 0])
    return flat + torch.zeros_like(flat).index_add(0, target, self.f(flat))


def functional_layer(self, x):
    return x + torch.func.functional_call(self.f, dict(self.f.named_parameters()), (x,))


def generator_of_parts(self, x):
    return next(y + self.f(y) for y in (x,))


FOUND = [
    views, turned_and_turned_back, activation_in_place, written_slices, without_gradient, detached,
    summed_without_gradient, half_precision, checkpoint_of_a_method, reentrant_checkpoint, dropout, drop_path,
    squeeze_and_excitation, gathered, attention, attention_by_hand, fourier, aggregated, functional_layer,
    generator_of_parts,
]  # fmt: skip


@pytest.mark.parametrize("forward", FOUND, ids=lambda value: value.__name__)
def test_a_skip_connection_is_followed_through(forward):
    plan = check_same(net_with(forward), example())
    assert len(plan.converted) == 1
    assert not plan.refused


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return (x**3) @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return 3 * x**2 * (gradient @ weight.mT), (x**3).flatten(0, 1).mT @ gradient.flatten(0, 1)


def test_a_custom_autograd_function_is_a_layer():
    def forward(self, x):
        x = self.g(x)
        return x + Cube.apply(x, self.weight)

    assert converted(check_same(net_with(forward), example())) == ["x + Cube.apply(x, self.weight)"]


def test_a_custom_autograd_function_of_the_input_is_a_layer():
    def forward(self, x):
        return x + Cube.apply(x, self.weight)

    assert converted(check_same(net_with(forward), example())) == ["x + Cube.apply(x, self.weight)"]


def test_autocast_is_kept():
    network, x = net_with(FOUND[0]), example()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (one,) = check_same(network, x)
        assert lresnet.lorentzify(network, residual="space", example=x)(x).dtype == network(x).dtype
    assert one.converted


# Loops, shared modules, nested blocks


class Block(nn.Module):
    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.norm, self.f, self.inner = nn.LayerNorm(4), nn.Linear(4, 4), inner

    def forward(self, x):
        y = self.f(self.norm(x)).relu()
        return x + (y if self.inner is None else self.inner(y))


class Stacked(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def test_each_module_of_a_list_has_its_own_sum():
    plan = check_same(Stacked(Block(), Block(), Block()), example())
    assert [(one.module, one.calls) for one in plan.converted] == [(f"blocks.{i}", 1) for i in range(3)]


def test_a_module_that_stands_twice_has_one_sum_of_two_calls():
    block = Block()
    plan = check_same(Stacked(block, Block(), block), example())
    assert [(one.module, one.calls) for one in plan.converted] == [("blocks.0", 2), ("blocks.1", 1)]
    found = lresnet.lorentzify(Stacked(block, Block(), block), example=example())
    assert found.blocks[0] is found.blocks[2]


def test_residual_blocks_within_the_branch_of_a_residual_block():
    plan = check_same(Block(Block(Block())), example())
    assert [one.module for one in plan.converted] == ["inner.inner", "inner", ""]


def test_a_skip_connection_around_residual_blocks():
    class Long(Stacked):
        def forward(self, x):
            return x + super().forward(x)

    plan = check_same(Long(Block(), Block()), example(), pickled=False)
    assert [one.module for one in plan.converted] == ["blocks.0", "blocks.1", ""]


def test_a_skip_connection_from_the_encoder_to_the_decoder():
    """As in a U-Net with sums."""

    def forward(self, x):
        first = self.f(x).relu()
        second = self.g(first[:, ::2]).relu()
        up = F.interpolate(self.proj(second).mT, scale_factor=2).mT
        return self.mlp(up + first)

    assert converted(check_same(net_with(forward), example())) == ["up + first"]


# Parallel branches


def test_parallel_branches_with_the_skip_first():
    def forward(self, x):
        y = self.norm(x)
        return x + self.f(y) + self.mlp(y)

    assert len(check_same(net_with(forward), example()).converted) == 2


def test_parallel_branches_with_the_skip_last():
    def forward(self, x):
        y = self.norm(x)
        return self.mlp(y) + self.f(y) + x

    plan = check_same(net_with(forward), example())
    assert converted(plan) == ["self.mlp(y) + self.f(y) + x"]
    assert list(refused(plan)) == ["self.mlp(y) + self.f(y)"]


def test_parallel_branches_in_brackets():
    def forward(self, x):
        y = self.norm(x)
        return x + (self.mlp(y) + self.f(y))

    assert converted(check_same(net_with(forward), example())) == ["x + (self.mlp(y) + self.f(y))"]


def test_three_branches_of_one_skip_connection():
    def forward(self, x):
        x = x + self.f(x) + self.g(x) + self.mlp(x)
        return self.proj(x)

    assert len(check_same(net_with(forward), example()).converted) == 3


# Shortcuts with layers


class Projected(nn.Module):
    """A block whose shortcut changes the shape. No name says what it is."""

    def __init__(self, p: nn.Module, stride: int = 1, out: int = 8) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, out, 3, stride, 1), nn.Conv2d(out, out, 3, 1, 1)
        self.res_conv = p

    def forward(self, x):
        h = F.silu(self.a(x))
        h = self.b(h)
        return h + self.res_conv(x)


class PadChannels(nn.Module):
    """The shortcut of type A of a ResNet: subsampled, and zeros for the new channels."""

    def forward(self, x):
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))


SHORTCUTS = {
    "convolution": (lambda: nn.Conv2d(4, 8, 1), 1),
    "strided convolution": (lambda: nn.Conv2d(4, 8, 1, 2), 2),
    "convolution and norm": (lambda: nn.Sequential(nn.Conv2d(4, 8, 1, 2, bias=False), nn.BatchNorm2d(8)), 2),
    "pool and convolution": (lambda: nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(4, 8, 1)), 2),
    "padded channels": (PadChannels, 2),
}


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_shortcut_with_layers_is_found_whatever_its_name(name):
    make, stride = SHORTCUTS[name]
    (one,) = check_same(Projected(make(), stride), torch.randn(2, 4, 6, 6))
    assert (one.text, one.converted, one.skip_first) == ("h + self.res_conv(x)", True, False)
    assert (one.axis % 4, one.width) == (1, 8)


@pytest.mark.parametrize("identity", [nn.Identity(), nn.Sequential(), nn.Dropout(0.1)])
def test_a_shortcut_that_does_nothing_is_found_whatever_its_name(identity):
    (one,) = check_same(Projected(identity, 1, 4), torch.randn(2, 4, 6, 6))
    assert (one.converted, one.skip_first) == (True, False)


def test_a_pooled_shortcut_is_found():
    (one,) = check_same(Projected(nn.MaxPool2d(2), 2, 4), torch.randn(2, 4, 6, 6))
    assert (one.converted, one.skip_first) == (True, False)


def test_a_linear_shortcut_of_tokens_is_found():
    def forward(self, x):
        return self.wide(self.mlp(x).relu()) + self.other(x)

    network = net_with(forward)
    network.other = nn.Linear(4, 8)
    (one,) = check_same(network, example())
    assert (one.converted, one.skip_first, one.width) == (True, False, 8)


def test_two_linear_maps_of_one_value_are_no_skip_connection():
    """As in SAGE convolutions, where the node and its neighbours have a layer each."""

    def forward(self, x):
        return self.wide(x) + F.linear(x.roll(1, 1), self.wide.weight)

    plan = lresnet.find_sums(net_with(forward), example())
    assert not plan.converted
    assert "linear maps of one value" in plan.refused[0].reason


def test_a_shortcut_of_the_same_shape_needs_a_name():
    def named(self, x):
        return self.mlp(x) + self.shortcut(x)

    def unnamed(self, x):
        return self.mlp(x) + self.proj(x)

    assert converted(lresnet.find_sums(net_with(named), example()))
    plan = lresnet.find_sums(net_with(unnamed), example())
    assert not plan.converted
    assert "the layer on the shortcut keeps the shape" in plan.refused[0].reason
    plan = check_plan_of_the_user(net_with(unnamed), "*")
    assert converted(plan) == ["self.mlp(x) + self.proj(x)"]


def check_plan_of_the_user(network: Net, pattern: str) -> lresnet.convert.Plan:
    plan = lresnet.find_sums(network, example()).include(pattern, skip_first=False)
    assert lresnet.lorentzify(network, plan=plan).residual.dim == -1
    return plan


# Attention scores


@pytest.mark.parametrize("masked", [True, False])
def test_scores_of_two_kinds_are_no_skip_connection(masked):
    """Relative positions, as in Transformer-XL: the scores are a sum of two products."""

    def forward(self, x):
        q, k = self.f(x), self.g(x)
        scores = q @ k.mT + (q + self.gamma) @ self.proj(x).mT
        if masked:
            scores = scores.masked_fill(torch.ones(4, 4).triu(1) > 0, -1e9)
        return x + scores.softmax(-1) @ x

    plan = check_same(net_with(forward), example())
    assert converted(plan) == ["x + scores.softmax(-1) @ x"]
    assert len(plan.refused) == 1


def test_scores_that_are_passed_on_are_no_skip_connection():
    """Residual attention scores, as in RealFormer."""

    def forward(self, x):
        before = None
        for layer in self.layers:
            scores = layer(x) @ self.g(x).mT
            if before is not None:
                scores = scores + before
            before = scores
            x = x + scores.softmax(-1) @ self.f(x)
        return x

    plan = check_same(net_with(forward), example())
    assert converted(plan) == ["x + scores.softmax(-1) @ self.f(x)"]
    assert "scores + before" in refused(plan)
