"""Methods of every kind: bases, wrappers, functions outside, classes that others keep a list of."""

from __future__ import annotations

import copy
import importlib
import linecache

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

import lresnet
from lresnet.convert import method_source
from tests.convert.own_networks import Recurrent, residuals


class Plain(nn.Module):
    """Has layers to be used below."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g, self.drop = nn.Linear(6, 6), nn.Linear(6, 6), nn.Dropout()

    def forward(self, x):
        return x + self.drop(self.f(x))


def told(module: nn.Module) -> str:
    """What is said to be left, of a network that also has a block."""
    with pytest.warns(UserWarning, match="left as they are") as caught:
        lresnet.lorentzify(nn.Sequential(Recurrent(), module))
    return str(caught[0].message)


def test_a_base_that_is_called_by_its_name():
    class Derived(Plain):
        def forward(self, x):
            return 2 * Plain.forward(self, x)

    assert "x + self.drop(self.f(x)) in Derived: Derived calls it by Plain.forward" in told(Derived())


def test_a_base_of_several():
    class Other(nn.Module):
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

    assert "Mixed calls it by Plain.forward" in told(Mixed())
    assert "Line calls it by super()" in told(Line())


def test_a_method_that_a_base_calls_is_converted():
    class Base(nn.Module):
        def forward(self, x):
            return self.step(x)

    class Derived(Base):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(6, 6)

        def step(self, x):
            return x + self.f(x)

        def forward(self, x):
            return super().forward(x)

    assert residuals(lresnet.lorentzify(Derived())).keys() == {"residual"}


def test_a_method_that_is_given_to_what_calls_it():
    class Checkpointed(Plain):
        def step(self, x):
            return x + self.f(x)

        def forward(self, x):
            return checkpoint(self.step, x, use_reentrant=False)

    assert residuals(lresnet.lorentzify(Checkpointed())).keys() == {"residual"}


def test_methods_that_forward_does_not_call():
    class Encoder(Plain):
        def encode(self, x):
            return x + self.g(x)

    assert "x + self.g(x) in Encoder: forward is not seen to call encode" in told(Encoder())


def test_a_class_that_is_called_by_a_method_of_its_own():
    class Called(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(6, 6)

        def __call__(self, x):
            return x + self.f(x)

    network, x = Called(), torch.randn(2, 6)
    assert residuals(lresnet.lorentzify(network)).keys() == {"residual"}
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))


def add(x, f):
    return x + f(x)


def test_a_function_that_is_given_a_layer():
    class Helped(Plain):
        def forward(self, x):
            return add(x, self.f)

    assert "x + f(x) in Helped: it stands in add, a function that is given a layer" in told(Helped())


def test_a_wrapper_that_the_source_does_not_tell():
    class Wrapped(Plain):
        def forward(self, x):
            return x + self.f(x)

        forward = torch.no_grad()(forward)

    with pytest.raises(ValueError, match="was wrapped after its definition"):
        lresnet.lorentzify(Wrapped())


def test_a_wrapper_that_hides_what_it_wraps():
    def hiding(function):
        def wrapper(self, *args):
            return function(self, *args)

        return wrapper

    class Hidden(Plain):
        @hiding
        def forward(self, x):
            return x + self.f(x)

    assert "Hidden.forward is wrapped by a decorator; give that functools.wraps" in told(Hidden())


def test_a_file_that_was_changed_since(tmp_path, monkeypatch):
    file = tmp_path / "changing_network.py"
    text = (
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def forward(self, x):\n        return x + super().{}(x)\n"
    )
    file.write_text(text.format("forward"))
    monkeypatch.syspath_prepend(tmp_path)
    network = importlib.import_module("changing_network").Net(6, 6)
    assert residuals(lresnet.lorentzify(network, dim=-1, curvature=-1.0))
    file.write_text(text.format("backward"))
    linecache.checkcache()
    method_source._lines.cache_clear()
    with pytest.raises(ValueError, match=r"file of Net.forward was changed since it was imported"):
        lresnet.lorentzify(network)


def test_what_a_method_may_have_changed():
    class Keeps(Plain):
        def step(self):
            self.h = self.f(self.h)

        def forward(self, x):
            self.h = x
            self.step()
            return self.h + self.g(x)

    with pytest.raises(ValueError, match="no sum of a skip connection"):
        lresnet.lorentzify(Keeps())


def test_a_parametrized_block():
    class Double(nn.Module):
        def forward(self, x):
            return 2 * x

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.gamma = nn.Linear(6, 6), nn.Parameter(torch.ones(6))
            parametrize.register_parametrization(self, "gamma", Double())

        def forward(self, x):
            return x + self.gamma * self.f(x)

    network, x = Scaled(), torch.randn(2, 6)
    assert residuals(lresnet.lorentzify(network)).keys() == {"residual"}
    assert torch.equal(copy.deepcopy(lresnet.lorentzify(network, residual="space"))(x), network(x))


def test_a_list_of_classes_does_not_get_the_new_one():
    known = []

    class Base(nn.Module):
        def __init_subclass__(cls, **options):
            super().__init_subclass__(**options)
            known.append(cls)

    class Listed(Base):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(6, 6)

        def forward(self, x):
            return x + self.f(x)

    assert isinstance(copy.deepcopy(lresnet.lorentzify(Listed())), Listed)
    assert known == [Listed]


def test_a_layer_derived_from_torchs():
    class Layer(nn.TransformerEncoderLayer):
        pass

    assert residuals(lresnet.lorentzify(Layer(8, 2))).keys() == {"residual", "residual_2"}


def test_a_sequential_that_adds_what_all_its_parts_give():
    class Around(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    with pytest.raises(ValueError, match="goes over all parts of the block"):
        lresnet.lorentzify(Around(nn.Linear(6, 6)), dim=-1)


def test_a_function_that_holds_a_module_cannot_be_copied():
    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(6, 6)
            self.call = lambda x: self.f(x)

        def forward(self, x):
            return x + self.call(x)

    with pytest.raises(ValueError, match="call of Held is a function that holds a module"):
        lresnet.lorentzify(Held())


def test_an_argument_that_is_no_longer_changed_is_told():
    class Writes(Plain):
        def forward(self, x):
            x += self.f(x)
            return x

    with pytest.warns(UserWarning, match=r"(?s)changed an argument in place, and no longer do.*x \+= self.f\(x\)"):
        lresnet.lorentzify(Writes())


def test_settings_that_are_known():
    class Set(Plain):
        def __init__(self, stride):
            super().__init__()
            self.stride, self.width, self.ready = stride, 6, False

        def forward(self, x):
            x = x + self.g(x)
            return x + self.f(x) if self.stride == 1 and self.width == 6 else self.f(x)

    assert residuals(lresnet.lorentzify(Set(1))).keys() == {"residual", "residual_2"}
    assert residuals(lresnet.lorentzify(Set(2))).keys() == {"residual"}

    class Changes(Set):
        def forward(self, x):
            if not self.ready:
                self.ready = True
                return self.g(x)
            return x + self.f(x)

    assert residuals(lresnet.lorentzify(Changes(1))).keys() == {"residual"}
