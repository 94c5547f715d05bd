"""The coordinate axis of a sum, as the layers show it, and as the user gives it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lresnet
from tests.convert.checks import check_same, example, net_with
from tests.convert.own_networks import ConvNeXt, PreNorm, residuals, resnet


class Around(nn.Module):
    """Adds a branch to its input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Permute(nn.Module):
    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x):
        return x.permute(*self.order)


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


TURN = Apply(lambda x: x.transpose(1, 2))
TO_LAST, TO_FIRST = Permute(0, 2, 3, 1), Permute(0, 3, 1, 2)
HEADS = (
    Apply(lambda x: x.view(2, 4, 2, 3).transpose(1, 2)),
    Apply(lambda x: x.transpose(1, 2).reshape(2, 4, 6)),
)
BRANCHES = {
    "linear": ([nn.Linear(6, 6)], (2, 4, 6), 2),
    "linear on rows": ([nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()], (4, 6), 1),
    "embedding of five axes": ([nn.Linear(6, 6)], (2, 3, 4, 5, 6), 4),
    "conv1d": ([nn.Conv1d(6, 6, 3, padding=1)], (2, 6, 5), 1),
    "conv2d": ([nn.Conv2d(6, 6, 3, padding=1)], (2, 6, 5, 5), 1),
    "conv3d": ([nn.Conv3d(6, 6, 3, padding=1)], (2, 6, 3, 3, 3), 1),
    "conv2d without a batch": ([nn.Conv2d(6, 6, 3, padding=1)], (6, 5, 5), 0),
    "batch norm": ([nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 1)], (2, 6, 5, 5), 1),
    "group norm": ([nn.GroupNorm(2, 6), nn.SiLU(), nn.Conv2d(6, 6, 1)], (2, 6, 5, 5), 1),
    "linear on turned tokens": ([TURN, nn.Linear(4, 4), TURN], (2, 4, 6), 1),
    "conv1d on turned tokens": ([TURN, nn.Conv1d(6, 6, 3, padding=1), TURN], (2, 4, 6), 2),
    "conv2d of channels that are last": ([TO_FIRST, nn.Conv2d(6, 6, 1), TO_LAST], (2, 5, 5, 6), 3),
    "linear of channels that are second": ([TO_LAST, nn.Linear(6, 6), TO_FIRST], (2, 6, 5, 5), 1),
    "flattened image": ([Apply(lambda x: x.flatten(2)), nn.Conv1d(6, 6, 1), nn.Unflatten(2, (4, 4))], (2, 6, 4, 4), 1),
    "heads": ([nn.Linear(6, 6), *HEADS, nn.Linear(6, 6)], (2, 4, 6), 2),
    "einsum": ([Apply(lambda x: torch.einsum("bnc->bcn", x)), nn.Conv1d(6, 6, 1), TURN], (2, 4, 6), 2),
    "moved axis": (
        [Apply(lambda x: x.movedim(1, -1)), nn.Linear(6, 6), Apply(lambda x: x.movedim(-1, 1))], (2, 6, 5, 5), 1
    ),
    "attribute mT": ([Apply(lambda x: x.mT), nn.Linear(4, 4), Apply(lambda x: x.mT)], (2, 4, 6), 1),
    "functional": ([Apply(lambda x: F.conv2d(x, torch.ones(6, 6, 1, 1)))], (2, 6, 5, 5), 1),
    "matrix product": ([Apply(lambda x: x @ torch.ones(6, 6))], (2, 4, 6), 2),
    "attention": ([nn.LayerNorm(6), Apply(lambda x: F.scaled_dot_product_attention(x, x, x))], (2, 4, 6), 2),
    "transposed convolution": ([nn.ConvTranspose2d(6, 6, 3, padding=1)], (2, 6, 5, 5), 1),
    "pooling": ([nn.MaxPool2d(3, 1, 1)], (2, 6, 5, 5), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_the_layers_show_the_axis(name):
    branch, shape, axis = BRANCHES[name]
    torch.manual_seed(0)
    network, x = Around(*branch), torch.randn(*shape)
    (one,) = lresnet.find_sums(network, x)
    assert one.converted
    assert one.axis is not None
    assert one.axis % len(shape) == axis
    assert one.width == shape[axis]
    found = lresnet.lorentzify(network, example=x)
    assert found.residual.dim % len(shape) == axis
    assert float(found.manifold.K) == pytest.approx(-1 / shape[axis])


def test_a_recurrent_layer_shows_the_axis():
    network = Around(nn.GRU(6, 6, batch_first=True), Apply(lambda given: given[0]))
    (one,) = lresnet.find_sums(network, torch.randn(2, 4, 6))
    assert (one.converted, one.axis) == (True, -1)


def test_channels_after_the_batch_are_axis_1_and_the_last_axis_is_minus_1():
    """So that a network that was converted with images of one rank serves those of another."""
    assert {part.dim for part in residuals(lresnet.lorentzify(resnet())).values()} == {1}
    assert lresnet.lorentzify(Around(nn.Linear(6, 6)), example=torch.randn(4, 6)).residual.dim == -1
    assert lresnet.lorentzify(Around(nn.Linear(6, 6)), example=torch.randn(2, 4, 6)).residual.dim == -1


def test_convnext_and_mixer_need_no_dim():
    (one,) = check_same(ConvNeXt(8), torch.randn(2, 8, 5, 5))
    assert (one.axis % 4, one.width) == (1, 8)


def test_tokens_are_mixed_along_the_axis_that_the_channels_have():
    """The branch mixes tokens by a linear layer, but a layer norm shows the channels of the skip connection."""

    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.tokens, self.f = nn.LayerNorm(6), nn.Linear(4, 4), nn.Linear(6, 6)

        def forward(self, x):
            x = self.f(x)
            return x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)

    (one,) = lresnet.find_sums(Mix(), torch.randn(2, 4, 6))
    assert (one.axis, one.width) == (-1, 6)


