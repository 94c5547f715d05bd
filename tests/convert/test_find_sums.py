"""Sums that are found as skip connections, whatever way they are written."""

from __future__ import annotations

import operator
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import lresnet
from tests.convert.checks import Net, check_same, converted, example, net_with, refused


def plain(self, x):
    return x + self.f(x)


def second(self, x):
    return self.f(x) + x


def function(self, x):
    return torch.add(x, self.f(x))


def first_argument_of_another_name(this, x, /, *, scale=2):
    return x + scale * this.f(x)


def arguments_in_a_tuple(self, *args):
    return args[0] + self.f(args[0])


def nonlocal_variable(self, x):
    def inner():
        nonlocal x
        x = x + self.f(x)

    inner()
    return x


def checkpoint_of_a_nested_function(self, x):
    x = self.g(x)
    return checkpoint(lambda y: y + self.f(y), x, use_reentrant=True)


def in_a_dict(self, x):
    return {"sum": x + self.f(x), "more": (x, [x.sum()])}


def of_operator(self, x):
    return operator.add(self.f(x), x)


def method(self, x):
    return self.f(x).add(x)


def in_place(self, x):
    y = self.f(x)
    y += x
    return y


def in_place_method(self, x):
    y = self.f(x)
    y.add_(x)
    return y


def in_place_on_a_second_name(self, x):
    y = z = self.f(x)
    z += x
    return z if self.flag else y


def scaled(self, x):
    return x + self.gamma * self.f(x)


def scaled_skip(self, x):
    return 0.9 * x + self.f(x)


def halved(self, x):
    return x + 0.5 * self.drop(self.f(self.norm(x)))


def kept_for_later(self, x):
    saved = x.clone()
    x = F.relu(self.f(x))
    x = self.g(x)
    return x + saved


def named_shortcut(self, x):
    return self.mlp(x) + self.shortcut(x)


def no_downsampling(self, x):
    identity = x
    if self.downsample is not None:
        identity = self.downsample(x)
    return self.f(x) + identity


def chosen_at_once(self, x):
    return (x if self.flag else self.g(x)) + self.f(x)


def own_method(self, x):
    return x + self.block(x)


def checkpointed(self, x):
    return x + checkpoint(self.f, x, use_reentrant=False)


def method_checkpointed(self, x):
    return x + checkpoint(self.block, x, use_reentrant=False)


def within_a_function(self, x):
    def inner(y):
        return y + self.f(y)

    return checkpoint(inner, x, use_reentrant=False)


def within_a_lambda(self, x):
    return (lambda y: y + self.f(y))(x)


def within_a_comprehension(self, x):
    return [y + self.f(y) for y in [x]]


def within_a_condition(self, x):
    return x + self.f(x) if self.flag else self.g(x)


def as_a_function(self, x):
    return x + F.linear(F.gelu(x), self.weight)


def matrix(self, x):
    return x + x @ self.weight


