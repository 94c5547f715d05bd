"""Sums that are not skip connections: those that the plan does not list, and those that it names with a reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lresnet
from tests.convert.checks import Net, check_same, converted, example, net_with, refused

# Sums that are not in the plan: one side is not an activation that depends on the input


def position(self, x):
    return self.f(x + self.pos[:, : x.shape[1]])


def position_by_a_buffer(self, x):
    return self.f(x) + self.cos


def position_by_constants(self, x):
    places = torch.arange(x.shape[1])[:, None] / torch.arange(1, x.shape[-1] + 1)
    return self.f(x + places.sin().expand_as(x))


def position_by_an_embedding(self, x):
    return self.f(x + self.places(torch.arange(x.shape[1])).expand_as(x))


def bias(self, x):
    return self.f(x) + self.weight + self.f.bias


def noise(self, x):
    return self.f(x) + torch.randn(x.shape) * self.gamma


def mask(self, x):
    hidden = torch.full((4, 4), float("-inf")).triu(1).expand(2, 4, 4)
    return (x @ self.f(x).mT + hidden).softmax(-1) @ x


def sizes(self, x):
    n = x.shape[0] + self.f(x).shape[0] + len(x)
    return self.f(x)[:n]


def lists(self, x):
    outputs = (x,)
    for layer in self.layers:
        x = layer(x)
        outputs = outputs + (x,)  # noqa: RUF005
    return [*outputs] + [self.f(x)]  # noqa: RUF005


def strings(self, x):
    assert x.ndim == 3, "a" + f"{self.f(x).shape}"
    return self.f(x)


def losses(self, x):
    return self.f(x), self.f(x).square().mean() + self.g(x).square().mean()


def loss_and_number(self, x):
    return self.f(x), self.f(x).square().mean() + 1


def twice_the_input(self, x):
    return self.f(x + x)


def broadcast(self, x):
    return self.f(x) + x.mean(-1, keepdim=True)


def whole_numbers(self, x):
    kinds = x.argmax(-1)
    return self.tokens(kinds + self.f(x).argmax(-1))


SILENT = [
    position, position_by_a_buffer, position_by_constants, position_by_an_embedding, bias, noise, mask, sizes, lists,
    strings, losses, loss_and_number, twice_the_input, broadcast, whole_numbers,
]  # fmt: skip


@pytest.mark.parametrize("forward", SILENT, ids=lambda value: value.__name__)
def test_a_sum_without_two_activations_is_not_in_the_plan(forward):
    assert len(lresnet.find_sums(net_with(forward), example())) == 0


def test_the_number_of_lines_that_are_not_in_the_plan_is_noted():
    def forward(self, x):
        x = x + self.pos[:, :4].expand_as(x)
        return x + self.f(x)

    plan = lresnet.find_sums(net_with(forward), example())
    assert [one.text for one in plan] == ["x + self.f(x)"]
    assert "Not listed: sums in 1 other line with a side that does not depend on the input" in str(plan)


def test_an_example_without_tensors_is_noted():
    def forward(self, count):
        return torch.ones(2, 4)

    assert "No tensor was found in the example inputs." in str(lresnet.find_sums(net_with(forward), 3))


def test_the_sum_of_two_embeddings_is_not_in_the_plan():
    def forward(self, ids):
        return self.f(self.tokens(ids) + self.places(torch.arange(ids.shape[1])))

    assert len(lresnet.find_sums(net_with(forward), torch.tensor([[1, 2, 3], [4, 5, 6]]))) == 0


def test_noise_of_the_shape_of_the_input_is_not_in_the_plan():
    def forward(self, x):
        return self.f(x + torch.randn_like(x) * self.gamma)

    assert len(lresnet.find_sums(net_with(forward), example())) == 0


# Sums that the plan names


def rope(self, x):
    q = self.f(x)
    return q * self.cos + self.rotate(q) * self.cos


def gate(self, x):
    y, g = self.f(x), self.g(x).sigmoid()
    return g * x + (1 - g) * y


def doubled(self, x):
    return self.f(x + F.relu(x))


def by_a_static_method(self, x):
    return self.f(x + self.twice(x))


def variational(self, x):
    mean, deviation = self.f(x), self.g(x).exp()
    return mean + torch.randn_like(deviation) * deviation


def two_layers(self, x):
    return self.f(x) + self.g(x)


def two_layers_with_activations(self, x):
    return self.f(x).relu() + self.g(x).tanh()


def two_linear_maps_to_another_width(self, x):
    return self.wide(x) + F.linear(self.f(x), self.wide.weight)


def towards(self, x):
    y = self.f(x)
    return x + self.gamma * (y - x)


def total(self, x):
    y = x
    for layer in self.layers:
        x = layer(x)
        y = y + x
    return y


def two_ways(self, x):
    y = x
    for layer in self.layers:
        y = layer(y)
    return y + self.f(x)


def res2net(self, x):
    first, last = self.f(x).relu().chunk(2, -1)
    y = F.linear(first, self.weight[:2, :2]).relu()
    return torch.cat([y, F.linear(y + last, self.weight[:2, :2])], -1)


def slices_of_the_channels(self, x):
    y = self.wide(x).relu()
    return self.f(y[..., :4]) + y[..., 4:]


def an_activation_as_branch(self, x):
    return x + torch.sin(x)


def with_alpha(self, x):
    return torch.add(x, self.f(x), alpha=2)


def with_keywords(self, x):
    return torch.add(input=x, other=self.f(x))


def part_of_a_tensor(self, x):
    y = self.f(x)
    y[:, :2] += x[:, :2]
    return y


def in_place_in_a_comprehension(self, x):
    return [y.add_(x) for y in [self.f(x)]]


NAMED = [
    (rope, "without a layer in between"),
    (gate, "neither is a shortcut"),
    (doubled, "one side reaches the other without a layer in between"),
    (by_a_static_method, "one side reaches the other without a layer in between"),
    (variational, "may be branches"),
    (two_layers, "may be branches"),
    (two_layers_with_activations, "neither is a shortcut"),
    (two_linear_maps_to_another_width, "both sides are linear maps of one value"),
    (towards, "one side reaches the other without a layer in between"),
    (total, "only some of its calls"),
    (two_ways, "may be branches"),
    (res2net, "pieces of one value"),
    (slices_of_the_channels, "pieces of one value"),
    (an_activation_as_branch, "one side reaches the other without a layer in between"),
    (with_alpha, "it has named arguments"),
    (with_keywords, "it has named arguments"),
    (part_of_a_tensor, "a part of a tensor"),
    (in_place_in_a_comprehension, "in place inside a comprehension"),
]


@pytest.mark.parametrize(("forward", "reason"), NAMED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_sum_that_is_no_skip_connection_is_named_with_its_reason(forward, reason):
    network = net_with(forward)
    plan = lresnet.find_sums(network, example())
    assert not plan.converted
    (one,) = plan.refused
    assert reason in one.reason
    with pytest.raises(ValueError, match=r"(?s)no sum of a skip connection .* was found in .*: 1 sum of activations"):
        lresnet.lorentzify(network, plan=plan)


def test_slices_of_linear_channels_are_no_skip_connection():
    """A block of Res2Net without an activation before the split."""

    def forward(self, x):
        first, last = self.f(x).chunk(2, -1)
        return F.linear(first, self.weight[:2, :2]).relu() + last

    assert not lresnet.find_sums(net_with(forward), example()).converted


def test_halves_of_the_batch_are_no_skip_connection():
    def forward(self, x):
        return self.f(x[:1]) + x[1:]

    assert not lresnet.find_sums(net_with(forward), example()).converted


def test_a_sum_into_an_output_is_reported():
    def forward(self, x):
        out = torch.empty_like(x)
        with torch.no_grad():
            torch.add(x, self.f(x), out=out)
        return out

    (one,) = lresnet.find_sums(net_with(forward), example())
    assert "it has named arguments" in one.reason


def test_two_inputs_that_are_added():
    def forward(self, x, other):
        return self.f(x) + other

    plan = lresnet.find_sums(net_with(forward), example(), example())
    assert "neither side is computed from the other" in refused(plan)["self.f(x) + other"]


def test_a_running_total_after_a_residual_connection():
    def forward(self, x):
        h = x
        for layer in self.layers:
            h = h + layer(h)
            x = x + h
        return x

    plan = check_same(net_with(forward), example())
    assert converted(plan) == ["h + layer(h)"]
    assert "x + h" in refused(plan)


def test_a_running_total_that_starts_with_a_number_is_refused():
    def forward(self, x):
        x, y = x + self.f(x), 0
        for layer in list(self.layers)[:2]:
            x = layer(x)
            y = y + x
        return y

    plan = check_same(net_with(forward), example())
    assert converted(plan) == ["x + self.f(x)"]


# Other ways to write a sum: reported, not converted


def stacked(self, x):
    return torch.stack([x, self.f(x)]).sum(0)


def mean_of_a_stack(self, x):
    return torch.stack([x, self.f(x)]).mean(dim=0)


def multiplied_and_added(self, x):
    return torch.addcmul(x, self.gamma.expand_as(x), self.f(x))


def difference(self, x):
    return x - self.f(x)


def interpolated(self, x):
    return torch.lerp(x, self.f(x), 0.5)


OTHER = [
    (stacked, "torch.stack(...).sum(...)"), (mean_of_a_stack, "torch.stack(...).mean(...)"),
    (multiplied_and_added, "torch.addcmul"), (difference, "a difference"), (interpolated, "torch.lerp"),
]  # fmt: skip


@pytest.mark.parametrize(("forward", "form"), OTHER, ids=lambda value: getattr(value, "__name__", ""))
def test_a_residual_connection_that_is_not_written_as_a_sum_is_reported(forward, form):
    (one,) = lresnet.find_sums(net_with(forward), example())
    assert not one.converted
    assert f"it is written as {form}; write x + f(x) instead" in one.reason


def test_the_sum_of_a_list_is_reported():
    def forward(self, x):
        return sum([x, self.f(x)])

    (one,) = lresnet.find_sums(net_with(forward), example())
    assert not one.converted
    assert "sum([x, self.f(x)])" in one.reason


def test_a_reported_sum_warns_beside_others_that_are_converted():
    def forward(self, x):
        x = x + self.f(x)
        return torch.addcmul(x, self.gamma.expand_as(x), self.g(x))

    network = net_with(forward)
    with pytest.warns(UserWarning, match=r"(?s)not converted in .*it is written as torch.addcmul"):
        lresnet.lorentzify(network, example=example())


@pytest.mark.filterwarnings("ignore:.*torch.jit")
class TestTorchScript:
    """It is blind to the recorder; autograd tells what it was computed from."""

    def test_a_scripted_module_is_reported(self):
        def forward(self, x):
            x = self.g(x)
            return x + self.scripted(x)

        network = net_with(forward)
        network.scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        plan = lresnet.find_sums(network, example())
        assert converted(plan) == ["x + self.scripted(x)"]
        assert "scripted runs code that cannot be followed, e.g. TorchScript." in str(plan)

    def test_a_scripted_function_is_reported(self):
        scripted = torch.jit.trace(torch.sin, torch.ones(2, 4, 4))

        def forward(self, x):
            return x + scripted(self.f(x))

        plan = lresnet.find_sums(net_with(forward), example())
        assert converted(plan) == ["x + scripted(self.f(x))"]
        assert "cannot be followed" in str(plan)

    def test_a_scripted_branch_of_the_input_is_found(self):
        def forward(self, x):
            return x + self.scripted(x)

        network = net_with(forward)
        network.scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        assert converted(lresnet.find_sums(network, example())) == ["x + self.scripted(x)"]


# Sums in place that another name sees


def alias(self, x):
    y = x = self.g(x)
    x += self.f(x)
    return x + 2 * y


def view(self, x):
    y = self.f(x)
    first = y[:, 0]
    y += x
    return y, first


def kept(self, x):
    outputs, y = [], self.f(x)
    outputs.append(y)
    y += x
    return outputs


def view_in_place(self, x):
    y = self.f(x)
    y.squeeze(0).add_(x)
    return y


@pytest.mark.parametrize("forward", [alias, view, kept, view_in_place], ids=lambda value: value.__name__)
def test_a_sum_in_place_that_another_name_sees_is_refused(forward):
    network = net_with(forward)
    with pytest.raises(ValueError, match=r"write into a tensor that other code still reads: :\d+; write x = x \+ f"):
        lresnet.lorentzify(network, example=example())


def test_a_sum_in_place_that_an_attribute_sees_is_refused():
    def forward(self, x):
        y = self.last = self.f(x)
        y += x
        return y

    with pytest.raises(ValueError, match="write into a tensor that other code still reads"):
        lresnet.lorentzify(net_with(forward), example=example())


def test_a_sum_in_place_that_no_other_name_sees_is_converted():
    def forward(self, x):
        y = self.f(x)
        z = y
        z += x
        return z

    assert converted(check_same(net_with(forward), example())) == ["z += x"]


def test_an_argument_that_is_no_longer_changed_is_reported():
    class Writes(Net):
        def forward(self, x):
            x += self.f(x)
            return x

    network, x = Writes(), example()
    with pytest.warns(UserWarning, match=r"(?s)changed an argument in place, and no longer do.*x \+= self.f\(x\)"):
        flat = lresnet.lorentzify(network, residual="space", example=x)
    assert torch.equal(x, example())
    assert torch.equal(flat(x.clone()), network(x.clone()))


# Re-parametrisable blocks


class RepVGG(nn.Module):
    """A block whose branches are merged into one convolution for deployment."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.merged = None

    def forward(self, x):
        if self.merged is not None:
            return self.merged(x)
        return F.relu(x + self.bn1(self.dense(x)))

    def switch_to_deploy(self):
        raise NotImplementedError