# An axis that the layers do not show


def unknown(self, x):
    return x + torch.cdist(x, x)


def test_an_axis_that_the_layers_do_not_show_must_be_given():
    network = net_with(unknown)
    with pytest.raises(
        ValueError, match=r"(?s)do not show the coordinate axis of\n  :\d+ x \+ torch.cdist\(x, x\), sh"
    ):
        lresnet.lorentzify(network, example=example())
    for dim in (1, -1, 2):
        assert lresnet.lorentzify(network, example=example(), dim=dim).residual.dim == dim
    assert lresnet.lorentzify(network, example=example(), dim={"": 0}).residual.dim == 0


# dim


@pytest.mark.parametrize("dim", [3, -4, 7])
def test_a_dim_that_is_out_of_range_is_refused(dim):
    network = Around(nn.Linear(6, 6))
    with pytest.raises(
        ValueError, match=rf"dim={dim} is out of range for :\d+ x \+ self.layers\(x\) of shape \(2, 4, 6"
    ):
        lresnet.lorentzify(network, example=torch.randn(2, 4, 6), dim=dim)
    with pytest.raises(ValueError, match=rf"dim={dim} is out of range"):
        lresnet.lorentzify(network, example=torch.randn(2, 4, 6), dim={"": dim})


def test_a_dim_that_contradicts_the_layers_is_refused():
    network = nn.Sequential(nn.Conv2d(3, 6, 1), Around(nn.Conv2d(6, 6, 1)))
    for dim in (-1, 2, 0):
        with pytest.raises(ValueError, match=rf"dim={dim} is wrong for 1:\d+ .*: its channels are on axis 1 of \(2, 6"):
            lresnet.lorentzify(network, example=torch.randn(2, 3, 5, 5), dim=dim)
    for dim in (1, -3):
        assert lresnet.lorentzify(network, example=torch.randn(2, 3, 5, 5), dim=dim)[1].residual.dim == dim


def test_a_dim_by_path_overrides_the_layers():
    network = nn.Sequential(nn.Conv2d(3, 6, 1), Around(nn.Conv2d(6, 6, 1)), Around(nn.Conv2d(6, 6, 1)))
    found = lresnet.lorentzify(network, example=torch.randn(2, 3, 5, 5), dim={"1": -1})
    assert {name: part.dim for name, part in residuals(found).items()} == {"1.residual": -1, "2.residual": 1}


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = ConvNeXt(8), nn.ModuleList([PreNorm(8), PreNorm(8)])

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return x


def test_the_longest_path_decides():
    network, x = Parts(), torch.randn(2, 8, 3, 3)
    found = residuals(lresnet.lorentzify(network, example=x, dim={"stem": 1, "blocks": 2, "blocks.1": -1}))
    assert {name: module.dim for name, module in found.items()} == {
        "stem.residual": 1, "blocks.0.residual": 2, "blocks.0.residual_2": 2,
        "blocks.1.residual": -1, "blocks.1.residual_2": -1,
    }  # fmt: skip
    seen = residuals(lresnet.lorentzify(network, example=x))
    assert {name.split(".")[0]: module.dim for name, module in seen.items()} == {"stem": 1, "blocks": -1}


def test_a_dim_of_another_kind_is_refused():
    network, x = Parts(), torch.randn(2, 8, 3, 3)
    with pytest.raises(
        ValueError, match=r"dim: there is no sum at 'block'; they are at 'stem', 'blocks.0', 'blocks.1'"
    ):
        lresnet.lorentzify(network, example=x, dim={"block": 1})
    with pytest.raises(TypeError, match="dim must be a number"):
        lresnet.lorentzify(network, example=x, dim="last")
    with pytest.raises(TypeError, match="dim must be a"):
        lresnet.lorentzify(network, example=x, dim=True)
    with pytest.raises(TypeError, match="dim must be a whole number"):
        lresnet.lorentzify(network, example=x, dim={"stem": 1.0})


def test_auto_is_the_width_of_the_widest_sum():
    network = nn.Sequential(Around(nn.Linear(4, 4)), nn.Linear(4, 10), Around(nn.Linear(10, 10)))
    assert float(lresnet.lorentzify(network)[0].manifold.K) == pytest.approx(-0.1)
    plan = lresnet.find_sums(network, torch.randn(2, 4)).exclude("2")
    assert float(lresnet.lorentzify(network, plan=plan)[0].manifold.K) == -0.25
