"""Augmentation and CutMix against loops over images that share only the random numbers with them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data.augmentation import (
    Augmentation,
    Draws,
    apply_draws,
    augment,
    cutmix,
    draw,
    draw_boxes,
    normalise,
    paste,
)

FILL = (201, 102, 53)


def random_images(count: int, height: int, width: int, channels: int) -> Tensor:
    generator = torch.Generator().manual_seed(count + height)
    return torch.randint(
        1, 256, (count, height, width, channels), generator=generator, dtype=torch.uint8
    )  # none is black


def fill_of(images: Tensor) -> Tensor:
    return torch.tensor(FILL[: images.shape[-1]], dtype=torch.uint8)


def slow(image: NDArray[Any], how: Augmentation, drawn: tuple[int, ...], fill: NDArray[Any]) -> NDArray[Any]:
    """Pad, crop, mirror and cut out one image."""
    height, width, channels = image.shape
    top, left, mirrored, row, column = drawn
    padded = np.zeros((height + 2 * how.pad, width + 2 * how.pad, channels), dtype=np.uint8)
    padded[how.pad : how.pad + height, how.pad : how.pad + width] = image
    result = padded[top : top + height, left : left + width].copy()
    if mirrored:
        result = result[:, ::-1].copy()
    if how.cutout:
        above, before = row - how.cutout // 2, column - how.cutout // 2
        result[max(above, 0) : max(above + how.cutout, 0), max(before, 0) : max(before + how.cutout, 0)] = fill
    return result


def slow_of(images: Tensor, index: int, how: Augmentation, draws: Draws, place: int, fill: Tensor) -> NDArray[Any]:
    drawn = tuple(int(values[place]) for values in draws)
    return slow(images[index].numpy(), how, drawn, fill.numpy())


SHAPES = [(20, 32, 32, 3), (1, 8, 8, 3), (20, 5, 9, 3), (20, 9, 5, 1), (3, 1, 1, 1)]
AUGMENTATIONS = [
    Augmentation(),
    Augmentation(pad=0, flip=False),
    Augmentation(pad=0),
    Augmentation(pad=2, flip=False, cutout=3),
    Augmentation(cutout=4),
    Augmentation(pad=0, flip=False, cutout=1),
    Augmentation(pad=40, cutout=100),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("how", AUGMENTATIONS, ids=str)
def test_every_image_equals_the_slow_augmentation(shape: tuple[int, int, int, int], how: Augmentation) -> None:
    images = random_images(*shape)
    fill = fill_of(images)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    result = augment(images, order, how, torch.Generator().manual_seed(7), fill)
    draws = draw(len(order), shape[1], shape[2], how, torch.Generator().manual_seed(7))
    assert result.dtype == torch.uint8
    assert result.shape == images.shape
    assert result.is_contiguous()
    for place, index in enumerate(order.tolist()):
        assert np.array_equal(result[place].numpy(), slow_of(images, index, how, draws, place, fill))


def test_more_images_than_are_processed_together() -> None:
    images = random_images(9000, 32, 32, 3)  # 9,000 times 10 KB: beyond 64 MiB
    fill, how = fill_of(images), Augmentation(cutout=8)
    order = torch.randperm(9000)
    result = augment(images, order, how, torch.Generator().manual_seed(0), fill)
    draws = draw(9000, 32, 32, how, torch.Generator().manual_seed(0))
    for place in range(0, 9000, 7):
        assert np.array_equal(result[place].numpy(), slow_of(images, int(order[place]), how, draws, place, fill))


def test_order_may_repeat_and_omit_images() -> None:
    images = random_images(6, 4, 4, 3)
    order = torch.tensor([5, 2, 5])
    plain = Augmentation(pad=0, flip=False)
    result = augment(images, order, plain, torch.Generator(), fill_of(images))
    assert torch.equal(result, images[order])
    assert augment(images, order[:0], plain, torch.Generator(), fill_of(images)).shape == (0, 4, 4, 3)


def test_input_is_not_modified() -> None:
    images = random_images(6, 4, 4, 3)
    before = images.clone()
    augment(images, torch.arange(6), Augmentation(cutout=2), torch.Generator(), fill_of(images))
    assert torch.equal(images, before)


def test_images_need_not_be_contiguous() -> None:
    images = random_images(8, 6, 5, 3).permute(0, 2, 1, 3)[::2]
    how, order = Augmentation(pad=1, cutout=2), torch.tensor([3, 0, 2, 1])
    draws = draw(4, 5, 6, how, torch.Generator().manual_seed(0))
    expected = apply_draws(images.contiguous(), order, how, draws, fill_of(images))
    assert torch.equal(apply_draws(images, order, how, draws, fill_of(images)), expected)


def test_augmentation_does_not_synchronise() -> None:
    """Tensors without values suffice."""
    how = Augmentation(cutout=3)
    images = random_images(5, 6, 8, 3).to("meta")
    draws = Draws(*(values.to("meta") for values in draw(5, 6, 8, how, torch.Generator())))
    result = apply_draws(images, torch.arange(5, device="meta"), how, draws, images.new_zeros(3))
    assert normalise(result, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)).shape == (5, 3, 6, 8)


def test_draws_follow_the_generator_and_one_setting_does_not_change_the_others() -> None:
    both = [draw(50, 8, 8, Augmentation(), torch.Generator().manual_seed(3)) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))
    generator = torch.Generator().manual_seed(3)
    first, second = (draw(50, 8, 8, Augmentation(), generator) for _ in range(2))
    assert not torch.equal(first.top, second.top)
    unflipped = draw(50, 8, 8, Augmentation(flip=False), torch.Generator().manual_seed(3))
    assert not unflipped.mirrored.any()
    for name in ("top", "left", "row", "column"):
        assert torch.equal(getattr(unflipped, name), getattr(first, name))


def _even(counts: Tensor, expected: float) -> bool:
    """Whether every count is within five standard deviations."""
    return bool(((counts - expected).abs() < 5 * math.sqrt(expected)).all())


def test_crops_flips_and_centres_are_uniform() -> None:
    n, how = 100_000, Augmentation(pad=4)
    draws = draw(n, 6, 10, how, torch.Generator().manual_seed(0))
    crops = torch.bincount(draws.top * 9 + draws.left)
    assert len(crops) == 81
    assert _even(crops, n / 81)
    assert _even(torch.bincount(draws.mirrored), n / 2)
    centres = torch.bincount(draws.row * 10 + draws.column)
    assert len(centres) == 60
    assert _even(centres, n / 60)
    together = torch.bincount((draws.top * 2 + draws.mirrored) * 6 + draws.row)  # independent draws
    assert len(together) == 9 * 2 * 6
    assert _even(together, n / 108)


def test_fill_is_unused_without_cutout() -> None:
    images = torch.zeros(50, 6, 6, 3, dtype=torch.uint8)
    assert not augment(images, torch.arange(50), Augmentation(), torch.Generator(), fill_of(images)).any()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pad": -1}, "pad=-1; it must be an integer number of pixels"),
        ({"pad": 4.0}, r"pad=4\.0"),
        ({"pad": True}, "pad=True"),
        ({"pad": 2**31}, "pad=2147483648; it must be an integer number of pixels, 0 or more and below"),
        ({"cutout": -2}, "cutout=-2"),
        ({"flip": 1}, "flip=1; it must be True or False"),
    ],
)
def test_invalid_settings_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Augmentation(**arguments)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": torch.zeros(4, 6, 6, 3)}, r"images are torch\.float32 \[4, 6, 6, 3\]"),
        ({"images": torch.zeros(4, 6, 6).byte()}, r"images are torch\.uint8 \[4, 6, 6\]"),
        ({"order": torch.arange(4).int()}, r"order is torch\.int32 \[4\]"),
        ({"order": torch.arange(4)[None]}, r"order is torch\.int64 \[1, 4\]"),
        ({"order": torch.arange(4, device="meta")}, "order is on meta, the images on cpu"),
        ({"fill": torch.zeros(1).byte()}, r"fill is torch\.uint8 \[1\]; it must be uint8 \[3\]"),
        ({"fill": torch.zeros(3)}, r"fill is torch\.float32 \[3\]"),
    ],
)
def test_invalid_tensors_are_refused(changes: dict[str, Tensor], words: str) -> None:
    arguments = {"images": torch.zeros(4, 6, 6, 3).byte(), "order": torch.arange(4), "fill": torch.zeros(3).byte()}
    arguments |= changes
    with pytest.raises(ValueError, match=words):
        augment(**arguments, augmentation=Augmentation(), generator=torch.Generator())


def test_generator_on_another_device_is_refused() -> None:
    images = torch.zeros(4, 6, 6, 3, dtype=torch.uint8, device="meta")
    order, fill = torch.arange(4, device="meta"), images.new_zeros(3)
    with pytest.raises(ValueError, match="the generator is on cpu, the images on meta"):
        augment(images, order, Augmentation(), torch.Generator(), fill)


@pytest.mark.parametrize("order", [[0, 4], [-1, 0]])
def test_index_out_of_range_is_refused(order: list[int]) -> None:
    images = random_images(4, 6, 6, 3)
    with pytest.raises(IndexError):
        augment(images, torch.tensor(order), Augmentation(), torch.Generator(), fill_of(images))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [1, 3])
def test_normalise_rounds_the_formula_once(dtype: torch.dtype, channels: int) -> None:
    images = random_images(5, 4, 7, channels)
    mean, std = (0.4914, 0.4822, 0.4465)[:channels], (0.2470, 0.2435, 0.2616)[:channels]
    result = normalise(images, mean, std, dtype)
    exact = ((images.numpy() / 255 - np.array(mean)) / np.array(std)).transpose(0, 3, 1, 2)
    assert result.dtype == dtype
    assert result.shape == (5, channels, 4, 7)
    assert result.is_contiguous(memory_format=torch.channels_last)
    # One rounding to dtype, and before it the roundings in float32, relative to the largest value 1 / std.
    wide = torch.promote_types(dtype, torch.float32)
    tolerance = 0.51 * torch.finfo(dtype).eps * np.abs(exact) + 8 * torch.finfo(wide).eps
    assert (np.abs(result.double().numpy() - exact) <= tolerance).all()
    tensors = [torch.tensor(values, dtype=wide) for values in (mean, std)]
    assert torch.equal(normalise(images, *tensors, dtype), result)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(count: int, height: int, width: int, channels: int = 1) -> torch.Tensor:
    """Image i has colour i, which shows the source of each pixel."""
    return torch.arange(count, dtype=torch.uint8)[:, None, None, None].repeat(1, height, width, channels)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.floats(0, 1), st.integers(0, 99))
def test_cutmix_weight_is_the_share_of_own_pixels(count, height, width, share, seed):
    images = numbered(count, height, width)
    mixed, kept = cutmix(images, share, seeded(seed))
    own = (mixed == images).float().mean((1, 2, 3))
    following = (mixed == images.roll(-1, 0)).float().mean((1, 2, 3))
    assert mixed.dtype == torch.uint8
    if count > 1:
        assert torch.allclose(kept, own, atol=1e-6)
        assert torch.allclose(1 - kept, following, atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 32, 32, 3), (3, 5, 9, 1), (1, 4, 4, 3)], ids=str)
def test_cutmix_pastes_the_rectangle_of_the_next_image(shape, monkeypatch):
    images = torch.randint(256, shape, generator=seeded(), dtype=torch.uint8)
    boxes = draw_boxes(*shape[:3], 1.0, seeded(1))
    expected = images.clone()
    for i, (top, bottom, left, right) in enumerate(zip(*(values.tolist() for values in boxes), strict=True)):
        assert 0 <= top <= bottom <= shape[1]
        assert 0 <= left <= right <= shape[2]
        expected[i, top:bottom, left:right] = images[(i + 1) % len(images), top:bottom, left:right]
    before = images.clone()
    assert torch.equal(paste(images, boxes), expected)
    assert torch.equal(images, before)
    monkeypatch.setattr("lresnet.data.augmentation._BUDGET", 1)  # one at a time
    assert torch.equal(paste(images, boxes), expected)


def test_cutmix_has_the_requested_share_and_the_expected_area():
    count, side = 20_000, 32
    _, kept = cutmix(numbered(200, side, side).repeat(count // 200, 1, 1, 1), 0.5, seeded())
    cut = kept[kept < 1]
    assert len(cut) / count == pytest.approx(0.5, abs=0.02)  # 5 deviations; rectangles below one pixel are empty
    # The side is the root of a uniform number, the centre is a pixel. The mean area sums over both.
    areas = torch.linspace(0, 1, 2001, dtype=torch.float64)[1:].sqrt()
    pixels = (areas * side).long()
    centres = torch.arange(side)[:, None]
    first = centres - pixels // 2
    span = (first + pixels).clamp(max=side) - first.clamp(min=0)
    mean = (span.double().mean(0) ** 2).mean() / side**2  # rows and columns have one side and independent centres
    assert 1 - kept.double().mean() == pytest.approx(0.5 * mean.item(), abs=0.01)


def test_cutmix_share_0_changes_nothing_and_draws_follow_the_seed():
    images = torch.randint(256, (9, 8, 8, 3), generator=seeded(), dtype=torch.uint8)
    same, kept = cutmix(images, 0.0, seeded())
    assert torch.equal(same, images)
    assert torch.equal(kept, torch.ones(9))
    first, second, other = (cutmix(images, 1.0, seeded(seed))[0] for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
