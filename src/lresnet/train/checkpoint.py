"""Checkpoints of a training run: one file with a checksum, written atomically, and the one before it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import pickle
import pickletools
import struct
import warnings
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.serialization import get_crc32_options, set_crc32_options

from lresnet._files import has_file, read_file, sync_folder, write_atomically

__all__ = [
    "has_checkpoint",
    "is_damaged",
    "load_checkpoint",
    "previous_checkpoint",
    "resume_checkpoint",
    "save_checkpoint",
]

# A file is this line, the length of the state in 8 bytes, the state as torch.save writes it, and the sha256 of all
# that comes before. Files of lresnet 0.2 are the state alone.
_HEAD = b"lresnet checkpoint, format 1\n"
_LENGTH, _DIGEST = 8, hashlib.sha256().digest_size
_UNBOUNDED = {"builtins bytearray", "__builtin__ bytearray"}  # weights_only allows it, with any number of bytes
_PLAIN = b"PK\x03\x04"  # how torch.save starts a file; its older formats request memory without a check


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: tensors, numbers, strings, lists and dicts, which load with ``weights_only=True``.

    The checkpoint that was there is kept as :func:`previous_checkpoint`.
    """
    buffer = io.BytesIO()
    with _without_crc32():
        torch.save(state, buffer)
    write_atomically(path, _with_checksum(buffer.getbuffer()), before_rename=lambda: _keep_previous(path))


def previous_checkpoint(path: Path) -> Path:
    """Return where the checkpoint before the one at ``path`` is kept."""
    return path.with_name(f"{path.name}.previous")


def has_checkpoint(path: Path) -> bool:
    """Whether there is a checkpoint at ``path``, or one before it."""
    return has_file(path) or has_file(previous_checkpoint(path))


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Return what :func:`save_checkpoint` wrote, or None if there is no file.

    If the file is damaged, a warning says so, and the checkpoint before it is returned.

    Raises:
        ValueError: the file is damaged, and so is the one before it, or there is none.
    """
    if not has_checkpoint(path):
        return None
    previous = previous_checkpoint(path)
    try:
        return _load(path)
    except (FileNotFoundError, ValueError) as error:
        if not has_file(previous):
            raise
        try:
            state = _load(previous)
        except ValueError:
            raise error from None
        reason = error if isinstance(error, ValueError) else f"{path} is missing"
        warnings.warn(f"{reason}; the checkpoint before it is used, epoch {state.get('epoch')}", stacklevel=2)
        return state


def resume_checkpoint(path: Path) -> dict[str, Any] | None:
    """Return :func:`load_checkpoint`, and replace a damaged checkpoint by the one before it.

    Otherwise the next :func:`save_checkpoint` would keep the damaged one as the previous one.
    """
    state = load_checkpoint(path)
    previous = previous_checkpoint(path)
    if has_file(previous) and is_damaged(path, previous=False):
        previous.replace(path)
        sync_folder(path.parent)
    return state


def is_damaged(path: Path, *, previous: bool = True) -> bool:
    """Whether there is a checkpoint that :func:`load_checkpoint` cannot read.

    Args:
        previous: whether the checkpoint before it counts too.
    """
    files = [path, previous_checkpoint(path)] if previous else [path]
    if previous and not has_checkpoint(path):
        return False
    for file in files:
        try:
            _load(file)
        except (FileNotFoundError, ValueError):
            continue
        return False
    return True


@contextlib.contextmanager
def _without_crc32() -> Iterator[None]:
    """Let torch.save compute no checksums of its own, which no reader of a checkpoint looks at."""
    before = get_crc32_options()
    set_crc32_options(False)
    try:
        yield
    finally:
        set_crc32_options(before)


def _with_checksum(state: memoryview) -> Iterator[bytes | memoryview]:
    """Yield the pieces of a file. A thread computes the checksum while the state is written, which takes as long."""
    head = _HEAD + len(state).to_bytes(_LENGTH, "big")
    checksum = hashlib.sha256(head)
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(checksum.update, state)
        yield head
        yield state
        done.result()
    yield checksum.digest()


def _keep_previous(path: Path) -> None:
    if path.is_file():
        path.replace(previous_checkpoint(path))


def _load(path: Path) -> dict[str, Any]:
    """Read one file and verify its checksum.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: the file is damaged; the message names it.
    """
    content = memoryview(read_file(path))
    if content[: len(_PLAIN)] != _PLAIN:
        content = _verified(path, content)
        if content[: len(_PLAIN)] != _PLAIN:
            raise ValueError(f"{path} is damaged: it does not hold what torch.save writes")
    try:
        _require_modest(content)
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # the type depends on where the file is damaged
        raise ValueError(f"{path} is damaged: torch cannot read it ({type(error).__name__})") from error
    if not isinstance(state, dict):
        raise ValueError(f"{path} is not a checkpoint: it holds {type(state).__name__}")
    return state


def _require_modest(content: memoryview) -> None:
    """Raise an error for a state that requests more memory than the file has; torch.save writes none."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise pickle.UnpicklingError("a compressed member")
        if sum(member.file_size for member in members) > len(content):
            raise pickle.UnpicklingError("members that overlap")
    for member in members:
        if member.filename.endswith("/data.pkl"):
            for opcode, argument, _ in pickletools.genops(_stored(content, member)):
                if opcode.name == "GLOBAL" and argument in _UNBOUNDED:
                    raise pickle.UnpicklingError(argument)


def _stored(content: memoryview, member: zipfile.ZipInfo) -> bytes:
    """Return the content of an uncompressed member; zipfile would verify a checksum, and ours have none."""
    name, extra = struct.unpack_from("<HH", content, member.header_offset + 26)
    start = member.header_offset + 30 + name + extra
    return bytes(content[start : start + member.file_size])


def _verified(path: Path, content: memoryview) -> memoryview:
    """Return the state in a file, without what surrounds it."""
    start = len(_HEAD) + _LENGTH
    if content[: len(_HEAD)] != _HEAD:
        raise ValueError(f"{path} is damaged, or a newer version of lresnet wrote it: its first bytes are unknown")
    length = int.from_bytes(content[len(_HEAD) : start], "big")
    if len(content) != start + length + _DIGEST:
        raise ValueError(f"{path} is damaged: it has {len(content):,} bytes, not {start + length + _DIGEST:,}")
    if hashlib.sha256(content[:-_DIGEST]).digest() != content[-_DIGEST:]:
        raise ValueError(f"{path} is damaged: its checksum does not match")
    return content[start:-_DIGEST]
