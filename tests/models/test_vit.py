"""Tests of lorentz_vit: sizes, points, limits, extremes, compilation, saving, training."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import lresnet
from lresnet.models import LorentzViT, create_model, from_pretrained
from lresnet.nn import LorentzPatchEmbedding, RotaryPositions
from lresnet.testing import assert_compiles
from tests.models.common import RESIDUALS

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer


def make(**options) -> LorentzViT:
    torch.manual_seed(0)
    return LorentzViT(**({"layers": 2, "width": 32, "heads": 2} | options)).eval()


def images(*shape: int) -> Tensor:
    return torch.randn(*(shape or (2, 3, 16, 16)), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("size", [(32, 32), (4, 4), (30, 45), (1, 9)])
@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_images_of_any_size(size, residual):
    model = make(residual=residual)
    rows, columns = (-(-side // 4) for side in size)
    assert model(images(2, 3, *size)).shape == (2, 10)
    assert model.features(images(2, 3, *size)).shape == (2, 32, rows, columns)
    assert model.embed(images(2, 3, *size)).shape == (2, 32)


def test_registered_sizes():
    with torch.device("meta"):
        tiny, small = (create_model(name) for name in ("lorentz_vit_tiny", "lorentz_vit_small"))
        baseline = create_model("lorentz_vit_small", residual="euclidean")
    assert [sum(p.numel() for p in model.parameters()) for model in (tiny, small, baseline)] == [
        5_276_230,
        21_072_490,
        21_265_930,
    ]
    assert (tiny.config["width"], small.config["width"]) == (192, 384)
    assert not tiny.euclidean
    assert baseline.euclidean


def test_patches_are_the_convolution_of_a_vision_transformer():
    layer, x = LorentzPatchEmbedding(3, 8, 4, manifold=lresnet.Lorentz()), images(2, 3, 10, 12)
    padded = torch.nn.functional.pad(x, (0, 0, 0, 2))
    expected = torch.nn.functional.conv2d(padded, layer.proj.weight.view(8, 3, 4, 4), layer.proj.bias, stride=4)
    torch.testing.assert_close(layer(x), expected.movedim(1, -1), rtol=1e-5, atol=1e-6)


def test_positions_of_rows_and_columns_turn_different_coordinates():
    cos, sin = RotaryPositions(9, base=100.0, axes=2)(torch.tensor([[0, 0], [3, 0], [0, 3]]))
    assert cos.shape == (3, 4)
    turned = sin.abs() > 0
    assert turned.tolist() == [[False] * 4, [True, True, False, False], [False, False, True, True]]
    torch.testing.assert_close(sin[1, :2], torch.tensor([3.0, 0.3]).sin())


def test_images_of_a_batch_do_not_depend_on_each_other():
    model, x = make(), images(3, 3, 16, 16)
    torch.testing.assert_close(model(x)[:2], model(x[:2]), rtol=1e-5, atol=1e-6)


def test_the_place_of_a_patch_matters():
    model, x = make(), images()
    moved = x.roll(8, -1)
    assert (model(x) - model(moved)).abs().max() > 1e-5


@pytest.mark.parametrize("curvature", [-1e-4, -1.0, -10.0])
def test_finite_for_every_curvature_and_size_of_pixels(curvature):
    for scale in (0.0, 1.0, 1e5):
        model = make(curvature=curvature, learn_curvature=True).train()
        value = torch.nn.functional.cross_entropy(model(scale * images()), torch.tensor([1, 2]))
        value.backward()
        assert value.isfinite()
        assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("residual", RESIDUALS)
def test_every_residual_trains(residual):
    model, x, y = make(residual=residual).train(), images(8, 3, 16, 16), torch.arange(8)
    optimizer = lresnet.optim.make_adam(model, lr=3e-3, weight_decay=0.05)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(model(x), y)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("options", [{"head": "prototypes"}, {"pooling": "poincare"}, {"head": "linear"}])
def test_heads_poolings_and_saved_models(options, tmp_path):
    model = make(**options)
    loaded = from_pretrained(model.save_pretrained(tmp_path))
    assert torch.equal(loaded(images()), model(images()))
    other = from_pretrained(tmp_path, num_classes=4)
    assert other(images()).shape == (2, 4)
    assert torch.equal(other.embed(images()), model.embed(images()))


@pytest.mark.slow
def test_compiles_into_one_graph():
    assert_compiles(make(layers=1, curvature=-0.1), images(2, 3, 8, 8), tolerance=1e-4)


def test_a_step_reads_no_value():
    with FakeTensorMode():
        model = LorentzViT(1, 32, 2)
        torch.nn.functional.cross_entropy(model(torch.randn(2, 3, 8, 8)), torch.zeros(2, dtype=torch.int64)).backward()


def test_autocast_keeps_the_stream_in_float32():
    model = make()
    with torch.autocast("cpu", torch.bfloat16):
        half = model(images())
        assert model.features(images()).dtype == torch.float32
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, model(images()), rtol=0.05, atol=0.05)
    copied = copy.deepcopy(model).bfloat16()
    assert copied(images().bfloat16()).isfinite().all()


def test_mistakes_are_reported():
    with pytest.raises(ValueError, match=r"images must have shape \[B, 3, H, W\]"):
        make()(images(2, 4, 8, 8))
    with pytest.raises(ValueError, match="head must be one of mlr, prototypes, linear, got 'cosine'"):
        make(head="cosine")
    with pytest.raises(ValueError, match="patch must be at least 1, got 0"):
        make(patch=0)
