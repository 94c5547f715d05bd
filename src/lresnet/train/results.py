"""Results as JSON lines: one line per finished run, with everything needed to run it again."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, BinaryIO

import lresnet
from lresnet._files import (
    CHECKSUM,
    checksum,
    has_file,
    is_at,
    lock_when_free,
    make_folder,
    naming,
    open_file,
    sync_folder,
    write_all,
)
from lresnet._json import parse_json
from lresnet._limits import LINE_BYTES

__all__ = ["ResultsFile", "append_result", "environment", "parse_line", "read_results", "result_line"]

_CHECKSUM_LENGTH = 16


@functools.cache
def environment(device: str = "cpu") -> dict[str, Any]:
    """Return the versions and the hardware of ``device`` that every result line records."""
    import torch

    hardware = torch.cuda.get_device_name(device) if device.startswith("cuda") else f"CPU, {platform.machine()}"
    versions = {"lresnet": lresnet.__version__, "torch": torch.__version__, "python": platform.python_version()}
    return {"versions": versions, "hardware": hardware}


# One line ------------------------------------------------------------------------------------------------------------


def result_line(record: Mapping[str, Any]) -> str:
    """Return a record as one line of JSON with a checksum.

    Raises:
        TypeError, ValueError: JSON has no such value.
    """
    line = json.dumps(record, allow_nan=False)  # raises before the checksum is computed
    values = json.loads(line)
    return json.dumps({**values, CHECKSUM: checksum(values)[:_CHECKSUM_LENGTH]}) + "\n"


def parse_line(line: bytes) -> dict[str, Any]:
    """Return the record of a line, without its checksum.

    A line without a checksum (lresnet 0.2 wrote none, and a person may have added it) is not verified.

    Raises:
        ValueError: the line is incomplete or damaged.

    Example:
        >>> parse_line(result_line({"seed": 1}).encode())
        {'seed': 1}
    """
    values = parse_json(line.decode("utf-8"))
    if not isinstance(values, dict):
        raise ValueError("it is not a JSON object")
    *names, last = values or [""]
    rest = {name: values[name] for name in names}
    if values.get(last) == checksum(rest)[:_CHECKSUM_LENGTH]:  # even if its own name is damaged
        return rest
    if CHECKSUM in values:
        raise ValueError("its checksum does not match")
    return values


# A file --------------------------------------------------------------------------------------------------------------


def append_result(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line and flush it to the disk. If that fails or is interrupted, the file stays as it was."""
    line = result_line(record)
    with _opened(path) as handle:
        _append(handle, path, line)


class ResultsFile:
    """A file of results to which several processes append, every run once.

    Args:
        path: the file; it need not exist.
        key: returns what identifies the run of a line; None: the line is not a run.

    Example:
        >>> import tempfile
        >>> file = ResultsFile(Path(tempfile.mkdtemp()) / "runs.jsonl", key=lambda line: line["seed"])
        >>> file.append({"seed": 0, "value": 97.0}), file.append({"seed": 0, "value": 97.0}), file.keys()
        (True, False, {0})
    """

    def __init__(self, path: Path, key: Callable[[Mapping[str, Any]], Hashable]) -> None:
        self.path, self._key = path, key
        self._keys = set[Hashable]()
        self._end, self._inode = 0, 0  # what has been read

    def append(self, record: Mapping[str, Any]) -> bool:
        """Append a line, as :func:`append_result` does, unless the file has the run; return whether it was appended."""
        line = result_line(record)
        key = self._key(json.loads(line))
        with _opened(self.path) as handle:
            self._read(handle)
            if key is not None and key in self._keys:
                return False
            _append(handle, self.path, line)
            self._read(handle)
        return True

    def keys(self) -> Set[Any]:
        """Return the runs that the file holds now."""
        try:
            file = open_file(self.path)
        except FileNotFoundError:
            self._keys.clear()
            self._end = 0
            return self._keys
        with file:
            self._read(file.fileno())
        return self._keys

    def _read(self, handle: int) -> None:
        """Read the complete lines that were appended since the last call."""
        now = os.fstat(handle)
        if now.st_ino != self._inode or now.st_size < self._end:  # another file, or an edited one
            self._keys.clear()
            self._inode, self._end = now.st_ino, 0
        with open(handle, "rb", closefd=False) as file:
            file.seek(self._end)
            position = self._end
            for line in _lines(file):
                position += len(line)
                if line.endswith(b"\n"):
                    self._end = position
                with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):  # read_results reports it
                    self._keys.add(self._key(parse_line(line)))
        self._keys.discard(None)


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every line of ``path``; none if the file does not exist. A warning names damaged lines."""
    if not has_file(path):
        return
    with open_file(path) as file:
        number = 1
        for line in _lines(file):
            problem, record = "", None
            try:
                record = parse_line(line)
            except UnicodeDecodeError as error:
                problem = f": byte {error.start + 1} of the line is not UTF-8"
            except json.JSONDecodeError:
                pass
            except ValueError as error:
                problem = f": {error}"
            if record is not None:
                yield record
            else:
                warnings.warn(f"{path}:{number} is not a result and was skipped{problem}", stacklevel=2)
            number += line.endswith(b"\n")


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; one that is too long becomes several, none of them a result."""
    return iter(lambda: file.readline(LINE_BYTES), b"")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open and lock a file; it is created if it is missing."""
    make_folder(path.parent)
    has_file(path)  # or nothing; a named pipe is refused
    while True:
        with naming(path):
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            lock_when_free(handle)
            if is_at(handle, path):  # and was not replaced while this process waited
                yield handle
                return
        finally:
            os.close(handle)


def _append(handle: int, path: Path, line: str) -> None:
    end = os.lseek(handle, 0, os.SEEK_END)
    incomplete = end > 0 and os.pread(handle, 1, end - 1) != b"\n"  # do not append to a line that was cut off
    try:
        with naming(path):
            write_all(handle, (b"\n" if incomplete else b"") + line.encode())
            os.fsync(handle)
            if end == 0:
                sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, end)
            os.fsync(handle)
        raise
