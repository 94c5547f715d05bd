"""Labelled images in records of equal length (the binary form of CIFAR), from an archive or from its extracted folder.

A record holds its label bytes, the last of which is the class, and then the pixels, channel by channel and row by row.
The archive has a published checksum. The extracted files have none, and some distributions order the images
differently. Therefore their sizes, labels and class counts are checked, and a digest that does not depend on the order.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lresnet._files import read_file
from lresnet.data.image_data import ImageData, ImageSet
from lresnet.data.source import Files, ImageRecords, ImageSource

__all__ = ["digest_of", "problem_with_folder", "read_image_records"]

_TRAIN, _TEST = 0, 1


class _Part(NamedTuple):
    images: NDArray[np.uint8]  # [N, H, W, C]
    labels: NDArray[np.int64]  # [N]


def read_image_records(source: ImageSource, files: Files) -> ImageData:
    """Read the training and test images of ``source``. An archive is read in place; nothing is extracted.

    Args:
        source: Data set with one file, an archive of records.
        files: The archive, or its extracted folder.

    Returns:
        The images in the order of the files, with the published mean and std.

    Raises:
        ValueError: A file is not as it should be; the message says in what.
        OSError: A file cannot be read.
    """
    (file,), (path,) = source.files, files.values()
    records = file.records
    if records is None:
        raise ValueError(f"{source.name} has no image records; read it with the reader of its own module")
    try:
        train, test = (_image_set(part) for part in _read(path, records))
    except ValueError as error:
        raise ValueError(
            f"{path} is not the official {source.name}: {error}; remove it, and it is downloaded"
        ) from error
    return ImageData(
        source.name,
        train,
        test,
        records.classes,
        records.mean,
        records.std,
        superclass_of=records.superclass_of,
    )


def problem_with_folder(folder: Path, records: ImageRecords) -> str | None:
    """Return what is wrong with the files in ``folder``, or None."""
    try:
        _read(folder, records)
    except ValueError as error:
        return str(error)
    return None


def digest_of(rows: NDArray[np.uint8] | Iterable[bytes]) -> str:
    """Return the sha256 of the sorted sha256 digests of the records ``[N, bytes]``, which is the same in any order."""
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(row).digest() for row in rows))).hexdigest()


def _image_set(part: _Part) -> ImageSet:
    return ImageSet(torch.from_numpy(part.images), torch.from_numpy(part.labels))


def _read(path: Path, records: ImageRecords) -> tuple[_Part, _Part]:
    """Return the training and test images of a folder or of a gzipped tar archive. Messages leave out the path."""
    contents = _folder_contents(path, records) if path.is_dir() else _archive_contents(path, records)
    train, test = (_joined(contents, files, records) for files in (records.train, records.test))
    return _decoded(train, records, _TRAIN), _decoded(test, records, _TEST)


def _record_bytes(records: ImageRecords) -> int:
    channels, height, width = records.shape
    return records.label_bytes + channels * height * width


def _sizes(records: ImageRecords) -> dict[str, int]:
    """Return the number of bytes that each file must have."""
    of_one_class = len(records.classes) * _record_bytes(records)
    parts = zip((records.train, records.test), records.per_class, strict=True)
    return {name: of_one_class * count // len(files) for files, count in parts for name in files}


def _folder_contents(folder: Path, records: ImageRecords) -> dict[str, bytes]:
    sizes = _sizes(records)
    for name, size in sizes.items():
        _require_size(name, (folder / name).stat().st_size, size)
    return {name: read_file(folder / name) for name in sizes}


def _archive_contents(path: Path, records: ImageRecords) -> dict[str, bytes]:
    """Return the required members by name. Other members are not read, and no member is written to disk."""
    sizes = _sizes(records)
    contents = {}
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                if folder == records.folder and name in sizes and member.isfile():
                    _require_size(name, member.size, sizes[name])
                    file = archive.extractfile(member)
                    contents[name] = b"" if file is None else file.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"it is not a complete archive ({error})") from error
    for name in sizes:
        if name not in contents:
            raise ValueError(f"it does not contain {records.folder}/{name}")
    return contents


def _require_size(name: str, found: int, size: int) -> None:
    if found != size:
        raise ValueError(f"{name} has {found:,} bytes, not {size:,}")


def _joined(contents: dict[str, bytes], files: tuple[str, ...], records: ImageRecords) -> NDArray[np.uint8]:
    """Return all records of ``files``, ``[N, bytes]``, after a check of each label."""
    parts = []
    for name in files:
        rows = np.frombuffer(contents[name], dtype=np.uint8).reshape(-1, _record_bytes(records))
        labels = rows[:, records.label_bytes - 1]
        wrong = np.flatnonzero(labels >= len(records.classes))
        if wrong.size:
            first = int(wrong[0])
            last = len(records.classes) - 1
            raise ValueError(f"{name}, record {first}: the label byte is {labels[first]}, but classes are 0 to {last}")
        parts.append(rows)
    return np.concatenate(parts)


def _decoded(rows: NDArray[np.uint8], records: ImageRecords, part: int) -> _Part:
    """Check the class counts and the digest, and turn colour planes into pixels."""
    kind = ("training", "test")[part]
    labels = rows[:, records.label_bytes - 1].astype(np.int64)
    counts = np.bincount(labels, minlength=len(records.classes))
    for name, count in zip(records.classes, counts.tolist(), strict=True):
        if count != records.per_class[part]:
            raise ValueError(f"class {name} has {count:,} {kind} images, not {records.per_class[part]:,}")
    if (found := digest_of(rows)) != records.digests[part]:
        raise ValueError(f"the digest of the {kind} images is {found}, not {records.digests[part]}")
    planes = rows[:, records.label_bytes :].reshape(-1, *records.shape)
    return _Part(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels)
