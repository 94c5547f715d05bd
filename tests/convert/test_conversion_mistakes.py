"""What cannot be converted says why, and what stays as it is is told."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import lresnet
from lresnet.convert.method_source import Unreadable, read_method
from tests.convert.own_networks import (
    Recurrent,
    resnet,
)
from tests.convert.sum_reader import Net


class Unclear(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.f(x) + self.g(x)


class Derived(Recurrent):
    def forward(self, x):
        return super().forward(x) * 2


class Loop(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = x + layer(x)
        return x


def test_nothing_found():
    with pytest.raises(ValueError, match=r"no sum .* found in Sequential: the code of 0 modules was looked at"):
        lresnet.lorentzify(nn.Sequential(nn.Linear(8, 8)))
    with pytest.raises(
        ValueError, match=r"(?s)the code of 1 module .*self.f\(x\) \+ self.g\(x\) in Unclear: both sides"
    ):
        lresnet.lorentzify(Unclear())
    replaced = Recurrent()
    replaced.forward = functools.partial(Recurrent.forward, replaced)
    with pytest.raises(ValueError, match=r"the forward of this Recurrent was replaced"):
        lresnet.lorentzify(replaced)


def test_all_that_is_left_is_told_at_once():
    with pytest.warns(UserWarning, match="left as they are in Sequential") as caught:
        lresnet.lorentzify(nn.Sequential(Recurrent(), Unclear(), Unclear(), Derived()))
    (warning,) = caught
    assert str(warning.message).count("in Unclear: both sides are computed from one value") == 1
    assert "x + self.cell(x).tanh() in Derived: Derived calls it by super()" in str(warning.message)


def test_a_block_that_goes_over_all_its_parts_is_refused():
    with pytest.raises(ValueError, match=r"Loop: .*test_conversion_mistakes.py:\d+ goes over all parts of the block"):
        lresnet.lorentzify(Loop(nn.Linear(8, 8)))


def test_what_is_no_network_of_sums_any_more():
    network = resnet()
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got builtin"):
        lresnet.lorentzify(torch.relu)
    with pytest.raises(ValueError, match="computes on a manifold already"):
        lresnet.lorentzify(lresnet.lorentzify(network, residual="space"))
    with pytest.raises(ValueError, match="computes on a manifold already"):
        lresnet.lorentzify(lresnet.create_model("lorentz_mlp", in_features=4, num_classes=2))
    with pytest.raises(ValueError, match="first lorentzify, then compile"):
        lresnet.lorentzify(torch.compile(network, backend="eager"))
    with pytest.raises(ValueError, match="a traced graph"):
        lresnet.lorentzify(torch.fx.symbolic_trace(Recurrent()))
    with pytest.raises(ValueError, match="first lorentzify, then wrap"):
        lresnet.lorentzify(nn.DataParallel(network))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torchscript_is_refused_before_and_after():
    with pytest.raises(ValueError, match="is TorchScript, which has no source"):
        lresnet.lorentzify(torch.jit.trace(Recurrent(), torch.randn(2, 8)))
    with pytest.raises(TypeError, match=r"torch.jit.script reads source files, where Recurrent still has its sums"):
        torch.jit.script(lresnet.lorentzify(Recurrent()))


def test_other_mistakes():
    network = resnet()
    with pytest.raises(ValueError, match="curvature must be a negative number"):
        lresnet.lorentzify(network, curvature="learned")
    with pytest.raises(ValueError, match="curvature"):
        lresnet.lorentzify(network, curvature=1.0)
    with pytest.raises(ValueError, match="did you mean"):
        lresnet.lorentzify(network, residual="lorenz")
    with pytest.raises(TypeError, match="has no option 'wieght'"):
        lresnet.lorentzify(network, wieght=1.0)

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return x + self.act(x)

    with pytest.raises(ValueError, match=r"the sum in 0 \(Bare\) .* not to be seen from its layers; say the curvature"):
        lresnet.lorentzify(nn.Sequential(Bare()), dim=-1)


def test_what_has_no_source():
    space: dict[str, object] = {}
    exec("def forward(self, x):\n    return x + self.f(x)", space)
    with pytest.raises(Unreadable, match=r"source of Net.forward is not to be had"):
        read_method(type("Net", (Net,), space), "forward")
    with pytest.raises(Unreadable, match="is no plain Python function"):
        read_method(type("Net", (Net,), {"forward": torch.relu}), "forward")
    with pytest.raises(Unreadable, match="is that of something else"):
        read_method(type("Net", (Net,), {"forward": lambda self, x: x + self.f(x)}), "forward")


def test_a_decorator_that_hides_what_it_wraps():
    def hiding(function):
        def wrapper(*args):
            return function(*args)

        return wrapper

    with pytest.raises(Unreadable, match=r"wrapped by a decorator; give that functools.wraps"):
        read_method(type("Net", (Net,), {"forward": hiding(Net.block)}), "forward")
