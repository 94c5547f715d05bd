"""Folders of `lresnet train`: those that were evaluated are runs like any others, the rest is listed with its state.

A folder may be unfinished, damaged, or left by another version of lresnet: that is said of it, and never an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from lresnet._version import __version__
from lresnet.runs.folder import evaluate_folder, finished_run
from lresnet.runs.run_settings import named_settings
from lresnet_paper.results import is_run

__all__ = ["FolderState", "folder_runs", "folder_states", "folder_table", "whole_run"]

EVALUATED = "evaluated"


class FolderState(NamedTuple):
    """A run's folder and what can be said of it."""

    folder: Path
    state: str
    run: dict[str, Any] | None
    """A line of results, of a folder that was evaluated."""


def whole_run(folder: Path) -> dict[str, Any]:
    """What ``folder`` says of its finished run.

    Raises:
        FileNotFoundError: there is no run in the folder.
        ValueError: the run has not finished, or its record is not one that this version writes.
    """
    record = finished_run(folder)
    if not is_run(record):
        raise ValueError(f"{folder / 'run.json'} is not what lresnet {__version__} writes; train the run again")
    return record


def folder_states(root: Path) -> list[FolderState]:
    """Every run's folder directly in ``root``, and ``root`` itself where it is one; nothing is computed for it.

    Example:
        >>> folder_states(Path("nowhere"))
        []
    """
    folders = sorted(file.parent for pattern in ("run.json", "*/run.json") for file in root.glob(pattern))
    return [_state(folder) for folder in folders]


def _state(folder: Path) -> FolderState:
    try:
        record = whole_run(folder)
        evaluated = evaluate_folder(folder) if (folder / "evaluation.json").is_file() else None  # read, not computed
    except (OSError, ValueError) as error:
        return FolderState(folder, str(error), None)
    version = _version(record)
    other = "" if version == __version__ else f"; made by lresnet {version}, and this is {__version__}"
    if evaluated is not None and not is_run(evaluated):
        return FolderState(folder, f"{folder / 'evaluation.json'} is not what `lresnet evaluate` writes{other}", None)
    if evaluated is None:
        return FolderState(folder, f"not evaluated: `lresnet evaluate {folder}` reads the test set{other}", None)
    return FolderState(folder, f"{EVALUATED}{other}", evaluated)


def _version(record: dict[str, Any]) -> str:
    versions = record.get("versions")
    return str(versions.get("lresnet", "unknown")) if isinstance(versions, dict) else "unknown"


def folder_runs(states: list[FolderState]) -> list[dict[str, Any]]:
    """The runs of the folders that were evaluated; where settings differ, with the words that tell them apart."""
    return named_settings(state.run for state in states if state.run is not None)


def folder_table(states: list[FolderState]) -> Table:
    """A row a folder, for the terminal."""
    table = Table(title="Run folders", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("folder", overflow="fold")
    table.add_column("state", overflow="fold")
    for state in states:
        table.add_row(Text(str(state.folder)), Text(state.state))
    return table
