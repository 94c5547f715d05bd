"""Networks and settings that are refused, and what the errors say."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import lresnet
from lresnet.convert.example import guesses
from lresnet.convert.source import Unreadable, read_method
from tests.convert.checks import Net, example, net_with
from tests.convert.own_networks import Recurrent, residuals, resnet


class Unclear(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.f(x) + self.g(x)


# Nothing to convert


def test_a_network_without_a_skip_connection_is_refused_with_the_sums_that_ran():
    with pytest.raises(ValueError, match=r"no sum .* was found in Sequential: 0 sums of activations ran; write a skip"):
        lresnet.lorentzify(nn.Sequential(nn.Linear(8, 8)))
    with pytest.raises(
        ValueError, match=r"(?s): 1 sum of activations ran.*\n  :\d+ self.f\(x\) \+ self.g\(x\): the lay"
    ):
        lresnet.lorentzify(Unclear())


def test_a_forward_that_was_replaced_on_the_object_is_named():
    replaced = Recurrent()
    replaced.forward = functools.partial(Recurrent.forward, replaced)
    with pytest.raises(ValueError, match=r"the forward of this Recurrent was replaced|holds a module"):
        lresnet.lorentzify(replaced)


def test_only_sums_that_a_user_can_change_are_in_the_warning():
    class Written(Net):
        def forward(self, x):
            x = sum([x, self.f(x)])
            return self.f(x) + self.g(x)

    network = nn.Sequential(net_with(lambda_free), Written())
    with pytest.warns(UserWarning, match="not converted in Sequential") as caught:
        lresnet.lorentzify(network, example=example())
    (warning,) = caught
    assert "sum([x, self.f(x)])" in str(warning.message)
    assert "self.g(x)" not in str(warning.message)


def lambda_free(self, x):
    return x + self.f(x)


# Blocks that go through all of their parts


class Loop(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = x + layer(x)
        return x


class Children(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        for layer in self.children():
            x = x + layer(x)
        return x


class Whole(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


@pytest.mark.parametrize("network", [Loop(nn.Linear(8, 8)), Children(), Whole(nn.Linear(8, 8))])
def test_a_block_that_goes_through_all_its_parts_is_named(network):
    (one,) = lresnet.find_sums(network, torch.randn(2, 8))
    assert not one.converted
    assert "goes through all parts of the module, and the residual would be one of them" in one.reason
    with pytest.raises(ValueError, match="goes through all parts of the module"):
        lresnet.lorentzify(network, example=torch.randn(2, 8))


# Networks that are no plain modules


def test_what_is_not_a_plain_module_is_refused():
    network = resnet()
    for convert in (lresnet.lorentzify, lresnet.find_sums):
        with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got builtin"):
            convert(torch.relu)
        with pytest.raises(ValueError, match="already computes on a manifold"):
            convert(lresnet.lorentzify(network, residual="space"))
        with pytest.raises(ValueError, match="already computes on a manifold"):
            convert(lresnet.create_model("lorentz_mlp", in_features=4, num_classes=2))
        with pytest.raises(ValueError, match="first lorentzify, then compile"):
            convert(torch.compile(network, backend="eager"))
        with pytest.raises(ValueError, match="a traced graph"):
            convert(torch.fx.symbolic_trace(Recurrent()))
        with pytest.raises(ValueError, match="first lorentzify, then wrap"):
            convert(nn.DataParallel(network))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torchscript_is_refused_before_and_after():
    with pytest.raises(ValueError, match="is TorchScript, which has no source"):
        lresnet.lorentzify(torch.jit.trace(Recurrent(), torch.randn(2, 8)))
    with pytest.raises(TypeError, match=r"torch.jit.script reads source files, where Recurrent still has its sums"):
        torch.jit.script(lresnet.lorentzify(Recurrent()))


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


# Settings


def test_settings_out_of_range_are_refused():
    network, x = Recurrent(), torch.randn(2, 8)
    with pytest.raises(ValueError, match="curvature must be a negative number"):
        lresnet.lorentzify(network, curvature="learned", example=x)
    with pytest.raises(ValueError, match="curvature"):
        lresnet.lorentzify(network, curvature=1.0, example=x)
    with pytest.raises(ValueError, match="did you mean"):
        lresnet.lorentzify(network, residual="lorenz", example=x)
    with pytest.raises(TypeError, match="has no option 'wieght'"):
        lresnet.lorentzify(network, wieght=1.0, example=x)


# Examples


def test_a_network_that_runs_on_no_guess_asks_for_an_example():
    class Three(Net):
        def forward(self, x, y):
            if y != "three":
                raise ValueError(f"y is {y}")
            return x + self.f(x)

    with pytest.raises(
        ValueError, match=r"Three does not run on an input guessed from its first layer .*; pass an exam"
    ):
        lresnet.lorentzify(Three())
    assert residuals(lresnet.lorentzify(Three(), example=(example(), "three")))


def test_an_example_that_does_not_fit_raises_the_networks_own_error():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        lresnet.lorentzify(Recurrent(), example=torch.randn(2, 9))


GUESSED = {
    "image": (nn.Conv2d(3, 8, 3), (2, 3, 32, 32), torch.float32),
    "signal": (nn.Conv1d(3, 8, 3), (2, 3, 16), torch.float32),
    "volume": (nn.Conv3d(3, 8, 3), (2, 3, 16, 16, 16), torch.float32),
    "tokens": (nn.Embedding(50, 8), (2, 6), torch.int64),
    "features": (nn.Linear(7, 8), (2, 6, 7), torch.float32),
    "double": (nn.Linear(7, 8).double(), (2, 6, 7), torch.float64),
    "norm": (nn.LayerNorm(7), (2, 6, 7), torch.float32),
    "batch norm": (nn.BatchNorm2d(7), (2, 7, 32, 32), torch.float32),
    "attention": (nn.MultiheadAttention(8, 2), (2, 6, 8), torch.float32),
}


@pytest.mark.parametrize("name", GUESSED)
def test_an_input_is_guessed_from_the_first_layer(name):
    layer, shape, dtype = GUESSED[name]
    (x, *_), keywords = next(guesses(nn.Sequential(layer)))
    assert (tuple(x.shape), x.dtype, keywords) == (shape, dtype, {})


def test_a_guess_takes_the_size_of_timm_and_the_inputs_of_transformers():
    sized = nn.Sequential(nn.Conv2d(3, 8, 3))
    sized.pretrained_cfg = {"input_size": (3, 40, 48)}
    (x,), _ = next(guesses(sized))
    assert x.shape == (2, 3, 40, 48)
    sized.dummy_inputs = {"input_ids": torch.tensor([[1, 2]])}
    args, keywords = next(guesses(sized))
    assert args == ()
    assert keywords.keys() == {"input_ids"}


def test_a_guess_has_a_ring_of_edges_for_a_graph_network():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(8, 8)

        def forward(self, x, edge_index):
            return x + self.f(x)[edge_index[0]]

    (x, edges), _ = next(guesses(Graph()))
    assert (x.shape, edges.shape, edges.dtype) == ((6, 8), (2, 6), torch.int64)
    assert residuals(lresnet.lorentzify(Graph())).keys() == {"residual"}


def test_a_guess_does_not_change_the_random_state():
    network = Recurrent()
    before = torch.get_rng_state()
    lresnet.lorentzify(network)
    assert torch.equal(torch.get_rng_state(), before)


# Sources


def test_what_has_no_source_is_named():
    space: dict[str, object] = {}
    exec("def forward(self, x):\n    return x + self.f(x)", space)
    with pytest.raises(Unreadable, match=r"source of Net.forward is not available"):
        read_method(type("Net", (Net,), space), "forward")
    with pytest.raises(Unreadable, match="is not a plain Python function"):
        read_method(type("Net", (Net,), {"forward": torch.relu}), "forward")
    with pytest.raises(Unreadable, match="is that of something else"):
        read_method(type("Net", (Net,), {"forward": lambda self, x: x + self.f(x)}), "forward")
    plan = lresnet.find_sums(type("Net", (Net,), space)(), example())
    (one,) = plan.refused
    assert "source of Net.forward is not available" in one.reason


def test_a_decorator_that_hides_what_it_wraps_is_named():
    def hiding(function):
        def wrapper(*args):
            return function(*args)

        return wrapper

    with pytest.raises(Unreadable, match=r"wrapped by a decorator without functools.wraps"):
        read_method(type("Net", (Net,), {"forward": hiding(Net.block)}), "forward")
