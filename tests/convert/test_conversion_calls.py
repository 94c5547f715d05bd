"""Sums of what a method is given: which of its arguments is a branch of another one, its callers tell."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lresnet
from tests.convert.own_networks import Recurrent, residuals


class Output(nn.Module):
    """The end of a branch, and the sum, as BERT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm, self.dropout = nn.Linear(6, 6), nn.LayerNorm(6), nn.Dropout(0.0)

    def forward(self, hidden, given):
        hidden = self.dropout(self.dense(hidden))
        return self.norm(hidden + given)


class Layers(nn.Module):
    """Has layers to be used below."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(6, 6), nn.Linear(6, 6)


class Outputs(Layers):
    """Has ends of branches, too."""

    def __init__(self) -> None:
        super().__init__()
        self.output, self.layers = Output(), nn.ModuleList([Output(), Output()])


def left(module: nn.Module) -> str:
    """What is said to be left, of a network that also has a block."""
    with pytest.warns(UserWarning, match="left as they are") as caught:
        network = lresnet.lorentzify(nn.Sequential(Recurrent(), module))
    assert not residuals(network[1])
    return str(caught[0].message)


def converted(module: nn.Module, *shape: int, **options: object) -> set[str]:
    """The residuals; with that of flat space, numbers and gradients are those of the module."""
    flat = lresnet.lorentzify(module, residual="space", **options)
    x = torch.randn(*(shape or (2, 6)))
    for network in (module, flat):
        network(x).square().sum().backward()
    assert torch.equal(flat(x), module(x))
    for name, parameter in module.named_parameters():
        gradient = flat.get_parameter(name).grad
        assert gradient is parameter.grad or torch.equal(gradient, parameter.grad)
    lorentz = lresnet.lorentzify(module, **options)
    assert lorentz(x).isfinite().all()
    return set(residuals(lorentz))


def test_a_module_that_is_given_the_branch_and_its_skip():
    class Bert(Outputs):
        def forward(self, x):
            x = self.output(self.f(x), x)
            return self.feed_forward(x)

        def feed_forward(self, x):
            for layer in self.layers:
                x = layer(hidden=self.g(x), given=x)
            return x

    assert converted(Bert()) == {"output.residual", "layers.0.residual", "layers.1.residual"}


def test_a_module_that_is_given_something_else_as_well():
    class Mixed(Outputs):
        def forward(self, x, y):
            return self.output(self.f(x), x) * self.output(self.g(x), y)

    assert "hidden + given in Output: some of the calls give a value and what layers have made" in left(Mixed())


class Plus(nn.Module):
    """A sum of two, and no more."""

    def forward(self, a, b):
        return a + b


def test_a_module_that_only_adds():
    class Adds(Layers):
        def __init__(self):
            super().__init__()
            self.plus = Plus()

        def forward(self, x):
            return self.plus(x, self.f(x))

    assert converted(Adds(), dim=-1, curvature=-0.1) == {"plus.residual"}
    with pytest.raises(ValueError, match=r"plus \(Plus\): its branch has no convolution"):
        lresnet.lorentzify(Adds())

    class AddsMore(Adds):
        def forward(self, x, y):
            return self.plus(self.plus(x, self.f(x)), y)

    assert "a + b in Plus: some of the calls give a value and what layers have made of it" in left(AddsMore())


def test_a_module_of_two_owners():
    class Owner(Layers):
        def __init__(self, output):
            super().__init__()
            self.output = output

        def forward(self, x):
            return self.output(self.f(x), x)

    class Other(Owner):
        def forward(self, x):
            return self.output(self.f(x), 2 * x)

    output = Output()
    assert "hidden + given in Output" in left(nn.Sequential(Owner(output), Other(output)))


def test_a_method_that_is_given_both():
    class Adds(Layers):
        def forward(self, x):
            return self.add(x, self.f(x))

        def add(self, x, y):
            return x + 0.5 * y

    assert converted(Adds()) == {"residual"}


def add(x, residual, scale):
    return residual + x * scale


def test_a_function_that_is_given_both():
    class Helped(Layers):
        def forward(self, x):
            return add(self.f(x), x, 2)

    class Static(Layers):
        def forward(self, x):
            return self.plus(x, self.f(x))

        @staticmethod
        def plus(x, y):
            return x + y

    why = "a function that is given a value and what layers have made of it"
    assert f"residual + x * scale in Helped: it stands in add, {why}" in left(Helped())
    assert f"x + y in Static: it stands in plus, {why}" in left(Static())


def test_an_argument_that_is_called_a_skip_connection():
    class Named(Layers):
        def forward(self, x, residual):
            return self.f(torch.dropout(x, 0.1, True) + residual)

    assert "both sides are arguments, and one is called like a skip connection" in left(Named())


class Conditioned(nn.Module):
    """What it is told beside is added to what it works on."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(6, 6)

    def forward(self, x, told):
        return self.f(x + told)


def test_what_every_layer_is_told_is_no_skip_connection():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.f = Conditioned(), Conditioned(), nn.Linear(6, 6)

        def forward(self, x, told):
            x = self.b(self.a(x, told), told)
            return x + self.f(x)

    assert set(residuals(lresnet.lorentzify(Net()))) == {"residual"}

    class Masked(Net):
        def forward(self, x):
            return x + self.a(self.f(x), told=self.mask(x))

        def mask(self, x):
            return self.f(x)

    assert set(residuals(lresnet.lorentzify(Masked()))) == {"residual"}
