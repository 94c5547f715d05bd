"""Sums in helper functions, bases, static methods, lambdas and modules that only add."""

from __future__ import annotations

import functools
import math
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import lresnet
from tests.convert.checks import Net, check_same, converted, example, net_with, refused

# Functions


def add(x, residual, scale):
    return residual + x * scale


def layer_and_input(x, f):
    return x + f(x)


def outer(x, f):
    x = layer_and_input(x, f)
    return 2 * x


def with_default(x, y, *, drop=0.1, training=True):
    return x + F.dropout(y, drop, training)


class Functions:
    """A namespace."""

    @staticmethod
    def plus(x, y):
        return x + y


def given_both(self, x):
    return add(self.f(x), x, 2)


def given_a_layer(self, x):
    return layer_and_input(x, self.f)


def two_functions_deep(self, x):
    return outer(x, self.f)


def with_named_arguments(self, x):
    return with_default(x, y=self.f(x), training=self.training)


def of_another_class(self, x):
    return Functions.plus(x, self.f(x))


FUNCTIONS = [given_both, given_a_layer, two_functions_deep, with_named_arguments, of_another_class]


@pytest.mark.parametrize("forward", FUNCTIONS, ids=lambda value: value.__name__)
def test_a_sum_in_a_helper_function_is_converted(forward):
    plan = check_same(net_with(forward), example())
    (one,) = plan
    assert one.converted
    assert one.module == ""
    assert one.function != "forward"
    lorentz = lresnet.lorentzify(net_with(forward), example=example(), curvature=-1.0)
    assert lorentz.residual.dim == -1
    assert (lorentz.eval()(example()) - net_with(forward).eval()(example())).abs().max() > 1e-3


def around(x, f):
    return x + f(x)


def test_a_helper_function_may_have_any_name():
    def forward(self, x):
        return around(x, self.f)

    check_same(net_with(forward), example())


def test_a_helper_that_is_called_twice_has_two_sums():
    def forward(self, x):
        return layer_and_input(layer_and_input(x, self.f), self.g)

    plan = check_same(net_with(forward), example())
    assert [one.text for one in plan.converted] == ["x + f(x)"] * 2
    assert len({one.name for one in plan}) == 2
    found = lresnet.lorentzify(net_with(forward), plan=plan)
    assert found.residual is not found.residual_2


def test_a_helper_whose_calls_differ_is_refused():
    """One of its calls adds two branches. The helper's line is decided as a whole."""

    def forward(self, x):
        return Functions.plus(Functions.plus(x, self.f(x)), x.flip(0))

    plan = lresnet.find_sums(net_with(forward), example())
    assert not plan.converted
    assert all("only some of its calls" in one.reason for one in plan)


def test_a_function_that_is_chosen_while_it_runs_is_named():
    def forward(self, x):
        plus = layer_and_input if self.flag else outer
        return plus(x, self.f) + self.g(x)

    plan = lresnet.find_sums(net_with(forward), example())
    assert "which function plus(x, self.f) calls is decided while it runs" in refused(plan)[""]


def test_a_function_of_a_library_that_calls_back_is_followed():
    def forward(self, x):
        return checkpoint(layer_and_input, x, self.f, use_reentrant=False)

    (one,) = lresnet.find_sums(net_with(forward), example())
    assert not one.converted
    assert "layer_and_input" in one.reason


# Bases


class Plain(Net):
    def forward(self, x):
        return x + self.drop(self.f(x))


class BySuper(Plain):
    def forward(self, x):
        return super().forward(x) * 2


class ByName(Plain):
    def forward(self, x):
        return 2 * Plain.forward(self, x)


class Other(Net):
    def forward(self, x):
        return self.g(x)


class Mixed(Other, Plain):
    def forward(self, x):
        return Plain.forward(self, x) * super().forward(x)


class Next(nn.Module):
    def forward(self, x):
        return super().forward(x)


class Line(Next, Plain):
    pass


class Inherited(Plain):
    pass


class Step(Net):
    def forward(self, x):
        return self.step(x)


class Steps(Step):
    def step(self, x):
        return x + self.f(x)

    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("cls", [BySuper, ByName, Mixed, Line, Inherited, Steps])
def test_a_sum_of_a_base_is_converted(cls):
    (one,) = check_same(cls(), example())
    assert one.converted
    assert one.class_name == cls.__name__


def test_a_base_and_its_derived_class_in_one_network():
    plan = check_same(nn.Sequential(Plain(), BySuper(), ByName(), Inherited()), example())
    assert [one.module for one in plan.converted] == ["0", "1", "2", "3"]


def test_a_sum_before_and_after_the_call_of_the_base():
    class Both(Plain):
        def forward(self, x):
            x = x + self.g(x)
            x = super().forward(x)
            return x + self.mlp(x)

    plan = check_same(Both(), example(), pickled=False)
    assert len(plan.converted) == 3


# Methods


class Static(Net):
    @staticmethod
    def plus(x, y):
        return x + y

    def forward(self, x):
        return self.plus(x, self.f(x))


class ClassMethod(Net):
    @classmethod
    def plus(cls, x, y):
        return x + y

    def forward(self, x):
        return x + self.f(self.g(x))


class OtherMethod(Net):
    def forward(self, x):
        return self.add(x, self.f(x))

    def add(self, x, y):
        return x + 0.5 * y


class Property(Net):
    @property
    def summed(self):
        return self.last + self.f(self.last)

    def forward(self, x):
        self.last = x
        return self.f(x) + x


