"""Images as records of one length, from the publisher's archive or from its extracted folder, with every check.

A record is its label bytes, the last of which is the class, and then the pixels, channel by channel, row by row. The
archive has a published checksum. The files in an extracted folder have none, and some distributions hold the images in
another order; so their sizes, labels, class counts and a digest that does not depend on the order are checked instead.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lresnet.data.files import Root, data_roots
from lresnet.data.source import ImageRecords

__all__ = ["Part", "complete_folder", "digest_of", "problem_with_folder", "read_records", "record_bytes"]

_TRAIN, _TEST = 0, 1


class Part(NamedTuple):
    """Decoded records: images uint8 ``[N, H, W, C]`` and labels int64 ``[N]``."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def complete_folder(records: ImageRecords, root: Root = None) -> Path | None:
    """The folder with all files of ``records`` under the first root that has one; None where no root has."""
    names = (*records.train, *records.test)
    folders = (base / records.folder for base in data_roots(root))
    return next((folder for folder in folders if all((folder / name).is_file() for name in names)), None)


def problem_with_folder(folder: Path, records: ImageRecords) -> str | None:
    """What is wrong with the files in ``folder``, or None."""
    try:
        read_records(folder, records)
    except ValueError as error:
        return str(error)
    return None


def read_records(path: Path, records: ImageRecords) -> tuple[Part, Part]:
    """Training and test images of a folder or of a gzipped tar archive; nothing of an archive is written to disk.

    Raises:
        ValueError: what is wrong, without the path: a size, a label, a class count, the digest, a damaged archive.
        OSError: a file cannot be read.
    """
    contents = _folder_contents(path, records) if path.is_dir() else _archive_contents(path, records)
    train, test = (_joined(contents, files, records) for files in (records.train, records.test))
    return _decoded(train, records, _TRAIN), _decoded(test, records, _TEST)


def record_bytes(records: ImageRecords) -> int:
    """Length of one record."""
    channels, height, width = records.shape
    return records.label_bytes + channels * height * width


def digest_of(rows: NDArray[np.uint8] | Iterable[bytes]) -> str:
    """The sha256 of the sorted sha256 of the records ``[N, bytes]``: the same in whatever order they are."""
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(row).digest() for row in rows))).hexdigest()


def _sizes(records: ImageRecords) -> dict[str, int]:
    """The bytes each file must have."""
    of_one_class = len(records.classes) * record_bytes(records)
    parts = zip((records.train, records.test), records.per_class, strict=True)
    return {name: of_one_class * count // len(files) for files, count in parts for name in files}


def _folder_contents(folder: Path, records: ImageRecords) -> dict[str, bytes]:
    sizes = _sizes(records)
    for name, size in sizes.items():
        _require_size(name, (folder / name).stat().st_size, size)
    return {name: (folder / name).read_bytes() for name in sizes}


def _archive_contents(path: Path, records: ImageRecords) -> dict[str, bytes]:
    """The wanted members, by name: no other is looked into, and none is unpacked to where its path says."""
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
        raise ValueError(f"it is no complete archive ({error})") from error
    for name in sizes:
        if name not in contents:
            raise ValueError(f"it holds no {records.folder}/{name}")
    return contents


def _require_size(name: str, found: int, size: int) -> None:
    if found != size:
        raise ValueError(f"{name} has {found:,} bytes, not {size:,}")


def _joined(contents: dict[str, bytes], files: tuple[str, ...], records: ImageRecords) -> NDArray[np.uint8]:
    """All records of ``files``, ``[N, bytes]``, after a look at each label."""
    parts = []
    for name in files:
        rows = np.frombuffer(contents[name], dtype=np.uint8).reshape(-1, record_bytes(records))
        labels = rows[:, records.label_bytes - 1]
        wrong = np.flatnonzero(labels >= len(records.classes))
        if wrong.size:
            first = int(wrong[0])
            last = len(records.classes) - 1
            raise ValueError(f"{name}, record {first}: the label byte is {labels[first]}, but classes are 0 to {last}")
        parts.append(rows)
    return np.concatenate(parts)


def _decoded(rows: NDArray[np.uint8], records: ImageRecords, part: int) -> Part:
    """Check the class counts and the digest, and turn planes of colours into pixels."""
    called = ("training", "test")[part]
    labels = rows[:, records.label_bytes - 1].astype(np.int64)
    counts = np.bincount(labels, minlength=len(records.classes))
    for name, count in zip(records.classes, counts.tolist(), strict=True):
        if count != records.per_class[part]:
            raise ValueError(f"class {name} has {count:,} {called} images, not {records.per_class[part]:,}")
    if (found := digest_of(rows)) != records.digests[part]:
        raise ValueError(f"the digest of the {called} images is {found}, not {records.digests[part]}")
    planes = rows[:, records.label_bytes :].reshape(-1, *records.shape)
    return Part(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels)
