"""Durable, atomic writing of files, locks on folders, and checks of run folders. Needs no torch."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import hashlib
import io
import json
import os
import secrets
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

__all__ = [
    "CHECKSUM",
    "InUse",
    "checksum",
    "digest",
    "has_file",
    "is_at",
    "lock_when_free",
    "locked",
    "locked_folder",
    "make_folder",
    "naming",
    "open_file",
    "read_file",
    "require_no_file",
    "require_regular",
    "require_run_folder",
    "require_writable",
    "sync_folder",
    "write_all",
    "write_atomically",
]

CHECKSUM = "checksum"
"""The entry of a JSON object that holds its checksum."""
_LOCK = ".lock"
# Name of a file that is being written. Its writer holds a lock on it, so a file without one is a leftover.
_TEMPORARY = (".lresnet-", ".tmp")

Data = bytes | memoryview


# Writing -------------------------------------------------------------------------------------------------------------


def write_atomically(
    path: Path, data: Data | Iterable[Data], *, before_rename: Callable[[], None] | None = None
) -> None:
    """Write ``data`` to ``path`` so that a reader sees the old or the new content, even after a crash or a power cut.

    The data are flushed to the disk before the file gets its name, and the name is flushed before this returns. The
    file's permissions follow the umask. A temporary file that a killed process has left in the folder is removed.

    Args:
        path: the file; missing folders are created. A symbolic link is followed.
        data: the content, as one piece or in pieces.
        before_rename: called when the data are on the disk and the file does not have its name yet.

    Raises:
        OSError: the file cannot be written; the error names ``path``, not the temporary file.
    """
    pieces = [data] if isinstance(data, bytes | memoryview) else data
    if path.is_symlink():
        path = Path(os.path.realpath(path))  # resolve() raises RuntimeError for a link to itself, which is replaced
    if _is_device(path):  # /dev/null, or a named pipe
        with naming(path), path.open("wb") as file:
            file.writelines(pieces)
        return
    make_folder(path.parent)
    with naming(path):
        _remove_leftovers(path.parent)
        handle, temporary = _open_temporary(path.parent)
        try:
            try:
                for piece in pieces:
                    write_all(handle, piece)
                os.fsync(handle)
                if before_rename is not None:
                    before_rename()
                if sys.platform == "win32":  # an open file cannot be renamed
                    os.close(handle)
                temporary.replace(path)
            finally:
                if sys.platform != "win32":
                    os.close(handle)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_all(handle: int, data: Data) -> None:
    """Write all of ``data`` to an open file; one call of the operating system may write only a part."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(handle, rest) :]


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its missing parents, and flush their names to the disk."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in created:
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names of a folder's files to the disk, so that a rename survives a power cut."""
    if sys.platform == "win32":  # a folder cannot be opened
        return
    with naming(folder):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that cannot flush folders
                raise
        finally:
            os.close(handle)


def require_writable(path: Path) -> None:
    """Raise an error if ``path`` cannot be written, before the work whose result it is to hold."""
    if _is_device(path):  # opening a named pipe waits for its reader
        return
    _remove_leftovers(path.parent)
    if path.exists():
        path.open("ab").close()
        return
    with naming(path):
        handle, temporary = _open_temporary(path.parent)
        os.close(handle)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name ``path`` in errors of the operating system, which name no file or a temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename == str(path):  # has no number, or is named already
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


# Reading -------------------------------------------------------------------------------------------------------------

# What a path may lead to instead of a file. Opening a named pipe waits for its writer, and a device may never end.
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def require_regular(path: Path) -> None:
    """Raise an error if ``path`` is missing or leads to something else than a file.

    Raises:
        OSError: there is no such path, or it is a folder, a named pipe, a socket or a device.
    """
    mode = path.stat().st_mode
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), None)
    if kind is not None:
        raise (IsADirectoryError if stat.S_ISDIR(mode) else OSError)(f"{path} is {kind}, and a file is needed here")


def has_file(path: Path) -> bool:
    """Whether there is a file.

    Raises:
        OSError: there is something else than a file, see :func:`require_regular`.
    """
    try:
        require_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def open_file(path: Path) -> io.BufferedReader:
    """Open a file for reading; a named pipe or a device is refused, see :func:`require_regular`."""
    require_regular(path)
    return path.open("rb")