class Fused(RepVGG):
    switch_to_deploy = None

    def fuse(self):
        raise NotImplementedError


class TimmStyle(RepVGG):
    switch_to_deploy = None

    def reparameterize(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("block", "name"), [(RepVGG, "switch_to_deploy"), (Fused, "fuse"), (TimmStyle, "reparameterize")]
)
def test_a_block_whose_branches_can_be_merged_is_not_converted_and_is_named(block, name):
    plain = nn.Sequential(nn.Conv2d(4, 4, 1))
    network, x = nn.Sequential(block(), Bottle(plain)), torch.randn(2, 4, 5, 5)
    plan = lresnet.find_sums(network, x)
    assert [one.module for one in plan.converted] == ["1"]
    (one,) = plan.refused
    assert one.module == "0"
    assert one.reason == f"re-parametrisable: {block.__name__}.{name}() merges its branches"
    with pytest.warns(UserWarning, match=rf"(?s)not converted .* re-parametrisable: {block.__name__}"):
        lresnet.lorentzify(network, example=x)


class Bottle(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return x + self.layers(x)


# Post-norm


class Post(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f, self.g, self.norm1, self.norm2 = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.RMSNorm(4)

    def forward(self, x):
        x = self.norm1(x + self.f(x))
        return self.norm2(x + self.g(x))


def test_post_norm_sums_are_reported_to_have_no_effect_and_are_not_converted():
    plan = lresnet.find_sums(Post(), example())
    assert [one.next for one in plan] == ["LayerNorm", "RMSNorm"]
    assert all(one.is_post_norm and one.reason.startswith("post-norm: no effect") for one in plan)
    assert "no: post-norm: no effect" in str(plan)
    with pytest.raises(ValueError, match=r"2 sums of Post are followed by a layer norm.*has no effect"):
        lresnet.lorentzify(Post(), example=example())


@pytest.mark.parametrize("kind", ["space", "parallel_transport", "none"])
def test_other_residuals_are_converted_before_a_norm(kind):
    network = Post().eval()
    found = lresnet.lorentzify(network, residual=kind, example=example(), curvature=-1.0)
    assert {name for name, _ in found.named_children()} >= {"residual", "residual_2"}
    assert torch.equal(found(example()), network(example())) == (kind == "space")


def test_a_post_norm_sum_that_is_included_is_converted():
    network = Post()
    plan = lresnet.find_sums(network, example()).include("Post")
    assert lresnet.lorentzify(network, plan=plan).residual_2.dim == -1


def test_a_post_norm_sum_that_is_excluded_stays_a_sum_for_every_residual():
    plan = lresnet.find_sums(Post(), example()).exclude("*")
    with pytest.raises(ValueError, match="no sum of a skip connection"):
        lresnet.lorentzify(Post(), plan=plan, residual="space")


def test_a_norm_and_another_reader_after_a_sum_is_no_post_norm():
    class Both(Post):
        def forward(self, x):
            x = x + self.f(x)
            return x + self.g(self.norm1(x))

    assert converted(lresnet.find_sums(Both(), example())) == ["x + self.f(x)", "x + self.g(self.norm1(x))"]


def test_a_batch_norm_after_a_sum_is_no_post_norm():
    """It normalises over the batch, and so keeps the factor of each point."""

    class Batch(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

        def forward(self, x):
            return self.bn(x + self.conv(x))

    (one,) = lresnet.find_sums(Batch(), torch.randn(2, 4, 5, 5))
    assert one.converted


@pytest.mark.parametrize("shape", [[4, 5, 5], [5]])
def test_a_norm_over_other_axes_than_the_coordinates_has_an_effect(shape):
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.norm = nn.Conv2d(4, 4, 1), nn.LayerNorm(shape)

        def forward(self, x):
            return self.norm(x + self.f(x).relu())

    (one,) = lresnet.find_sums(Normed(), torch.randn(2, 4, 5, 5))
    assert one.converted


def test_an_alias_that_only_training_reads_is_refused():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.f, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            x = self.stem(x)
            aux = x
            x.add_(self.f(x.relu()))
            return (self.head(x), aux) if self.training else self.head(x)

    with pytest.raises(ValueError, match="computes something else after the conversion"):
        lresnet.lorentzify(Auxiliary(), example=torch.randn(2, 6))


def test_random_numbers_of_numpy_do_not_disturb_the_check():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(6, 6)

        def forward(self, x):
            return x + self.f(x) * float(np.random.rand())  # noqa: NPY002

    before = np.random.get_state()[1].copy()  # noqa: NPY002
    lresnet.lorentzify(Noisy(), example=torch.randn(2, 6))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_a_network_that_keeps_a_tensor_of_an_earlier_pass_is_copied():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(6, 6)

        def forward(self, x):
            self.last = self.f(x)
            return x + self.last

    net = Keeps()
    net(torch.randn(2, 6))
    assert lresnet.lorentzify(net, example=torch.randn(2, 6)).residual is not None
