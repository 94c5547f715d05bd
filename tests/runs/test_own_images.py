"""Settings for a user's own images."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lresnet.data import ImageSet
from lresnet.runs import run_config
from lresnet.runs.own_images import MirrorTest, common_size, image_settings, mirror_test, suit_to_images
from tests.coloured import CLASSES, coloured_set


def stripes(count: int, *, both: bool) -> ImageSet:
    """Return noisy images of two classes: rising and falling diagonals, or stripes and a disc (``both``)."""
    draw = np.random.default_rng(0)
    y, x = np.mgrid[:16, :16]
    labels = np.arange(count) % 2
    shapes = (np.sin(0.8 * y), 3 - np.hypot(x - 7.5, y - 7.5)) if both else (np.sin(x + y), np.sin(x - y))
    images = [128 + 60 * np.sign(shapes[label]) + draw.normal(0, 30, (16, 16)) for label in labels]
    pixels = np.stack(images).clip(0, 255).astype(np.uint8)[..., None]
    return ImageSet(torch.from_numpy(pixels), torch.from_numpy(labels))


def test_images_are_mirrored_only_if_their_mirror_images_look_alike() -> None:
    same, other = mirror_test(stripes(300, both=True)), mirror_test(stripes(300, both=False))
    assert same.flip
    assert not other.flip
    assert other.original > 0.9 > 0.2 > other.mirrored
    assert other.reason == (
        f"--no-flip: nearest neighbours have the same class for {other.original:.0%} of the images as they are and for "
        f"{other.mirrored:.0%} mirrored"
    )


@pytest.mark.parametrize(
    ("test", "flip"),
    [
        (MirrorTest(1000, 0.3, 0.29, 60, 50, 0.1), True),
        (MirrorTest(1000, 0.3, 0.2, 150, 50, 0.1), False),
        (MirrorTest(100, 0.9, 0.9, 0, 0, 0.1), False),  # too few to judge
        (MirrorTest(1000, 0.11, 0.11, 50, 50, 0.1), False),  # neighbours tell nothing
    ],
)
def test_images_are_not_mirrored_without_evidence(test: MirrorTest, flip: bool) -> None:
    assert test.flip == flip


def test_settings_follow_the_number_and_the_size_of_the_images() -> None:
    names = ("batch_size", "epochs", "pad", "lr")
    found = {
        n: tuple(image_settings(n, side)[name] for name in names) for n, side in ((20, 8), (1440, 32), (50000, 64))
    }
    assert found == {20: (16, 200, 1, 0.035), 1440: (32, 32, 4, 0.05), 50000: (512, 30, 8, 0.2)}
    assert image_settings(1440, 32)["model"] == "lorentz_resnet20"
    assert image_settings(50000, 32, gpu=True)["model"] == "lorentz_resnet18"
    assert image_settings(1440, 32, epochs=10)["warmup"] == 0.5


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ({(16, 16): 9}, None),
        ({(40, 24): 9}, None),
        ({(640, 480): 9}, 64),
        ({(40, 30): 2, (30, 50): 3, (20, 90): 1}, 30),
        ({}, None),
    ],
)
def test_the_size_is_that_of_the_images_unless_they_differ_or_are_large(
    sizes: dict[tuple[int, int], int], side: int | None
) -> None:
    assert common_size(Counter(sizes), 64) == side


def write(folder: Path, count: int, side: int = 8) -> Path:
    part = coloured_set(count, seed=count, height=side, width=side)
    for number, (image, label) in enumerate(zip(part.images, part.labels.tolist(), strict=True)):
        file = folder / CLASSES[label] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.numpy()).save(file)
    return folder


def test_what_is_given_stays_and_the_rest_follows_the_images(tmp_path: Path) -> None:
    folder = write(tmp_path / "photos", 60)
    Image.new("RGB", (70, 90)).save(folder / "red" / "large.png")
    given = {"lr": 0.02, "epochs": 7, "flip": True}
    config, mirror = suit_to_images(run_config(str(folder), "tangent", seed=3, settings=given), given)
    assert mirror is None
    assert (config.model.residual, config.model.name, config.train.seed) == ("tangent", "lorentz_resnet20", 3)
    assert (config.train.lr, config.train.epochs, config.train.warmup, config.train.batch_size) == (0.02, 7, 0.35, 16)
    assert config.task == dataclasses.replace(config.task, size=8, holdout=0.1, stratified=True)
    assert config.train.augment.flip
    assert not suit_to_images(run_config(str(folder)), {}).config.train.augment.flip  # 60 images are too few to tell


def test_nothing_is_held_out_beside_a_folder_of_validation_images(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("val", 6), ("test", 3)):
        write(tmp_path / "photos" / part, count)
    config = run_config(str(tmp_path / "photos"))
    assert suit_to_images(config, {}).config.task.holdout == 0
    with pytest.raises(ValueError, match=r"photos has validation images of its own, .*; leave holdout 0.1 out"):
        suit_to_images(config, {"holdout": 0.1})
