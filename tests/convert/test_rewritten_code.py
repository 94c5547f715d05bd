"""The code of a converted block stays as it was written, but for its sums."""

from __future__ import annotations

import functools
import itertools
import traceback

import pytest
import torch
from torch import nn

import lresnet
from tests.convert.own_networks import (
    Basic,
    Recurrent,
    inputs,
    residuals,
    resnet,
)


class Count(nn.Module):
    """Private names, super(), arguments that may be missing, control flow, defaults, a closure, other methods."""

    made = 0

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layer, self.__calls = nn.Linear(width, width), 0

    def extra_repr(self):
        return f"calls={self.__calls}"

    def forward(self, x, mask=None, *, times: int = 1):
        super().train(self.training)
        self.__calls += 1
        if isinstance(x, torch.Tensor) and x.sum() > 1e9:
            return x
        for _ in range(times):
            with torch.no_grad():
                y = self.layer(x)
            x = x + (y if mask is None else y * mask)
        return x


def test_python_stays_as_written():
    network, x = Count(), torch.randn(2, 6, requires_grad=True)
    converted = lresnet.lorentzify(network, residual="space")
    for arguments, options in (((x,), {}), ((x, x[0]), {"times": 3}), ((x + 1e9,), {})):
        assert torch.equal(converted(*arguments, **options), network(*arguments, **options))
    assert converted(x).sum().backward() is None
    assert converted.layer.weight.grad is None  # no_grad
    assert "calls=4" in repr(converted)
    assert isinstance(converted, Count)
    assert Count.forward.__kwdefaults__ == type(converted).forward.__kwdefaults__ == {"times": 1}


def test_a_closure_and_a_decorator_stay():
    count = itertools.count()

    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        @torch.no_grad()
        def forward(self, x):
            next(count)
            return x + self.layer(x)

    x = torch.randn(2, 6, requires_grad=True)
    assert not lresnet.lorentzify(Counted())(x).requires_grad
    assert next(count) == 1


def test_a_decorator_of_the_class_itself():
    class Halved(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def halved(function):
            @functools.wraps(function)
            def wrapper(self, x):
                return function(self, x) / 2

            return wrapper

        @halved
        def forward(self, x):
            return x + self.layer(x)

    network, x = Halved(), torch.randn(2, 6)
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))


def test_an_error_points_to_the_line_of_the_source():
    converted = lresnet.lorentzify(Recurrent())
    try:
        converted(torch.randn(2, 9))
    except RuntimeError as error:
        found = [frame for frame in traceback.extract_tb(error.__traceback__) if "own_networks" in frame.filename]
    assert [frame.line for frame in found] == ["x = x + self.cell(x).tanh()"]


def test_a_sum_in_another_method():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward_features(self, x):
            return x + self.layer(x)

        def forward(self, x):
            return self.head(self.forward_features(x))

    network, x = Outer(), torch.randn(2, 6)
    assert residuals(lresnet.lorentzify(network)).keys() == {"residual"}
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))


def test_sums_in_place():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            y = self.layer(x)
            y.add_(x)
            z = self.layer(y).add_(y)
            z += self.layer(z)
            return z

    network, x = InPlace(), torch.randn(2, 6)
    converted = lresnet.lorentzify(network, residual="space")
    assert torch.equal(converted(x), network(x))
    assert len(residuals(lresnet.lorentzify(network))) == 3
    assert (lresnet.lorentzify(network, curvature=-1.0)(x) - network(x)).abs().max() > 0.1
    with torch.autocast("cpu", dtype=torch.bfloat16):  # the sum has the dtype of what it is written into
        assert converted(x).dtype == network(x).dtype


def test_the_skip_connection_has_the_weight_1():
    class Second(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return self.layer(x) + x

    x = torch.randn(3, 6)
    torch.testing.assert_close(lresnet.lorentzify(Second(), curvature=-1.0, weight=0.0, scale=1.0)(x), x)


def test_a_block_that_stands_twice_stays_one():
    block = Basic(8, 8)
    converted = lresnet.lorentzify(nn.Sequential(block, nn.ReLU(), block))
    assert converted[0] is converted[2]
    assert len(residuals(converted)) == 1


def test_a_block_within_a_block():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Recurrent()

        def forward(self, x):
            return x + self.inner(x)

    network, x = Outer(), torch.randn(3, 8)
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))
    assert residuals(lresnet.lorentzify(network)).keys() == {"residual", "inner.residual"}


def test_hooks_and_modes_are_kept():
    network, seen = resnet().eval(), []
    network[1].register_forward_hook(lambda module, given, found: seen.append(found.shape))
    converted = lresnet.lorentzify(network)
    assert not any(module.training for module in converted.modules())
    converted(*inputs("resnet"))
    assert seen == [(4, 8, 7, 7)]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_fused_path_of_torchs_encoder_is_off(batch_first, norm_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2)
    converted = lresnet.lorentzify(encoder, curvature=-1.0, residual="parallel_transport")
    x, padding = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    x = x if batch_first else x.transpose(0, 1)
    with torch.no_grad():
        trained = converted.train()(x, src_key_padding_mask=padding)
        evaluated = converted.eval()(x, src_key_padding_mask=padding)
        flat = encoder.eval()(x)
    assert torch.equal(trained, evaluated)
    assert (converted(x) - flat).abs().max() > 0.1
