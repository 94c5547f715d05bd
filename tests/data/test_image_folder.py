"""Users' labelled images in folders."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from lresnet.data import ImageTask, image_files, load_images
from lresnet.data.formats.image_folder import fill_frame, open_image
from lresnet.data.image_data import channel_statistics
from lresnet.runs.data_facts import image_facts


def pixels(seed: int, width: int = 6, height: int = 4) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def put(path: Path, seed: int = 0, width: int = 6, height: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(seed, width, height)).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Training images of three cats and two dogs, and one test image of a dog."""
    root = tmp_path / "pets"
    for number, name in enumerate(("cat/b.png", "cat/a.bmp", "cat/c.PNG", "dog/1.png", "dog/2.tif")):
        put(root / "train" / name, number)
    put(root / "test" / "dog" / "x.png", 9)
    return root


def test_images_are_sorted_by_class_and_file_name(folder: Path) -> None:
    data = load_images(folder)
    assert (data.name, data.classes, data.skipped) == ("pets", ("cat", "dog"), ())
    assert np.array_equal(data.train.images.numpy(), np.stack([pixels(seed) for seed in (1, 0, 2, 3, 4)]))
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert np.array_equal(data.test.images.numpy(), pixels(9)[None])
    assert data.test.labels.tolist() == [1]
    assert (data.mean, data.std) == channel_statistics(data.train.images)


def test_one_image_per_class_is_enough(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "train/b/1.png", "test/a/1.png"):
        put(tmp_path / name, width=1, height=1)
    data = load_images(tmp_path)
    assert (len(data.train), len(data.test)) == (2, 1)
    assert data.train.images.shape == (2, 1, 1, 3)


def test_other_files_are_ignored(folder: Path) -> None:
    (folder / "train" / "cat" / "notes.txt").write_text("no image")
    put(folder / "train" / "cat" / ".hidden.png")
    put(folder / "train" / ".cache" / "x.png")
    (folder / "train" / "stray.png").write_bytes(b"")
    (folder / "train" / "cat" / "folder.png").mkdir()
    (folder / "train" / "cat" / "link.png").symlink_to(folder / "test")
    data = load_images(folder)
    assert (len(data.train), data.classes, data.skipped) == (5, ("cat", "dog"), ())


