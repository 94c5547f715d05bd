"""What ``lresnet data list | fetch | verify`` does, as rows to print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lresnet.data.files import Root, data_roots, download, problem_with
from lresnet.data.records import complete_folder, problem_with_folder
from lresnet.data.registry import DATASETS, dataset
from lresnet.data.source import Dataset, Source

__all__ = ["DatasetRow", "FileRow", "FileState", "fetch", "list_datasets", "verify"]

FileState = Literal["right", "missing", "wrong"]


@dataclass(frozen=True)
class DatasetRow:
    """One data set: what it is and whether it is at hand.

    Args:
        name: as :func:`lresnet.data.load_graph` or :func:`lresnet.data.load_images` takes it.
        summary: one line.
        present: how many of its files lie under a data root (not checked); an archive may be there as its folder.
        files: how many files it has; 0: it is generated.
        licence: of the data, as its publisher states it.
        citation: whom to credit.
        note: what else to know.
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
    """One file of a data set, or the folder that an archive was extracted to.

    Args:
        dataset: the data set.
        path: relative to a data root.
        state: ``"right"``: there, and its checksum is the official one; ``"missing"``; or ``"wrong"``.
        where: the root it was found under; None when missing.
        detail: what is wrong, or where it comes from.
    """

    dataset: str
    path: str
    state: FileState
    where: Path | None
    detail: str


def list_datasets(root: Root = None) -> list[DatasetRow]:
    """Every data set and how much of it is at hand; reads no file."""
    return [
        DatasetRow(
            entry.name,
            entry.summary,
            sum((_folder(source, root) or _located(source, root)) is not None for source in entry.files),
            len(entry.files),
            entry.licence,
            entry.citation,
            entry.note,
        )
        for entry in DATASETS.values()
    ]


def verify(names: Sequence[str] = (), root: Root = None) -> list[FileRow]:
    """The checksum of every file of the data sets ``names`` (none: of all).

    Nothing is raised for a wrong or missing file: the rows say it.

    Raises:
        ValueError: there is no data set of such a name.
    """
    return [_checked(entry, source, root) for entry in _entries(names) for source in entry.files]


def fetch(names: Sequence[str], root: Root = None) -> list[FileRow]:
    """Download what is missing of the data sets ``names`` (none: of all that can be downloaded) into the last root.

    Raises:
        ValueError: there is no data set of such a name, a file at hand is wrong, or what came is.
        FileNotFoundError: an address did not answer, or a file of ``names`` has none.
        OSError: the last root cannot be written to.
    """
    rows = []
    for entry in _entries(names):
        for source in entry.files:
            row = _checked(entry, source, root)
            if row.state == "wrong":
                raise ValueError(f"{row.where}/{row.path} is not the official file: {row.detail}; remove it first")
            if row.state == "missing" and (names or source.address):
                where = _root_of(download(source, root), source.path)
                row = FileRow(entry.name, source.path, "right", where, "downloaded")
            rows.append(row)
    return rows


def _entries(names: Sequence[str]) -> list[Dataset]:
    return [dataset(name) for name in names] or list(DATASETS.values())


def _checked(entry: Dataset, source: Source, root: Root) -> FileRow:
    if source.records and (folder := _folder(source, root)):  # as in loading, the folder goes before the archive
        return _row(entry, folder, source.records.folder, problem_with_folder(folder, source.records))
    path = _located(source, root)
    if path is None:
        return FileRow(entry.name, source.path, "missing", None, source.address or entry.note)
    return _row(entry, path, source.path, problem_with(path, source))


def _row(entry: Dataset, path: Path, relative: str, problem: str | None) -> FileRow:
    return FileRow(entry.name, relative, "wrong" if problem else "right", _root_of(path, relative), problem or "")


def _folder(source: Source, root: Root) -> Path | None:
    return complete_folder(source.records, root) if source.records else None


def _located(source: Source, root: Root) -> Path | None:
    return next((path for folder in data_roots(root) if (path := folder / source.path).is_file()), None)


def _root_of(path: Path, relative: str) -> Path:
    return path.parents[len(Path(relative).parts) - 1]