class Partial(Net):
    def step(self, x, scale):
        return x + scale * self.f(x)

    def forward(self, x):
        return functools.partial(self.step, scale=2)(x)


class Mapped(Net):
    def step(self, x):
        return x + self.f(x)

    def forward(self, x):
        return torch.cat(list(map(self.step, x.split(1))))


class Called(Net):
    def __call__(self, x):
        return x + self.f(x)


class Renamed(Net):
    def _step(self, x):
        return x + self.f(x)

    forward = _step


class Lambda(Net):
    forward = lambda self, x: x + self.f(x)  # noqa: E731


@pytest.mark.parametrize("cls", [Static, ClassMethod, OtherMethod, Property, Partial, Mapped, Called, Renamed])
def test_a_sum_in_a_method_of_any_kind_is_converted(cls):
    plan = check_same(cls(), example())
    assert len(plan.converted) == 1


def test_a_forward_that_is_a_lambda_is_named():
    (one,) = lresnet.find_sums(Lambda(), example())
    assert not one.converted
    assert "source" in one.reason


class Quantised(Net):
    """Sums by FloatFunctional, as quantisable networks have them."""

    def __init__(self) -> None:
        super().__init__()
        self.plus = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x):
        return self.plus.add(x, self.f(x))


@pytest.mark.filterwarnings("ignore:.*")
def test_float_functional_is_converted():
    plan = check_same(Quantised(), example())
    (one,) = plan.converted
    assert one.module == "plus"
    assert one.axis == -1


class Plus(nn.Module):
    def forward(self, a, b):
        return a + b


class Adds(Net):
    def __init__(self) -> None:
        super().__init__()
        self.plus = Plus()

    def forward(self, x):
        return self.plus(x, self.f(x))


class AddsMore(Adds):
    def forward(self, x):
        return self.plus(self.plus(x, self.f(x)), x.flip(0))


def test_a_module_that_only_adds_is_converted():
    (one,) = check_same(Adds(), example())
    assert (one.module, one.axis, one.converted) == ("plus", -1, True)
    assert lresnet.lorentzify(Adds(), example=example()).plus.residual.dim == -1


def test_a_module_that_also_adds_something_else_is_refused():
    (one,) = lresnet.find_sums(AddsMore(), example())
    assert (one.calls, one.converted) == (2, False)
    assert "only some of its calls" in one.reason


class Output(nn.Module):
    """The end of a branch, and the sum, as BERT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, hidden, given):
        return self.norm(self.dense(hidden) + given).relu()


class Bert(Net):
    def __init__(self) -> None:
        super().__init__()
        self.outputs = nn.ModuleList([Output(), Output()])

    def forward(self, x):
        for output in self.outputs:
            x = output(hidden=self.f(x), given=x)
        return x


def test_a_module_that_is_given_the_branch_and_its_skip():
    plan = check_same(Bert(), example())
    assert [(one.module, one.skip_first, one.is_post_norm) for one in plan] == [
        ("outputs.0", False, True), ("outputs.1", False, True),
    ]  # fmt: skip


# Where no method of the module calls the function by its name


class Callback(Net):
    def __init__(self) -> None:
        super().__init__()
        self.steps = [operator.add, math.fsum]

    def forward(self, x):
        return self.steps[0](x, self.f(x))


def test_a_function_out_of_a_list_is_named():
    (one,) = lresnet.find_sums(Callback(), example())
    assert not one.converted
    assert "self.steps[0](x, self.f(x))" in one.reason


def test_sums_of_nested_functions_within_a_helper_are_named():
    def forward(self, x):
        return nested(x, self.f)

    (one,) = lresnet.find_sums(net_with(forward), example())
    assert not one.converted
    assert "nested function of a helper" in one.reason or "inner" in one.reason


def nested(x, f):
    def inner(y):
        return y + f(y)

    return inner(x)


def test_a_wrapper_that_hides_what_it_wraps_is_named():
    def hiding(function):
        def wrapper(self, *args):
            return function(self, *args)

        return wrapper

    class Hidden(Net):
        @hiding
        def forward(self, x):
            return x + self.f(x)

    (one,) = lresnet.find_sums(Hidden(), example())
    assert not one.converted
    assert one.reason


def doubling(function):
    @functools.wraps(function)
    def wrapper(self, *args):
        return 2 * function(self, *args)

    return wrapper


class Decorated(Net):
    @doubling
    def forward(self, x):
        return x + self.f(x)


def test_a_wrapper_with_functools_wraps_is_converted():
    assert converted(check_same(Decorated(), example())) == ["x + self.f(x)"]


class Late(Net):
    def forward(self, x):
        return x + self.f(x)

    forward = doubling(doubling(forward))


def test_a_wrapper_that_was_applied_after_the_definition_is_kept():
    assert converted(check_same(Late(), example())) == ["x + self.f(x)"]


def test_a_wrapper_that_no_global_name_has_is_kept():
    def local(function):
        return doubling(function)

    class Local(Net):
        @local
        def forward(self, x):
            return x + self.f(x)

    assert converted(check_same(Local(), example(), pickled=False)) == ["x + self.f(x)"]


class Holder:
    """A decorator that keeps the function in an object."""

    def __init__(self, function) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __get__(self, instance, owner=None):
        return functools.partial(self.function, instance)


def test_a_wrapper_that_is_an_object_is_named():
    class Held(Net):
        @Holder
        def forward(self, x):
            return x + self.f(x)

    (one,) = lresnet.find_sums(Held(), example())
    assert not one.converted
    assert one.reason
