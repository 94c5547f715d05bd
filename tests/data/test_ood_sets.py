"""Sets of images from elsewhere: every form they come in, what is said of them, what is refused."""

import gzip
import hashlib
import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from lresnet.data import OodSet, load_images, load_ood_set, ood_sets
from lresnet.data.ood_sets import OOD_SETS
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


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str, target: Path) -> None:
        raise OSError("no network")

    monkeypatch.setattr("lresnet.data.files._stream", refuse)


def test_svhn_and_what_is_said_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_svhn(tmp_path)
    found = load_ood_set("svhn", root=tmp_path)
    assert np.array_equal(found.images.numpy(), COLOUR)
    assert found.note.startswith("7 images, not from the official test_32x32.mat: it has ")
    assert found.note.endswith(" bytes, not 64,275,384")
    assert "/" not in found.note  # told by the content, never by the path
    monkeypatch.setitem(ood_sets._STAND_INS, hashlib.sha256(COLOUR.tobytes()).hexdigest(), "a known stand-in")
    assert load_ood_set("svhn", root=tmp_path).note == "a known stand-in"
    official.use(monkeypatch, tmp_path, "svhn")
    found = load_ood_set("svhn")
    assert (found.name, found.note, found.skipped) == ("svhn", "", ())


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_grey_images_get_a_black_margin_and_three_channels(tmp_path: Path, name: str, suffix: str) -> None:
    write_idx(tmp_path, name, suffix)
    images = load_ood_set(name, root=tmp_path).images.numpy()
    assert np.array_equal(images, np.pad(GREY, ((0, 0), (2, 2), (2, 2)))[..., None].repeat(3, axis=3))
    assert np.array_equal(load_ood_set(name, size=28, root=tmp_path).images.numpy(), GREY[..., None].repeat(3, axis=3))
    larger = load_ood_set(name, size=64, root=tmp_path).images.numpy()
    assert larger.shape == (5, 64, 64, 3)
    assert not larger[:, :3].any()
    assert larger[:, 8:].any()


def test_official_idx_files_have_no_caveat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path, "mnist")
    note = load_ood_set("mnist", root=tmp_path).note
    assert note.startswith("5 images, not from the official t10k-images-idx3-ubyte.gz: ")
    official.use(monkeypatch, tmp_path, "mnist")
    assert load_ood_set("mnist").note == ""
    write_idx(tmp_path, "fashion_mnist", "")
    note = load_ood_set("fashion_mnist", root=tmp_path).note
    assert note == "5 images of an unpacked file, for which no checksum is published"


def test_places_and_textures_as_arrays_or_as_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_places(tmp_path)
    found = load_ood_set("places", root=tmp_path)
    assert np.array_equal(found.images.numpy(), COLOUR)
    assert found.note == "7 images; which ones of Places365 the paper took is not known"
    for index, pixels in enumerate(COLOUR):
        file = tmp_path / "ood" / "textures" / "images" / "dotted" / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    found = load_ood_set("textures", root=[tmp_path / "none", tmp_path])
    assert np.array_equal(found.images.numpy(), COLOUR)
    assert found.note == "7 images, not the 5,640 of the Describable Textures Dataset"
    monkeypatch.setattr(ood_sets, "_TEXTURES", 7)
    assert load_ood_set("textures", root=tmp_path).note == ""
    monkeypatch.setitem(ood_sets._STAND_INS, hashlib.sha256(COLOUR.tobytes()).hexdigest(), "a known stand-in")
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


def test_a_folder_of_one_s_own(tmp_path: Path) -> None:
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


def test_links_are_followed_and_those_that_lead_nowhere_are_counted(tmp_path: Path) -> None:
    for name in ("real", "set"):
        (tmp_path / name).mkdir()
        Image.fromarray(COLOUR[0]).save(tmp_path / name / f"{name}.png")
    folder = tmp_path / "set"
    (folder / "class").symlink_to(tmp_path / "real")
    (folder / "again").symlink_to(tmp_path / "real")
    (folder / "round").symlink_to(folder)
    (folder / "gone.png").symlink_to(tmp_path / "nowhere.png")
    found = load_ood_set(folder)
    assert len(found.images) == 2  # and not one, nor without end
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
def test_arrays_of_one_s_own(tmp_path: Path, saved: dict[str, Any], expected: np.ndarray[Any, Any]) -> None:
    np.savez(tmp_path / "mine.npz", **saved)
    found = load_ood_set(tmp_path / "mine.npz", size=expected.shape[1])
    assert found.name == "mine"
    assert np.array_equal(found.images.numpy(), expected)
    found.images[0] = 0  # the memory is its own
    assert load_ood_set(str(tmp_path / "mine.npz"), size=(10, 20)).images.shape == (len(expected), 10, 20, 3)