def under_autocast(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = self.f(x)
    return x + y


def unpacked(self, x):
    y, _ = self.f(x), None
    return x + y


def at_last(self, x):
    try:
        y = self.f(x)
    except RuntimeError:
        y = self.g(x)
    finally:
        self.done = True
    return x + y


def cases(self, x):
    match self.flag:
        case True:
            y = self.f(x)
        case _:
            y = self.g(x)
    return x + y


def walrus(self, x):
    if (y := self.f(x)).ndim == 3:
        return x + y
    return y


def by_a_name_made_up(self, x):
    return x + getattr(self, "f")(x)  # noqa: B009


def by_a_property(self, x):
    return x + self.chosen(x)


def local_lambda(self, x):
    f = lambda y: self.f(y)  # noqa: E731
    return x + f(x)


def with_types(self, x):
    first, *_ = [x, x]
    y: torch.Tensor = self.f(first)
    y *= 2
    with torch.no_grad() as nothing:
        del nothing
    return first + y


def through_a_loop(self, x):
    y = x
    for layer in self.layers:
        y = layer(y)
    return x + y


def called_like_a_position(self, x):
    """A layer's name does not matter: this is a convolutional position encoding, which is a residual connection."""
    self.pos_embed = self.f
    return x + self.pos_embed(x)


def over_several_lines(self, x):
    return (
        x
        + self.drop(
            self.f(x),
        )
    )  # fmt: skip


FORWARDS = [
    (plain, True), (second, False), (function, True), (first_argument_of_another_name, True),
    (arguments_in_a_tuple, True), (nonlocal_variable, True), (checkpoint_of_a_nested_function, True),
    (in_a_dict, True), (of_operator, False), (method, False), (in_place, False),
    (in_place_method, False), (in_place_on_a_second_name, False), (scaled, True), (scaled_skip, True), (halved, True),
    (kept_for_later, False), (named_shortcut, False), (no_downsampling, False), (chosen_at_once, True),
    (own_method, True), (checkpointed, True), (method_checkpointed, True), (within_a_function, True),
    (within_a_lambda, True), (within_a_comprehension, True), (within_a_condition, True), (as_a_function, True),
    (matrix, True), (under_autocast, True), (unpacked, True), (at_last, True), (cases, True), (walrus, True),
    (by_a_name_made_up, True), (by_a_property, True), (local_lambda, True), (with_types, True), (through_a_loop, True),
    (called_like_a_position, True), (over_several_lines, True),
]  # fmt: skip


@pytest.mark.parametrize(("forward", "skip_first"), FORWARDS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_skip_connection_is_converted_whatever_way_it_is_written(forward, skip_first):
    (one,) = check_same(net_with(forward), example())
    assert (one.converted, one.skip_first, one.axis, one.width) == (True, skip_first, -1, 4)
    assert (one.calls, one.shape, one.next) == (1, (2, 4, 4), "output")


@pytest.mark.parametrize("forward", [in_place, in_place_method], ids=lambda value: value.__name__)
def test_a_sum_in_place_is_no_code_that_cannot_be_followed(forward):
    assert lresnet.find_sums(net_with(forward), example()).notes == []


def test_plain_code_has_no_notes():
    assert lresnet.find_sums(net_with(plain), example()).notes == []


# Loops


def indexed(self, x):
    for i in range(len(self.layers)):
        x = x + self.layers[i](x)
    return x


def last_of_a_list(self, x):
    xs = [x]
    for layer in self.layers:
        xs.append(xs[-1] + layer(xs[-1]))
    return xs[-1]


def held_in_a_plain_list(self, x):
    for layer in [*self.held, self.proj]:
        x = x + layer(x)
    return x


def all_layers(self, x):
    for layer in self.layers:
        x = x + layer(x)
    return x


def layers_in_pairs(self, x):
    for layer, _ in zip(self.layers, [1, 2, 3], strict=True):
        x = layer(x) + x
    return x


def counted_by_hand(self, x):
    rounds = 0
    while rounds < 3:
        x = x + self.layers[rounds](x)
        rounds += 1
    return x


def lambda_in_a_loop(self, x):
    for layer in self.layers:
        x = (lambda y: y + layer(y))(x)
    return x


def comprehension_in_a_loop(self, x):
    xs = [x]
    for layer in self.layers:
        xs = [y + layer(y) for y in xs]
    return xs


def nested_function_in_a_loop(self, x):
    def step(y, layer):
        return y + layer(y)

    for layer in self.layers:
        x = step(x, layer)
    return x


def in_reverse(self, x):
    for _, layer in reversed(list(enumerate(self.layers))):
        x = x + layer(x)
    return x


LOOPS = [
    lambda_in_a_loop, comprehension_in_a_loop, nested_function_in_a_loop, in_reverse,
    indexed, last_of_a_list, held_in_a_plain_list, all_layers, layers_in_pairs, counted_by_hand,
]  # fmt: skip


@pytest.mark.parametrize("forward", LOOPS, ids=lambda value: value.__name__)
def test_a_sum_in_a_loop_is_one_sum_of_several_calls(forward):
    (one,) = check_same(net_with(forward), example())
    assert (one.converted, one.calls) == (True, 3)


def test_a_slice_of_the_layers_has_residuals_for_its_rounds():
    def forward(self, x):
        for layer in self.layers[1:]:
            x = x + layer(x)
        return self.layers[0](x)

    (one,) = check_same(net_with(forward), example())
    assert one.calls == 2


def test_a_loop_that_ends_by_the_data_may_run_any_number_of_times():
    def forward(self, x):
        while x.norm() < 40:
            x = x + self.f(x)
        return x

    (one,) = check_same(net_with(forward), example())
    assert one.calls > 1


# More than one sum


def test_one_residual_connection_after_the_other():
    def forward(self, x):
        x = x + self.f(x)
        return x + self.g(x)

    assert converted(check_same(net_with(forward), example())) == ["x + self.f(x)", "x + self.g(x)"]


def test_two_branches_added_to_one_skip_connection_in_turn():
    def forward(self, x):
        y = self.norm(x)
        return x + self.f(y) + self.g(y)

    plan = check_same(net_with(forward), example())
    assert converted(plan) == ["x + self.f(y)", "x + self.f(y) + self.g(y)"]
    assert [one.name for one in plan] == [plan.sums[0].name, f"{plan.sums[0].name}.2"]


def test_two_branches_added_to_each_other_first():
    def forward(self, x):
        y = self.norm(x)
        return self.f(y) + self.g(y) + x

    plan = check_same(net_with(forward), example())
    assert converted(plan) == ["self.f(y) + self.g(y) + x"]
    assert "may be branches" in refused(plan)["self.f(y) + self.g(y)"]


def test_a_step_of_runge_and_kutta():
    def forward(self, x):
        a = self.f(x)
        b = self.f(x + 0.5 * a)
        return x + 0.5 * (a + b)

    plan = check_same(net_with(forward), example())
    assert converted(plan)[0] == "x + 0.5 * a"
    assert converted(plan)[-1] == "x + 0.5 * (a + b)"


def test_what_returns_early_does_not_meet_what_comes_after():
    def forward(self, x):
        y = x
        if self.flag:
            y = self.f(x)
            return y * 2 + x
        return y + self.g(x)

    assert converted(check_same(net_with(forward), example())) == ["y * 2 + x"]


# Arguments of other kinds


def test_inputs_in_a_dict_and_in_a_list():
    def key(self, batch):
        x = batch["x"]
        batch["y"] = self.f(x)
        return x + batch["y"]

    def listed(self, xs):
        return xs[0] + self.f(xs[0])

    assert converted(check_same(net_with(key), {"x": example()})) == ["x + batch['y']"]
    assert converted(check_same(net_with(listed), [example()])) == ["xs[0] + self.f(xs[0])"]


def test_named_inputs():
    def forward(self, x, *, mask=None):
        y = self.f(x)
        if mask is not None:
            y = y * mask
        return x + y

    assert converted(check_same(net_with(forward), x=example(), mask=torch.ones(4))) == ["x + y"]


def test_inputs_in_an_object_that_is_no_container():
    def forward(self, data):
        return data.x + self.f(data.x)

    plan = lresnet.find_sums(net_with(forward), types.SimpleNamespace(x=example()))
    assert converted(plan) == ["data.x + self.f(data.x)"]


def test_an_input_that_the_network_reads_with_numpy():
    def forward(self, x):
        return x + float(x.numpy().mean()) * self.f(x)

    assert len(lresnet.find_sums(net_with(forward), example()).converted) == 1


def test_token_ids_as_input():
    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return x + self.mlp(x)

    assert converted(check_same(net_with(forward), torch.tensor([[1, 2, 3], [4, 5, 6]]))) == ["x + self.mlp(x)"]


# The code that does not run


def test_code_that_does_not_run_is_not_in_the_plan():
    def forward(self, x):
        if x.ndim == 2:
            x = x + self.g(x)
        try:
            y = self.f(x)
        except RuntimeError:
            y = x + self.f(x)
        if not self.flag:
            y = y + self.g(y)
        return x + y

    assert converted(check_same(net_with(forward), example())) == ["x + y"]


def test_a_method_that_forward_does_not_call_is_not_in_the_plan():
    class Encoder(Net):
        def encode(self, x):
            return x + self.g(x)

        def forward(self, x):
            return x + self.f(x)

    plan = lresnet.find_sums(Encoder(), example())
    assert [one.text for one in plan] == ["x + self.f(x)"]


class ScoreAttention(nn.Module):
    """Attention whose score sums are behind flags that are off, as in x-transformers."""

    def __init__(self, talking: bool = False, bias: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.talking, self.bias = nn.Linear(4, 12), nn.Linear(4, 4), talking, bias
        self.head = nn.Linear(4, 4)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2)
        before = scores
        if self.talking or mask is not None:
            scores = self.head(scores) + before
        if self.bias:
            scores = scores + self.head(before)
        return self.out(scores.softmax(-1) @ v)


class Residual(nn.Module):
    """The sum alone, as x-transformers has it."""

    def forward(self, x, residual):
        return x + residual


class Wrapped(nn.Module):
    def __init__(self, **flags: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(4), layer, Residual()]) for layer in (ScoreAttention(**flags), nn.Linear(4, 4))
        )

    def forward(self, x):
        for norm, layer, add in self.layers:
            x = add(layer(norm(x)), x)
        return x


def test_residuals_of_a_module_that_only_adds_are_found_and_score_sums_that_never_run_are_not():
    plan = check_same(Wrapped(), example())
    assert [(one.module, one.text, one.skip_first) for one in plan] == [
        ("layers.0.2", "x + residual", False), ("layers.1.2", "x + residual", False),
    ]  # fmt: skip
    assert all(one.converted and one.axis == -1 for one in plan)


def test_score_sums_that_run_are_refused_and_named():
    plan = check_same(Wrapped(talking=True, bias=True), example())
    assert converted(plan) == ["x + residual"] * 2
    assert len(plan.refused) == 2
    assert all("attention scores" in one.reason for one in plan.refused)
