"""CIFAR's binary form as a folder and as an archive: small ones written here, and the real ones if present."""

import gzip
import hashlib
import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lresnet import cli
from lresnet.data import DATASETS, IMAGE_SETS, ImageData, load_images
from lresnet.data.files import Root, fetch, list_datasets, source_files, verify
from lresnet.data.formats.records import digest_of, read_image_records
from lresnet.data.image_data import channel_statistics
from lresnet.data.source import File, ImageRecords, ImageSource

Bytes = NDArray[np.uint8]
FOLDER = "toy-bin"
ARCHIVE = "toy-binary.tar.gz"
CLASSES = ("ant", "bee", "cat")


def read(source: ImageSource, root: Root) -> ImageData:
    return read_image_records(source, source_files(source, root))


class Toy:
    """A set in CIFAR's binary form: 3 classes of 4 training images in two files and 2 test images, 5 x 6 pixels."""

    def __init__(self, label_bytes: int = 1) -> None:
        self.rows: dict[str, Bytes] = {}
        for seed, (name, count) in enumerate((("train_1.bin", 6), ("train_2.bin", 6), ("test.bin", 6))):
            rows = np.random.default_rng(seed).integers(0, 256, (count, label_bytes + 90), dtype=np.uint8)
            rows[:, label_bytes - 1] = np.random.default_rng(seed).permutation(np.arange(count) % 3)
            self.rows[name] = rows
        self.label_bytes = label_bytes

    @property
    def train(self) -> Bytes:
        return np.concatenate([self.rows["train_1.bin"], self.rows["train_2.bin"]])

    def source(self, archive: bytes = b"") -> ImageSource:
        """Return the facts about this set, with ``archive`` as the official one."""
        digests = (digest_of(self.train), digest_of(self.rows["test.bin"]))
        files = {"train": ("train_1.bin", "train_2.bin"), "test": ("test.bin",)}
        records = ImageRecords(
            FOLDER, **files, shape=(3, 5, 6), label_bytes=self.label_bytes, classes=CLASSES, per_class=(4, 2),
            digests=digests, mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 0.3),
        )  # fmt: skip
        sha = hashlib.sha256(archive).hexdigest()
        file = File(ARCHIVE, "http://127.0.0.1:9/toy", len(archive), sha, records=records)
        return ImageSource(name="toy", summary="a toy", files=(file,), licence="CC0", citation="nobody")

    def write(self, root: Path) -> Path:
        folder = root / FOLDER
        folder.mkdir(parents=True)
        for name, rows in self.rows.items():
            (folder / name).write_bytes(rows.tobytes())
        return folder

    def archive(self, prefix: str = f"{FOLDER}/", **others: bytes) -> bytes:
        """As the author packs it, with a text file and other members."""
        members = {f"{prefix}{name}": rows.tobytes() for name, rows in self.rows.items()}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, content in {f"{prefix}names.txt": b"ant\nbee\ncat\n", **members, **others}.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return packed.getvalue()


def check(data: Any, toy: Toy) -> None:
    """Pixel by pixel: red, green and blue planes follow one another, row by row."""
    for part, rows in ((data.train, toy.train), (data.test, toy.rows["test.bin"])):
        assert part.images.shape == (len(rows), 5, 6, 3)
        assert part.labels.tolist() == rows[:, toy.label_bytes - 1].tolist()
        for image, row in zip(part.images.tolist(), rows.tolist(), strict=True):
            for y in range(5):
                for x in range(6):
                    assert image[y][x] == [row[toy.label_bytes + plane * 30 + y * 6 + x] for plane in range(3)]
    assert data.train.images.is_contiguous()
    assert (data.name, data.classes, data.mean, data.std) == ("toy", CLASSES, (0.4, 0.5, 0.6), (0.1, 0.2, 0.3))


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_folder_and_archive_give_the_same_images(tmp_path: Path, label_bytes: int) -> None:
    toy = Toy(label_bytes)
    toy.write(tmp_path / "a")
    check(read(toy.source(), tmp_path / "a"), toy)
    for number, prefix in enumerate((f"{FOLDER}/", f"./{FOLDER}/")):
        root = tmp_path / f"archive{number}"
        root.mkdir()
        packed = toy.archive(prefix)
        (root / ARCHIVE).write_bytes(packed)
        check(read(toy.source(packed), root), toy)
        assert [path.name for path in root.iterdir()] == [ARCHIVE]  # nothing was extracted


