"""Loops, settings and positions: what is a skip connection at first sight, and is none; or the other way round."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn

import lresnet
from tests.convert.own_networks import residuals
from tests.convert.test_conversion_calls import Layers, converted, left


@pytest.mark.parametrize("inside", [True, False])
def test_what_every_round_adds_is_no_skip_connection(inside):
    class Loop(Layers):
        def forward(self, x, told):
            for layer in [self.f, self.g]:
                x = layer(x + told)
            return x

    class After(Layers):
        def forward(self, x, told):
            for layer in [self.f, self.g]:
                x = layer(x) + told
            return x

    assert "told in " in left(Loop() if inside else After())


def test_a_loop_that_starts_with_nothing():
    class Zero(Layers):
        def forward(self, x):
            y = torch.zeros(2, 6)
            for layer in [self.f, self.g]:
                y = y + layer(y)
            return y + x

    assert converted(Zero()) == {"residual"}


def test_parts_of_outputs_may_be_tuples():
    class Pair(Layers):
        def forward(self, x):
            first = self.f(x)
            second = self.g(first[1])
            return first[1] + second[0]

    assert "both sides are taken from what layers give, and may be tuples" in left(Pair())


class Encoded(nn.Module):
    """A position that is computed by a method, which asks a layer for a number."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g, self.places = nn.Linear(6, 6), nn.Linear(6, 6), nn.Parameter(torch.randn(6))

    def interpolate(self, x):
        return self.places[: self.f.out_features].to(self.f.weight.dtype) + 0 * x.mean()

    def pos_encoding(self, x):
        return self.g(x)

    def forward(self, x):
        x = x + self.interpolate(x)
        return self.f(x + self.pos_encoding(x))


def test_a_position_that_a_method_computes():
    told = left(Encoded())
    assert "pos_encoding may be a branch, or add a position" in told
    assert "interpolate" not in told


class Falcon(nn.Module):
    """Two branches beside each other or one after the other, as a configuration has it."""

    def __init__(self, parallel: bool, cross: bool = False) -> None:
        super().__init__()
        self.f, self.g, self.config = nn.Linear(6, 6), nn.Linear(6, 6), types.SimpleNamespace(parallel=parallel)
        if cross:
            self.cross = nn.Linear(6, 6)

    def forward(self, x, memory=None):
        if memory is not None:
            if not hasattr(self, "cross"):
                raise ValueError("there is no cross attention")
            x = x + self.cross(x)
        first = self.f(x)
        second = self.g(x if self.config.parallel else first)
        if self.config.parallel:
            return x + (first + second)
        return first + second


def test_settings_of_a_configuration():
    assert set(residuals(lresnet.lorentzify(Falcon(parallel=True)))) == {"residual"}
    assert set(residuals(lresnet.lorentzify(Falcon(parallel=True, cross=True)))) == {"residual", "residual_2"}
    assert set(residuals(lresnet.lorentzify(Falcon(parallel=False)))) == {"residual"}
    network = lresnet.lorentzify(Falcon(parallel=True), residual="space")
    with pytest.raises(ValueError, match="no cross attention"):
        network(torch.randn(2, 6), torch.randn(2, 6))


def test_an_arm_that_is_ruled_out_relates_nothing():
    class Either(Falcon):
        def forward(self, x):
            first = self.f(x)
            y = x if self.config.parallel else self.f(first)
            return x + (self.g(y) + first)

    assert converted(Either(parallel=True)) == {"residual"}
    assert converted(Either(parallel=False)) == {"residual", "residual_2"}


def test_a_shortcut_of_any_name_by_a_known_condition():
    class Match(Layers):
        def __init__(self, width):
            super().__init__()
            self.h = nn.Linear(6, width)
            self.match = None if width == 6 else nn.Linear(6, width)

        def forward(self, x):
            y = x
            if self.match is not None:
                y = self.match(x)
            return y + self.h(x)

    for width in (6, 8):
        assert converted(Match(width)) == {"residual"}
