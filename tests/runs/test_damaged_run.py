"""Damaged runs are noticed and repaired, one process works in a folder, and nothing is lost with a file."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import pytest

from lresnet._files import InUse, locked_folder
from lresnet.runs import RunConfig
from lresnet.runs.presets import run_config
from lresnet.runs.record import read_evaluation, write_record
from lresnet.runs.report import record_of
from tests.runs.folders import forget_checksums, opened, trained, unverified

CONFIG = {"epochs": 12, "eval_every": 2, "hidden": 4, "dropout": 0.2}


def run() -> RunConfig:
    return run_config("disease_tree/nc", settings=CONFIG)


class Interruption(Exception):
    pass


def flip(path: Path, place: int = -200) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)


FILES = ("model/model.safetensors", "model/config.json", "curve.jsonl")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", [flip, Path.unlink])
def test_training_a_damaged_run_again_repairs_it(tmp_path: Path, name: str, harm: Callable[[Path], object]) -> None:
    first = trained(tmp_path, run(), checkpoint_every=5).record
    metrics = opened(tmp_path).evaluate()
    whole = {each: (tmp_path / each).read_bytes() for each in FILES}
    harm(tmp_path / name)
    state = "is missing" if harm is Path.unlink else r"does not match its checksum in run\.json"
    if name.startswith("model"):
        with pytest.raises((FileNotFoundError, ValueError), match=f"is damaged: {name} {state}; train the run again"):
            opened(tmp_path)
    epochs: list[int] = []
    with pytest.warns(UserWarning, match=f"is damaged: {name} {state}; the run is trained again from its checkpoint"):
        again = trained(tmp_path, run(), on_epoch=lambda epoch, best: epochs.append(epoch)).record
    assert min(epochs) > 10  # from the checkpoint of epoch 10
    assert dataclasses.replace(again, seconds=None) == dataclasses.replace(first, seconds=None)
    assert whole == {each: (tmp_path / each).read_bytes() for each in FILES}
    assert opened(tmp_path).evaluate() == metrics


def test_a_damaged_run_without_a_checkpoint_says_what_is_missing(tmp_path: Path) -> None:
    trained(tmp_path, run())
    (tmp_path / "model" / "model.safetensors").unlink()
    flip(tmp_path / "checkpoint.pt")
    words = r"holds a finished run, but model/model.safetensors is missing, and checkpoint.pt is damaged too, so it"
    with pytest.raises(ValueError, match=words):
        trained(tmp_path, run())
    (tmp_path / "checkpoint.pt").unlink()
    with pytest.raises(ValueError, match=r"and checkpoint.pt is missing too, .* or delete run.json and checkpoint.pt"):
        trained(tmp_path, run())


@pytest.mark.parametrize("name", ["run.json", "evaluation.json"])
def test_a_changed_record_is_refused(tmp_path: Path, name: str) -> None:
    trained(tmp_path, run())
    opened(tmp_path).evaluate()
    path = tmp_path / name
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"validation": values["validation"] + 1}))
    with pytest.raises(ValueError, match=rf"{name} is not what .* its checksum does not match, so it was damaged"):
        opened(tmp_path).evaluate()
    path.write_text(unverified(values | {"validation": 1.0}))
    opened(tmp_path).evaluate()


def test_metrics_of_other_weights_are_not_reported(tmp_path: Path) -> None:
    """As after a repair on another machine, where the last bits differ."""
    trained(tmp_path, run())
    metrics = opened(tmp_path).evaluate()
    record = read_evaluation(tmp_path)
    assert record is not None
    assert record.files is not None
    other = record.files | {FILES[0]: {"sha256": "0", "size": 1}}
    write_record(tmp_path, dataclasses.replace(record, files=other, metrics={"f1_binary": 1.0}))
    assert opened(tmp_path).evaluate() == metrics


def test_a_run_of_an_earlier_version_has_no_checksums_and_loads(tmp_path: Path) -> None:
    record = trained(tmp_path, run()).record
    forget_checksums(tmp_path)
    assert opened(tmp_path).record == dataclasses.replace(record, files=None)
    assert trained(tmp_path, run(), on_start=lambda *args: pytest.fail("it trains again")).record.files is None
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.warns(UserWarning, match=r"model.safetensors is missing; the run is trained again"):
        assert trained(tmp_path, run()).record == dataclasses.replace(record, seconds=ANY)


def test_one_process_trains_in_a_folder_and_a_finished_run_needs_no_lock(tmp_path: Path) -> None:
    with locked_folder(tmp_path / "a"), pytest.raises(InUse, match=r"a is in use by process \d+ on"):
        trained(tmp_path / "a", run())
    assert not (tmp_path / "a" / "run.json").exists()
    trained(tmp_path / "a", run())
    with locked_folder(tmp_path / "a"):
        assert trained(tmp_path / "a", run()).record.finished


def test_the_previous_checkpoint_is_kept_until_the_run_has_finished(tmp_path: Path) -> None:
    def stop(epoch: int, best: float | None) -> None:
        if epoch >= 10:
            raise Interruption

    whole = trained(tmp_path / "whole", run()).record
    assert not (tmp_path / "whole" / "checkpoint.pt.previous").exists()
    torn = tmp_path / "torn"
    with pytest.raises(Interruption):
        trained(torn, run(), checkpoint_every=4, on_epoch=stop)
    flip(torn / "checkpoint.pt")
    with pytest.warns(UserWarning, match=r"checkpoint.pt is damaged: its checksum does not match; .* epoch 4"):
        record = trained(torn, run(), checkpoint_every=4).record
    assert dataclasses.replace(record, seconds=None) == dataclasses.replace(whole, seconds=None)


def test_metrics_that_cannot_be_saved_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, run())

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system", "evaluation.json")

    with monkeypatch.context() as patch:
        patch.setattr("lresnet.runs.run.write_record", refuse)
        with pytest.warns(UserWarning, match=r"the test metrics could not be saved: .*Read-only file system"):
            metrics = opened(tmp_path).evaluate()
    assert metrics == opened(tmp_path).evaluate()


@pytest.mark.skipif(os.name != "posix", reason="file permissions are those of POSIX")
def test_permissions_of_all_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        trained(tmp_path, run())
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()} == {0o640}


def test_the_evaluation_of_another_run_is_not_reported(tmp_path: Path) -> None:
    """Its file was copied, or another run was trained in the folder since."""
    metrics = []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        trained(folder, run_config("disease_tree/nc", seed=seed, settings=CONFIG))
        metrics.append(opened(folder).evaluate())
        assert record_of(folder).metrics == metrics[-1]
    shutil.copy(tmp_path / "1" / "evaluation.json", tmp_path / "0")
    assert record_of(tmp_path / "0").metrics is None
    assert opened(tmp_path / "0").evaluate() == metrics[0]
    assert record_of(tmp_path / "0").metrics == metrics[0]
