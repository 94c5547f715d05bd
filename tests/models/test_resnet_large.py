"""Tests of lorentz_resnet18, 34 and 50 with the ImageNet stem: shapes, cost, equality with a plain ResNet, training."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import Tensor
from torch.nn.functional import relu
from torch.utils.flop_counter import FlopCounterMode

from lresnet.models import LorentzResNet, create_model, from_pretrained
from lresnet.models.resnet import BottleneckBlock, is_unmodified
from lresnet.residual import METHODS
from lresnet.testing import assert_compiles
from tests.models.resnets import backward, every_residual, images, make

SMALL = {"widths": [4, 4, 8, 8], "stem": "imagenet"}


class PlainBlock(torch.nn.Module):
    """Basic block or bottleneck of He et al. in plain torch, with torchvision's names."""

    def __init__(self, before: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        conv, norm = torch.nn.Conv2d, torch.nn.BatchNorm2d
        sizes = [(3, stride), (3, 1)] if expansion == 1 else [(1, 1), (3, stride), (1, 1)]
        channels = [before, *[width] * (len(sizes) - 1), width * expansion]
        self.count = len(sizes)
        for i, (size, step) in enumerate(sizes):
            setattr(self, f"conv{i + 1}", conv(channels[i], channels[i + 1], size, step, size // 2, bias=False))
            setattr(self, f"bn{i + 1}", norm(channels[i + 1]))
        self.downsample = None
        if stride != 1 or before != channels[-1]:
            self.downsample = torch.nn.Sequential(conv(before, channels[-1], 1, stride, bias=False), norm(channels[-1]))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = relu(y) if i < self.count else y
        return relu(y + (x if self.downsample is None else self.downsample(x)))


class PlainResNet(torch.nn.Module):
    """ResNet of He et al. in plain torch, with torchvision's names."""

    def __init__(self, counts: list[int], widths: list[int], expansion: int, classes: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, widths[0], 7, 2, 3, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(widths[0])
        before = widths[0]
        for stage, (count, width) in enumerate(zip(counts, widths, strict=True)):
            blocks = []
            for i in range(count):
                blocks.append(PlainBlock(before, width, 2 if stage and not i else 1, expansion))
                before = width * expansion
            setattr(self, f"layer{stage + 1}", torch.nn.Sequential(*blocks))
        self.fc = torch.nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.max_pool2d(relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


PLAIN = {18: ([2, 2, 2, 2], 1), 34: ([3, 4, 6, 3], 1), 50: ([3, 4, 6, 3], 4)}


def plain(depth: int, widths: list[int], classes: int) -> PlainResNet:
    counts, expansion = PLAIN[depth]
    net = PlainResNet(counts, widths, expansion, classes).double()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net


# --- shape and cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "parameters", "gigamacs"), [(18, 11_689_512, 1.81), (34, 21_797_672, 3.66), (50, 25_557_032, 4.09)]
)
def test_size_and_cost_at_224_pixels_are_those_of_torchvision(depth, parameters, gigamacs):
    with torch.device("meta"):
        model = LorentzResNet(depth, 1000, residual="euclidean", stem="imagenet").eval()
        with FlopCounterMode(display=False) as counter:
            assert model(torch.empty(1, 3, 224, 224)).shape == (1, 1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert counter.get_total_flops() / 2e9 == pytest.approx(gigamacs, abs=0.005)


def test_the_cifar_stem_costs_15_times_as_much_at_224_pixels():
    with torch.device("meta"):
        model = LorentzResNet(18, 1000, residual="euclidean").eval()
        with FlopCounterMode(display=False) as counter:
            model(torch.empty(1, 3, 224, 224))
    assert counter.get_total_flops() / 2e9 == pytest.approx(27.2, abs=0.05)


@pytest.mark.parametrize(("side", "last"), [(64, 2), (65, 3), (96, 3), (97, 4), (1, 1)])
def test_the_last_stage_has_a_32nd_of_the_pixels_per_side(side, last):
    model = make(depth=18, **SMALL).eval()
    assert model.features(images(1, side, side)).shape == (1, 8, last, last)
    assert model.reduction == 32


@pytest.mark.parametrize("depth", [18, 34, 50])
@pytest.mark.parametrize("training", [True, False])
def test_the_euclidean_baseline_computes_a_plain_resnet_in_float64(depth, training):
    theirs = plain(depth, [4, 6, 8, 8], 5).train(training)
    model = make("euclidean", depth, num_classes=5, widths=[4, 6, 8, 8], stem="imagenet").double().train(training)
    assert model.load_torchvision(theirs.state_dict()) == []
    x = images(3, 70, 64).double()
    torch.testing.assert_close(model(x), theirs(x), rtol=1e-9, atol=1e-9)
    (model(x) ** 2).sum().backward()
    (theirs(x) ** 2).sum().backward()
    torch.testing.assert_close(model.stem[0].weight.grad, theirs.conv1.weight.grad, rtol=1e-7, atol=1e-7)


def test_pretrained_weights_fit_the_lorentz_network_too():
    theirs = plain(50, [4, 4, 8, 8], 7).float()
    model = make("lorentz", 50, **SMALL)
    kept = model.load_torchvision(theirs.state_dict())
    assert torch.equal(model.blocks[3].conv2.weight, theirs.layer2[0].conv2.weight)
    assert torch.equal(model.blocks[3].shortcut[1].bias, theirs.layer2[0].downsample[1].bias)
    assert all("residual" in name or name.startswith(("head.", "manifold.")) for name in kept)
    flat = make("lorentz", 50, curvature=-1e-7, pooling="mean", head="linear", num_classes=7, **SMALL)
    flat.load_torchvision(theirs.state_dict())
    with torch.no_grad():
        found, expected = (net.eval()(images(2, 64, 64)) for net in (flat, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3 * expected.abs().max().item())


def test_weights_of_another_resnet_are_rejected():
    model = make("euclidean", 18, **SMALL)
    with pytest.raises(ValueError, match=r"layer1.2.conv1.weight has the shape \[4, 4, 3, 3\], but this network has"):
        model.load_torchvision(plain(34, [4, 4, 8, 8], 4).state_dict())
    with pytest.raises(ValueError, match=r"layer1.0.conv1.weight has the shape \[4, 4, 1, 1\], but"):
        model.load_torchvision(plain(50, [4, 4, 8, 8], 4).state_dict())
    state = plain(18, [4, 4, 8, 8], 4).state_dict()
    del state["layer4.1.bn2.weight"]
    with pytest.raises(ValueError, match=r"the state has no weights for blocks\.7\.bn2\.weight"):
        model.load_torchvision(state)


# --- the arguments ----------------------------------------------------------------------------------------------------


def test_default_stem_and_blocks():
    def chosen(*args: object, **options: object) -> tuple[object, ...]:
        with torch.device("meta"):
            config = LorentzResNet(*args, **options).config
        return config["stem"], config["block"], config["curvature"]

    assert chosen(18) == ("cifar", "basic", -0.02)
    assert chosen(50) == ("cifar", "basic", -0.02)  # 6n + 2, as before
    assert chosen(34) == ("imagenet", "basic", -0.01)
    assert chosen(50, stem="imagenet") == ("imagenet", "bottleneck", -0.002)
    assert chosen(50, block="bottleneck") == ("imagenet", "bottleneck", -0.002)
    assert chosen(50, block="bottleneck", stem="cifar") == ("cifar", "bottleneck", -0.002)
    assert chosen(50, block="basic", stem="imagenet") == ("imagenet", "basic", -0.02)
    assert chosen(20, stem="imagenet") == ("imagenet", "basic", -0.02)
    assert chosen(18, curvature=-0.3)[2] == -0.3
    with torch.device("meta"):
        assert create_model("lorentz_resnet50").config["block"] == "bottleneck"
        assert create_model("lorentz_resnet34").config["stem"] == "imagenet"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stem": "vgg"}, "stem must be one of imagenet, cifar, got 'vgg'"),
        ({"block": "wide"}, "block must be one of basic, bottleneck, got 'wide'"),
        ({"depth": 18, "block": "bottleneck"}, "bottleneck blocks need depth 50, got 18"),
        ({"depth": 50, "stem": "imagenet", "widths": [8, 8, 8]}, "depth 50 needs 4 positive widths"),
        ({"depth": 101}, "depth must be 18, 34, 50 or 6n"),
    ],
)
def test_wrong_arguments_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.filterwarnings("ignore:.*config.json is not the one that was saved")  # the test edits it
def test_a_config_of_an_earlier_version_gives_the_same_network(tmp_path):
    """config.json had neither stem nor block, and depth 50 was a ResNet of 6n + 2 layers."""
    for depth in (18, 50):
        model = make(depth=depth, widths=[4, 4, 8, 8] if depth == 18 else None)
        assert model.stem[0].weight.shape[2:] == (3, 3)
        model.save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        del config["stem"], config["block"]
        (tmp_path / "config.json").write_text(json.dumps(config))
        again = from_pretrained(tmp_path).eval()
        assert torch.equal(again(images()), model.eval()(images()))


@pytest.mark.parametrize("depth", [34, 50])
def test_from_pretrained_restores_a_large_network(depth, tmp_path):
    model = make(depth=depth, **SMALL).eval()
    again = from_pretrained(model.save_pretrained(tmp_path)).eval()
    assert again.config == model.config
    assert torch.equal(again(images(2, 40, 40)), model(images(2, 40, 40)))


# --- geometry and training --------------------------------------------------------------------------------------------


@every_residual
@pytest.mark.parametrize("depth", [34, 50])
def test_every_residual_trains_with_finite_gradients(depth, residual):
    model = make(residual, depth, learn_curvature=True, **SMALL)
    assert is_unmodified(model.stem, model.blocks)
    assert backward(model, images(4, 40, 40)).isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("pooling", ["poincare", "centroid", "mean"])
@pytest.mark.parametrize("head", ["mlr", "prototypes", "linear"])
def test_every_pooling_and_head(pooling, head):
    model = make(depth=50, pooling=pooling, head=head, learn_curvature=True, **SMALL)
    assert model(images(2, 40, 40)).shape == (2, 4)
    assert model.embed(images(2, 40, 40)).shape == (2, 32)


@pytest.mark.parametrize("residual", list(METHODS))
def test_a_bottleneck_starts_with_its_branch_at_the_origin(residual):
    block = make(residual, 50, **SMALL).blocks[1]
    assert isinstance(block, BottleneckBlock)
    assert bool(block.bn3.weight.any()) is (residual == "none")
    x = images(2, 40, 40)[:, :1].expand(-1, 16, -1, -1).relu() + 0.1
    assert block(x).any()


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "low", "high"), [(34, 0.36, 0.85), (50, 0.6, 1.0)])
def test_initial_norms_are_near_those_of_the_euclidean_baseline(depth, low, high):
    """The figures are in the docstring of lresnet.models.resnet."""

    def norms(model: LorentzResNet) -> Tensor:
        found: list[Tensor] = []
        for block in model.blocks:
            block.register_forward_hook(lambda _, __, output: found.append(output.norm(dim=1).mean()))
        with torch.no_grad():
            model(images(8, 128, 128))
        return torch.stack(found)

    options = {"depth": depth, "stem": "imagenet"}
    ratio = norms(make(**options)) / norms(make("euclidean", **options))
    assert ratio.min() > low
    assert ratio.max() < high


# torch's tracer instantiates every autograd.Function and warns about it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")
@pytest.mark.slow
def test_a_large_network_is_the_same_after_a_copy_and_compiles():
    model = make(depth=50, **SMALL).eval()
    x = images(2, 40, 40)
    torch.testing.assert_close(copy.deepcopy(model)(x), model(x))
    assert_compiles(model, x, tolerance=1e-4)


def test_images_are_not_interleaved_behind_max_pooling(monkeypatch):
    model = make(depth=20, stem="imagenet").train()
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: True)
    assert model.num_interleaved(torch.empty(8, 3, 64, 64, device="meta")) == 1
