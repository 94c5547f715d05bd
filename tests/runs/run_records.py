"""Records of runs for tests of the report."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lresnet.runs.report import FolderState, Report, RunRecord, group_runs

__all__ = ["report_of", "run_record"]


def run_record(
    method: str = "lorentz",
    seed: int = 0,
    value: float = 90.0,
    *,
    task: Mapping[str, Any] | None = None,
    model: str | None = None,
    split_index: int | None = None,
    **settings: Any,
) -> RunRecord:
    """An evaluated run on Cora with its public split."""
    return RunRecord(
        task={"name": "cora/nc", "split": "official", "split_index": split_index} | dict(task or {}),
        model={"name": model, "residual": method},
        train={"seed": seed, **settings},
        validation=value,
        best_epoch=5,
        seconds=2.0,
        command="lresnet train cora/nc",
        versions={"lresnet": "0.1.0"},
        hardware="CPU <x>",
        metrics={"accuracy": value, "f1": value / 2},
    )


def report_of(records: Iterable[RunRecord]) -> Report:
    """The report of evaluated runs in the folders ``runs/0``, ``runs/1``, ..."""
    states = [FolderState(Path(f"runs/{k}"), "evaluated", record) for k, record in enumerate(records)]
    return Report(Path("runs"), states, group_runs([(one.folder, one.record) for one in states if one.record]))
