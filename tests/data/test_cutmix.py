"""CutMix against a loop over images, and what it says of labels against the pixels themselves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lresnet.data import cutmix as module
from lresnet.data.cutmix import cutmix, draw_boxes, paste


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(count: int, height: int, width: int, channels: int = 1) -> torch.Tensor:
    """Image i is of colour i: one sees of each pixel where it comes from."""
    return torch.arange(count, dtype=torch.uint8)[:, None, None, None].repeat(1, height, width, channels)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.floats(0, 1), st.integers(0, 99))
def test_a_label_is_worth_the_pixels_that_are_left(count, height, width, share, seed):
    images = numbered(count, height, width)
    mixed, kept = cutmix(images, share, generator(seed))
    own = (mixed == images).float().mean((1, 2, 3))
    following = (mixed == images.roll(-1, 0)).float().mean((1, 2, 3))
    assert mixed.dtype == torch.uint8
    if count > 1:
        assert torch.allclose(kept, own, atol=1e-6)
        assert torch.allclose(1 - kept, following, atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 32, 32, 3), (3, 5, 9, 1), (1, 4, 4, 3)], ids=str)
def test_the_rectangle_of_the_next_image_is_pasted(shape, monkeypatch):
    images = torch.randint(256, shape, generator=generator(), dtype=torch.uint8)
    boxes = draw_boxes(*shape[:3], 1.0, generator(1))
    expected = images.clone()
    for i, (top, bottom, left, right) in enumerate(zip(*(values.tolist() for values in boxes), strict=True)):
        assert 0 <= top <= bottom <= shape[1]
        assert 0 <= left <= right <= shape[2]
        expected[i, top:bottom, left:right] = images[(i + 1) % len(images), top:bottom, left:right]
    before = images.clone()
    assert torch.equal(paste(images, boxes), expected)
    assert torch.equal(images, before)
    monkeypatch.setattr(module, "_BUDGET", 1)  # one at a time
    assert torch.equal(paste(images, boxes), expected)


def test_as_many_are_cut_as_asked_and_as_much_as_sides_and_centres_say():
    count, side = 20_000, 32
    _, kept = cutmix(numbered(200, side, side).repeat(count // 200, 1, 1, 1), 0.5, generator())
    cut = kept[kept < 1]
    assert len(cut) / count == pytest.approx(0.5, abs=0.02)  # 5 deviations; a rectangle below one pixel is none
    # The side is the root of a uniform number, the centre a pixel: the mean area by sums over both.
    areas = torch.linspace(0, 1, 2001, dtype=torch.float64)[1:].sqrt()
    pixels = (areas * side).long()
    centres = torch.arange(side)[:, None]
    first = centres - pixels // 2
    span = (first + pixels).clamp(max=side) - first.clamp(min=0)
    mean = (span.double().mean(0) ** 2).mean() / side**2  # rows and columns are drawn apart, with one side
    assert 1 - kept.double().mean() == pytest.approx(0.5 * mean.item(), abs=0.01)


def test_none_is_cut_of_share_0_and_the_same_for_the_same_seed():
    images = torch.randint(256, (9, 8, 8, 3), generator=generator(), dtype=torch.uint8)
    same, kept = cutmix(images, 0.0, generator())
    assert torch.equal(same, images)
    assert torch.equal(kept, torch.ones(9))
    first, second, other = (cutmix(images, 1.0, generator(seed))[0] for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
