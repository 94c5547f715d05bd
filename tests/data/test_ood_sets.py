"""Out-of-distribution image sets: all their formats, their notes, and what is refused."""

import gzip
import hashlib
import io
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from lresnet.data import OOD_SETS, OodSet, load_images, load_ood_set
from lresnet.data.formats.idx import read_idx_images
from tests.data import official

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8)


def write_svhn(root: Path, pixels: np.ndarray[Any, Any] = COLOUR, name: str = "X") -> Path:
    (root / "svhn").mkdir()
    savemat(root / "svhn" / "test_32x32.mat", {name: pixels.transpose(1, 2, 3, 0), "y": np.full((7, 1), 10)})
    return root / "svhn" / "test_32x32.mat"


def write_idx(root: Path, name: str, suffix: str = ".gz", images: np.ndarray[Any, Any] = GREY) -> Path:
    content = struct.pack(">4I", 0x803, *images.shape) + images.tobytes()
    (root / name).mkdir()
    path = root / name / f"t10k-images-idx3-ubyte{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    return path


def write_places(root: Path, **arrays: object) -> Path:
    (root / "ood").mkdir()
    np.savez(root / "ood" / "places.npz", **arrays or {"x": COLOUR, "y": np.arange(7)})
    return root / "ood" / "places.npz"


