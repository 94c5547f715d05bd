"""What several verbs print with."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["name_skipped", "progress_bars", "show", "skipped_lines"]


def progress_bars() -> Progress:
    """Bars with counts, the time left (used, at the end) and a word on the state (the field ``state``)."""
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=12),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
        progress.TextColumn("{task.fields[state]}"),
        speed_estimate_period=1800,  # a run may take minutes: the estimate needs a memory longer than rich's 30 seconds
    )


def skipped_lines(skipped: Iterable[tuple[Path, str]]) -> Iterator[str]:
    """Files that could not be read, and why: a line each."""
    from lresnet.runs.one_line import one_line

    for file, reason in skipped:
        yield f"  {one_line(str(file))}: {one_line(reason)}"


def name_skipped(skipped: Iterable[tuple[Path, str]]) -> None:
    """The same, beside the standard output."""
    for line in skipped_lines(skipped):
        print(line, file=sys.stderr)


def show(table: object, text: str, json: str | None) -> None:
    """The table, and the same as JSON in the file ``json``; for ``-`` that alone."""
    from rich.console import Console

    from lresnet._files import write_atomically

    if json == "-":
        print(text)
        return
    if json is not None:
        write_atomically(Path(json), (text + "\n").encode())
    if table is not None:
        Console().print(table)
