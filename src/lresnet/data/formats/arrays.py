"""NumPy files of users: ``.npy`` and ``.npz``, and the sparse matrices in them, checked before memory is allocated."""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse

from lresnet._files import open_file
from lresnet._limits import ARRAYS, SIDE, largest_expansion, largest_side, largest_text_array
from lresnet.data.quoting import quoted, reason

__all__ = ["read_all_arrays", "read_array", "read_arrays", "read_some_arrays", "require_range", "sparse_matrix"]

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes; others may need gigabytes to unpack
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_INDICES = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}


def read_array(path: Path) -> NDArray[Any]:
    """Read the array of a ``.npy`` file; pickled objects are refused.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged, or announces more numbers than it has.
    """
    with open_file(path) as file:
        try:
            _require_complete(file, path.stat().st_size)
            file.seek(0)
            return _checked_text(npy.read_array(file, allow_pickle=False))
        except Exception as error:  # NumPy raises many kinds of errors on a damaged header
            raise ValueError(f"{path} cannot be read as an array: {reason(error)}") from error


def read_all_arrays(path: Path, texts: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Read every array of a ``.npz`` file, see :func:`read_some_arrays`."""
    return read_some_arrays(path, None, texts=texts)


def read_arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Read the arrays ``names`` of a ``.npz`` file, see :func:`read_some_arrays`; all of them must be there."""
    return read_some_arrays(path, names, required=names)


def read_some_arrays(
    path: Path, names: tuple[str, ...] | None, required: tuple[str, ...] = (), texts: tuple[str, ...] = ()
) -> dict[str, NDArray[Any]]:
    """Read those arrays of a ``.npz`` file that ``names`` lists, or all of them; pickled objects are refused.

    Args:
        path: The file.
        names: Arrays to read if they are there; the others are ignored. None: all.
        required: Arrays that must be there.
        texts: Arrays whose numbers are used as texts, so that the limit on text holds for them too.

    Raises:
        OSError: The file cannot be read.
        ValueError: An array is missing or damaged, expands beyond the limit, has too many texts, or a member is not an
            array.
    """
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                arrays = _members(archive, path.stat().st_size, names, required)
                limit = largest_text_array(path.stat().st_size)
                for name, array in arrays.items():
                    if array.size > limit and (array.dtype.kind in "SU" or name in texts):
                        raise ValueError(
                            f"its array {quoted(name)} has {array.size:,} names, classes or labels, and the limit for "
                            f"this file is {limit:,}; save it uncompressed"
                        )
                return arrays
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path} cannot be read: it is not a .npz archive ({reason(error)})") from error
        except Exception as error:  # a damaged archive fails in many ways
            raise ValueError(f"{path} cannot be read: {reason(error)}") from error


def sparse_matrix(arrays: Mapping[str, NDArray[Any]]) -> sparse.csr_array:
    """Return the CSR matrix of the arrays that ``scipy.sparse.save_npz`` writes (CSR, CSC or COO), fully checked.

    SciPy itself trusts the index arrays; a wrong one would read and write outside the memory of the matrix.

    Raises:
        ValueError: An array is missing or inconsistent with the others, or the matrix is almost only empty rows.
    """
    kind = arrays["format"].item() if "format" in arrays and arrays["format"].ndim == 0 else b"csr"
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind not in _INDICES:
        raise ValueError(f"the sparse matrix has the format {quoted(kind)}; save it as csr, csc or coo")
    keys = ("shape", "data", *_INDICES[kind])
    if missing := [key for key in keys if key not in arrays]:
        raise ValueError(f"the sparse matrix has no array {', '.join(missing)}")
    shape, data, first, second = (arrays[key] for key in keys)
    if data.dtype.kind not in "biuf":
        raise ValueError(f"the data of the sparse matrix are {data.dtype}; they must be numbers")
    for key, array in zip(keys[1:], (data, first, second), strict=True):
        if array.ndim != 1 or (key != "data" and array.dtype.kind not in "iu"):
            raise ValueError(f"{key} of the sparse matrix is {array.dtype} {list(array.shape)}; it must be one column")
    size = _checked_size(shape, data.size)
    if kind == "coo":
        require_range("row", first, size[0], data.size)
        require_range("col", second, size[1], data.size)
        columns = (first.astype(np.int64), second.astype(np.int64))
        return sparse.csr_array(sparse.coo_array((_native(data), columns), shape=size))
    rows, columns_count = size if kind == "csr" else size[::-1]
    require_range("indices", first, columns_count, data.size)
    # Compared, not subtracted: differences of 64-bit numbers may overflow.
    rises = second.size == rows + 1 and second[0] == 0 and second[-1] == data.size
    if not rises or (second[1:] < second[:-1]).any():
        raise ValueError(
            f"indptr of the sparse matrix must rise from 0 to {data.size} in {rows + 1} entries, "
            f"found {second.size} entries from {second[:1].tolist()} to {second[-1:].tolist()}"
        )
    build = sparse.csr_array if kind == "csr" else sparse.csc_array
    matrix = sparse.csr_array(build((_native(data), first.astype(np.int64), second.astype(np.int64)), shape=size))
    matrix.sum_duplicates()
    return matrix


