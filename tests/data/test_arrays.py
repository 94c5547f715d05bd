"""NumPy files of users: what is read, and what is refused before memory is allocated."""

import io
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from lresnet import _limits
from lresnet.data import load_images, read_graph
from lresnet.data.formats.arrays import read_all_arrays, read_array, read_arrays, sparse_matrix
from lresnet.data.formats.hgcn import read_disease
from lresnet.data.formats.space_file import read_space
from lresnet.data.registry import DATASETS, reader
from tests.data import official

MATRIX = sparse.csr_array(np.eye(5) + np.eye(5, k=1))
PARTS = {"data": MATRIX.data, "indices": MATRIX.indices, "indptr": MATRIX.indptr, "shape": np.array([5, 5])}


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def npz(path: Path, members: dict[str, bytes], **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(3, dtype=">i4"),
        np.zeros((0, 3)),
        np.array(5),
        np.array(["a", "longer"]),
    ],
)
def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", array, named=array)
    for read in (read_array(tmp_path / "a.npy"), *read_all_arrays(tmp_path / "a.npz").values()):
        assert read.dtype == array.dtype
        assert np.array_equal(read, array)
        assert read.flags.writeable
    assert list(read_arrays(tmp_path / "a.npz", "named")) == ["named"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read as an array"),
        (b"\x93NUMPY\x01\x00\xff\xff{'descr': ", "cannot be read as an array"),
        (b"\x93NUMPY\x03\x00" + header((2,))[8:], r"version \(3, 0\)"),
        (header((10**12,)), "announces 8,000,000,000,000 bytes, but 0 follow"),
        (header((2**62, 2**62)), r"announces more than 10\^18 bytes"),
        (header((3,)) + bytes(16), "announces 24 bytes, but 16 follow"),
        (header((-3,)) + bytes(16), r"announces the shape '\(-3,\)'"),
        (header((10**15,), "<U0"), "announces the shape"),
        (header((2**32 - 1, 0), "<U6"), "announces the shape"),
        (header((65535, 255, 0), "<U6"), "announces the shape"),
        (header((1,), "<U1") + b"\xff\xff\xff\xff", "its text has numbers that are no characters"),
        (header((1,), "<U1") + b"\x00\xd8\x00\x00", "its text has numbers that are no characters"),
        (header((3,), "|O"), "pickled objects"),
        (header((1,), "V1000000000000"), "cannot be read as an array"),
        (header((1,)).replace(b"(1,)", b"(((("), "cannot be read as an array"),
    ],
)
def test_a_damaged_header_is_one_line_and_allocates_nothing(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    npz(tmp_path / "a.npz", {"one.npy": content})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read, name in ((read_array, "a.npy"), (read_all_arrays, "a.npz")):
        with pytest.raises(ValueError, match=words if name == "a.npy" else "member 'one.npy'") as caught:
            read(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name} cannot be read")
        assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_members_that_are_no_arrays_are_named(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", {"x.npy": header((0,)), "read me.txt": b"text"})
    with pytest.raises(ValueError, match=r"a\.npz cannot be read: its member 'read me\.txt' is not an array"):
        read_all_arrays(path)
    assert list(read_arrays(path, "x")) == ["x"]


def test_a_compressed_bag_of_words_is_read(tmp_path: Path) -> None:
    """As large and as sparse as CiteSeer's, dense and in float64, which deflate makes 270 times smaller."""
    generator = np.random.default_rng(0)
    words = np.zeros((3327, 3703))
    words[generator.integers(0, 3327, 105_000), generator.integers(0, 3703, 105_000)] = 1
    np.savez_compressed(tmp_path / "words.npz", words=words)
    assert np.array_equal(read_all_arrays(tmp_path / "words.npz")["words"], words)


def test_an_archive_that_expands_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet._limits.EXPANDED_BYTES", 10_000)
    np.savez_compressed(tmp_path / "a.npz", zeros=np.zeros(100_000))
    with pytest.raises(ValueError, match=r"its arrays expand to 800,128 bytes, and the limit for this file is "):
        read_all_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", zeros=np.zeros(100_000))
    assert read_all_arrays(tmp_path / "a.npz")["zeros"].shape == (100_000,)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused(tmp_path: Path, method: int) -> None:
    path = npz(tmp_path / "a.npz", {"x.npy": header((0,))}, compression=method)
    with pytest.raises(ValueError, match="compressed by another method"):
        read_all_arrays(path)


# 64-bit differences of the last one overflow: each entry seems to be larger than the one before.
WRONG_INDPTR = [
    [0, 9, 3, 2, 7, 9],
    [0, -5, 3, 4, 5, 9],
    [0, 10**6, 3, 4, 5, 9],
    [1, 2, 4, 6, 8, 9],
    [0, 2, 4, 6, 8, 10],
    [0, 2, 4, 6, 9],
    [0, 2**63 - 1, -(2**63), -1, 5, 9],
]


@pytest.mark.parametrize("indptr", WRONG_INDPTR)
def test_a_wrong_indptr_is_refused_by_every_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indptr: list[int]
) -> None:
    wrong = np.array(indptr)
    np.savez(tmp_path / "space.npz", format=b"csr", **PARTS | {"indptr": wrong})
    with pytest.raises(ValueError, match=r"space\.npz.*indptr of the sparse matrix must rise from 0 to 9"):
        read_space(tmp_path / "space.npz")
    official.write_disease(tmp_path, "disease_lp", nodes=5)
    files = {path.name: path for path in (tmp_path / "hgcn").iterdir()}
    np.savez(files["disease_lp.feats.npz"], format=b"csr", **PARTS | {"indptr": wrong})
    with pytest.raises(ValueError, match=r"feats\.npz cannot be read as a sparse matrix: indptr"):
        read_disease("disease_lp", files)
    official.write_wordnet(tmp_path)
    path = tmp_path / "wordnet" / "wordnet31_synsets.npz"
    arrays = dict(np.load(path)) | {f"x_{key}": value for key, value in (PARTS | {"indptr": wrong}).items()}
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=r"synsets\.npz: indptr"):
        reader(DATASETS["wordnet"])({path.name: path})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indices": MATRIX.indices - 1}, "indices contains -1"),
        ({"indices": MATRIX.indices + 1}, "indices contains 5"),
        ({"indices": MATRIX.indices[:-1]}, "indices has 8 entries"),
        ({"indices": MATRIX.indices.astype(np.uint64) + np.uint64(2**63)}, "indices contains 9223372036854775808"),
        ({"indices": MATRIX.indices.astype(float)}, "indices of the sparse matrix is float64"),
        ({"indptr": MATRIX.indptr[None]}, "indptr of the sparse matrix is int32"),
        ({"shape": np.array([5, 2**40])}, r"shape \[5, 1,099,511,627,776\] and 9 entries; the limit"),
        ({"shape": np.array([-5, 5])}, "must be two sizes"),
        ({"shape": np.array([5.0, 5.0])}, "must be two sizes"),
        ({"shape": np.array([5])}, "must be two sizes"),
        ({"data": np.array(["a"] * 9)}, "they must be numbers"),
        ({"format": np.array("dia")}, "has the format 'dia'"),
    ],
)
def test_inconsistent_sparse_matrices_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sparse_matrix(PARTS | change)


