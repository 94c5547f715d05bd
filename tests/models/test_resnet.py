"""Tests of lorentz_resnet: its formula, shapes, options, errors, copies, and the Euclidean baseline."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lresnet.geometry import Lorentz
from lresnet.models import LorentzGCN, LorentzResNet, create_model, from_pretrained
from lresnet.models.resnet import ResidualBlock
from lresnet.nn import CentroidPool, LorentzMLR, PoincareMean, Prototypes, SpaceMean
from lresnet.residual import make_residual
from lresnet.testing import assert_compiles
from tests.models.common import RESIDUALS, parameters_of
from tests.models.resnets import every_residual, images, make, trained

# --- the formula ------------------------------------------------------------------------------------------------------


def written_out(model: LorentzResNet, x: Tensor, kappa: float | None) -> Tensor:
    """Return the features in plain functions; the residual is addition if kappa is None, else the paper's."""
    state = model.state_dict()

    def conv(x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        return conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def bn(x: Tensor, name: str) -> Tensor:
        mean, var, weight, bias = (state[f"{name}.{k}"] for k in ("running_mean", "running_var", "weight", "bias"))
        return batch_norm(x, mean, var, weight, bias)

    def add(x: Tensor, y: Tensor, block: str) -> Tensor:
        if kappa is None:
            return x + y
        w, gamma = state[f"{block}.residual.raw_weight"].abs(), state[f"{block}.residual.log_scale"].exp()
        time = [(t.square().sum(1, keepdim=True) + 1 / kappa).sqrt() for t in (x, y)]
        s, s_t = x + w * y, time[0] + w * time[1]
        return gamma * s / (kappa * (s_t.square() - s.square().sum(1, keepdim=True))).sqrt()

    x = bn(conv(x, "stem.0"), "stem.1").relu()
    for index in range(len(model.blocks)):
        block, stride = f"blocks.{index}", model.blocks[index].conv1.stride[0]
        branch = bn(conv(x, f"{block}.conv1", stride), f"{block}.bn1").relu()
        branch = bn(conv(branch, f"{block}.conv2"), f"{block}.bn2")
        if f"{block}.shortcut.0.weight" in state:
            x = bn(conv(x, f"{block}.shortcut.0", stride), f"{block}.shortcut.1")
        x = add(x, branch, block).relu()
    return x


@pytest.mark.parametrize("depth", [18, 20])
@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_features_equal_the_formula(residual, depth):
    widths = [4, 6, 8, 10][: 4 if depth == 18 else 3]
    model = trained(make(residual, depth, curvature=-0.3, widths=widths)).double()
    x = images(2, 24, 40).double()
    features = model.features(x)
    torch.testing.assert_close(features, written_out(model, x, 0.3 if residual == "lorentz" else None))
    assert features.shape == (2, widths[-1], 24 // 2 ** (len(widths) - 1), 40 // 2 ** (len(widths) - 1))
    assert torch.equal(model.embed(x), model.pool(features))
    assert torch.equal(model(x), model.head(model.embed(x)))


def test_features_with_space_addition_are_bit_identical_to_the_euclidean_baseline():
    baseline, space = trained(make("euclidean", 20)), make("space", 20)
    state = {k: v for k, v in baseline.state_dict().items() if not k.startswith("head.")}
    missing = space.load_state_dict(state, strict=False)
    assert missing.missing_keys == ["head.weight", "head.bias"]
    assert missing.unexpected_keys == []
    assert torch.equal(space.eval().features(images()), baseline.features(images()))
    assert not torch.equal(space.embed(images()), baseline.embed(images()))


@every_residual
def test_every_residual_gives_a_different_network(residual):
    found = make(residual)(images())
    for other in RESIDUALS:
        if other != residual:
            assert not torch.equal(found, make(other)(images())), other


@pytest.mark.parametrize("stride", [1, 2])
def test_skip_and_branch_are_aligned(stride):
    """An impulse at (2, 5) of the output arrives there on both paths, in an image that is not square."""
    manifold_owner = make()
    block = ResidualBlock(3, 3 * stride, stride, manifold_owner.blocks[0].residual).eval()
    for conv in (block.conv1, block.conv2, *(m for m in block.shortcut if isinstance(m, torch.nn.Conv2d))):
        torch.nn.init.ones_(conv.weight)
    x = torch.zeros(1, 3, 9 * stride, 14 * stride)
    x[:, :, 2 * stride, 5 * stride] = 1.0
    maps: list[Tensor] = []
    block.residual.register_forward_hook(lambda _, inputs, output: maps.extend([*inputs, output]))
    block(x)
    for response in maps:
        mass = response.detach()[0].abs().sum(0)
        assert mass.shape == (9, 14)
        rows, columns = (mass.sum(d) @ torch.arange(float(mass.shape[1 - d])) / mass.sum() for d in (1, 0))
        assert (float(rows), float(columns)) == pytest.approx((2.0, 5.0))
        assert mass[2, 5] == mass.max()
    assert (maps[0] != 0).sum() == maps[0].shape[1]  # the skip is non-zero in one pixel
    assert (maps[1] != 0).sum() > maps[1].shape[1]  # the branch is non-zero around it


# --- shapes, layouts, precision ---------------------------------------------------------------------------------------


@every_residual
def test_images_of_any_size_and_memory_format(residual):
    model = trained(make(residual))
    for height, width in ((24, 40), (7, 9), (1, 1), (8, 3)):
        x = images(2, height, width)
        logits = model(x)
        assert logits.shape == (2, 4)
        torch.testing.assert_close(model(x.contiguous(memory_format=torch.channels_last)), logits)
        torch.testing.assert_close(model(x[:1]), logits[:1], rtol=1e-4, atol=1e-5)  # a batch of one image
    assert model(images(0)).shape == (0, 4)
    assert make(residual).train()(images(1)).shape == (1, 4)


def is_channels_last(model: LorentzResNet) -> bool:
    kernels = [p for p in model.parameters() if p.dim() == 4]
    return bool(kernels) and all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)


@pytest.mark.parametrize("count", [{"num_classes": 0}, {"num_classes": -1}, {"in_channels": 0}])
def test_numbers_of_classes_and_channels_below_1_are_rejected(count):
    with pytest.raises(ValueError, match=r"(num_classes|in_channels) must be at least 1, got (0|-1)"):
        LorentzResNet(20, **count)


@pytest.mark.parametrize("size", [32, 64, 97])
def test_the_gradient_of_a_shortcut_of_few_channels_is_correct(size):
    """For a 1 x 1 convolution with a stride and fewer than 16 channels, oneDNN's is wrong or crashes."""
    convolution = ResidualBlock(8, 16, 2, make_residual("euclidean", Lorentz(-1.0), dim=1)).shortcut[0]
    images = torch.randn(4, 8, size, size).contiguous(memory_format=torch.channels_last)
    result = convolution(images)
    weight = convolution.weight.detach().double().requires_grad_()
    exact = conv2d(images.double(), weight, stride=2)
    torch.testing.assert_close(result, exact, check_dtype=False)
    gradient = torch.randn_like(result)
    result.backward(gradient)
    exact.backward(gradient.double())
    torch.testing.assert_close(convolution.weight.grad, weight.grad, check_dtype=False, rtol=1e-4, atol=1e-3)


def test_parameters_and_features_are_channels_last():
    model = make()
    assert is_channels_last(model)
    assert is_channels_last(copy.deepcopy(model))
    assert is_channels_last(model.double())
    for x in (images().double(), images().double().contiguous(memory_format=torch.channels_last)):
        assert model.features(x).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("head", ["mlr", "prototypes", "linear"])
@pytest.mark.parametrize("pooling", ["poincare", "centroid", "mean"])
def test_logits_are_float32_also_under_autocast(head, pooling):
    """The features are in half precision, as under autocast on a GPU."""
    model = make(head=head, pooling=pooling)
    half = 3 * torch.randn(2, 32, 2, 2).bfloat16()
    model.features = lambda _: half  # type: ignore[method-assign]
    expected = model.head(model.pool(half.float()))
    assert expected.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model(images(2)), expected)
        assert model.embed(images(2)).dtype == torch.float32
    assert model.bfloat16()(images(2)).dtype == torch.float32


