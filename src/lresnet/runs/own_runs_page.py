"""A user's own runs as a page of Markdown: what the figures are, a table for each data set, and the folders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from lresnet._version import __version__
from lresnet.runs.run_folders import FolderState
from lresnet_paper.pages.paired import PairedDifference, paired_sentence
from lresnet_paper.pages.terminal import ours_and_paper
from lresnet_paper.results import Figure, grouped, in_order

__all__ = ["own_runs_page", "own_runs_tables"]

_READING = """\
Test figures in percent, mean and deviation over n runs of `lresnet train` that differ in seed or split alone; *valid.*
is the mean of their validation figures. Runs of one method with different settings have a row each, which names what
differs; *default* is what the library does where nothing is said. `lresnet evaluate` read the test set once per run."""

_COLUMNS = ("method", "test", "n", "valid.")


def own_runs_page(
    root: Path,
    figures: Sequence[Figure],
    differences: Sequence[PairedDifference],
    folders: Sequence[FolderState],
    time: str,
) -> str:
    """The whole page.

    Args:
        root: the folder of the runs' folders, for the title.
        time: what all runs took; see :func:`lresnet_paper.pages.computing_time.computing_time`.
    """
    tables = own_runs_tables(figures, differences) or "None of the runs has been evaluated yet."
    rows = [f"| `{_in_cell(str(one.folder))}` | {_in_cell(one.state)} |" for one in folders]
    parts = [
        f"# Runs in {root}",
        f"Rendered by `lresnet report --markdown`, lresnet {__version__}.",
        _READING,
        f"**Time of all runs.** {time}" if time else "",
        "## Figures",
        tables,
        "## Folders",
        "\n".join(["| folder | state |", "|---|---|", *rows]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def own_runs_tables(figures: Sequence[Figure], differences: Sequence[PairedDifference]) -> str:
    """A table for each data set and protocol, and what the Lorentz residual differs by."""
    parts = []
    for name, own in grouped(in_order(figures), lambda figure: f"{figure.cell}, {figure.protocol}").items():
        paired = [d for d in differences if (d.cell, d.protocol) == (own[0].cell, own[0].protocol)]
        rows = [f"| {' | '.join(row)} |" for row in (_COLUMNS, *map(_row, own))]
        parts += [f"### {name}", "\n".join([rows[0], "|" + "---|" * len(_COLUMNS), *rows[1:]]), paired_sentence(paired)]
    return "\n\n".join(filter(None, parts))


def _row(figure: Figure) -> tuple[str, ...]:
    validation = "" if math.isnan(figure.validation) else f"{figure.validation:.2f}"
    return _in_cell(figure.name), ours_and_paper(figure)[0], figure.runs, validation


def _in_cell(text: str) -> str:
    """A bar would end the cell."""
    return text.replace("|", "\\|")
