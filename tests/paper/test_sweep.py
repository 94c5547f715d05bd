"""Aborted sweeps: all runs that finished before are in the results, and the pool sees the error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lresnet.train.results import read_results
from lresnet.train.stacking.model import StackError
from lresnet_paper import sweep
from lresnet_paper.run import Run
from lresnet_paper.sweep import run_all
from tests.runs.inline_pool import Inline

RUNS = [Run("gnn", "disease/lp", "lorentz", "legacy", seed, {"lr": 0.1}) for seed in range(5)]


class Broken(Exception):
    pass


@pytest.fixture
def pool_errors(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Replace training by a value; return the errors with which the pool was left."""
    errors: list[BaseException] = []

    @contextmanager
    def worker_pool(workers: int) -> Iterator[Inline]:
        try:
            yield Inline()
        except BaseException as error:
            errors.append(error)
            raise

    monkeypatch.setattr(sweep, "worker_pool", worker_pool)
    monkeypatch.setattr(sweep, "execute", execute)
    return errors


def execute(run: Run, **_: Any) -> tuple[dict[str, Any], None]:
    record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
    return record | {"value": 50.0, "validation": 50.0}, None


def seeds(path: Path) -> list[int]:
    return sorted(record["seed"] for record in read_results(path))


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
def test_a_report_that_raises_loses_no_finished_run(
    error: type[BaseException], pool_errors: list[BaseException], tmp_path: Path
) -> None:
    def report(done: int, total: int, record: dict[str, Any]) -> None:
        raise error

    with pytest.raises(error):
        run_all(RUNS, tmp_path / "r.jsonl", command="c", report=report)
    assert seeds(tmp_path / "r.jsonl") == [0, 1]
    assert [type(one) for one in pool_errors] == [error]  # the pool then stops its workers
    assert run_all(RUNS, tmp_path / "r.jsonl", command="c") == 0
    assert seeds(tmp_path / "r.jsonl") == [0, 1, 2, 3, 4]


def test_a_report_that_raises_loses_no_run_of_a_stack(
    pool_errors: list[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(done: int, total: int, record: dict[str, Any]) -> None:
        raise Broken

    def no_stack(*_: Any, **__: Any) -> None:
        raise StackError("unequal shapes")

    monkeypatch.setattr(sweep, "execute_many", no_stack)  # they are then executed one by one and returned together
    with pytest.raises(Broken):
        run_all(RUNS, tmp_path / "r.jsonl", command="c", device="cpu:0", report=report)  # the code path of a GPU
    assert seeds(tmp_path / "r.jsonl") == [0, 1, 2, 3, 4]
    assert pool_errors == []  # there was no pool


@pytest.mark.parametrize("broken", [0, 1])
def test_an_error_of_one_run_does_not_lose_another_finished_run(
    broken: int, pool_errors: list[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(run: Run, **options: Any) -> tuple[dict[str, Any], None]:
        if run.seed == broken:
            raise Broken
        return execute(run, **options)

    monkeypatch.setattr(sweep, "execute", raises)
    with pytest.raises(Broken):
        run_all(RUNS[:2], tmp_path / "r.jsonl", command="c")
    assert seeds(tmp_path / "r.jsonl") == [1 - broken]
    assert len(pool_errors) == 1
