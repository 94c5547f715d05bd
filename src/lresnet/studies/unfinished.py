"""The trainings of a sweep that are under way: where each keeps its checkpoint, to go on from if it is interrupted."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from lresnet.studies.graph_run import graph_cell
from lresnet.train.checkpoint import load_checkpoint
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
    try:
        load_checkpoint(path)
    except Exception:  # what a damaged file raises depends on where the damage is
        path.unlink()
    return path


def forget_checkpoints(run: Run, results: Path) -> None:
    """Remove those of a run that has its line, also where it was begun with other versions or on other hardware."""
    folder = _folder(results)
    for path in folder.glob(f"{_digest(run.key())}-*.pt"):
        path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _folder(results: Path) -> Path:
    return results.parent / "unfinished"


def _digest(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
