"""Checkpoints of a training run: one file, written atomically."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from lresnet._files import write_atomically

__all__ = ["is_damaged", "load_checkpoint", "save_checkpoint"]

_ARCHIVE = b"PK\x03\x04"  # how torch.save starts a file; its older formats request memory without a check


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: tensors, numbers, strings, lists and dicts, which load with ``weights_only=True``."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Return what :func:`save_checkpoint` wrote, or None if there is no file.

    Raises:
        ValueError: the file is damaged.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        is_archive = file.read(len(_ARCHIVE)) == _ARCHIVE
    if not is_archive:
        raise ValueError(f"{path} is damaged: it is not what torch.save writes")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the type depends on where the file is damaged
        raise ValueError(f"{path} is damaged: torch cannot read it ({type(error).__name__})") from error
    return state


def is_damaged(path: Path) -> bool:
    """Whether the file exists and :func:`load_checkpoint` cannot read it."""
    try:
        load_checkpoint(path)
    except Exception:  # the type depends on where the file is damaged
        return True
    return False