@every_residual
def test_a_block_joins_features_in_half_precision(residual):
    block = trained(make(residual)).blocks[1]
    skip, branch = (torch.randn(2, 16, 4, 4, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    joined = block.join(skip.bfloat16(), branch.bfloat16())
    assert joined.dtype == torch.bfloat16
    torch.testing.assert_close(joined.float(), block.join(skip, branch), rtol=0.05, atol=0.05)


def test_poolings_and_heads_by_name():
    default, baseline = make(), make("euclidean")
    assert (type(default.pool), type(default.head)) == (PoincareMean, LorentzMLR)
    assert type(baseline.pool) is SpaceMean
    assert isinstance(baseline.head, torch.nn.Linear)
    other = make("euclidean", pooling="centroid", head="prototypes")
    assert (type(other.pool), type(other.head)) == (CentroidPool, Prototypes)
    assert isinstance(make("tangent").head, LorentzMLR)
    with pytest.raises(ValueError, match="pooling must be one of poincare, centroid, mean, got 'max'"):
        make(pooling="max")
    with pytest.raises(ValueError, match="head must be one of mlr, prototypes, linear, got 'cosine'"):
        make(head="cosine")


@pytest.mark.parametrize("head", ["linear", "prototypes", "mlr"])
@pytest.mark.parametrize("pooling", ["mean", "poincare", "centroid"])
@pytest.mark.parametrize("residual", ["euclidean", "space", "none", "lorentz"])
def test_a_model_is_euclidean_if_the_output_does_not_depend_on_the_curvature(residual, pooling, head):
    flat, curved = (make(residual, 8, pooling=pooling, head=head, curvature=K).eval() for K in (-0.1, -1.0))
    curved.load_state_dict(parameters_of(flat.state_dict()))
    assert flat.euclidean == torch.equal(flat(images()), curved(images()))
    assert flat.euclidean == curved.euclidean


# --- sizes and options ------------------------------------------------------------------------------------------------


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_numbers_of_parameters():
    assert count(create_model("lorentz_resnet18", "euclidean")) == 11_173_962
    assert count(create_model("lorentz_resnet18", head="linear")) == 11_173_970  # one weight per block
    assert count(create_model("lorentz_resnet18")) == 11_173_970
    assert count(create_model("lorentz_resnet20", "euclidean")) == 68_786
    assert count(create_model("lorentz_resnet20")) == 68_786 + 9
    assert count(create_model("lorentz_resnet20", residual_options={"scale": "learned"})) == 68_786 + 2 * 9
    assert count(create_model("lorentz_resnet32", "space", learn_curvature=True)) == 117_618 + 1
    assert len(create_model("lorentz_resnet", depth=110).blocks) == 54


@pytest.mark.parametrize(("options", "learned"), [(None, set()), ({"scale": "learned"}, {"log_scale"})])
def test_default_residual_has_a_learned_weight_and_the_scale_2(options, learned):
    for block in make(residual_options=options).blocks:
        assert block.residual.raw_weight.item() == 1.0
        assert block.residual.scale.item() == pytest.approx(2.0)
        assert {name for name, _ in block.residual.named_parameters()} == {"raw_weight"} | learned
    part = make(residual_options={"weight": 0.5} | (options or {}))
    assert {name for name, _ in part.blocks[0].residual.named_parameters()} == learned


def test_a_learned_scale_starts_at_2_or_at_initial_scale():
    own = make(residual_options={"scale": "learned", "initial_scale": 3.0}).blocks[0].residual
    assert own.scale.item() == pytest.approx(3.0)
    with pytest.raises(ValueError, match=r"initial_scale=1\.0 is for a learned scale, but the scale is 2\.0; add"):
        make(residual_options={"initial_scale": 1.0})
    with pytest.raises(ValueError, match=r"the scale is None; add scale='learned'"):
        make(residual_options={"scale": None, "initial_scale": 1.0})


def test_no_scale_and_options_of_other_residuals():
    plain = make(residual_options={"weight": 0.5, "scale": None})
    assert plain.blocks[0].residual.scale is None
    assert not list(plain.blocks[0].residual.parameters())
    assert make("tangent").blocks[0].residual.raw_weight.item() == 1.0
    with pytest.raises(TypeError, match="residual 'space' has no option 'weight'"):
        make("space", residual_options={"weight": 1.0})


def test_the_default_curvature_is_that_of_the_model():
    assert create_model("lorentz_resnet20").config["curvature"] == -0.02
    assert create_model("lorentz_resnet20", curvature=-0.5).config["curvature"] == -0.5
    assert create_model("lorentz_gcn", in_features=3).config["curvature"] == -1.0
    assert type(create_model("lorentz_gcn", in_features=3)) is LorentzGCN
    with pytest.raises(ValueError, match="curvature must be negative"):
        create_model("lorentz_resnet20", curvature=0.02)


def test_a_name_with_a_depth_sets_the_depth():
    assert create_model("lorentz_resnet18").config == LorentzResNet(18).config
    with pytest.raises(TypeError, match="model 'lorentz_resnet18' has no argument 'depth'; it takes num_classes"):
        create_model("lorentz_resnet18", depth=20)


@pytest.mark.parametrize("depth", [0, 2, 6, 10, 19, 52])
def test_wrong_depths_are_rejected(depth):
    with pytest.raises(ValueError, match=f"depth must be 18, 34, 50 or 6n \\+ 2 .*, got {depth}"):
        make(depth=depth)


@pytest.mark.parametrize("widths", [[8, 16], [8, 16, 32, 64], [8, 0, 8]])
def test_wrong_widths_are_rejected(widths):
    with pytest.raises(ValueError, match=r"depth 8 needs 3 positive widths, one per stage; got \["):
        make(widths=widths)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 1, 8, 8), (2, 3, 0, 8), (2, 3, 8, 0), (2, 8, 8, 3)])
