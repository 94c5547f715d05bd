"""A disk that records what a program does to the files of a folder, and that fails, or ends the program, when told to.

The functions of ``os`` are replaced, which everything in lresnet that writes a file goes through. A power cut is then
computed and not guessed: :class:`Replay` keeps what was flushed and drops, cuts or blanks the rest.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

Fault = Literal["kill", "full"]


class Operation(NamedTuple):
    """One call of the operating system, with paths relative to the folder."""

    kind: str
    path: str
    inode: int = 0
    data: bytes = b""
    position: int = 0
    target: str = ""


class Disk:
    """Records the operations on files under ``root``.

    Args:
        root: the folder.
        fault: what happens at operation ``at``: ``"kill"`` ends the process with SIGKILL, after half of the data if it
            is a write. ``"full"``: half of the data are written, and from then on nothing can be created or written.
        at: number of the operation, from 0.
    """

    def __init__(self, root: Path, fault: Fault | None = None, at: int = -1) -> None:
        self.root, self.fault, self.at = Path(os.path.realpath(root)), fault, at
        self.operations: list[Operation] = []
        self.marks: list[tuple[int, Any]] = []
        self.is_full = False
        self._inodes: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._handles: dict[int, list[Any]] = {}  # path, inode, position, whether it appends
        self._real = {name: getattr(os, name) for name in _PATCHED}

    def mark(self, fact: Any) -> None:
        """Record that the program has promised something, such as a checkpoint, at this point."""
        self.marks.append((len(self.operations), fact))

    def promised(self, count: int) -> list[Any]:
        """Return what was promised in the first ``count`` operations."""
        return [fact for number, fact in self.marks if number <= count]

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        """Replace the functions of ``os`` inside the context."""
        with ExitStack() as stack:
            for name in _PATCHED:
                stack.enter_context(mock.patch.object(os, name, getattr(self, f"_{name}")))
            yield self

    # What the program calls -------------------------------------------------------------------------------------------

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = self._name(path, dir_fd)
        if name is None:
            return self._real["open"](path, flags, mode, dir_fd=dir_fd)
        creates = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        if creates:
            self._at(Operation("create", name), None)
        handle: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        inode = self._inode(os.fstat(handle), creates)
        if creates:
            self.operations[-1] = self.operations[-1]._replace(inode=inode)
        self._handles[handle] = [name, inode, 0, bool(flags & os.O_APPEND)]
        return handle

    def _write(self, handle: int, data: Any) -> int:
        if handle not in self._handles:
            return self._real["write"](handle, data)  # type: ignore[no-any-return]
        own = self._handles[handle]
        content = bytes(data)
        position = os.fstat(handle).st_size if own[3] else own[2]
        half = content[: len(content) // 2]
        self._at(Operation("write", own[0], own[1], content, position), lambda: self._real["write"](handle, half))
        written: int = self._real["write"](handle, content)
        own[2] = position + written
        return written

    def _fsync(self, handle: int) -> None:
        if handle in self._handles:
            self._at(Operation("fsync", self._handles[handle][0], self._handles[handle][1]), None)
        self._real["fsync"](handle)

    def _ftruncate(self, handle: int, length: int) -> None:
        if handle in self._handles:
            self._at(Operation("truncate", self._handles[handle][0], self._handles[handle][1], b"", length), None)
        self._real["ftruncate"](handle, length)

    def _close(self, handle: int) -> None:
        self._handles.pop(handle, None)
        self._real["close"](handle)

    def _replace(self, source: Any, target: Any, **options: Any) -> None:
        names = self._name(source), self._name(target)
        if names[0] is not None and names[1] is not None:
            self._at(Operation("rename", names[0], target=names[1]), None)
        self._real["replace"](source, target, **options)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        name = self._name(path, dir_fd)
        if name is not None and os.path.lexists(self.root / name):
            self._at(Operation("unlink", name), None)
        self._real["unlink"](path, dir_fd=dir_fd)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        name = self._name(path, dir_fd)
        if name is not None and os.path.lexists(self.root / name):
            self._at(Operation("unlink", name), None)
        self._real["rmdir"](path, dir_fd=dir_fd)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        name = self._name(path)
        if name is not None and not os.path.lexists(path) and Path(path).parent.is_dir():
            self._at(Operation("mkdir", name), None)
        self._real["mkdir"](path, mode, dir_fd=dir_fd)

    # ------------------------------------------------------------------------------------------------------------------

    def _inode(self, facts: os.stat_result, is_new: bool) -> int:
        """Return a number for a file; 0 is a folder. The file system reuses its own numbers, these are used once."""
        if stat.S_ISDIR(facts.st_mode):
            return 0
        if is_new or facts.st_ino not in self._inodes:
            self._inodes[facts.st_ino] = next(self._numbers)
        return self._inodes[facts.st_ino]

    def _name(self, path: Any, dir_fd: int | None = None) -> str | None:
        if isinstance(path, int) or (dir_fd is not None and dir_fd not in self._handles):
            return None
        folder = Path.cwd() if dir_fd is None else self.root / self._handles[dir_fd][0]
        whole = Path(os.path.normpath(folder / os.fsdecode(path)))
        return str(whole.relative_to(self.root)) if whole.is_relative_to(self.root) else None

    def _at(self, operation: Operation, half: Callable[[], object] | None) -> None:
        """Record an operation, or let it fail if its turn has come."""
        number = len(self.operations)
        self.operations.append(operation)
        if number == self.at and self.fault == "kill":
            if half is not None:
                half()
            os.kill(os.getpid(), signal.SIGKILL)
        needs_space = operation.kind in ("create", "write", "fsync", "mkdir")
        if self.fault == "full" and needs_space and (self.is_full or number >= self.at):
            if half is not None and not self.is_full:
                half()
            self.is_full = True
            names = (
                () if half or operation.kind == "fsync" else (str(self.root / operation.path),)
            )  # as the system does
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *names)


_PATCHED = ("open", "write", "fsync", "ftruncate", "close", "replace", "unlink", "rmdir", "mkdir")


# Power cuts ----------------------------------------------------------------------------------------------------------

CUTS = ("dropped", "unnamed", "torn", "blank")
"""What a disk may make of changes that were not flushed: nothing of them is there; their data are there without their
names; their names without the second half of their data; their names with zeros for data."""


class Replay:
    """The files of a folder after the first operations of a program.

    Args:
        operations: what the program did.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        # A name in a folder: the number of the file, or of the folder, which is below 0. The root is 0.
        self.names: dict[tuple[int, str], int] = {}
        self.durable: dict[tuple[int, str], int] = {}
        self.data: dict[int, bytearray] = {}
        self.flushed: dict[int, bytes] = {}
        self._folders = itertools.count(-1, -1)
        for operation in operations:
            self._apply(operation)

    def _apply(self, one: Operation) -> None:
        if one.kind == "create":
            self.names[self._place(one.path)] = one.inode
            self.data[one.inode], self.flushed[one.inode] = bytearray(), b""
        elif one.kind == "mkdir":
            if one.path != ".":
                self.names[self._place(one.path)] = next(self._folders)
        elif one.kind == "write":
            content = self.data[one.inode]
            content[one.position : one.position + len(one.data)] = one.data
        elif one.kind == "truncate":
            del self.data[one.inode][one.position :]
        elif one.kind == "rename":
            self.names[self._place(one.target)] = self.names.pop(self._place(one.path))
        elif one.kind == "unlink":
            self.names.pop(self._place(one.path))
        elif one.inode:
            self.flushed[one.inode] = bytes(self.data[one.inode])
        else:  # fsync of a folder
            folder = 0 if one.path == "." else self.names[self._place(one.path)]
            for place in [place for place in {*self.names, *self.durable} if place[0] == folder]:
                if place in self.names:
                    self.durable[place] = self.names[place]
                else:
                    del self.durable[place]

    def _place(self, path: str) -> tuple[int, str]:
        """Return the folder of a path and the name in it."""
        *folders, name = Path(path).parts
        folder = 0
        for each in folders:
            folder = self.names[folder, each]
        return folder, name

    def after_a_cut(self, kind: str) -> dict[str, bytes | None]:
        """Return the files that a power cut leaves, by name; None is a folder. ``kind`` is one of :data:`CUTS`."""
        names = self.durable if kind in ("dropped", "unnamed") else self.names
        found, folders = dict[str, bytes | None](), [(0, Path())]
        for number, path in folders:  # grows
            for (folder, name), inode in names.items():
                if folder == number:
                    found[str(path / name)] = None if inode < 0 else self._content(inode, kind)
                    if inode < 0:
                        folders.append((inode, path / name))
        return found

    def _content(self, inode: int, kind: str) -> bytes:
        kept, written = self.flushed[inode], bytes(self.data[inode])
        if kind == "dropped" or written == kept:
            return kept
        if kind == "unnamed":
            return written
        start = next((i for i, pair in enumerate(zip(kept, written, strict=False)) if pair[0] != pair[1]), len(kept))
        rest = len(written) - start
        return written[: start + rest // 2] if kind == "torn" else written[:start] + bytes(rest)


def write_files(folder: Path, files: dict[str, bytes | None]) -> None:
    """Create ``folder`` with these files."""
    folder.mkdir(parents=True)
    for name, content in sorted(files.items()):
        if content is None:
            (folder / name).mkdir(parents=True, exist_ok=True)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
