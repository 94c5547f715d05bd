"""The trainings of a sweep that are under way: where each keeps its checkpoint, to go on from if it is interrupted."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from lresnet.studies.graph_run import graph_cell
from lresnet.train.checkpoint import is_damaged
from lresnet.train.results import environment

if TYPE_CHECKING:
    from lresnet.studies.run import Run

__all__ = ["checkpoint_of", "forget_checkpoints"]


def checkpoint_of(run: Run, results: Path, device: str) -> Path | None:
    """The file for the state of a run whose line is to go into ``results``; None: it is short enough to begin anew.

    That is so for graphs and for the runs of a search. A run goes on where it was begun: on the same hardware, with the
    same versions. A file that was damaged is removed.
    """
    if graph_cell(run.cell) is not None or run.stage != "final":
        return None
    path = _folder(results) / f"{_digest(run.key())}-{_digest(environment(device))}.pt"
    if is_damaged(path):
        path.unlink()
    return path


def forget_checkpoints(run: Run, results: Path) -> None:
    """Remove those of a run that has its line, also where it was begun with other versions or on other hardware.

    The folder stays: another process may be about to write into it.
    """
    for path in _folder(results).glob(f"{_digest(run.key())}-*.pt"):
        path.unlink(missing_ok=True)


def _folder(results: Path) -> Path:
    return results.parent / "unfinished"


def _digest(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
