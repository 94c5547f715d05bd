"""A network of one's own with another residual connection: which sums are replaced, and that all else stays."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import lresnet
from lresnet.optim import parameter_groups
from lresnet.residual import LorentzResidual


class Basic(nn.Module):
    """The block of a ResNet, as it is usually written."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Attention(nn.Module):
    """Sizes that are added, a mask that is added, heads: none of it is a skip connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(1))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, self.heads, -1).transpose(1, 2).chunk(3, dim=-1)
        scores = q @ k.transpose(-1, -2) + mask
        together = (scores + self.bias).softmax(-1) @ v
        extra = length + width - width
        return self.out(together.transpose(1, 2).reshape(batch, extra, width))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.drop = Attention(width, 2), nn.Dropout(0.0)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        x = x + self.drop(self.attention(self.norm1(x), mask))
        return torch.add(x, self.mlp(self.norm2(x)))


class Transformer(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(5, width))
        self.layers = nn.ModuleList([Layer(width), Layer(width)])

    def forward(self, x, mask):
        x = x + self.position
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Plain(nn.Module):
    """A block whose forward is the function it is given."""

    def __init__(self, forward, width: int = 6) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(width, width), nn.Linear(width, width)
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def resnet() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), Basic(8, 8), Basic(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def transformer() -> Transformer:
    torch.manual_seed(0)
    return Transformer()


def inputs(network: nn.Module) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(1)
    if isinstance(network, Transformer) or hasattr(network, "position"):
        return torch.randn(2, 5, 8, generator=g), torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1) > 0, -9.0)
    return (torch.randn(4, 3, 9, 9, generator=g),)


NETWORKS = pytest.mark.parametrize("make", [resnet, transformer])


def residuals(network: nn.Module) -> dict[str, LorentzResidual]:
    return {name: module for name, module in network.named_modules() if isinstance(module, LorentzResidual)}


@NETWORKS
def test_space_addition_is_the_network_itself(make):
    network = make()
    converted = lresnet.lorentzify(network, residual="space")
    torch.testing.assert_close(converted(*inputs(network)), network(*inputs(network)), rtol=0, atol=0)


@NETWORKS
def test_in_flat_space_it_is_the_network_before_training(make):
    network = make()
    found = lresnet.lorentzify(network, curvature=-1e-9)(*inputs(network))
    torch.testing.assert_close(found, network(*inputs(network)), rtol=1e-4, atol=1e-5)


@NETWORKS
def test_in_curved_space_it_is_another(make):
    network = make()
    found = lresnet.lorentzify(network, curvature=-1.0)(*inputs(network))
    assert found.isfinite().all()
    assert (found - network(*inputs(network))).abs().max() > 0.1


def test_axes_widths_and_names_of_a_resnet():
    converted = lresnet.lorentzify(resnet())
    assert residuals(converted).keys() == {"1.residual", "2.residual"}
    assert {module.dim for module in residuals(converted).values()} == {1}
    assert float(converted[1].manifold.K) == -1 / 16
    assert all(module.manifold is converted[1].manifold for module in residuals(converted).values())


def test_axes_widths_and_names_of_a_transformer():
    converted = lresnet.lorentzify(transformer())
    names = {f"layers.{i}.{name}" for i in (0, 1) for name in ("residual", "residual_2")}
    assert residuals(converted).keys() == names
    assert {module.dim for module in residuals(converted).values()} == {-1}
    assert float(converted.layers[0].manifold.K) == -1 / 8


def test_the_skip_connection_is_the_shorter_way():
    """Its weight is 1: with the branch's weight at 0 only the skip connection counts."""
    for function in (lambda self, x: x + self.layer(x), lambda self, x: self.layer(x) + x):
        converted = lresnet.lorentzify(Plain(function), curvature=-1.0, weight=0.0, scale=1.0)
        x = torch.randn(3, 6)
        torch.testing.assert_close(converted(x), x)


@NETWORKS
def test_the_network_that_is_given_stays_as_it_is(make):
    network = make()
    before, parts = copy.deepcopy(network.state_dict()), [type(module) for module in network.modules()]
    converted = lresnet.lorentzify(network)
    with torch.no_grad():
        for parameter in converted.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    assert [type(module) for module in network.modules()] == parts


@NETWORKS
def test_parameters_keep_their_names_and_values(make):
    network = make()
    converted = lresnet.lorentzify(network)
    state = converted.state_dict()
    for name, value in network.state_dict().items():
        assert torch.equal(state.pop(name), value)
    assert {name.rsplit(".", 1)[-1] for name in state} <= {"raw_weight", "log_scale", "log_kappa", "K"}
    groups = parameter_groups(converted)
    assert len(groups.geometric) == 2 * len(residuals(converted))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # what torch's compiler does is not our business
@NETWORKS
def test_it_trains_copies_and_compiles(make):
    network = make()
    converted = lresnet.lorentzify(network)
    twin = copy.deepcopy(converted)
    twin(*inputs(network)).square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in twin.parameters() if parameter.grad is not None)
    assert all(module.log_scale.grad is not None for module in residuals(twin).values())
    assert all(parameter.grad is None for parameter in converted.parameters())
    compiled = torch.compile(converted, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs(network)), converted(*inputs(network)), rtol=1e-4, atol=1e-5)


