"""Where data files are: found under the data roots and checked, or else downloaded from the official address.

The data roots are, in this order of preference: the argument ``root``; the folders named by ``LRESNET_DATA`` (several
are separated as in ``PATH``); the user's cache folder. Files are looked for in all of them; a download goes to the
last. It is written to ``<name>.part``, checked, and only then renamed: what has its real name is complete and right.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lresnet.data.registry import dataset
from lresnet.data.source import Source

__all__ = ["ROOT_VARIABLE", "Root", "data_roots", "dataset_files", "download", "find", "problem_with"]

ROOT_VARIABLE = "LRESNET_DATA"

Root = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None

# Seconds to connect, and seconds without a byte. Without a network the attempt fails at once.
_TIMEOUT = (5.0, 30.0)

# Files that were right in this process: path -> size, modification time and inode at the time of the check.
_checked: dict[tuple[Path, Source], tuple[int, int, int]] = {}


def data_roots(root: Root = None) -> list[Path]:
    """The folders to look in; the last one takes downloads.

    Args:
        root: a folder, a list of them, or several in one text separated as in ``PATH``. None: ``LRESNET_DATA``,
            and without it the user's cache folder.

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


def dataset_files(name: str, root: Root = None) -> dict[str, Path]:
    """Every file of data set ``name``, found or downloaded.

    Returns:
        The file's own name, e.g. ``"disease_lp.edges.csv"``, to where it lies.

    Raises:
        FileNotFoundError: a file is neither under a root nor to be had from its address.
        ValueError: a file is not the official one.
        OSError: the last root cannot be written to.
    """
    return {Path(source.path).name: find(source, root) or download(source, root) for source in dataset(name).files}


def find(source: Source, root: Root = None) -> Path | None:
    """The checked file under the first root that has it; None where no root has.

    Raises:
        ValueError: the file under a root is not the official one.
    """
    for folder in data_roots(root):
        path = folder / source.path
        if path.is_file():
            if problem := problem_with(path, source):
                raise ValueError(f"{path} is not the official file: {problem}; remove it, and it is fetched again")
            return path
    return None


def problem_with(path: Path, source: Source) -> str | None:
    """What is wrong with the file at ``path``, or None. A file that has not changed is read once per process."""
    status = path.stat()
    stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
    if _checked.get((path, source)) == stamp:
        return None
    if source.size is not None and status.st_size != source.size:
        return f"it has {status.st_size:,} bytes, not {source.size:,}"
    if source.sha256 is not None:
        found = _sha256(path)
        if found != source.sha256:
            return f"its sha256 is {found}, not {source.sha256}"
    if source.git_blob is not None:
        found = _git_blob(path, status.st_size)
        if found != source.git_blob:
            return f"its git blob id is {found}, not {source.git_blob}"
    _checked[path, source] = stamp
    return None


def download(source: Source, root: Root = None) -> Path:
    """Fetch one file from its official address into the last data root.

    Raises:
        FileNotFoundError: it has no address, or the address did not answer.
        ValueError: what came is not the official file; it stays beside the target as ``.part``.
        OSError: the root cannot be written to.
    """
    roots = data_roots(root)
    looked = " and ".join(str(folder / source.path) for folder in roots)
    advice = f"put it there, or set {ROOT_VARIABLE} to the folder that holds {source.path}"
    if source.address is None:
        raise FileNotFoundError(f"no file {looked}, and nobody publishes it; {advice}")
    target = roots[-1] / source.path
    part = target.with_name(target.name + ".part")
    new_folders = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.open("ab").close()  # may it be written? What an earlier try left stays until something comes
    except OSError as error:
        raise OSError(
            f"{source.path} is not under {', '.join(map(str, roots))}, and {target.parent} cannot take the download "
            f"({error.strerror}); add a folder that can be written to at the end of {ROOT_VARIABLE}"
        ) from error
    try:
        _stream(source.address, part)
    except OSError as error:  # those of the network, as requests raises them, are OSErrors without a number
        if part.stat().st_size == 0:  # nothing came, so nothing stays; a broken download does
            part.unlink()
            for folder in new_folders:
                folder.rmdir()
        if error.errno is not None:
            raise
        raise FileNotFoundError(
            f"no file {looked}, and {source.address} could not be read ({_reason(error)}); {advice}"
        ) from error
    if problem := problem_with(part, source):
        raise ValueError(f"the download of {source.address} is not the official file: {problem}; it is left as {part}")
    part.replace(target)
    return target


def _stream(address: str, target: Path) -> None:
    """Write what ``address`` answers to ``target``, to the disk itself."""
    import pooch

    responses: list[Any] = []  # pooch leaves the connection open when it breaks off
    keep = {"response": lambda response, *_, **__: responses.append(response)}
    try:
        pooch.HTTPDownloader(chunk_size=2**14, timeout=_TIMEOUT, hooks=keep)(address, str(target), None)
    finally:
        for response in responses:
            response.close()
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    response = getattr(error, "response", None)
    return type(error).__name__ if response is None else f"HTTP status {response.status_code}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git_blob(path: Path, size: int) -> str:
    digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    digest.update(path.read_bytes())
    return digest.hexdigest()
