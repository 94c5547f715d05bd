"""Which sums of a forward are none of a skip connection, and which are unclear."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.convert.sum_reader import read


def position(self, x):
    return self.f(x + self.pos[:, : x.shape[1]])


def rope(self, x):
    q = self.f(x)
    return q * self.cos + self.rotate(q) * self.cos


def gate(self, x):
    y, g = self.f(x), self.g(x).sigmoid()
    return g * x + (1 - g) * y


def bias(self, x):
    return self.f(x) + self.weight + self.f.bias


def noise(self, x):
    return x + torch.randn_like(x) * self.gamma


def embedding(self, ids):
    position = torch.arange(ids.shape[1], device=ids.device)
    return self.f(self.wte(ids) + self.wpe(position))


def mask(self, x, mask):
    return (x @ self.f(x).mT + mask).softmax(-1) @ x


def two_arguments(self, x, skip):
    return self.f(x) + skip


def sizes(self, x):
    n = x.shape[0] + self.f(x).shape[0] + len(x)
    return self.f(x)[:n]


def lists(self, x):
    outputs = (x,)
    for layer in self.layers:
        x = layer(x)
        outputs = outputs + (x,)  # noqa: RUF005
    return [*outputs] + [self.f(x)]  # noqa: RUF005


def doubled(self, x):
    return self.f(x + x + F.relu(x))


def static(self, x):
    return self.f(x + self.double(x))


def strings(self, x):
    assert x.ndim == 2, "a" + f"{self.f(x).shape}"
    return self.f(x)


@pytest.mark.parametrize(
    "forward",
    [position, rope, gate, bias, noise, embedding, mask, sizes, lists, doubled, static, strings],
    ids=lambda value: value.__name__,
)
def test_another_sum_is_left_in_silence(forward):
    assert read(forward) == ([], [])


def reparametrised(self, h):
    mu, std = self.f(h), self.g(h).exp()
    return mu + torch.randn_like(std) * std


def losses(self, x):
    return self.f(x).square().mean() + self.g(x).square().mean()


def two_layers(self, x):
    return self.f(x) + self.g(x)


def scaled_skip(self, x):
    return 0.9 * x + self.f(x)


def towards(self, x):
    y = self.f(x)
    return x + self.gamma * (y - x)


def two_shortcuts(self, x):
    return self.shortcut(x) + self.proj(x)


def total(self, x):
    y = 0
    for layer in self.layers:
        x = layer(x)
        y = y + x
    return y


def two_ways(self, x):
    y = x
    for layer in self.layers:
        y = layer(y)
    return y + self.f(x)


def jump(self, x):
    y = x
    for layer in self.layers:
        if self.training:
            y = self.g(layer(x))
            continue
        y = layer(x)
    return y + self.f(x)


def res2net(self, x):
    parts = self.f(x).chunk(2, -1)
    y = parts[0]
    for i in range(2):
        y = y if i == 0 else y + parts[i]
        y = self.g(y)
    return y


def popped(self, xs):
    y = self.f(xs[0])
    xs.pop(0)
    return xs[0] + y


def all_of_them(self, x):
    y = x
    for layer in self.layers:
        x = layer(x)
        y = y + x
    return y


def a_function(self, x):
    return x + self.act(x)


def a_local_function(self, x):
    act = F.relu
    return x + act(x)


def a_property(self, x):
    return x + self.chosen(x)


def view_in_place(self, x):
    y = self.f(x)
    y.squeeze(0).add_(x)
    return y


def in_a_comprehension(self, x):
    return [y.add_(x) for y in [self.f(x)]]


def alpha(self, x):
    return torch.add(x, self.f(x), alpha=2)


def keywords(self, x):
    return torch.add(input=x, other=self.f(x))


def part_of_a_tensor(self, x):
    y = self.f(x)
    y[:, :2] += x[:, :2]
    return y


def named_position(self, x):
    return x + self.pos_embed(x)


def position_without_a_line(self, x):
    return x + self.posemb(x)


def position_by_class(self, x):
    return x + self.code(x)


@pytest.mark.parametrize(
    "forward",
    [
        position_without_a_line,
        position_by_class,
        reparametrised,
        losses,
        two_layers,
        scaled_skip,
        towards,
        two_shortcuts,
        total,
        all_of_them,
        a_function,
        a_local_function,
        a_property,
        view_in_place,
        in_a_comprehension,
        two_ways,
        jump,
        res2net,
        popped,
        alpha,
        keywords,
        part_of_a_tensor,
        named_position,
    ],
    ids=lambda value: value.__name__,
)
def test_an_unclear_sum_is_told(forward):
    skips, unclear = read(forward)
    assert not skips
    assert len(unclear) == 1


def alias(self, x):
    y = x
    x += self.f(x)
    return x + y


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


def kept_for_later(self, x):
    y = self.last = self.f(x)
    y += x
    return y


@pytest.mark.parametrize("forward", [alias, view, kept, kept_for_later], ids=lambda value: value.__name__)
def test_a_sum_in_place_that_another_name_sees_is_refused(forward):
    with pytest.raises(ValueError, match=r"Net, .*test_conversion_left.py:\d+: [xy] \+= .* is a sum in place, and"):
        read(forward)


def test_a_sum_in_place_that_no_other_name_sees_is_fine():
    def unseen(self, x):
        y = x
        y += self.f(x)
        return y

    assert read(unseen) == ([("y += self.f(x)", True)], [])
