"""The code of a converted block: all but its sums is as it was written, and so are copies, classes and modes."""

from __future__ import annotations

import copy
import functools
import traceback
import types

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import lresnet
from tests.convert.own_networks import (
    Basic,
    Deep,
    Recurrent,
    Transformer,
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
    calls = []

    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        @torch.no_grad()
        def forward(self, x):
            calls.append(x.shape)
            return x + self.layer(x)

    x = torch.randn(2, 6, requires_grad=True)
    converted = lresnet.lorentzify(Counted())
    calls.clear()
    assert not converted(x).requires_grad
    assert calls == [(2, 6)]


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
    seen.clear()
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


# Names of the residuals


def test_names_of_the_residuals_of_a_resnet():
    converted = lresnet.lorentzify(resnet())
    assert residuals(converted).keys() == {"1.residual", "2.residual", "3.residual", "4.residual"}
    assert float(converted[1].manifold.K) == -1 / 16
    assert all(module.manifold is converted[1].manifold for module in residuals(converted).values())


def test_names_of_the_residuals_of_a_transformer():
    converted = lresnet.lorentzify(Transformer())
    names = {f"layers.{i}.{name}" for i in (0, 1) for name in ("residual", "residual_2")}
    assert residuals(converted).keys() == names
    assert float(converted.layers[0].manifold.K) == -1 / 8


def test_a_loop_over_layers_has_a_residual_for_each():
    assert residuals(lresnet.lorentzify(Deep())).keys() == {"residual.0", "residual.1", "residual.2"}
    assert residuals(lresnet.lorentzify(Recurrent())).keys() == {"residual"}  # one cell, one residual


def test_a_loop_over_pairs_of_layers_has_a_residual_for_each():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            pairs = (nn.ModuleList([nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.ReLU())]) for _ in range(2))
            self.layers = nn.ModuleList(pairs)

        def forward(self, x):
            for attention, mlp in self.layers:
                x = attention(x) + x
                x = mlp(x) + x
            return x

    network, x = Pairs(), torch.randn(2, 6)
    assert torch.equal(lresnet.lorentzify(network, residual="space", example=x)(x), network(x))
    names = {f"{name}.{i}" for name in ("residual", "residual_2") for i in (0, 1)}
    assert residuals(lresnet.lorentzify(network, example=x)).keys() == names