@pytest.mark.parametrize("convert", [sparse.csr_array, sparse.csc_array, sparse.coo_array])
@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f2", "<i4", "|b1", "<u8"])
def test_sparse_matrices_of_scipy_are_read(tmp_path: Path, convert: Callable[..., Any], dtype: str) -> None:
    values = np.array([[0, 1, 0], [1, 0, 1]]).astype(dtype)
    whole = convert(values.astype(np.float64))
    arrays = {"format": np.array(whole.format), "shape": np.array(whole.shape), "data": whole.data.astype(dtype)}
    names = ("row", "col") if whole.format == "coo" else ("indices", "indptr")
    matrix = sparse_matrix(arrays | {name: getattr(whole, name) for name in names})
    assert np.array_equal(matrix.toarray(), values)


def test_a_zip_directory_with_a_wrong_size_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", {"x.npy": header((4,)) + bytes(32)})
    data = bytearray(path.read_bytes())
    place = data.rfind(b"PK\x01\x02") + 24  # size of the member in the central directory
    data[place : place + 4] = struct.pack("<I", 2**31)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.npz cannot be read: its arrays expand to 2,147,483,648 bytes"):
        read_all_arrays(path)


def test_an_archive_of_many_arrays_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet.data.formats.arrays.ARRAYS", 3)
    for count in (3, 4):
        np.savez(tmp_path / f"{count}.npz", **{f"array{number}": np.zeros(1) for number in range(count)})
    assert len(read_all_arrays(tmp_path / "3.npz")) == 3
    with pytest.raises(ValueError, match=r"4\.npz cannot be read: it holds 4 arrays; the limit is 3"):
        read_arrays(tmp_path / "4.npz", "array0")


@pytest.mark.parametrize("dtype", ["S1", "U1", "u1"])
def test_a_small_file_of_many_texts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(_limits, "TEXT_ITEMS", 1000)
    few, many = (np.zeros(count, dtype=np.uint8).astype(dtype) for count in (1000, 20_000))
    edges, labels = np.array([[0, 1], [1, 2]]), np.arange(2)
    images = {"train_images": np.zeros((2, 2, 2), np.uint8), "train_labels": labels}
    images |= {"test_images": np.zeros((2, 2, 2), np.uint8), "test_labels": labels}
    path = tmp_path / "small.npz"
    words = r"small\.npz.*its array '.+' has 20,000 names, classes or labels, and the limit for this file is"
    for key in ("names", "classes"):
        np.savez_compressed(path, edge_index=edges, **{key: many})
        with pytest.raises(ValueError, match=words):
            read_graph(path)
    np.savez_compressed(path, classes=many, **images)
    with pytest.raises(ValueError, match=words):
        load_images(path)
    np.savez_compressed(path, edge_index=edges, y=many)
    if dtype != "u1":  # numbers as labels do not become texts
        with pytest.raises(ValueError, match=words):
            read_graph(path)
    np.savez(path, texts=many)  # as large as its content
    assert read_all_arrays(path, ("texts",))["texts"].shape == many.shape
    np.savez_compressed(path, texts=few)
    assert read_all_arrays(path, ("texts",))["texts"].shape == few.shape
