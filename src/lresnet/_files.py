"""Atomic writing of files, and checks of run folders that need no torch."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["require_no_file", "require_run_folder", "write_atomically"]


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a reader sees the old or the new content, even after a crash.

    The file's permissions follow the umask.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error  # named by the path that was requested
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # makes the rename itself survive a power cut
    finally:
        os.close(folder)


def require_run_folder(folder: Path) -> None:
    """Raise an error if ``folder`` holds no run; needs no torch, so that the command line answers at once."""
    if folder.is_file():
        raise NotADirectoryError(f"{folder} is a file, not the folder of a run; `lresnet train` makes such a folder")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist; `lresnet train` makes such a folder")
    if not (folder / "run.json").is_file():
        raise FileNotFoundError(f"{folder} holds no run: run.json is missing; `lresnet train` makes such a folder")


def require_no_file(folder: Path) -> None:
    """Raise an error if ``folder`` or a path above it is a file, so that a run cannot be written there."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if existing is not None and not existing.is_dir():
        raise NotADirectoryError(f"{existing} is a file, and a run needs a folder; use another folder")
