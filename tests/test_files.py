"""Durable files: whole or not at all, flushed before they are named; locks that end with their process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lresnet._files import InUse, locked_folder, make_folder, require_writable, write_atomically

SRC = Path(__file__).parents[1] / "src"
POSIX = pytest.mark.skipif(os.name != "posix", reason="locks of files are those of POSIX")


def child(code: str, *arguments: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a process that runs ``code``; it is ready when it has printed a line, which is returned."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line
    return process, line


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data[:3])))
    write_atomically(tmp_path / "a", [b"0123456789", memoryview(b"abcde")])
    assert (tmp_path / "a").read_bytes() == b"0123456789abcde"


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_a_full_disk_names_the_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(OSError, match=re.escape(f"No space left on device: '{tmp_path / 'run.json'}'")):
            write_atomically(tmp_path / "run.json", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{tmp_path}'")):
        make_folder(tmp_path / "new")


def test_new_folders_are_flushed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr("lresnet._files.sync_folder", lambda folder: flushed.append(str(folder.relative_to(tmp_path))))
    write_atomically(tmp_path / "runs" / "tree" / "run.json", b"new")
    assert sorted(flushed[:2]) == [".", "runs"]
    assert flushed[2:] == ["runs/tree"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_device_that_fails_is_named() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        write_atomically(Path("/dev/full"), b"content")


def test_a_link_is_followed_and_a_device_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"
    write_atomically(Path(os.devnull), b"new")
    assert not Path(os.devnull).is_file()


def test_a_link_to_itself_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_file_that_cannot_be_written_is_noticed_before_and_leaves_nothing(tmp_path: Path) -> None:
    require_writable(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").write_text("kept")
    require_writable(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "kept"
    with pytest.raises(OSError, match="nowhere"):
        require_writable(tmp_path / "nowhere" / "new")


_HALF = """
import os, sys, time
from pathlib import Path
from lresnet._files import write_atomically
def pieces():
    yield b"half of a file"
    print("ready", flush=True)
    time.sleep(600)
write_atomically(Path(sys.argv[1]) / "big", pieces())
"""


@POSIX
def test_the_temporary_file_of_a_killed_writer_is_removed_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    (tmp_path / ".lresnet-mine").write_text("not a temporary file")
    (tmp_path / "other.tmp").write_text("nor this one")
    (killed, _), (live, _) = child(_HALF, tmp_path), child(_HALF, tmp_path)
    try:
        assert len(list(tmp_path.glob(".lresnet-*.tmp"))) == 2
        kill(killed)
        write_atomically(tmp_path / "small", b"new")
        assert len(list(tmp_path.glob(".lresnet-*.tmp"))) == 1
    finally:
        kill(live)
    write_atomically(tmp_path / "small", b"newer")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lresnet-mine", "other.tmp", "small"]


_LOCKED = """
import os, sys, time
from pathlib import Path
from lresnet._files import locked_folder
with locked_folder(Path(sys.argv[1])):
    worker = os.fork() if len(sys.argv) > 2 else None
    if not worker:  # the forked process has closed the lock when fork returns in it
        print(os.getpid(), flush=True)
    time.sleep(600)
"""


@POSIX
def test_the_second_process_is_told_who_holds_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    holder, _ = child(_LOCKED, folder)
    try:
        words = rf"run is in use by process {holder.pid} on \S+ since \d{{4}}-\d\d-\d\d \S+; wait for it"
        with pytest.raises(InUse, match=words), locked_folder(folder):
            pytest.fail("both have the lock")
    finally:
        kill(holder)
    with locked_folder(folder):
        assert (folder / ".lock").is_file()
        with pytest.raises(InUse, match=f"in use by process {os.getpid()} "), locked_folder(folder):
            pytest.fail("both have the lock")
    assert list(folder.iterdir()) == []


@POSIX
def test_a_lock_ends_with_its_process_although_a_worker_lives_on(tmp_path: Path) -> None:
    holder, worker = child(_LOCKED, tmp_path, Path("fork"))  # the worker outlives the holder
    try:
        with pytest.raises(InUse), locked_folder(tmp_path):
            pytest.fail("both have the lock")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        os.kill(int(worker), 0)  # it runs
        with locked_folder(tmp_path):
            pass
    finally:
        os.kill(int(worker), signal.SIGKILL)
        assert holder.stdout is not None
        holder.stdout.close()


def test_a_folder_that_exists_is_not_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet._files.sync_folder", lambda folder: pytest.fail("flushed"))
    make_folder(tmp_path)