def test_other_modes_are_converted_to_rgb(tmp_path: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    images = {
        "grey.png": Image.fromarray(grey),
        "alpha.png": Image.fromarray(np.dstack([pixels(1), grey])),
        "palette.png": Image.fromarray(grey).convert("P"),
        "black_and_white.png": Image.fromarray(grey > 100),
    }
    images["palette.png"].info["transparency"] = bytes(range(256))
    for name, image in images.items():
        (tmp_path / "train" / name).mkdir(parents=True)
        image.save(tmp_path / "train" / name / name)
    put(tmp_path / "test" / "grey.png" / "x.png")
    data = load_images(tmp_path)
    read = dict(zip(data.classes, data.train.images.numpy(), strict=True))
    assert data.skipped == ()
    assert np.array_equal(read["grey.png"], np.dstack([grey] * 3))
    assert np.array_equal(read["alpha.png"], pixels(1))
    assert np.array_equal(read["palette.png"], np.dstack([grey] * 3))
    assert np.array_equal(read["black_and_white.png"], np.dstack([np.where(grey > 100, 255, 0)] * 3))


def test_photographs_are_turned_upright(folder: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated to its left side
    lying = np.ascontiguousarray(np.rot90(pixels(7)))
    Image.fromarray(lying).save(folder / "train" / "cat" / "z.png", exif=exif)
    data = load_images(folder)
    assert np.array_equal(data.train.images[3].numpy(), pixels(7))


def test_unreadable_images_are_left_out_and_listed(folder: Path) -> None:
    cats = folder / "train" / "cat"
    whole = put(cats / "d.png", width=60, height=40).read_bytes()
    (cats / "d.png").write_bytes(whole[: len(whole) // 2])
    (cats / "e.jpg").write_bytes(b"this is no photograph")
    (cats / "f.png").write_bytes(b"")
    Image.fromarray(np.full((4, 6), 40000, dtype=np.uint16)).save(cats / "g.png")
    (cats / "h.png").symlink_to(cats / "nowhere.png")
    data = load_images(folder)
    assert [path.name for path, _ in data.skipped] == ["d.png", "e.jpg", "f.png", "g.png", "h.png"]
    reasons = ("truncated", "cannot identify", "cannot identify", "more than 8 bits per channel", "No such file")
    assert all(words in why for words, (_, why) in zip(reasons, data.skipped, strict=True))
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert np.array_equal(data.train.images[2].numpy(), pixels(2))


def test_two_sizes_are_reported_unless_a_size_is_given(folder: Path) -> None:
    put(folder / "train" / "dog" / "3.png", width=8, height=4)
    with pytest.raises(ValueError, match=r"3\.png has 8 x 4 pixels and .*a\.bmp has 6 x 4; give a size"):
        load_images(folder)
    data = load_images(folder, size=3)
    assert data.train.images.shape == (6, 3, 3, 3)
    assert data.test.images.shape == (1, 3, 3, 3)


def test_test_images_of_another_size_are_refused(folder: Path) -> None:
    put(folder / "test" / "dog" / "x.png", width=8, height=8)
    with pytest.raises(ValueError, match=r"training images are \[4, 6, 3\], test images \[8, 8, 3\]"):
        load_images(folder)


@pytest.mark.parametrize(("width", "height"), [(8, 8), (12, 8), (8, 12), (13, 8), (8, 29)])
def test_fill_frame_crops_the_centre_without_resizing(width: int, height: int) -> None:
    image = pixels(0, width, height)
    top, left = (height - 8) // 2, (width - 8) // 2
    assert np.array_equal(np.asarray(fill_frame(Image.fromarray(image), 8, 8)), image[top : top + 8, left : left + 8])


@pytest.mark.parametrize(("width", "height"), [(3, 2), (2, 7), (1, 1), (500, 1)])
def test_fill_frame_enlarges_small_images(width: int, height: int) -> None:
    one_colour = Image.new("RGB", (width, height), (10, 20, 30))
    assert np.array_equal(np.asarray(fill_frame(one_colour, 16, 16)), np.full((16, 16, 3), (10, 20, 30)))


@pytest.mark.parametrize(("width", "height"), [(64, 64), (100, 64), (64, 201)])
def test_fill_frame_keeps_centre_and_scale(width: int, height: int) -> None:
    """The colour of a pixel encodes its position."""
    down, right = np.mgrid[:height, :width]
    image = np.dstack([right * 255 // width, down * 255 // height, np.zeros_like(right)]).astype(np.uint8)
    small = np.asarray(fill_frame(Image.fromarray(image), 16, 16)).astype(float)
    assert small.shape == (16, 16, 3)
    for axis, side in enumerate((width, height)):
        values = small[..., axis].mean(axis=axis) / 255
        assert values.mean() == pytest.approx(0.5, abs=0.03)
        assert values[-1] - values[0] == pytest.approx(min(width, height) / side * 15 / 16, abs=0.03)


def test_missing_training_images_are_reported(folder: Path) -> None:
    (folder / "train").rename(folder / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"pets has test/CLASS/ but no train/CLASS/; add it, or put all"):
        load_images(folder)


def test_class_without_training_images_is_refused(folder: Path) -> None:
    (folder / "test" / "cat").mkdir()  # a class may have no test images
    assert load_images(folder).classes == ("cat", "dog")
    (folder / "train" / "emu").mkdir()
    with pytest.raises(ValueError, match="train/emu holds no readable image; add some"):
        load_images(folder)
    for name in ("emu/x.png", "dog/x.png"):
        (folder / "train" / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"emu holds no readable image \(1 could not be read, e.g. cannot identify"):
        load_images(folder)


def test_set_without_test_images_is_refused(folder: Path) -> None:
    (folder / "test" / "dog" / "x.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"test holds no readable image \(1 could not be read"):
        load_images(folder)


def test_class_of_test_images_only_is_refused(folder: Path) -> None:
    put(folder / "test" / "emu" / "x.png")
    with pytest.raises(ValueError, match=r"has the class 'emu', but .*train does not"):
        load_images(folder)


def test_single_class_is_refused(folder: Path) -> None:
    for file in (folder / "train" / "cat").iterdir():
        file.unlink()
    (folder / "train" / "cat").rmdir()
    with pytest.raises(ValueError, match="1 class"):
        load_images(folder)


def test_warnings_of_pillow_are_suppressed(tmp_path: Path) -> None:
    cut_off = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03\0\x01\0\0\0\x06\0"
    Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "exif.jpg", exif=cut_off)
    with pytest.warns(UserWarning, match="Corrupt EXIF"), Image.open(tmp_path / "exif.jpg") as opened:
        ImageOps.exif_transpose(opened)
    with warnings.catch_warnings(action="error"):
        assert open_image(tmp_path / "exif.jpg").size == (8, 8)


def test_colours_of_16_bits_are_reduced_to_8(tmp_path: Path) -> None:
    pixels = np.array([[[0, 0x80FF, 0xFFFF]]], dtype=">u2")
    (tmp_path / "deep.ppm").write_bytes(b"P6 1 1 65535\n" + pixels.tobytes())
    assert np.asarray(open_image(tmp_path / "deep.ppm")).tolist() == [[[0, 0x80, 0xFF]]]


@pytest.mark.parametrize("size", [0, -3])
def test_size_below_1_is_refused(folder: Path, size: int) -> None:
    with pytest.raises(ValueError, match=f"size is {size}"):
        load_images(folder, size=size)


@pytest.mark.parametrize("size", [(90, 60), (60, 90), (40, 24), (400, 24), (24, 400), (1, 1), (7, 49), (1, 60000)])
def test_fill_frame_fills_the_frame_to_its_edges(size: tuple[int, int]) -> None:
    """A long strip is cropped before it is resized."""
    filled = np.asarray(fill_frame(Image.new("L", size, 255), 40, 24))
    assert filled.shape == (24, 40)
    assert (filled == 255).all()  # no black border


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Ten cats, six dogs, two emus and one fox, in a folder of classes."""
    root = tmp_path / "flat"
    for name, count in (("cat", 10), ("dog", 6), ("emu", 2), ("fox", 1)):
        for number in range(count):
            put(root / name / f"{number}.png", 100 * ord(name[0]) + number)
    return root


def parts(folder: Path, **options: object) -> dict[str, set[bytes]]:
    """Return the pixels of the training and test images."""
    data = load_images(folder, **options)  # type: ignore[arg-type]
    return {name: {i.numpy().tobytes() for i in getattr(data, name).images} for name in ("train", "test")}


def test_a_folder_of_classes_is_split_by_class(flat: Path) -> None:
    data = load_images(flat)
    assert data.classes == ("cat", "dog", "emu", "fox")
    assert data.train.labels.bincount().tolist() == [8, 5, 1, 1]
    assert data.test.labels.bincount(minlength=4).tolist() == [2, 1, 1, 0]
    assert (data.mean, data.std) == channel_statistics(data.train.images)
    first, last = data.notes
    assert first.startswith("There is no folder test: 20% of each class are the test set, 4 of 19 images, chosen by")
    assert last == "1 class is without test images, with a single image each: 'fox'."


def test_the_test_set_follows_the_content_of_the_files(flat: Path) -> None:
    before = parts(flat)
    for number, file in enumerate(sorted(flat.glob("cat/*.png"))):
        file.rename(file.with_name(f"renamed {10 - number}.png"))
    assert parts(flat) == before
    assert parts(flat, split_seed=1) != before
    put(flat / "cat" / "new.png", seed=5)
    after = parts(flat)
    assert len(before["test"] - after["test"]) <= 1
    assert len(parts(flat, test_fraction=0.5)["test"]) == 10


def test_copies_of_a_file_stay_in_one_part(flat: Path) -> None:
    for file in sorted(flat.glob("cat/*.png")):
        (file.parent / f"copy of {file.name}").write_bytes(file.read_bytes())
    found = parts(flat)
    assert found["train"].isdisjoint(found["test"])
    assert "10 files are byte-identical to another one; copies are kept in the same part." in load_images(flat).notes
    (flat / "dog" / "cat.png").write_bytes((flat / "cat" / "0.png").read_bytes())
    assert any(note.startswith("warning: 1 image is in two classes") for note in load_images(flat).notes)


def test_copies_in_training_and_test_folders_are_reported(folder: Path) -> None:
    (folder / "test" / "dog" / "y.png").write_bytes((folder / "train" / "dog" / "1.png").read_bytes())
    (note,) = load_images(folder).notes
    assert note.startswith("warning: test/ shares 1 image with the training images, byte for byte, e.g. ")


def test_validation_images_may_have_their_own_folder(folder: Path) -> None:
    (folder / "train").rename(folder / "Training")
    put(folder / "validation" / "cat" / "v.png", 20)
    data = load_images(folder)
    assert data.val is not None
    assert np.array_equal(data.val.images.numpy(), pixels(20)[None])
    put(folder / "val" / "cat" / "v.png", 21)
    with pytest.raises(ValueError, match=r"has both val/ and validation/; keep one of them"):
        load_images(folder)


def test_test_images_are_taken_from_training_images_without_a_test_folder(folder: Path) -> None:
    shutil.rmtree(folder / "test")
    data = load_images(folder)
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([0, 0, 1], [0, 1])


def test_a_class_may_be_called_train(flat: Path) -> None:
    (flat / "dog").rename(flat / "train")
    put(flat / "train" / "7.png", 3)
    assert load_images(flat).classes == ("cat", "emu", "fox", "train")


def test_images_may_be_in_deeper_folders(flat: Path) -> None:
    put(flat / "cat" / "2024" / "may" / "x.png", 77)
    put(flat / "loose.png")
    (flat / "notes").mkdir()
    data = load_images(flat)
    assert len(data.train) + len(data.test) == 20
    assert "1 folder is without images, ignored: 'notes'." in data.notes
    assert "1 image is outside the folders of classes, ignored: 'loose.png'." in data.notes


def test_folders_without_classes_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "images" / "a.png")
    with pytest.raises(ValueError, match=r"holds images in one folder only, 'images'; give a folder that holds"):
        load_images(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no folders of images; put the images of each class into"):
        load_images(tmp_path / "images")
    put(tmp_path / "others" / "b.png", 1)
    with pytest.raises(ValueError, match="every class has a single image, so none can be test images; add images"):
        load_images(tmp_path)


def test_options_of_folders_are_refused_elsewhere(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has a folder test, so no test images are chosen; leave test_fraction out"):
        load_images(folder, test_fraction=0.1)
    with pytest.raises(ValueError, match="memory=1 is for folders of image files, and cifar10 is none"):
        load_images("cifar10", memory=1)


@pytest.mark.parametrize("workers", [0, 2])
def test_images_in_their_files_are_those_in_memory(flat: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "_WORTH_WORKERS", 1)
    (flat / "cat" / "torn.png").write_bytes(b"torn")
    kept, streamed = load_images(flat, size=5), load_images(flat, size=5, memory=0, workers=workers)
    assert isinstance(streamed.train, image_files.ImageFiles)
    assert image_facts(streamed).items() <= image_facts(kept).items()
    assert (streamed.mean, streamed.std, streamed.skipped) == (kept.mean, kept.std, kept.skipped)
    for part in ("train", "test"):
        one, other = getattr(kept, part), getattr(streamed, part)
        assert other.shape == one.shape == (5, 5, 3)
        assert np.array_equal(other.images.numpy(), one.images.numpy())
        assert np.array_equal(other.labels.numpy(), one.labels.numpy())
    tasks = [ImageTask("flat", data, 0.2, stratified=True).split() for data in (kept, streamed)]
    for one, other in zip(*tasks, strict=True):
        assert one is not None
        assert other is not None
        assert np.array_equal(other.images.numpy(), one.images.numpy())


def test_a_file_that_is_gone_is_reported_in_one_line(flat: Path) -> None:
    data = load_images(flat, memory=0, workers=0)
    gone = sorted(flat.glob("cat/*.png"))
    for file in gone:
        file.unlink()
    with pytest.raises(OSError, match=r"cat/\d\.png can no longer be read \(.*\); restore it and try again$"):
        data.train.images  # noqa: B018


def test_a_stream_starts_again_after_an_abandoned_pass(flat: Path) -> None:
    part = load_images(flat, memory=0, workers=2).train
    assert isinstance(part, image_files.ImageFiles)
    stream, rows = image_files.ImageStream(part), list(torch.arange(len(part)).split(4))
    next(iter(stream.batches(rows)))
    expected = [part.read(batch) for batch in rows]
    for _ in range(2):
        assert all(map(torch.equal, stream.batches(rows), expected))