def test_training_and_evaluation_stay_apart():
    converted = lresnet.lorentzify(resnet().eval())
    assert not any(module.training for module in converted.modules())
    before = converted[1].bn1.running_mean.clone()
    converted(*inputs(converted))
    assert torch.equal(converted[1].bn1.running_mean, before)
    converted.train()(*inputs(converted))
    assert not torch.equal(converted[1].bn1.running_mean, before)


def test_a_learned_curvature_has_one_owner():
    manifold = lresnet.Lorentz(-0.5, learnable=True)
    converted = lresnet.lorentzify(resnet(), curvature=manifold)
    assert [name for name, _ in converted.named_parameters() if "kappa" in name] == ["1.manifold.log_kappa"]
    converted(*inputs(converted)).square().mean().backward()
    assert converted[1].manifold.log_kappa.grad is not None


def test_a_block_that_stands_twice_stays_one():
    block = Plain(lambda self, x: x + self.layer(x))
    converted = lresnet.lorentzify(nn.Sequential(block, nn.ReLU(), block))
    assert converted[0] is converted[2]
    assert len(residuals(converted)) == 1


def test_a_network_that_is_itself_a_block():
    converted = lresnet.lorentzify(Plain(lambda self, x: x + self.layer(x)))
    assert residuals(converted).keys() == {"residual"}
    assert converted.other.weight.shape == (6, 6)  # not called, and still there
    assert type(converted).__name__ == "Plain"


def test_a_block_within_a_block():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Plain(lambda self, x: x + self.layer(x))

        def forward(self, x):
            return x + self.inner(x)

    network = Outer()
    converted = lresnet.lorentzify(network, residual="space")
    x = torch.randn(3, 6)
    torch.testing.assert_close(converted(x), network(x), rtol=0, atol=0)
    assert residuals(lresnet.lorentzify(network)).keys() == {"residual", "inner.residual"}


def test_hooks_are_kept():
    network, seen = resnet(), []
    network[1].register_forward_hook(lambda module, given, found: seen.append(found.shape))
    lresnet.lorentzify(network)(*inputs(network))
    assert seen == [(4, 8, 7, 7)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda self, x: self.layer(x), "no sum of a skip connection and its branch was found in Plain; write it as"),
        (lambda self, x: self.layer(x) + self.layer.bias, "no sum"),
        (lambda self, x: x + x, "no sum"),
        (lambda self, x: x + self.layer(x) if x.sum() > 0 else x, "Plain could not be read: symbolically traced"),
        (
            lambda self, x: x + nn.functional.dropout(self.layer(x), training=self.training),
            "Plain could not be read: it asks for self.training",
        ),
    ],
)
def test_what_cannot_be_converted_says_why(function, message):
    with pytest.raises(ValueError, match=message):
        lresnet.lorentzify(Plain(function))


def test_an_argument_that_may_be_missing_is_named():
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x, mask=None):
            y = self.layer(x)
            if mask is not None:
                y = y * mask
            return x + y

    with pytest.raises(ValueError, match="depends on whether mask is None"):
        lresnet.lorentzify(Optional())


def test_an_argument_that_is_handed_on_may_be_missing():
    class Inner(nn.Module):
        def forward(self, x, mask=None):
            return x if mask is None else x * mask

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.layer = Inner(), nn.Linear(6, 6)

        def forward(self, x, mask=None):
            return x + self.layer(self.inner(x, mask))

    network, x = Outer(), torch.randn(2, 6)
    converted = lresnet.lorentzify(network, residual="space")
    for mask in ((), (torch.rand(6),)):
        torch.testing.assert_close(converted(x, *mask), network(x, *mask), rtol=0, atol=0)


def test_where_layers_disagree_the_axis_is_asked_for():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.linear = nn.Conv2d(4, 4, 1), nn.Linear(4, 4)

        def forward(self, x):
            return x + self.linear(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    with pytest.raises(ValueError, match=r"the sum in Mixed .* dim=1 or dim=-1"):
        lresnet.lorentzify(Mixed())
    assert residuals(lresnet.lorentzify(Mixed(), dim=1))["residual"].dim == 1


def test_what_could_not_be_read_is_told_where_it_may_add_something():
    good = Plain(lambda self, x: x + self.layer(x))
    with pytest.warns(UserWarning, match="sums that stay as they are, if any: 1 could not be read"):
        lresnet.lorentzify(nn.Sequential(good, nn.TransformerEncoderLayer(6, 2)))
    with pytest.warns(UserWarning, match="1 could not be read"):
        lresnet.lorentzify(nn.Sequential(good, _Unsure()))
    lresnet.lorentzify(nn.Sequential(good, _Attending()))  # and no warning


class _Unsure(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.layer(x) if x.sum() > 0 else x


class _Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2)

    def forward(self, x):
        return self.attention(x, x, x)[0] if x.sum() > 0 else x


def test_other_mistakes():
    network = resnet()
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got builtin"):
        lresnet.lorentzify(torch.relu)
    with pytest.raises(ValueError, match="curvature must be a negative number"):
        lresnet.lorentzify(network, curvature="learned")
    with pytest.raises(ValueError, match="did you mean"):
        lresnet.lorentzify(network, residual="lorenz")
    with pytest.raises(ValueError, match="computes on a manifold already"):
        lresnet.lorentzify(lresnet.lorentzify(network, residual="space"))
    with pytest.raises(ValueError, match="not to be seen from its layers; say the curvature"):
        lresnet.lorentzify(nn.Sequential(_Bare()))


class _Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x):
        return x + self.act(x)