def test_complete_folder_is_preferred_to_the_archive(tmp_path: Path) -> None:
    toy = Toy()
    packed = toy.archive()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ARCHIVE).write_bytes(packed)
    folder = toy.write(tmp_path / "b")
    roots = [tmp_path / "a", tmp_path / "b"]
    (folder / "test.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"toy-bin is not the official toy: test\.bin has 0 bytes, not 546"):
        read(toy.source(packed), roots)
    (folder / "test.bin").unlink()
    check(read(toy.source(packed), roots), toy)


def test_the_order_of_the_images_does_not_matter(tmp_path: Path) -> None:
    toy = Toy()
    source = toy.source()
    for name in toy.rows:
        toy.rows[name] = toy.rows[name][::-1]
    toy.write(tmp_path)
    check(read(source, tmp_path), toy)


def _cut(toy: Toy) -> None:
    toy.rows["train_2.bin"] = toy.rows["train_2.bin"][:-1]


def _label(toy: Toy) -> None:
    toy.rows["train_2.bin"][4, toy.label_bytes - 1] = 3


def _count(toy: Toy) -> None:
    labels = toy.rows["test.bin"][:, toy.label_bytes - 1]
    labels[labels == 1] = 2


def _pixel(toy: Toy) -> None:
    toy.rows["train_1.bin"][5, 50] ^= 1


def _group(toy: Toy) -> None:
    toy.rows["test.bin"][0, 0] ^= 1


def _swapped(toy: Toy) -> None:
    """A training image among the test images, and the other way round: the labels agree."""
    train, test = toy.rows["train_1.bin"], toy.rows["test.bin"]
    a, b = (int(np.flatnonzero(rows[:, toy.label_bytes - 1] == 0)[0]) for rows in (train, test))
    train[a], test[b] = test[b].copy(), train[a].copy()


DAMAGE = [
    (_cut, r"train_2\.bin has 460 bytes, not 552"),
    (_label, r"train_2\.bin, record 4: the label byte is 3, but classes are 0 to 2"),
    (_count, "class bee has 0 test images, not 2"),
    (_pixel, "the digest of the training images is [0-9a-f]{64}, not [0-9a-f]{64}"),
    (_group, "the digest of the test images is"),
    (_swapped, "the digest of the training images is"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
@pytest.mark.parametrize("form", ["folder", "archive"])
def test_damage_is_reported_in_one_line(tmp_path: Path, damage: Any, words: str, form: str) -> None:
    toy = Toy(label_bytes=2)
    source = toy.source()
    damage(toy)
    if form == "folder":
        toy.write(tmp_path)
    else:  # with the checksum of the damaged archive, so that its content is checked
        (tmp_path / ARCHIVE).write_bytes(packed := toy.archive())
        wrong = toy.source(packed).files[0]
        source = replace(source, files=(replace(wrong, records=source.files[0].records),))
    with pytest.raises(ValueError, match=words) as caught:
        read(source, tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_archive_with_another_checksum_is_refused(tmp_path: Path) -> None:
    toy = Toy()
    packed = toy.archive()
    for content, words in ((packed[:-1], "bytes, not"), (packed[:-1] + b"x", "sha256")):
        (tmp_path / ARCHIVE).write_bytes(content)
        with pytest.raises(ValueError, match=f"{ARCHIVE} is not the official file: .*{words}"):
            read(toy.source(packed), tmp_path)


def _broken(toy: Toy) -> list[tuple[bytes, str]]:
    whole = toy.archive()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    missing = Toy()
    del missing.rows["test.bin"]
    return [
        (whole[: len(whole) // 2], "it is not a complete archive"),
        (bytes(flipped), "(it is not a complete archive|it does not contain|the digest of)"),  # depends on the damage
        (b"no archive at all", "it is not a complete archive"),
        (b"", "it is not a complete archive"),
        (gzip.compress(b"not a tar", mtime=0), "it is not a complete archive"),
        (missing.archive(), r"it does not contain toy-bin/test\.bin"),
        (toy.archive(prefix="elsewhere/"), r"it does not contain toy-bin/train_1\.bin"),
        (toy.archive(prefix=f"../{FOLDER}/"), r"it does not contain toy-bin/train_1\.bin"),
    ]


@pytest.mark.parametrize("number", range(8))
def test_broken_archive_is_reported_in_one_line(tmp_path: Path, number: int) -> None:
    toy = Toy()
    content, words = _broken(toy)[number]
    (tmp_path / ARCHIVE).write_bytes(content)
    with pytest.raises(ValueError, match=f"{ARCHIVE} is not the official toy: {words}") as caught:
        read(toy.source(content), tmp_path)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [ARCHIVE]


def test_a_member_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(546))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        link = tarfile.TarInfo(f"{FOLDER}/test.bin")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        tar.addfile(link)
    (tmp_path / ARCHIVE).write_bytes(packed.getvalue())
    with pytest.raises(ValueError, match="it does not contain toy-bin/"):
        read(Toy().source(packed.getvalue()), tmp_path)


def test_missing_set_without_network_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"toy-binary\.tar\.gz.*could not be downloaded \(ConnectionError\)"):
        read(Toy().source(), tmp_path)


def test_a_file_without_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    source = replace(Toy().source(), files=(File("file", None),))
    with pytest.raises(ValueError, match="toy has no image records"):
        read_image_records(source, {"file": tmp_path / "file"})


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toy:
    """The toy set in the registry; a download returns its archive."""
    toy = Toy()
    packed = toy.archive()
    monkeypatch.setitem(DATASETS, "toy", toy.source(packed))
    monkeypatch.setattr("lresnet.data.files._stream", lambda url, target, limit: target.write_bytes(packed))
    return toy


def _here(root: Path) -> tuple[int, int]:
    return next((row.present, row.files) for row in list_datasets(root) if row.name == "toy")


def test_list_verify_and_fetch_accept_folder_and_archive(registered: Toy, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    assert _here(a) == (0, 1)
    assert [row.state for row in verify(["toy"], a)] == ["missing"]
    folder = registered.write(a)
    assert _here(a) == (1, 1)
    for rows in (verify(["toy"], a), fetch(["toy"], a)):  # a folder that is right is not fetched again
        assert [(row.path, row.state, row.where) for row in rows] == [(FOLDER, "right", a)]
    assert [(row.path, row.state, row.where, row.detail) for row in fetch(["toy"], b)] == [
        (ARCHIVE, "right", b, "downloaded")
    ]
    assert _here(b) == (1, 1)
    assert [(row.path, row.state, row.where) for row in verify(["toy"], b)] == [(ARCHIVE, "right", b)]
    (folder / "test.bin").write_bytes(bytes(546))
    (wrong,) = verify(["toy"], a)
    assert (wrong.state, wrong.path, wrong.detail) == ("wrong", FOLDER, "class ant has 6 test images, not 2")
    with pytest.raises(ValueError, match=r"toy-bin is not the official file: class ant .* remove it first"):
        fetch(["toy"], a)


def test_the_command_line_shows_the_folder(registered: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registered.write(tmp_path)
    assert cli.main(["data", "list", "--data-root", str(tmp_path)]) == 0
    assert "1 of 1" in next(line for line in capsys.readouterr().out.splitlines() if "│ toy " in line)
    assert cli.main(["data", "verify", "toy", "--data-root", str(tmp_path)]) == 0
    assert "│ right" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_registered_sets_have_60000_images(name: str) -> None:
    (file,) = IMAGE_SETS[name].files
    records = file.records
    assert records is not None
    assert [len(records.classes) * count for count in records.per_class] == [50000, 10000]
    assert records.classes == tuple(sorted(set(records.classes)))  # the author numbered them by the alphabet
    assert f"{records.folder.split('-')[1]}-binary.tar.gz" in file.path


ROOT = os.environ.get("LRESNET_DATA")
PRESENT = [row.name for row in list_datasets(ROOT) if row.name.startswith("cifar") and row.present] if ROOT else []

if PRESENT:

    @pytest.mark.parametrize("name", PRESENT)
    def test_real_set_has_the_published_statistics(name: str) -> None:
        data = load_images(name, ROOT)
        assert data.train.images.shape == (50000, 32, 32, 3)
        assert data.test.images.shape == (10000, 32, 32, 3)
        measured = [[round(value, 4) for value in values] for values in channel_statistics(data.train.images)]
        assert measured == [list(data.mean), list(data.std)]
