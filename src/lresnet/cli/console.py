"""What several verbs print with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["progress_bars"]


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