def test_loops_within_loops_share_one_residual():
    class Stages(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList(nn.ModuleList(nn.Linear(6, 6) for _ in range(3)) for _ in range(2))

        def forward(self, x):
            for i in range(len(self.stages)):
                for layer in self.stages[i]:
                    x = x + layer(x)
            return x

    network, x = Stages(), torch.randn(2, 6)
    assert torch.equal(lresnet.lorentzify(network, residual="space", example=x)(x), network(x))
    assert residuals(lresnet.lorentzify(network, example=x)).keys() == {"residual"}


def test_an_arm_of_a_condition_that_does_not_run_has_no_residual():
    converted = lresnet.lorentzify(nn.TransformerEncoderLayer(8, 2, norm_first=True))
    assert residuals(converted).keys() == {"residual", "residual_2"}


class Inverted(nn.Module):
    def __init__(self, width: int, out: int):
        super().__init__()
        self.conv, self.use_res_connect = nn.Conv2d(width, out, 1), width == out

    def forward(self, x):
        if self.use_res_connect:
            return x + self.conv(x)
        else:
            return self.conv(x)


def test_a_block_that_is_set_to_have_no_skip_connection_has_no_residual():
    """Its parameters would never be trained."""
    converted = lresnet.lorentzify(nn.Sequential(Inverted(3, 4), Inverted(4, 4)))
    assert residuals(converted).keys() == {"1.residual"}
    with pytest.raises(ValueError, match="no sum of a skip connection"):
        lresnet.lorentzify(Inverted(3, 4))


class Falcon(nn.Module):
    """Two branches in parallel or in turn, as a configuration has it."""

    def __init__(self, parallel: bool, cross: bool = False) -> None:
        super().__init__()
        self.f, self.g, self.config = nn.Linear(6, 6), nn.Linear(6, 6), types.SimpleNamespace(parallel=parallel)
        if cross:
            self.cross = nn.Linear(6, 6)

    def forward(self, x, memory=None):
        if memory is not None:
            if not hasattr(self, "cross"):
                raise ValueError("there is no cross attention")
            x = x + self.cross(x * memory)
        first = self.f(x)
        second = self.g(x if self.config.parallel else first)
        if self.config.parallel:
            return x + (first + second)
        return first + second


def test_settings_of_a_configuration_decide_what_is_converted():
    x = torch.randn(2, 6)
    assert set(residuals(lresnet.lorentzify(Falcon(parallel=True), example=x))) == {"residual"}
    assert set(residuals(lresnet.lorentzify(Falcon(parallel=False), example=x))) == {"residual"}
    with_cross = lresnet.lorentzify(Falcon(parallel=True, cross=True), example=(x, x))
    assert set(residuals(with_cross)) == {"residual", "residual_2"}
    network = lresnet.lorentzify(Falcon(parallel=True), residual="space", example=x)
    with pytest.raises(ValueError, match="no cross attention"):
        network(torch.randn(2, 6), torch.randn(2, 6))


def test_a_name_that_is_taken_is_left_alone():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.residual, self.manifold = nn.Linear(6, 6), "flat"

        def forward(self, x):
            self.lorentz_residual = x.mean()
            return x + self.residual(x)

    network, x = Named(), torch.randn(2, 6)
    converted = lresnet.lorentzify(network, residual="space")
    assert torch.equal(converted(x), network(x))
    assert isinstance(converted.residual, nn.Linear)
    assert converted.manifold == "flat"
    assert residuals(lresnet.lorentzify(network)).keys() == {"lorentz_residual_of_2"}


def test_a_learned_curvature_has_one_owner():
    manifold = lresnet.Lorentz(-0.5, learnable=True)
    converted = lresnet.lorentzify(resnet(), curvature=manifold)
    assert [name for name, _ in converted.named_parameters() if "kappa" in name] == ["1.manifold.log_kappa"]
    converted(*inputs("resnet")).square().mean().backward()
    assert manifold.log_kappa.grad is not None


def test_options_and_names_of_residuals():
    converted = lresnet.lorentzify(resnet(), weight=0.5, scale=None)
    assert converted[1].residual.scale is None
    assert float(converted[1].residual.weight) == 0.5
    plan = lresnet.find_sums(network := resnet(), *inputs("resnet"))
    for kind in lresnet.residual.RESIDUALS:
        assert lresnet.lorentzify(network, residual=kind, plan=plan)(*inputs("resnet")).isfinite().all()


# Classes


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

    assert residuals(lresnet.lorentzify(Layer(8, 2, norm_first=True))).keys() == {"residual", "residual_2"}


def test_a_converted_network_says_how_it_was_converted():
    converted = lresnet.lorentzify(Recurrent(), example=torch.randn(2, 8))
    how = converted._lorentz_conversion
    assert how["residual"] == "lorentz"
    (one,) = how["sums"]
    assert (one["module"], one["class"], one["method"]) == ("", "Recurrent", "forward")
    assert (one["text"], one["skip_first"], one["axis"]) == ("x + self.cell(x).tanh()", True, -1)


def test_the_result_has_the_memory_layout_of_the_first_operand():
    class Viewed(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(4, 4)

        def forward(self, x):
            x = x.transpose(1, 2)
            return (self.f(x) + x).view(2, 16)

    network, x = Viewed(), torch.randn(2, 4, 4)
    assert torch.equal(lresnet.lorentzify(network, residual="space", example=x)(x), network(x))
