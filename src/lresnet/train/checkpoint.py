"""Checkpoints that are whole or not there: temporary file, fsync, rename."""

from __future__ import annotations

import io
import os
import secrets
from pathlib import Path
from typing import Any

import torch

__all__ = ["is_damaged", "load_checkpoint", "save_checkpoint", "write_atomically"]


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a reader, or a crash, sees the old content or the new, never a part.

    Who may read it is the user's own choice, the umask: a page or a run's folder may be for others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error  # by the name that was asked for
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
        os.fsync(folder)  # the rename itself must survive a power cut
    finally:
        os.close(folder)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Tensors, numbers, strings, lists and dicts; loads with ``weights_only=True``."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """What :func:`save_checkpoint` wrote, or None where there is nothing."""
    if not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def is_damaged(path: Path) -> bool:
    """Whether there is a file that :func:`load_checkpoint` cannot read."""
    try:
        load_checkpoint(path)
    except Exception:  # what a damaged file raises depends on where the damage is
        return True
    return False