def require_range(key: str, indices: NDArray[Any], count: int, size: int) -> None:
    """Raise ValueError unless there are ``size`` indices, all from 0 to ``count`` - 1."""
    if indices.size != size:
        raise ValueError(f"{key} has {indices.size} entries, but there are {size}")
    if indices.size and (indices.min() < 0 or indices.max() >= count):
        wrong = indices[(indices < 0) | (indices >= count)][0]
        raise ValueError(f"{key} contains {wrong}, but the numbers are 0 to {count - 1}")


def _members(
    archive: zipfile.ZipFile, size: int, names: tuple[str, ...] | None, required: tuple[str, ...]
) -> dict[str, NDArray[Any]]:
    if len(archive.infolist()) > ARRAYS:
        raise ValueError(f"it holds {len(archive.infolist()):,} arrays; the limit is {ARRAYS:,}")
    members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
    if missing := [name for name in required if name not in members]:
        raise ValueError(f"it has no array {', '.join(missing)}")
    chosen = {name: member for name, member in members.items() if names is None or name in names}
    expanded, limit = sum(member.file_size for member in chosen.values()), largest_expansion(size)
    if expanded > limit:
        raise ValueError(
            f"its arrays expand to {expanded:,} bytes, and the limit for this file is {limit:,}; save it uncompressed"
        )
    return {name: _member(archive, member) for name, member in chosen.items()}


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    if not member.filename.endswith(".npy"):
        raise ValueError(f"its member {quoted(member.filename)} is not an array; remove it")
    try:
        if member.compress_type not in _METHODS:
            raise ValueError("it is compressed by another method than NumPy's")
        with archive.open(member) as file:
            _require_complete(file, member.file_size)
        with archive.open(member) as file:
            return _checked_text(npy.read_array(file, allow_pickle=False))
    except Exception as error:
        raise ValueError(f"member {quoted(member.filename)}: {reason(error)}") from error


def _require_complete(file: IO[bytes], size: int) -> None:
    """Raise an error unless the ``size`` bytes of a ``.npy`` file hold all numbers that its header announces."""
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"it has the version {version} of the format; save plain numbers or text")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are not read; save plain numbers or text")
    impossible = any(length < 0 for length in shape) or (dtype.itemsize == 0 and math.prod(shape) > 0)
    # As a list, an array [10^9, 0] would be a billion empty lists.
    if impossible or (0 in shape and math.prod(length for length in shape if length) > SIDE):
        raise ValueError(f"its header announces the shape {quoted(shape)} of {dtype}")
    needed, found = math.prod(shape) * dtype.itemsize, size - file.tell()
    if needed > found:
        raise ValueError(f"its header announces {_count(needed)} bytes, but {found:,} follow")


def _checked_text(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array whose text, if it has any, consists of characters: Python cannot hold other numbers."""
    if array.dtype.kind == "U" and array.size:
        characters = (
            np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        )
        if (characters > sys.maxunicode).any() or ((characters >= 0xD800) & (characters < 0xE000)).any():
            raise ValueError("its text has numbers that are no characters")
    return array


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**18 else "more than 10^18"


def _checked_size(shape: NDArray[Any], entries: int) -> tuple[int, int]:
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise ValueError(f"the shape of the sparse matrix is {quoted(shape.tolist())}; it must be two sizes")
    rows, columns = map(int, shape)
    if max(rows, columns) > (limit := largest_side(entries)):
        raise ValueError(
            f"the sparse matrix has the shape [{rows:,}, {columns:,}] and {entries:,} entries; the limit for so few "
            f"entries is {limit:,} rows or columns"
        )
    return rows, columns


def _native(data: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in a form that SciPy computes with: the byte order of this machine, no half precision."""
    return data.astype(np.float32 if data.dtype == np.float16 else data.dtype.newbyteorder("="), copy=False)
