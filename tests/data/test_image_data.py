"""Images in memory: their form, their statistics, and the held-out part."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet.data import ImageData, ImageSet, hold_out, load_images, mean_colour
from lresnet.data.image_data import channel_statistics


def image_set(count: int, height: int = 4, width: int = 6, channels: int = 3, classes: int = 2) -> ImageSet:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, height, width, channels), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.arange(count) % classes)


def test_set_has_a_length_and_moves_to_a_device() -> None:
    part = image_set(5)
    moved = part.to("meta")
    assert len(part) == len(moved) == 5
    assert moved.images.device.type == moved.labels.device.type == "meta"
    assert part.images.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (torch.zeros(2, 4, 4, 3), torch.zeros(2).long(), r"uint8 \[N, H, W, C\], got float32 \[2, 4, 4, 3\]"),
        (torch.zeros(2, 4, 4).byte(), torch.zeros(2).long(), r"got uint8 \[2, 4, 4\]"),
        (torch.zeros(2, 4, 4, 3).byte(), torch.zeros(2), r"int64 \[N\], got float32 \[2\]"),
        (torch.zeros(2, 4, 4, 3).byte(), torch.zeros(2, 1).long(), r"got int64 \[2, 1\]"),
        (torch.zeros(2, 4, 4, 3).byte(), torch.zeros(3).long(), "2 images and 3 labels"),
        (torch.zeros(2, 4, 4, 3).byte(), torch.zeros(2).long().to("meta"), "images are on cpu, labels on meta"),
    ],
)
def test_tensors_of_another_form_are_refused(images: torch.Tensor, labels: torch.Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ImageSet(images, labels)


@pytest.mark.parametrize(
    ("train", "test", "classes", "channels", "words"),
    [
        (
            image_set(4),
            image_set(4, height=5),
            ("a", "b"),
            3,
            r"training images are \[4, 6, 3\], test images \[5, 6, 3\]",
        ),
        (image_set(4), image_set(4), ("a", "b"), 1, "1 means and 1 stds for 3 channels"),
        (image_set(4, classes=1), image_set(4, classes=1), ("a",), 3, "1 class; .* two or more"),
        (image_set(4), image_set(4), ("a", "b", "a"), 3, "two classes have the name 'a'; give each class its own name"),
        (image_set(0), image_set(4), ("a", "b"), 3, "no training images"),
        (image_set(4), image_set(0), ("a", "b"), 3, "no test images"),
        (image_set(4), image_set(4, classes=3), ("a", "b"), 3, "a test label is 2, but the classes are 0 to 1"),
        (ImageSet(image_set(1).images, torch.tensor([-1])), image_set(4), ("a", "b"), 3, "a training label is -1"),
    ],
)
def test_inconsistent_parts_are_refused(
    train: ImageSet, test: ImageSet, classes: tuple[str, ...], channels: int, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        ImageData("toy", train, test, classes, (0.5,) * channels, (0.5,) * channels)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 2, 1), (7, 9, 4, 3), (30, 150, 150, 2)])
def test_channel_statistics_equal_float64(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    images[0, 0, 0] = 255
    mean, std = channel_statistics(torch.from_numpy(images))
    pixels = images.astype(np.float64) / 255
    assert mean == pytest.approx(pixels.mean((0, 1, 2)), rel=1e-13)
    spread = pixels.std((0, 1, 2))
    assert std == pytest.approx(np.where(spread > 0, spread, 1.0), rel=1e-12)


def test_statistics_of_a_nearly_constant_channel_are_exact() -> None:
    images = torch.full((1000, 40, 40, 1), 255, dtype=torch.uint8)
    images[0, 0, 0, 0] = 254
    n = images.numel()
    ((mean,), (std,)) = channel_statistics(images)
    assert mean == pytest.approx((255 * n - 1) / (255 * n), rel=1e-15)
    assert std == pytest.approx(math.sqrt(n - 1) / n / 255, rel=1e-14)


def test_constant_channel_has_std_1() -> None:
    images = torch.zeros(4, 2, 2, 2, dtype=torch.uint8)
    images[:2, ..., 1] = 255
    assert channel_statistics(images) == ((0.0, 0.5), (1.0, 0.5))


def test_mean_colour_is_the_nearest_pixel() -> None:
    assert mean_colour((0.0, 0.4914, 1.0)).tolist() == [0, 125, 255]
    assert mean_colour((0.5071,)).dtype == torch.uint8


def test_hold_out_partitions_images_with_their_labels() -> None:
    part = ImageSet(torch.arange(200, dtype=torch.uint8).reshape(-1, 1, 1, 1), torch.arange(200))
    others, taken = hold_out(part, 20, seed=3)
    assert (len(others), len(taken)) == (180, 20)
    assert torch.cat([others.labels, taken.labels]).sort().values.tolist() == list(range(200))
    for piece in (others, taken):
        assert piece.images.flatten().tolist() == piece.labels.tolist()
        assert piece.labels.tolist() == sorted(piece.labels.tolist())


def test_hold_out_follows_the_seed_and_is_the_same_on_every_machine() -> None:
    part = ImageSet(torch.zeros(50000, 1, 1, 1, dtype=torch.uint8), torch.arange(50000))
    first = hold_out(part, 5000, seed=0)[1].labels
    assert torch.equal(first, hold_out(part, 5000, seed=0)[1].labels)
    assert not torch.equal(first, hold_out(part, 5000, seed=1)[1].labels)
    assert first[:6].tolist() == [14, 22, 24, 28, 64, 76]
    assert int(first.sum()) == 126459119


@pytest.mark.parametrize("count", [0, -1, 4, 5])
def test_hold_out_refuses_empty_parts(count: int) -> None:
    with pytest.raises(ValueError, match=f"cannot hold out {count} of 4 images; choose 1 to 3"):
        hold_out(image_set(4), count, seed=0)


def test_load_images_reports_what_it_accepts(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no images")
    for name, words in (
        (tmp_path / "nothing", "does not exist"),
        (tmp_path / "notes.txt", "neither a folder nor a .npz file"),
    ):
        with pytest.raises(FileNotFoundError, match=words) as caught:
            load_images(name)
        assert "cifar10 or cifar100, a folder with a folder for each class, or a .npz file" in str(caught.value)


def test_size_is_for_folders_only(tmp_path: Path) -> None:
    (tmp_path / "images.npz").touch()
    for name in ("cifar10", tmp_path / "images.npz"):
        with pytest.raises(
            ValueError, match=r"size=16 is for folders of image files; the images of .* have a fixed size"
        ):
            load_images(name, size=16)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_images(tmp_path / "nothing", size=16)