def read_file(path: Path) -> bytes:
    """Return the content of a file; a named pipe or a device is refused, see :func:`require_regular`."""
    with open_file(path) as file:
        return file.read()


def digest(path: Path) -> dict[str, Any]:
    """Return ``sha256`` and ``size`` of a file, as ``run.json`` records them."""
    with open_file(path) as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": os.fstat(file.fileno()).st_size}


def checksum(values: Mapping[str, Any]) -> str:
    """Return the sha256 of a JSON object without its entry ``checksum``, whatever the order and the layout of entries.

    Example:
        >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "checksum": "", "a": 1})
        True
    """
    rest = {name: value for name, value in values.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _is_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _open_temporary(folder: Path) -> tuple[int, Path]:
    """Create and lock a file under a new name."""
    start, end = _TEMPORARY
    while True:
        path = folder / f"{start}{secrets.token_hex(8)}{end}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        if _lock(handle) is not False and os.fstat(handle).st_nlink:
            return handle, path
        os.close(handle)  # another writer has just removed it, before it was locked


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that no longer run."""
    start, end = _TEMPORARY
    for path in folder.glob(f"{start}*{end}"):
        with contextlib.suppress(OSError):  # of another user, or just renamed
            handle = os.open(path, os.O_RDWR)
            try:
                if _lock(handle):
                    path.unlink(missing_ok=True)
            finally:
                os.close(handle)


# Locks ---------------------------------------------------------------------------------------------------------------


class InUse(OSError):
    """Another process holds a lock; the message names it."""


_held: set[int] = set()
"""Open files whose locks this process holds; a forked process closes them, so that a lock ends with its owner."""


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock ``folder`` for this process with the file ``.lock``, and create it if it is missing; see :func:`locked`."""
    with locked(folder / _LOCK, f"{folder} is in use by {{}}; wait for it, or use another folder"):
        yield


@contextlib.contextmanager
def locked(path: Path, message: str) -> Iterator[None]:
    """Hold a lock in the form of a file, which exists while it is held and says who holds it.

    The operating system ends the lock when the process ends, even if it is killed. On Windows, and on file systems
    without locks, nothing is locked.

    Args:
        path: the file.
        message: of the error; ``{}`` stands for the process that holds the lock.

    Raises:
        InUse: another process, or another caller in this process, holds the lock.
    """
    make_folder(path.parent)
    with naming(path):
        handle = _acquire(path, message)
    _held.add(handle)
    try:
        yield
    finally:
        _held.discard(handle)
        if sys.platform != "win32":
            path.unlink(missing_ok=True)  # while it is locked, so that no other process locks a file without a name
        os.close(handle)


def lock_when_free(handle: int) -> None:
    """Lock an open file as soon as no other process holds its lock; closing the file ends the lock."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)


def _acquire(path: Path, message: str) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if _lock(handle) is False:
                raise InUse(message.format(_holder(path)))
            if is_at(handle, path):
                since = dt.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
                facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
                os.ftruncate(handle, 0)
                write_all(handle, json.dumps(facts).encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its owner has just removed it


def _lock(handle: int) -> bool | None:
    """Lock an open file; False: another process holds the lock, None: there are no locks here."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def is_at(handle: int, path: Path) -> bool:
    """Whether ``path`` is still the name of an open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    try:
        facts = json.loads(path.read_text())
        return f"process {int(facts['pid'])} on {facts['host']} since {facts['since']}"
    except (OSError, ValueError, LookupError, TypeError):  # it has just been locked
        return "another process"


def _close_in_child() -> None:
    for handle in _held:
        with contextlib.suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


# Run folders ---------------------------------------------------------------------------------------------------------


def require_run_folder(folder: Path) -> None:
    """Raise an error if ``folder`` holds no run; needs no torch, so that the command line answers at once."""
    if folder.is_file():
        raise NotADirectoryError(f"{folder} is a file, not the folder of a run; `lresnet train` makes such a folder")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist; `lresnet train` makes such a folder")
    if not has_file(folder / "run.json"):
        raise FileNotFoundError(f"{folder} holds no run: run.json is missing; `lresnet train` makes such a folder")


def require_no_file(folder: Path) -> None:
    """Raise an error if ``folder`` or a path above it is a file, so that a run cannot be written there."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if existing is not None and not existing.is_dir():
        raise NotADirectoryError(f"{existing} is a file, and a run needs a folder; use another folder")
