"""Which sums of a forward are those of a skip connection and its branch."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.convert.sum_reader import read


def plain(self, x):
    return x + self.f(x)


def second(self, x):
    return self.f(x) + x


def function(self, x):
    return torch.add(x, self.f(x))


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


def scaled(self, x):
    return x + self.gamma * self.f(x)


def halved(self, x):
    return x + 0.5 * self.drop(self.f(self.norm(x)))


def by_name(self, x):
    shortcut = x.clone()
    x = F.relu(self.f(x))
    x = self.g(x)
    return x + shortcut


def projected(self, x):
    return self.proj(x) + self.f(x)


def chosen(self, x):
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


def relative(self, x):
    return x + self.drop(self.heads(x) * self.rel_pos_attn(x))


def within_a_function(self, x):
    def inner(y):
        return y + self.f(y)

    return checkpoint(inner, x, use_reentrant=False)


def as_a_function(self, x):
    return x + F.linear(F.gelu(x), self.weight)


def matrix(self, x):
    return x + x @ self.weight


def under_contexts(self, x):
    with torch.autocast("cpu"):
        y = self.f(x)
    return x + y


def given_layer(self, x, layer):
    return x + layer(x)


def masked(self, x, mask=None):
    y = self.f(x)
    if mask is not None and (x > 0).any():
        y = y * mask
    return x + y


def of_data(self, data):
    return data.x + self.f(data.x)


def indexed(self, x):
    for i in range(len(self.layers)):
        x = x + self.layers[i](x)
    return x


def last_of_a_list(self, x):
    xs = [x]
    for layer in self.layers:
        xs.append(xs[-1] + layer(xs[-1]))
    return xs[-1]


def through_a_loop(self, x):
    y = x
    for layer in self.layers:
        y = layer(y)
    return x + y


def key(self, batch):
    x = batch["x"]
    batch["y"] = self.f(x)
    return x + batch["y"]


def two_names(self, x):
    return self.residual_function(x) + self.shortcut(x)


def held_in_a_list(self, x):
    for layer in self.held:
        x = x + layer(x)
    return x


def unpacked(self, x):
    y, _ = self.f(x), None
    return x + y


def otherwise(self, x):
    try:
        return self.f(x)
    except RuntimeError:
        return x + self.f(x)


def at_last(self, x):
    try:
        y = self.f(x)
    except RuntimeError:
        y = self.g(x)
    finally:
        self.done = True
    return x + y


def cases(self, x, mode):
    match mode:
        case "f":
            y = self.f(x)
        case _:
            y = self.g(x)
    return x + y


def walrus(self, x):
    if (y := self.f(x)).ndim == 2:
        return x + y
    return y


def while_it_is_far(self, x):
    while x.norm() > 1:
        x = x + self.f(x)
    return x


def by_a_name_made_up(self, x):
    return x + getattr(self, "f")(x)  # noqa: B009


def local(self, x):
    f = lambda y: self.f(y)  # noqa: E731
    return x + f(x)


def with_types(self, x):
    first, *_ = [x, x]
    y: torch.Tensor = self.f(first)
    y *= 2
    with torch.no_grad() as nothing:
        del nothing
    return first + y


def slices(self, x):
    for layer in list(self.layers)[:1]:
        x = x + layer(x)
    for layer in self.layers[1:]:
        x = layer(x)
    return x


SKIPS = [
    (plain, True), (second, False), (function, True), (of_operator, False), (method, False), (in_place, False),
    (in_place_method, False), (scaled, True), (halved, True), (by_name, False), (projected, True), (chosen, False),
    (chosen_at_once, True), (own_method, True), (checkpointed, True), (within_a_function, True), (as_a_function, True),
    (matrix, True), (under_contexts, True), (given_layer, True), (masked, True), (of_data, True), (indexed, True),
    (unpacked, True), (last_of_a_list, True), (through_a_loop, True), (key, True), (two_names, False),
    (held_in_a_list, True), (otherwise, True), (at_last, True), (cases, True), (while_it_is_far, True),
    (by_a_name_made_up, True), (local, True), (with_types, True), (slices, True),
    (method_checkpointed, True), (walrus, True), (relative, True),
]  # fmt: skip


@pytest.mark.parametrize(("forward", "skip_first"), SKIPS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_skip_connection_is_found(forward, skip_first):
    skips, unclear = read(forward)
    assert [first for _, first in skips] == [skip_first]
    assert not unclear


def test_one_after_the_other_and_within():
    def chain(self, x):
        return x + self.f(x) + self.g(x)

    def joint(self, x):
        return self.f(x) + self.g(x) + x

    assert read(chain) == ([("x + self.f(x)", True), ("x + self.f(x) + self.g(x)", True)], [])
    assert read(joint) == ([("self.f(x) + self.g(x) + x", False)], [])


def test_a_step_of_runge_and_kutta():
    def step(self, x):
        a = self.f(x)
        b = self.f(x + 0.5 * a)
        return x + 0.5 * (a + b)

    assert read(step) == ([("x + 0.5 * a", True), ("x + 0.5 * (a + b)", True)], [])


def test_what_returns_early_does_not_meet_what_comes_after():
    def early(self, x):
        y = x
        if self.flag:
            y = self.f(x)
            return y * 2
        return y + self.g(x)

    assert read(early) == ([("y + self.g(x)", True)], [])
