"""An interrupted training of a sweep resumes from its checkpoint, with bit-identical results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lresnet.runs.tasks import _images
from lresnet.train import NonFiniteError
from lresnet.train.checkpoint import load_checkpoint
from lresnet.train.results import read_results
from lresnet_paper import sweep
from lresnet_paper.run import Run, execute
from lresnet_paper.sweep import checkpoint_path, remove_checkpoints, run_all
from tests.coloured import coloured_data

CONFIG = {"model": "lorentz_resnet20", "epochs": 5, "batch_size": 30, "lr": 0.05, "optimizer": "sgd", "keep": "last"}
ON_A_GPU = "cpu:0"  # takes the code path of a GPU: training in this process


def run(**change: Any) -> Run:
    base = {"table": "image_classification", "cell": "cifar10", "method": "lorentz", "protocol": "fast", "seed": 0}
    return Run(**base | {"config": CONFIG} | change)


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("lresnet.runs.tasks.load_images", lambda name, size=None: coloured_data())
    _images.cache_clear()
    yield
    _images.cache_clear()


def interrupt_at(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(now: int, _: float | None) -> None:
        if now == epoch:
            raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "execute", lambda one, **options: execute(one, **options, on_epoch=stop))


def line(path: Path) -> dict[str, Any]:
    (record,) = read_results(path)
    return {name: value for name, value in record.items() if name != "seconds"}


def test_a_resumed_training_has_the_same_results(tmp_path, monkeypatch):
    whole, torn = tmp_path / "whole.jsonl", tmp_path / "torn" / "torn.jsonl"
    assert run_all([run()], whole, command="c", device=ON_A_GPU) == 0
    interrupt_at(3, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run_all([run()], torn, command="c", device=ON_A_GPU)
    (checkpoint,) = (torn.parent / "unfinished").glob("*.pt")
    assert load_checkpoint(checkpoint)["epoch"] == 2  # the callback runs before the third checkpoint is written
    seen: list[int] = []
    monkeypatch.setattr(
        sweep, "execute", lambda one, **options: execute(one, **options, on_epoch=lambda now, _: seen.append(now))
    )
    assert run_all([run()], torn, command="c", device=ON_A_GPU) == 0
    assert seen == [3, 4, 5]
    assert line(torn) == line(whole)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["torn.jsonl", "whole.jsonl"]


def test_each_run_has_its_own_checkpoint(tmp_path):
    path = tmp_path / "r.jsonl"
    others = [run(seed=1), run(method="euclidean"), run(protocol="paper"), run(config=CONFIG | {"lr": 0.1})]
    files = {checkpoint_path(one, path, "cpu") for one in [run(), *others]}
    assert len(files) == 5
    assert checkpoint_path(run(), path, "cpu") in files


@pytest.mark.parametrize("short", [{"stage": "search"}, {"cell": "disease/lp", "table": "gnn", "protocol": "legacy"}])
def test_short_runs_have_no_checkpoint(short, tmp_path):
    assert checkpoint_path(run(**short), tmp_path / "r.jsonl", "cpu") is None


def test_other_versions_have_other_checkpoints_and_all_are_removed(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    files = []
    for version in ("2.11", "2.13"):
        monkeypatch.setattr("lresnet_paper.sweep.environment", lambda device, own=version: {"torch": own})
        files.append(checkpoint_path(run(), path, "cpu"))
        files[-1].parent.mkdir(exist_ok=True)
        files[-1].touch()
    assert files[0] != files[1]
    other = checkpoint_path(run(seed=1), path, "cpu")
    other.touch()
    remove_checkpoints(run(), path)
    assert list(tmp_path.rglob("*.pt")) == [other]


def test_a_damaged_checkpoint_is_ignored(tmp_path):
    path = tmp_path / "r.jsonl"
    file = checkpoint_path(run(), path, ON_A_GPU)
    file.parent.mkdir()
    file.write_bytes(b"PK torn")
    assert run_all([run(config=CONFIG)], path, command="c", device=ON_A_GPU) == 0
    assert line(path)["epochs"] == 5


def test_a_diverged_run_leaves_no_checkpoint(tmp_path, monkeypatch):
    def diverge(one: Run, *, checkpoint: Path, **_: Any) -> None:
        checkpoint.parent.mkdir(exist_ok=True)
        checkpoint.touch()
        raise NonFiniteError("the loss stopped being finite at step 7")

    monkeypatch.setattr(sweep, "execute", diverge)
    assert run_all([run()], tmp_path / "r.jsonl", command="c", device=ON_A_GPU) == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["r.jsonl"]
