"""Data files: where they are found, how they are checked and downloaded, and which ones are present.

Files are searched in the data roots. These are, in order of preference: the argument ``root``; the folders in the
environment variable ``LRESNET_DATA`` (separated as in ``PATH``); the user's cache folder. Downloads go to the last
root. A download is written to ``<name>.part``, checked, and then renamed, so that a file under its real name is
complete.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any, Literal

from lresnet._files import open_file, read_file
from lresnet._limits import DOWNLOAD_BYTES
from lresnet.data.registry import DATASETS, find_source
from lresnet.data.source import DataSource, File, ImageRecords, OodSource

__all__ = [
    "ROOT_VARIABLE",
    "DatasetRow",
    "FileRow",
    "FileState",
    "Root",
    "complete_folder",
    "data_roots",
    "download",
    "fetch",
    "find",
    "first_existing",
    "list_datasets",
    "problem_with",
    "source_files",
    "user_images",
    "verify",
]

ROOT_VARIABLE = "LRESNET_DATA"

Root = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None

FileState = Literal["right", "missing", "wrong", "unchecked"]

# Seconds to connect, and seconds without a byte. Without a network the attempt fails at once.
_TIMEOUT = (5.0, 30.0)

# Files that passed their check in this process: path -> size, modification time and inode at the time of the check.
_checked: dict[tuple[Path, File], tuple[int, int, int]] = {}


def data_roots(root: Root = None) -> list[Path]:
    """Return the folders to search; the last one receives downloads.

    Args:
        root: A folder, a list of folders, or several folders in one string, separated as in ``PATH``. None means
            ``LRESNET_DATA`` or, if it is not set, the user's cache folder.

    Example:
        >>> data_roots(["a", "b"])
        [PosixPath('a'), PosixPath('b')]
    """
    given = os.environ.get(ROOT_VARIABLE) if root is None else root
    if given is None or given == "":
        import pooch

        return [Path(pooch.os_cache("lresnet"))]
    if isinstance(given, str | os.PathLike):
        given = [part for part in os.fspath(given).split(os.pathsep) if part]
    return [Path(part).expanduser() for part in given]


def source_files(source: DataSource, root: Root = None) -> dict[str, Path]:
    """Find or download every file of a data set.

    A complete extracted folder is preferred to an archive of images.

    Returns:
        The name of each file, e.g. ``"disease_lp.edges.csv"``, and its path.

    Raises:
        FileNotFoundError: A file is not under any root, and it cannot be downloaded.
        ValueError: A file is not the official one.
        OSError: The last root is not writable.
    """
    paths = {}
    for file in source.files:
        folder = None if file.records is None else complete_folder(file.records, root)
        paths[file.name] = folder or find(file, root) or download(file, root, source.note)
    return paths


def find(file: File, root: Root = None) -> Path | None:
    """Return the path of a file under the first root that has it, after a check; None if no root has it.

    Raises:
        ValueError: The file that was found is not the official one.
    """
    path = _path_of(file, root)
    if path is not None and (problem := problem_with(path, file)):
        raise ValueError(f"{path} is not the official file: {problem}; remove it, and it is downloaded again")
    return path


def first_existing(paths: Iterable[str], root: Root = None) -> Path | None:
    """Return the first of ``paths`` that exists under a data root; None if there is none."""
    candidates = (folder / path for folder in data_roots(root) for path in paths)
    return next((path for path in candidates if path.exists()), None)


def complete_folder(records: ImageRecords, root: Root = None) -> Path | None:
    """Return the first extracted folder that has all files of ``records``; None if no root has one."""
    names = (*records.train, *records.test)
    folders = (base / records.folder for base in data_roots(root))
    return next((folder for folder in folders if all((folder / name).is_file() for name in names)), None)


def user_images(source: OodSource, root: Root = None) -> Path:
    """Return the folder or ``.npz`` file with the images of a set that cannot be downloaded.

    Raises:
        FileNotFoundError: The images are not under any root.
    """
    path = first_existing([f"{source.folder}", f"{source.folder}.npz"], root)
    if path is None:
        searched = " or ".join(str(folder / f"{source.folder}") for folder in data_roots(root))
        raise FileNotFoundError(
            f"no images of {source.name}: put them, as a folder or as {source.name}.npz, at {searched}, or set "
            f"{ROOT_VARIABLE} to the folder that contains {source.folder}"
        )
    return path


def problem_with(path: Path, file: File) -> str | None:
    """Return what is wrong with the file at ``path``, or None. An unchanged file is read once per process."""
    status = path.stat()
    stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
    if _checked.get((path, file)) == stamp:
        return None
    if file.size is not None and status.st_size != file.size:
        return f"it has {status.st_size:,} bytes, not {file.size:,}"
    if file.size is None and status.st_size > DOWNLOAD_BYTES:
        return f"it has {status.st_size:,} bytes; the limit is {DOWNLOAD_BYTES:,}"
    if file.sha256 is not None:
        found = _sha256(path)
        if found != file.sha256:
            return f"its sha256 is {found}, not {file.sha256}"
    if file.git_blob is not None:
        found = _git_blob(path, status.st_size)
        if found != file.git_blob:
            return f"its git blob id is {found}, not {file.git_blob}"
    _checked[path, file] = stamp
    return None


def download(file: File, root: Root = None, note: str = "") -> Path:
    """Download one file from its official address into the last data root.

    Args:
        file: The file.
        root: Data roots, see :func:`data_roots`.
        note: Where a file without an address comes from, for the error message.

    Raises:
        FileNotFoundError: The file has no address, or the address did not answer.
        ValueError: The download is not the official file; it is kept with the ending ``.part``. A download that is
            larger than the official file is stopped and removed.
        OSError: The root is not writable.
    """
    roots = data_roots(root)
    searched = " and ".join(str(folder / file.path) for folder in roots)
    advice = f"put it there, or set {ROOT_VARIABLE} to the folder that contains {file.path}"
    if file.url is None:
        origin = f"; its origin: {note}" if note else ""
        raise FileNotFoundError(f"no file {searched}, and it is not published; {advice}{origin}")
    target = roots[-1] / file.path
    part = target.with_name(target.name + ".part")
    new_folders = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.open("ab").close()  # tests that it is writable; the rest of an earlier attempt stays until data arrives
    except OSError as error:
        raise OSError(
            f"{file.path} is not under {', '.join(map(str, roots))}, and the download cannot be written to "
            f"{target.parent} ({error.strerror}); add a writable folder at the end of {ROOT_VARIABLE}"
        ) from error
    try:
        _stream(file.url, part, DOWNLOAD_BYTES if file.size is None else file.size)
    except _TooLargeError as error:
        part.unlink(missing_ok=True)
        raise ValueError(f"the download of {file.url} is not the official file: {error}") from None
    except OSError as error:  # requests raises network errors as OSError without a number
        if part.stat().st_size == 0:  # nothing arrived, so nothing is kept; an interrupted download is
            part.unlink()
            for folder in new_folders:
                folder.rmdir()
        if error.errno is not None:
            raise
        raise FileNotFoundError(
            f"no file {searched}, and {file.url} could not be downloaded ({_reason(error)}); {advice}"
        ) from error
    if problem := problem_with(part, file):
        raise ValueError(f"the download of {file.url} is not the official file: {problem}; it is kept as {part}")
    part.replace(target)
    return target


@dataclass(frozen=True)
class DatasetRow:
    """One data set in the list of ``lresnet data list``.

    Args:
        name: Name of the data set.
        summary: Description in one line.
        present: Number of files that are under a data root (not checked). An extracted archive counts as its file.
        files: Number of files; 0 if the data set is generated.
        licence: Licence of the data, as its publisher states it.
        citation: Publication to cite.
        note: Further information.
    """

    name: str
    summary: str
    present: int
    files: int
    licence: str
    citation: str
    note: str


@dataclass(frozen=True)
class FileRow:
    """One file of a data set, or the folder that was extracted from an archive.

    Args:
        dataset: Name of the data set.
        path: Path relative to a data root.
        state: ``"right"``: present with the official checksum; ``"missing"``; ``"wrong"``; or ``"unchecked"``: present,
            but no checksum is published.
        where: Root under which the file was found; None if it is missing.
        detail: What is wrong, or where the file is published.
    """

    dataset: str
    path: str
    state: FileState
    where: Path | None
    detail: str


def list_datasets(root: Root = None) -> list[DatasetRow]:
    """Return one row for every data set with the number of files that are present. No file is read."""
    return [
        DatasetRow(
            source.name,
            source.summary,
            _number_present(source, root),
            1 if _user_folder(source) else len(source.files),
            source.licence,
            source.citation,
            source.note,
        )
        for source in DATASETS.values()
    ]


def verify(names: Sequence[str] = (), root: Root = None) -> list[FileRow]:
    """Check every file of the data sets ``names``, or of all data sets if ``names`` is empty.

    Wrong and missing files raise nothing; the rows report them.

    Raises:
        ValueError: There is no data set of one of these names.
    """
    return [row for source in _sources(names) for row in _file_rows(source, root)]


def fetch(names: Sequence[str], root: Root = None) -> list[FileRow]:
    """Download the missing files of the data sets ``names``, or of all published data sets, into the last root.

    Raises:
        ValueError: There is no data set of one of these names, a present file is wrong, or a download is.
        FileNotFoundError: An address did not answer, or a file of ``names`` is not published.
        OSError: The last root is not writable.
    """
    rows = []
    for source in _sources(names):
        if isinstance(source, OodSource) and source.folder:
            if names:
                user_images(source, root)  # raises if they are missing
            rows += _file_rows(source, root)
            continue
        for file in source.files:
            row = _file_row(source, file, root)
            if row.state == "wrong":
                raise ValueError(f"{row.where}/{row.path} is not the official file: {row.detail}; remove it first")
            if row.state == "missing" and (names or file.url):
                where = _root_of(download(file, root, source.note), file.path)
                row = FileRow(source.name, file.path, "right", where, "downloaded")
            rows.append(row)
    return rows


def _sources(names: Sequence[str]) -> list[DataSource]:
    return [find_source(name) for name in names] or list(DATASETS.values())


def _user_folder(source: DataSource) -> str | None:
    return source.folder if isinstance(source, OodSource) else None


def _number_present(source: DataSource, root: Root) -> int:
    if folder := _user_folder(source):
        return int(first_existing([folder, f"{folder}.npz"], root) is not None)
    folders = [file.records and complete_folder(file.records, root) for file in source.files]
    return sum(bool(folder or _path_of(file, root)) for folder, file in zip(folders, source.files, strict=True))


def _file_rows(source: DataSource, root: Root) -> list[FileRow]:
    if folder := _user_folder(source):
        path = first_existing([folder, f"{folder}.npz"], root)
        if path is None:
            return [FileRow(source.name, folder, "missing", None, source.note)]
        relative = folder if path.is_dir() else f"{folder}.npz"
        return [FileRow(source.name, relative, "unchecked", _root_of(path, relative), "no checksum is published")]
    return [_file_row(source, file, root) for file in source.files]


def _file_row(source: DataSource, file: File, root: Root) -> FileRow:
    if file.records and (folder := complete_folder(file.records, root)):  # preferred to the archive, as in loading
        from lresnet.data.formats.records import problem_with_folder

        return _checked_row(source, folder, file.records.folder, problem_with_folder(folder, file.records))
    path = _path_of(file, root)
    if path is None:
        return FileRow(source.name, file.path, "missing", None, file.url or source.note)
    return _checked_row(source, path, file.path, problem_with(path, file))


def _checked_row(source: DataSource, path: Path, relative: str, problem: str | None) -> FileRow:
    return FileRow(source.name, relative, "wrong" if problem else "right", _root_of(path, relative), problem or "")


def _path_of(file: File, root: Root) -> Path | None:
    return next((path for folder in data_roots(root) if (path := folder / file.path).is_file()), None)


def _root_of(path: Path, relative: str) -> Path:
    return path.parents[len(Path(relative).parts) - 1]


class _TooLargeError(Exception):
    """A download is larger than the official file."""


class _LimitedFile:
    """A file that :func:`_stream` writes; opened with the first bytes, so that an earlier attempt stays until then."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit, self._written = path, limit, 0
        self._file: BufferedWriter | None = None

    def write(self, data: bytes) -> int:
        self._written += len(data)
        if self._written > self._limit:
            raise _TooLargeError(f"it has more than {self._limit:,} bytes; the download was stopped")
        if self._file is None:
            self._file = self._path.open("wb")
        return self._file.write(data)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def _stream(url: str, target: Path, limit: int) -> None:
    """Write the answer of ``url`` to ``target`` and flush it to the disk; stop after ``limit`` bytes."""
    import pooch

    file = _LimitedFile(target, limit)
    responses: list[Any] = []  # pooch leaves the connection open if the download is interrupted
    keep = {"response": lambda response, *_, **__: responses.append(response)}
    try:
        pooch.HTTPDownloader(chunk_size=2**14, timeout=_TIMEOUT, hooks=keep)(url, file, None)
    finally:
        file.close()
        for response in responses:
            response.close()


def _reason(error: OSError) -> str:
    response = getattr(error, "response", None)
    return type(error).__name__ if response is None else f"HTTP status {response.status_code}"


def _sha256(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git_blob(path: Path, size: int) -> str:
    digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    digest.update(read_file(path))
    return digest.hexdigest()