def test_a_stand_in_is_known_by_its_pixels_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ood_sets._STAND_INS, hashlib.sha256(COLOUR.tobytes()).hexdigest(), "a known stand-in")
    np.savez(tmp_path / "mine.npz", images=COLOUR)
    np.savez(tmp_path / "others.npz", images=COLOUR[:3])
    assert load_ood_set(tmp_path / "mine.npz", size=16).note == "a known stand-in"
    assert load_ood_set(tmp_path / "others.npz").note == ""


@pytest.mark.parametrize("form", [str, Path])
def test_a_set_of_one_s_own_does_not_pass_under_another_s_name(
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
        ({"x": COLOUR[:, :0]}, r"x has shape \[7, 0, 32, 3\]: images without a pixel"),
        ({"x": COLOUR[0]}, r"x has shape \[32, 32, 3\], that of one image; save it as \[1, H, W, C\]"),
        ({"x": COLOUR[:0]}, r"places\.npz holds no readable image; add some"),
        ({"x": np.array([None])}, "cannot be read as images"),
    ],
)
def test_arrays_that_are_no_images(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    write_places(tmp_path, **arrays)
    with pytest.raises(ValueError, match=words):
        load_ood_set("places", root=tmp_path)


def test_arrays_that_say_they_are_larger_than_any_memory(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**13, 32, 32, 3)})
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive:
        for name in ("images", "train_images", "train_labels", "test_images", "test_labels"):
            archive.writestr(f"{name}.npy", header.getvalue())
    for read in (load_ood_set, load_images):
        with pytest.raises(ValueError, match=r"large\.npz cannot be read as images: Unable to allocate"):
            read(tmp_path / "large.npz")


def test_files_that_are_damaged(tmp_path: Path) -> None:
    write_places(tmp_path).write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"places\.npz cannot be read as images: it is no \.npz archive"):
        load_ood_set("places", root=tmp_path)
    mat = write_svhn(tmp_path)
    mat.write_bytes(mat.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"test_32x32\.mat cannot be read as a MATLAB file"):
        load_ood_set("svhn", root=tmp_path)
    path = write_idx(tmp_path, "mnist")
    whole = path.read_bytes()
    for content, words in (
        (whole[:100], "is damaged"),
        (b"\0\0\x08", "has 3 bytes and no idx header"),
        (struct.pack(">4I", 0x801, 1, 1, 1), "begins with 0x00000801; images in idx form begin with 0x00000803"),
        (struct.pack(">4I", 0x803, 2, 28, 28), "says 2 images of 28 x 28 but is of another length"),
        (struct.pack(">4I", 0x803, 2, 0, 28), "holds images of 0 x 28: without a pixel"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            load_ood_set("mnist", root=tmp_path)


def test_a_matlab_file_of_something_else(tmp_path: Path) -> None:
    path = write_svhn(tmp_path, name="Z")
    with pytest.raises(ValueError, match="has no array X"):
        load_ood_set("svhn", root=tmp_path)
    savemat(path, {"X": COLOUR})
    with pytest.raises(ValueError, match=r"X is uint8 \[7, 32, 32, 3\], not uint8 \[32, 32, 3, N\]"):
        load_ood_set("svhn", root=tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no set 'svnh' \(did you mean svhn\?\); name svhn, places"):
        load_ood_set("svnh")
    with pytest.raises(FileNotFoundError, match=r"there is no set '.*gone\.npz'; name svhn, places, textures, mnist"):
        load_ood_set(tmp_path / "gone.npz")
    (tmp_path / "file.txt").touch()
    with pytest.raises(FileNotFoundError, match=r"file\.txt is neither a folder nor a \.npz"):
        load_ood_set(tmp_path / "file.txt")
    with pytest.raises(FileNotFoundError, match=r"no images of places: put them, as a folder or as places\.npz, at "):
        load_ood_set("places", root=tmp_path)
    for name in ("svhn", "mnist", "fashion_mnist"):
        with pytest.raises(FileNotFoundError, match=r"could not be read \(OSError\)"):
            load_ood_set(name, root=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.txt"]


def test_empty_sets_and_wrong_sizes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} holds no readable image; add some"):
        load_ood_set(tmp_path)
    with pytest.raises(ValueError, match="nothing holds no readable image; add some"):
        OodSet("nothing", torch.zeros(2, 0, 8, 3, dtype=torch.uint8))
    (tmp_path / "torn.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"holds no readable image \(1 could not be read, e\.g\. cannot identify"):
        load_ood_set(tmp_path)
    with pytest.raises(ValueError, match="size is 0; the side of an image is 1 pixel or more"):
        load_ood_set("noise_uniform", size=0)
    with pytest.raises(ValueError, match=r"images are uint8 \[N, H, W, 3\], not torch.float32 \[2, 8, 8, 3\]"):
        OodSet("wrong", torch.zeros(2, 8, 8, 3))
    assert len(set(OOD_SETS)) == 7
