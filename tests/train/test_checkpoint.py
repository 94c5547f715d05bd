"""Atomic files and checkpoints."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
import torch

from lresnet._files import write_atomically
from lresnet.train.checkpoint import (
    is_damaged,
    load_checkpoint,
    previous_checkpoint,
    resume_checkpoint,
    save_checkpoint,
)


def test_round_trip(tmp_path):
    state = {"x": torch.randn(3), "epoch": 3, "best": -float("inf"), "nested": {"list": [1, 2.5, "a", None]}}
    path = tmp_path / "deep" / "run.ckpt"
    save_checkpoint(path, state)
    back = load_checkpoint(path)
    assert torch.equal(back.pop("x"), state.pop("x"))
    assert back == state
    assert load_checkpoint(tmp_path / "nothing.ckpt") is None


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), SystemExit(1)])
def test_a_crash_between_writing_and_renaming_leaves_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "run.ckpt"
    write_atomically(path, b"old")

    def crash(self: Path, target: Path) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(type(error)):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.ckpt"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    write_atomically(path, b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.ckpt"]


def test_a_partial_temporary_file_is_never_read_as_the_checkpoint(tmp_path):
    """A process killed in the middle of a write leaves such a file."""
    path = tmp_path / "run.ckpt"
    (tmp_path / ".run.ckpt.a1b2c3").write_bytes(b"half of a checkp")
    assert load_checkpoint(path) is None
    save_checkpoint(path, {"epoch": 1})
    (tmp_path / ".run.ckpt.d4e5f6").write_bytes(b"half of the ne")
    assert load_checkpoint(path) == {"epoch": 1}


def test_the_data_are_flushed_before_the_rename(tmp_path, monkeypatch):
    """Otherwise a power cut leaves a file with the right name and no content."""
    events = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda self, target: (events.append("rename"), replace(self, target))[1])
    write_atomically(tmp_path / "run.ckpt", b"new")
    assert events == ["fsync", "rename", "fsync"]  # the last one is that of the folder


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=str(tmp_path / "file")):
        write_atomically(tmp_path / "file" / "run.ckpt", b"new")


@pytest.mark.skipif(os.name != "posix", reason="file permissions are those of POSIX")
def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "page.html", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o640


def test_a_folder_without_permission_is_named(tmp_path, monkeypatch):
    """The refusal is simulated, because root may write anywhere."""

    def refuse(path: str, *args: object) -> int:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(PermissionError, match=rf"Permission denied: '{tmp_path / 'run.ckpt'}'"):
            write_atomically(tmp_path / "run.ckpt", b"new")
    assert list(tmp_path.iterdir()) == []


STATE = {"model": {"w": torch.arange(6.0)}, "epoch": 3}


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "run.ckpt"
    save_checkpoint(path, STATE)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"run.ckpt is damaged"):
            load_checkpoint(path)
    for length in (0, 10, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert is_damaged(path)
    path.write_bytes(whole)
    assert load_checkpoint(path)["epoch"] == 3


def test_the_previous_checkpoint_is_used_with_a_warning_if_the_last_one_is_damaged_or_gone(tmp_path):
    path = tmp_path / "run.ckpt"
    for epoch in (1, 2, 3):
        save_checkpoint(path, STATE | {"epoch": epoch})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.ckpt", "run.ckpt.previous"]
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.warns(UserWarning, match=r"run.ckpt is damaged: .*; the checkpoint before it is used, epoch 2"):
        assert load_checkpoint(path)["epoch"] == 2
    with pytest.warns(UserWarning, match="epoch 2"):
        resume_checkpoint(path)
    save_checkpoint(path, STATE | {"epoch": 4})
    assert load_checkpoint(previous_checkpoint(path))["epoch"] == 2  # and not the damaged one
    path.unlink()  # as if the process was killed between two renames
    with pytest.warns(UserWarning, match=r"run.ckpt is missing; the checkpoint before it is used, epoch 2"):
        assert load_checkpoint(path)["epoch"] == 2


def test_if_both_checkpoints_are_damaged_the_last_one_is_named(tmp_path):
    path = tmp_path / "run.ckpt"
    for epoch in (1, 2):
        save_checkpoint(path, STATE | {"epoch": epoch})
    for file in tmp_path.iterdir():
        file.write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"run.ckpt is damaged, or a newer version of lresnet wrote it"):
        load_checkpoint(path)


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path):
    """lresnet 0.2 wrote the state alone, without a checksum."""
    torch.save(STATE, tmp_path / "run.ckpt")
    assert load_checkpoint(tmp_path / "run.ckpt")["epoch"] == 3
    torch.save([1, 2], tmp_path / "run.ckpt")
    with pytest.raises(ValueError, match=r"run.ckpt is not a checkpoint: it holds list"):
        load_checkpoint(tmp_path / "run.ckpt")


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("hacked",)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Hostile()}, "run.ckpt")
    with pytest.raises(ValueError, match="UnpicklingError"):
        load_checkpoint(Path("run.ckpt"))
    assert not Path("hacked").exists()


class ManyBytes:
    def __reduce__(self) -> tuple[object, ...]:
        return bytearray, (4 * 10**9,)


def repacked(path: Path, compression: int, copies: int) -> None:
    """Write the archive at ``path`` again; the storage of its tensor gets several names for one content."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
            for _ in range(copies if name.endswith("data/0") else 0):
                archive.filelist.append(archive.filelist[-1])


@pytest.mark.parametrize("kind", ["a number of bytes", "compressed zeros", "one storage many times"])
def test_a_checkpoint_that_requests_more_memory_than_its_file_has_is_refused(tmp_path, monkeypatch, kind):
    path = tmp_path / "run.ckpt"
    torch.save({"model": ManyBytes() if kind == "a number of bytes" else torch.zeros(100_000)}, path)
    if kind != "a number of bytes":
        zeros = kind == "compressed zeros"
        repacked(path, zipfile.ZIP_DEFLATED if zeros else zipfile.ZIP_STORED, 0 if zeros else 1000)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the state was read"))
    with pytest.raises(ValueError, match=r"run.ckpt is damaged: torch cannot read it \(UnpicklingError\)"):
        load_checkpoint(path)
