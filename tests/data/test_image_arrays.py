"""Users' labelled images in one ``.npz`` file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lresnet.data import load_images
from lresnet.data.image_data import channel_statistics

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 5, 7), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 5, 7, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def save(folder: Path, **changes: Any) -> Path:
    """Save grey images with labels; None omits an array."""
    arrays = {"train_images": GREY, "train_labels": LABELS, "test_images": GREY[:2], "test_labels": LABELS[:2]}
    arrays = {name: array for name, array in (arrays | changes).items() if array is not None}
    np.savez(folder / "mine.npz", **arrays)
    return folder / "mine.npz"


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        (GREY, GREY[..., None]),
        (GREY[..., None], GREY[..., None]),
        (GREY[:, None], GREY[..., None]),
        (COLOUR, COLOUR),
        (COLOUR.transpose(0, 3, 1, 2), COLOUR),
    ],
    ids=["N H W", "N H W 1", "N 1 H W", "N H W 3", "N 3 H W"],
)
def test_every_form_of_images_is_read(
    tmp_path: Path, saved: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]
) -> None:
    data = load_images(save(tmp_path, train_images=saved, test_images=saved[:2]))
    assert np.array_equal(data.train.images.numpy(), expected)
    assert np.array_equal(data.test.images.numpy(), expected[:2])
    assert data.train.images.is_contiguous()
    assert data.train.labels.tolist() == LABELS.tolist()
    assert (data.mean, data.std) == channel_statistics(data.train.images)
    assert (data.name, data.classes, data.skipped) == ("mine", ("0", "1", "2"), ())


def test_link_to_a_file_may_have_any_name(tmp_path: Path) -> None:
    file = save(tmp_path)
    (tmp_path / "link").symlink_to(file)
    assert len(load_images(tmp_path / "link").train) == 6
    (tmp_path / "link.npz").symlink_to(file.rename(tmp_path / "moved"))
    assert len(load_images(tmp_path / "link.npz").train) == 6


def test_column_of_labels_and_class_names_are_read(tmp_path: Path) -> None:
    column = LABELS[:, None].astype(np.uint8)
    data = load_images(str(save(tmp_path, train_labels=column, classes=np.array(["cat", "dog", "owl", "yak"]))))
    assert data.train.labels.tolist() == LABELS.tolist()
    assert data.classes == ("cat", "dog", "owl", "yak")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"test_labels": None, "test_images": None}, "it has no array test_images, test_labels"),
        ({"train_images": GREY / 255}, "train_images is float64; save pixels 0 to 255 as uint8"),
        ({"train_images": COLOUR[..., :2]}, r"train_images has shape \[6, 5, 7, 2\]"),
        ({"train_images": COLOUR[:, :3]}, r"shape \[6, 3, 7, 3\], which does not show where its 1 or 3 channels are"),
        ({"test_images": GREY[0]}, r"test_images has shape \[5, 7\]"),
        ({"test_labels": np.array([0.0, 1.0])}, r"test_labels is float64 \[2\]; labels must be integers"),
        ({"test_labels": np.eye(2, dtype=int)}, r"test_labels is int64 \[2, 2\]"),
        ({"train_labels": LABELS[:3]}, "6 images and 3 labels"),
        ({"test_labels": np.array([0, 7])}, "a test label is 7, but the classes are 0 to 2"),
        ({"train_labels": np.zeros(6, dtype=int)}, "1 class"),
        ({"train_labels": np.array([0, 2, 2, 0, 3, 3])}, "go up to 3, but no image has label 1; number the classes"),
        ({"train_labels": np.array([0, 1, 10**12, 0, 1, 2])}, "go up to 1000000000000, but no image has label 3"),
        ({"train_labels": np.array([0, 1, -1, 0, 1, -1])}, "train_labels holds the label -1; number the classes 0, 1"),
        ({"test_labels": np.array([-128, 1], np.int8)}, "test_labels holds the label -128; number the classes 0, 1"),
        ({"train_labels": np.full(6, 2**64 - 1, np.uint64)}, "train_labels holds the label 18446744073709551615;"),
        ({"train_labels": np.full(6, 2**63, np.uint64)}, "train_labels holds the label 9223372036854775808;"),
        ({"train_labels": np.full(6, 2**63 - 1, np.uint64)}, "up to 9223372036854775807, but no image has label 0;"),
        ({"classes": np.array(["cat", "dog", "cat"])}, "two classes have the name 'cat'; give each class its own name"),
        ({"train_images": GREY[:, :0], "test_images": GREY[:2, :0]}, r"train_images is empty \(shape \[6, 0, 7, 1\]\)"),
        ({"classes": np.array("cat")}, r"classes is <U3 \[\]; save the names as text"),
        ({"classes": np.array([b"cat", b"dog", b"owl"])}, "classes is |S3"),
        ({"train_images": GREY[:0], "train_labels": LABELS[:0]}, "train_images is empty"),
        ({"classes": np.array(["cat", None])}, "cannot be read"),
    ],
)
def test_errors_are_reported_in_one_line(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = save(tmp_path, **changes)
    with pytest.raises(ValueError, match=words) as caught:
        load_images(path)
    assert "mine" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: b"text", lambda content: content[:-40]])
def test_damaged_file_is_reported(tmp_path: Path, damage: Any) -> None:
    path = save(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"mine\.npz cannot be read: it is not a \.npz archive"):
        load_images(path)


def test_damaged_array_is_reported(tmp_path: Path) -> None:
    path = save(tmp_path)
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.npz cannot be read: .*CRC"):
        load_images(path)
