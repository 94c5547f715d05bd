"""Axes, widths and names of the residuals that a converted network has, and how many there are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lresnet
from tests.convert.own_networks import (
    ConvNeXt,
    Deep,
    PreNorm,
    Recurrent,
    build,
    inputs,
    residuals,
    resnet,
)


def test_axes_widths_and_names_of_a_resnet():
    converted = lresnet.lorentzify(resnet())
    assert residuals(converted).keys() == {"1.residual", "2.residual", "3.residual", "4.residual"}
    assert {module.dim for module in residuals(converted).values()} == {1}
    assert float(converted[1].manifold.K) == -1 / 16
    assert all(module.manifold is converted[1].manifold for module in residuals(converted).values())


def test_axes_widths_and_names_of_a_transformer():
    converted = lresnet.lorentzify(build("pre-norm"))
    names = {f"layers.{i}.{name}" for i in (0, 1) for name in ("residual", "residual_2")}
    assert residuals(converted).keys() == names
    assert {module.dim for module in residuals(converted).values()} == {-1}
    assert float(converted.layers[0].manifold.K) == -1 / 8


def test_a_loop_over_layers_has_a_residual_for_each():
    assert residuals(lresnet.lorentzify(Deep())).keys() == {"residual.0", "residual.1", "residual.2"}
    assert residuals(lresnet.lorentzify(Recurrent())).keys() == {"residual"}  # one cell, one residual


def test_a_list_of_pairs_of_layers_in_a_loop():
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
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))
    names = {f"{name}.{i}" for name in ("residual", "residual_2") for i in (0, 1)}
    assert residuals(lresnet.lorentzify(network)).keys() == names


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
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))
    assert residuals(lresnet.lorentzify(network)).keys() == {"residual"}


def test_arms_of_a_condition_share_a_residual():
    for first in (True, False):
        converted = lresnet.lorentzify(nn.TransformerEncoderLayer(8, 2, norm_first=first))
        assert residuals(converted).keys() == {"residual", "residual_2"}


def test_a_block_that_is_set_to_have_no_skip_connection_has_no_residual():
    """Its parameters would never be trained."""

    class Inverted(nn.Module):
        def __init__(self, width: int, out: int):
            super().__init__()
            self.conv, self.use_res_connect = nn.Conv2d(width, out, 1), width == out

        def forward(self, x):
            if self.use_res_connect:
                return x + self.conv(x)
            else:
                return self.conv(x)

    converted = lresnet.lorentzify(nn.Sequential(Inverted(3, 4), Inverted(4, 4)))
    assert residuals(converted).keys() == {"1.residual"}
    with pytest.raises(ValueError, match="no sum of a skip connection"):
        lresnet.lorentzify(Inverted(3, 4))


def test_where_the_axis_is_not_to_be_seen_it_is_asked_for():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(4, 4, 1)

        def forward(self, x):
            return self.conv(x.transpose(1, 2)).transpose(1, 2)

    class Around(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def forward(self, x):
            return x + self.f(x)

    class TurnedLinear(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x.transpose(1, 2)).transpose(1, 2)

    class Rearrange(nn.Identity):
        """As einops has it."""

    both = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Linear(4, 4))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(16, 16), nn.Unflatten(1, (4, 2, 2)))
    for module, reason in (
        (ConvNeXt(4), r"ConvNeXt: its forward calls permute, which may change"),
        (Around(both), r"Around: Conv2d has channels along axis 1, Linear along the last one"),
        (Around(nn.ReLU()), r"Around: its branch has no convolution, linear layer or norm"),
        (Around(TurnedLinear()), r"Around: transpose in TurnedLinear.forward turns what is given to the layers"),
        (Around(nn.Sequential(Rearrange(), nn.Conv1d(4, 4, 1), Rearrange())), r"Around: its branch has a Rearrange"),
        (Around(flat), r"Around: its branch has a Flatten"),
        (Around(Turned()), r"Around: transpose in Turned.forward may change the order of axes for Conv1d"),
    ):
        with pytest.raises(ValueError, match=rf"(?s)is not to be seen in.*{reason}.*Say dim=1"):
            lresnet.lorentzify(module)
        assert residuals(lresnet.lorentzify(module, dim=-1, curvature=-1.0))["residual"].dim == -1


def test_a_linear_layer_and_a_batch_norm_of_rows():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU())

        def forward(self, x):
            return x + self.f(x)

    assert lresnet.lorentzify(Rows()).residual.dim == -1


def test_axes_for_parts_of_a_network():
    network = nn.ModuleDict({"stem": ConvNeXt(8), "blocks": nn.ModuleList([PreNorm(8), ConvNeXt(8)])})
    found = residuals(lresnet.lorentzify(network, dim={"stem": 1, "blocks": 2, "blocks.1": 3}))
    assert {name: module.dim for name, module in found.items()} == {
        "stem.residual": 1, "blocks.0.residual": 2, "blocks.0.residual_2": 2, "blocks.1.residual": 3,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"no block is found at 'block'; they are at stem, blocks.0, blocks.1"):
        lresnet.lorentzify(network, dim={"block": 1})
    with pytest.raises(TypeError, match="dim must be a number"):
        lresnet.lorentzify(network, dim="last")


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
    for kind in lresnet.residual.RESIDUALS:
        assert lresnet.lorentzify(resnet(), residual=kind)(*inputs("resnet")).isfinite().all()
