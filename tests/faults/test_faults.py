"""The short form of ``make test-faults``: a sample of every kind of fault, and the disk that injects them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lresnet._files import sync_folder, write_atomically
from tests.faults.campaign import (
    Count,
    Reference,
    damaged_files,
    flipped_bits,
    full_disks,
    kills,
    missing_permissions,
    power_cuts,
    reference,
    two_processes,
)
from tests.faults.commands import Runs, verdict
from tests.faults.disk import Disk, Replay
from tests.faults.scenarios import SCENARIOS

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and file operations are those of POSIX")


@pytest.fixture(scope="module", params=SCENARIOS)
def whole(request: pytest.FixtureRequest) -> Iterator[Reference]:
    with reference(request.param) as one:
        yield one


def require_all_survived(count: Count) -> None:
    assert count.problems == []
    assert count.injected == count.survived > 0


def test_power_cuts(whole: Reference) -> None:
    require_all_survived(power_cuts(whole, step=9))


def test_kills(whole: Reference) -> None:
    require_all_survived(kills(whole, step=23))


def test_full_disks(whole: Reference) -> None:
    require_all_survived(full_disks(whole, step=9))


def test_flipped_bits(whole: Reference) -> None:
    if whole.scenario.name != "report":  # nothing reads a page again
        require_all_survived(flipped_bits(whole, flips=60, repairs=6))


def test_two_processes(whole: Reference) -> None:
    require_all_survived(two_processes(whole, rounds=1))


# --- damaged and unreadable files of a run on images ------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with tempfile.TemporaryDirectory() as place:
        yield Runs.prepare(Path(place))


def test_damaged_files(runs: Runs) -> None:
    require_all_survived(damaged_files(runs, step=31))


def test_missing_permissions(runs: Runs) -> None:
    require_all_survived(missing_permissions(runs, step=17))


def test_a_command_that_overlooks_damage_is_found_out(runs: Runs) -> None:
    whole = (0, "accuracy 50.00", "", "")
    assert verdict(runs, (0, "accuracy 60.00", "", ""), whole).startswith("silent")
    assert verdict(runs, (1, "", "Traceback", ""), whole).startswith("lost")
    assert verdict(runs, (2, "", "lresnet: error: something is wrong", ""), whole).startswith("lost: the error names")
    assert verdict(runs, (2, "", f"lresnet: error: {runs.run}/run.json is damaged", ""), whole) == "survived"


# --- the disk ---------------------------------------------------------------------------------------------------------


def careless(folder: Path) -> None:
    """Write a file as a program does that flushes nothing."""
    handle = os.open(folder / "new", os.O_WRONLY | os.O_CREAT)
    os.write(handle, b"content!")
    os.close(handle)
    (folder / "new").replace(folder / "file")


def test_a_power_cut_takes_what_was_not_flushed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with disk.mounted():
        careless(tmp_path)
    assert [operation.kind for operation in disk.operations] == ["create", "write", "rename"]
    replay = Replay(disk.operations)
    assert replay.after_a_cut("dropped") == replay.after_a_cut("unnamed") == {}
    assert replay.after_a_cut("torn") == {"file": b"cont"}
    assert replay.after_a_cut("blank") == {"file": bytes(8)}


def test_a_power_cut_leaves_what_was_flushed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with disk.mounted():
        careless(tmp_path)
        for path in (tmp_path / "file", tmp_path):
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
    for kind in ("dropped", "unnamed", "torn", "blank"):
        assert Replay(disk.operations).after_a_cut(kind) == {"file": b"content!"}


def test_a_power_cut_takes_or_leaves_a_folder_that_was_renamed_with_its_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with disk.mounted():
        (tmp_path / "old").mkdir()
        write_atomically(tmp_path / "old" / "file", b"content!")
        sync_folder(tmp_path)
        (tmp_path / "old").replace(tmp_path / "new")
        renamed = len(disk.operations)
        sync_folder(tmp_path)
        shutil.rmtree(tmp_path / "new")
    whole, moved = {"old": None, "old/file": b"content!"}, {"new": None, "new/file": b"content!"}
    assert Replay(disk.operations[:renamed]).after_a_cut("dropped") == whole
    assert Replay(disk.operations[:renamed]).after_a_cut("torn") == moved
    assert Replay(disk.operations).after_a_cut("dropped") == moved
    assert Replay(disk.operations).after_a_cut("torn") == {}


def test_a_full_disk_writes_half_and_then_nothing(tmp_path: Path) -> None:
    with Disk(tmp_path, "full", at=1).mounted(), pytest.raises(OSError, match="No space left"):
        careless(tmp_path)
    assert (tmp_path / "new").read_bytes() == b"cont"


def test_a_program_that_does_not_flush_is_found_out() -> None:
    """The campaign can fail: without fsync a finished run does not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lresnet._files.os.fsync", lambda handle: None)
        patch.setattr("lresnet._files.sync_folder", lambda folder: None)
        with reference("image run") as whole:
            count = power_cuts(whole, step=len(whole.disk.operations))
    assert count.lost > 0