def add_substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe the images ``COLOUR`` as a known substitute for SVHN."""
    digest = hashlib.sha256(COLOUR.tobytes()).hexdigest()
    official.register(monkeypatch, replace(OOD_SETS["svhn"], substitutes={digest: "a known substitute"}))


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, target: Path, limit: int) -> None:
        raise OSError("no network")

    monkeypatch.setattr("lresnet.data.files._stream", refuse)


def test_svhn_and_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mat = write_svhn(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        official.use(patch, tmp_path, "svhn")
        found = load_ood_set("svhn")
        assert np.array_equal(found.images.numpy(), COLOUR)
        assert (found.name, found.note, found.skipped) == ("svhn", "", ())
    mat.unlink()
    np.savez(mat.with_suffix(".npz"), images=COLOUR)  # other images, in a form that is safe to read
    found = load_ood_set("svhn", root=tmp_path)
    assert np.array_equal(found.images.numpy(), COLOUR)
    assert found.note == "7 images of an unpacked file, for which no checksum is published"
    add_substitute(monkeypatch)
    assert load_ood_set("svhn", root=tmp_path).note == "a known substitute"


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("name", ["svhn", "mnist", "fashion_mnist"])
def test_no_parser_gets_a_file_that_is_not_the_official_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, suffix: str
) -> None:
    def parse(*_: object, **__: object) -> None:
        raise AssertionError("parsed before its checksum was compared")

    path = write_svhn(tmp_path) if name == "svhn" else write_idx(tmp_path, name, suffix)
    monkeypatch.setattr("scipy.io.loadmat", parse)
    monkeypatch.setattr("lresnet.data.formats.idx.read_idx_images", parse)
    with pytest.raises(ValueError, match=rf"{path.name} is not the official file: it has .* bytes, not "):
        load_ood_set(name, root=tmp_path)


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_grey_images_get_a_black_margin_and_three_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, suffix: str
) -> None:
    write_idx(tmp_path, name, suffix)
    official.use(monkeypatch, tmp_path, name)
    images = load_ood_set(name, root=tmp_path).images.numpy()
    assert np.array_equal(images, np.pad(GREY, ((0, 0), (2, 2), (2, 2)))[..., None].repeat(3, axis=3))
    assert np.array_equal(load_ood_set(name, size=28, root=tmp_path).images.numpy(), GREY[..., None].repeat(3, axis=3))
    larger = load_ood_set(name, size=64, root=tmp_path).images.numpy()
    assert larger.shape == (5, 64, 64, 3)
    assert not larger[:, :3].any()
    assert larger[:, 8:].any()


def test_official_idx_files_have_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path, "mnist")
    official.use(monkeypatch, tmp_path, "mnist")
    assert load_ood_set("mnist").note == ""
    write_idx(tmp_path, "fashion_mnist", "")
    official.use(monkeypatch, tmp_path, "fashion_mnist")
    assert load_ood_set("fashion_mnist", root=tmp_path).note == ""


def test_places_and_textures_as_arrays_or_as_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_places(tmp_path)
    found = load_ood_set("places", root=tmp_path)
    assert np.array_equal(found.images.numpy(), COLOUR)
    assert found.note == "7 images; which images of Places365 the paper used is not known"
    for index, pixels in enumerate(COLOUR):
        file = tmp_path / "ood" / "textures" / "images" / "dotted" / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    found = load_ood_set("textures", root=[tmp_path / "none", tmp_path])
    assert np.array_equal(found.images.numpy(), COLOUR)
    assert found.note == "7 images, not the 5,640 of the Describable Textures Dataset"
    monkeypatch.setattr("lresnet.data.images.textures._OFFICIAL_COUNT", 7)
    assert load_ood_set("textures", root=tmp_path).note == ""
    add_substitute(monkeypatch)
    assert load_ood_set("places", root=tmp_path).note == load_ood_set("textures", root=tmp_path).note


@pytest.mark.parametrize(("name", "deviation"), [("noise_gaussian", 61.3), ("noise_uniform", 73.9)])
def test_noise_follows_its_seed(name: str, deviation: float) -> None:
    found = load_ood_set(name, size=(4, 6))
    assert found.images.shape == (10_000, 4, 6, 3)
    assert (found.name, found.note) == (name, "")
    assert torch.equal(found.images, load_ood_set(name, size=(4, 6)).images)
    assert not torch.equal(found.images, load_ood_set(name, size=(4, 6), seed=1).images)
    pixels = found.images.double()
    assert (int(pixels.min()), int(pixels.max())) == (0, 255)
    assert float(pixels.mean()) == pytest.approx(127.5, abs=0.5)
    assert float(pixels.std()) == pytest.approx(deviation, abs=0.5)


def test_images_of_a_folder_are_cropped_and_resized(tmp_path: Path) -> None:
    folder = tmp_path / "my photos"
    (folder / "deep" / ".cache").mkdir(parents=True)
    wide = Image.fromarray(RNG.integers(0, 256, (40, 80, 3), dtype=np.uint8))
    wide.save(folder / "a.png")
    wide.convert("L").save(folder / "deep" / "b.png")
    wide.save(folder / "deep" / ".cache" / "hidden.png")
    (folder / "torn.jpg").write_bytes(b"torn")
    (folder / "readme.txt").touch()
    found = load_ood_set(folder, size=16)
    assert found.name == "my photos"
    assert found.images.shape == (2, 16, 16, 3)
    for images, original in zip(found.images, (wide, wide.convert("L").convert("RGB")), strict=True):
        short_side_resized = original.resize((32, 16), Image.Resampling.BILINEAR)
        assert np.array_equal(images.numpy(), np.asarray(short_side_resized)[:, 8:24])
    ((file, reason),) = found.skipped
    assert file.name == "torn.jpg"
    assert "cannot identify" in reason
    assert "\n" not in reason


def test_links_are_followed_and_broken_links_are_reported(tmp_path: Path) -> None:
    for name in ("real", "set"):
        (tmp_path / name).mkdir()
        Image.fromarray(COLOUR[0]).save(tmp_path / name / f"{name}.png")
    folder = tmp_path / "set"
    (folder / "class").symlink_to(tmp_path / "real")
    (folder / "again").symlink_to(tmp_path / "real")
    (folder / "round").symlink_to(folder)
    (folder / "gone.png").symlink_to(tmp_path / "nowhere.png")
    found = load_ood_set(folder)
    assert len(found.images) == 2  # each folder once, and no endless recursion
    assert [(file.name, "No such file" in reason) for file, reason in found.skipped] == [("gone.png", True)]


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ({"images": COLOUR, "x": GREY}, COLOUR),
        ({"x": COLOUR.transpose(0, 3, 1, 2)}, COLOUR),
        ({"test_images": GREY}, GREY[..., None].repeat(3, axis=3)),
        ({"images": GREY[:, None]}, GREY[..., None].repeat(3, axis=3)),
    ],
    ids=["N H W 3", "N 3 H W", "N H W", "N 1 H W"],
)
def test_every_form_of_arrays_is_read(tmp_path: Path, saved: dict[str, Any], expected: np.ndarray[Any, Any]) -> None:
    np.savez(tmp_path / "mine.npz", **saved)
    found = load_ood_set(tmp_path / "mine.npz", size=expected.shape[1])
    assert found.name == "mine"
    assert np.array_equal(found.images.numpy(), expected)
    found.images[0] = 0  # the images own their memory
    assert load_ood_set(str(tmp_path / "mine.npz"), size=(10, 20)).images.shape == (len(expected), 10, 20, 3)


def test_substitute_is_recognised_by_its_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_substitute(monkeypatch)
    np.savez(tmp_path / "mine.npz", images=COLOUR)
    np.savez(tmp_path / "others.npz", images=COLOUR[:3])
    assert load_ood_set(tmp_path / "mine.npz", size=16).note == "a known substitute"
    assert load_ood_set(tmp_path / "others.npz").note == ""


@pytest.mark.parametrize("form", [str, Path])
def test_a_path_never_gets_the_name_of_a_known_set(
    form: type[str] | type[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("svhn", "Textures"):
        Path(folder).mkdir()
        Image.fromarray(COLOUR[0]).save(Path(folder, "0.png"))
    np.savez("places.npz", images=COLOUR)
    for path in ("./svhn", "Textures/", "places.npz"):
        assert load_ood_set(form(path)).name == str((tmp_path / path).resolve())


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"pixels": COLOUR}, "it has no array images, x or test_images"),
        ({"x": COLOUR / 255}, "x is float64; save pixels 0 to 255 as uint8"),
        ({"x": COLOUR[..., :2]}, r"x has shape \[7, 32, 32, 2\]"),
        ({"x": COLOUR[:, :3]}, r"x has shape \[7, 3, 32, 3\]"),
        ({"x": COLOUR[:, :0]}, r"x has shape \[7, 0, 32, 3\]: images without any pixel"),
        ({"x": COLOUR[0]}, r"x has shape \[32, 32, 3\], which is one image; save it as \[1, H, W, C\]"),
        ({"x": COLOUR[:0]}, r"places\.npz holds no readable image; add some"),
        ({"x": np.array([None])}, "pickled objects"),
    ],
)
def test_arrays_of_another_form_are_refused(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    write_places(tmp_path, **arrays)
    with pytest.raises(ValueError, match=words):
        load_ood_set("places", root=tmp_path)


def test_arrays_larger_than_memory_are_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**13, 32, 32, 3)})
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive:
        for name in ("images", "train_images", "train_labels", "test_images", "test_labels"):
            archive.writestr(f"{name}.npy", header.getvalue())
    for read in (load_ood_set, load_images):
        with pytest.raises(
            ValueError, match=r"large\.npz cannot be read: .* announces 30,720,000,000,000,000 bytes, but 0 follow"
        ):
            read(tmp_path / "large.npz")


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    write_places(tmp_path).write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"places\.npz cannot be read: it is not a \.npz archive"):
        load_ood_set("places", root=tmp_path)
    whole = write_idx(tmp_path, "fashion_mnist").read_bytes()
    path = write_idx(tmp_path, "mnist", "")
    for content, words in (
        (whole[:100], "is damaged"),
        (b"\0\0\x08", "has 3 bytes and no idx header"),
        (struct.pack(">4I", 0x801, 1, 1, 1), "begins with 0x00000801; images in idx format begin with 0x00000803"),
        (struct.pack(">4I", 0x803, 2, 28, 28), "announces 2 images of 28 x 28 but has another length"),
        (struct.pack(">4I", 0x803, 2, 0, 28), "holds images of 0 x 28, without any pixel"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            read_idx_images(path, (32, 32))


def test_matlab_file_with_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_svhn(tmp_path, name="Z")
    official.use(monkeypatch, tmp_path, "svhn")
    with pytest.raises(ValueError, match="has no array X"):
        load_ood_set("svhn", root=tmp_path)
    savemat(path, {"X": COLOUR})
    official.use(monkeypatch, tmp_path, "svhn")
    with pytest.raises(ValueError, match=r"X is uint8 \[7, 32, 32, 3\], not uint8 \[32, 32, 3, N\]"):
        load_ood_set("svhn", root=tmp_path)


def test_missing_sets_are_reported(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError,
        match=r"there is no image set 'svnh' \(did you mean svhn\?\); choose one of fashion_mnist, mnist",
    ):
        load_ood_set("svnh")
    with pytest.raises(
        FileNotFoundError, match=r"there is no image set '.*gone\.npz'; choose one of fashion_mnist, mnist"
    ):
        load_ood_set(tmp_path / "gone.npz")
    (tmp_path / "file.txt").touch()
    with pytest.raises(FileNotFoundError, match=r"file\.txt is neither a folder nor a \.npz"):
        load_ood_set(tmp_path / "file.txt")
    with pytest.raises(FileNotFoundError, match=r"no images of places: put them, as a folder or as places\.npz, at "):
        load_ood_set("places", root=tmp_path)
    for name in ("svhn", "mnist", "fashion_mnist"):
        with pytest.raises(FileNotFoundError, match=r"could not be downloaded \(OSError\)"):
            load_ood_set(name, root=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.txt"]


def test_empty_sets_and_wrong_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} holds no readable image; add some"):
        load_ood_set(tmp_path)
    with pytest.raises(ValueError, match="nothing holds no readable image; add some"):
        OodSet("nothing", torch.zeros(2, 0, 8, 3, dtype=torch.uint8))
    (tmp_path / "torn.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"holds no readable image \(1 could not be read, e\.g\. cannot identify"):
        load_ood_set(tmp_path)
    with pytest.raises(ValueError, match="size is 0; the side of an image must be at least 1 pixel"):
        load_ood_set("noise_uniform", size=0)
    with pytest.raises(ValueError, match=r"images must be uint8 \[N, H, W, 3\], got torch.float32 \[2, 8, 8, 3\]"):
        OodSet("wrong", torch.zeros(2, 8, 8, 3))
    assert len(set(OOD_SETS)) == 7