def test_wrong_shapes_of_images_are_rejected(shape):
    with pytest.raises(ValueError, match=r"images must have shape \[B, 3, H, W\] with at least one pixel, got \("):
        make()(torch.zeros(shape))


def test_a_single_small_image_is_rejected_in_training():
    model = make().train()
    message = r"more than one pixel per channel, but images of shape \(1, 3, 4, 4\) are reduced to a single pixel; use"
    with pytest.raises(ValueError, match=message):
        model(images(1, 4, 4))
    assert model(images(1, 4, 5)).shape == model(images(2, 4, 4))[:1].shape == (1, 4)
    for module in model.modules():
        module.train(not isinstance(module, torch.nn.BatchNorm2d))  # frozen norms need no statistics
    assert model(images(1, 4, 4)).shape == (1, 4)


def test_images_that_are_not_floating_point_are_rejected():
    with pytest.raises(TypeError, match=r"floating point tensor, got torch.uint8; convert them, e\.g\. x\.float\(\)"):
        make()(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(TypeError, match="floating point tensor, got list"):
        make()([0.0])


# --- copies, folders, compilation -------------------------------------------------------------------------------------


def test_state_dict_keys():
    def bn(name: str) -> list[str]:
        return [f"{name}.{k}" for k in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]

    def block(i: int) -> list[str]:
        names = ["conv1.weight", *bn("bn1"), "conv2.weight", *bn("bn2"), "residual.raw_weight", "residual.log_scale"]
        names += ["shortcut.0.weight", *bn("shortcut.1")] if i else []
        return [f"blocks.{i}.{name}" for name in names]

    assert list(make(learn_curvature=True).state_dict()) == [
        "manifold.log_kappa",
        "stem.0.weight",
        *bn("stem.1"),
        *(name for i in range(3) for name in block(i)),
        "head.weight",
        "head.bias",
    ]


@pytest.mark.parametrize("residual", ["lorentz", "tangent", "euclidean"])
def test_the_saved_files_restore_the_model(residual, tmp_path):
    model = trained(make(residual, learn_curvature=True, widths=(4, 6, 8)))
    folder = model.save_pretrained(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert config == {**model.config, "widths": [4, 6, 8]}
    back = create_model(config.pop("model"), **config)
    back.load_state_dict(load_file(folder / "model.safetensors"))
    assert is_channels_last(back)
    assert torch.equal(back.eval()(images()), model(images()))


def test_from_pretrained_restores_the_model(tmp_path):
    model = trained(make(learn_curvature=True))
    back = from_pretrained(model.save_pretrained(tmp_path))
    assert is_channels_last(back)
    assert torch.equal(back.eval()(images()), model(images()))


@pytest.mark.parametrize("head", ["mlr", "prototypes", "linear"])
def test_a_deep_copy_gives_the_same_output(head):
    model = trained(make(learn_curvature=True, head=head))
    copied = copy.deepcopy(model)
    assert copied.config == model.config
    assert copied.blocks[0].residual.manifold is copied.manifold is not model.manifold
    assert torch.equal(copied(images()), model(images()))


# torch's tracer instantiates every autograd.Function and warns about it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")
@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_the_model_compiles_without_a_graph_break(residual):
    # Two blocks per stage: one changes the shape and one does not. A third would be traced like the second.
    assert_compiles(trained(make(residual, 14, learn_curvature=True)), images(2), tolerance=1e-4)


@pytest.mark.parametrize("name", ["stem", "blocks", "blocks.1", "blocks.1.conv1"])
def test_hooks_on_parts_and_containers_are_called(name):
    shapes = []
    network = LorentzResNet(8, 5)
    network.get_submodule(name).register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    network(torch.randn(2, 3, 8, 8))
    assert len(shapes) == 1


def test_a_shortcut_uses_the_bias_of_a_norm_fused_into_it():
    block = LorentzResNet(8, 5, residual="euclidean").eval().blocks[1]
    conv, norm = block.shortcut
    with torch.no_grad():
        norm.bias.fill_(5.0)
    x = torch.randn(2, 8, 6, 6)
    torch.testing.assert_close(fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)))
