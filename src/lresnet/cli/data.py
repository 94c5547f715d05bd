"""The verb ``data``: list, fetch and verify data sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from lresnet.cli.app import App

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.data.files import DatasetRow, FileRow

__all__ = ["data"]

_Root = Annotated[Path | None, arg(metavar="FOLDER")]
_Names = Annotated[Positional[tuple[str, ...]], arg(metavar="NAME")]

data = App("List, fetch and verify data sets.")


def list_(data_root: _Root = None) -> int:
    """List the data sets: what they are, how many of their files are present, and their licences; then the splits.

    Results are only comparable within one split of a graph.

    Example: lresnet data list

    Args:
        data_root: The folder with the data. None: LRESNET_DATA, or the user's cache folder without it.
    """
    from rich.console import Console

    from lresnet.data.files import list_datasets

    console = Console()
    console.print(dataset_table(list_datasets(data_root)))
    console.print(split_table())
    return 0


data.command(list_)


@data.command
def fetch(names: _Names, data_root: _Root = None) -> int:
    """Download data sets from their official addresses; a file is kept only if its checksum matches.

    Example: lresnet data fetch airport cora

    Args:
        names: The data sets.
        data_root: The folder to write to. None: the last folder of LRESNET_DATA, or the user's cache folder without it.
    """
    from rich.console import Console

    from lresnet.data.files import fetch as fetch_files

    if not names:
        raise ValueError("name the data sets to fetch; `lresnet data list` shows them")
    Console().print(file_table(fetch_files(names, data_root)))
    return 0


@data.command
def verify(names: _Names = (), data_root: _Root = None) -> int:
    """Check the files that are present against the official checksums.

    The exit code is 1 if a file is wrong, or if a named data set is incomplete.

    Example: lresnet data verify airport cora

    Args:
        names: The data sets; default: all.
        data_root: The folder with the data. None: LRESNET_DATA, or the user's cache folder without it.
    """
    from rich.console import Console

    from lresnet.data.files import verify as verify_files

    rows = verify_files(names, data_root)
    Console().print(file_table(rows))
    return int(any(row.state == "wrong" or (names and row.state == "missing") for row in rows))


def dataset_table(rows: "Sequence[DatasetRow]") -> "Table":
    """Return one row per data set, for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("name", "files here", "what it is", "licence", title="Data sets", title_justify="left")
    table.columns[0].no_wrap = True
    for row in rows:
        here = f"{row.present} of {row.files}" if row.files else "generated"
        note = f" ({row.note})" if row.note else ""
        table.add_row(row.name, here, escape(row.summary + note), escape(row.licence))
    return table


def split_table() -> "Table":
    """Return one row per split of the shipped graph tasks, for the terminal."""
    from rich.table import Table

    from lresnet.data.registry import TASKS
    from lresnet.data.split_names import SPLITS

    drawn = {None: "fixed", "index": "its number", "seed": "the seed", "index or seed": "its number, or the seed"}
    table = Table("split", "what it is", "drawn by", "tasks", title="Splits of graphs", title_justify="left")
    table.columns[0].no_wrap = True
    for rule in SPLITS.values():
        tasks = ", ".join(task.name for task in TASKS.values() if rule.name in task.splits)
        table.add_row(rule.name, rule.rule, drawn[rule.drawn_by], tasks)
    return table


def file_table(rows: "Sequence[FileRow]") -> "Table":
    """Return one row per file with its state, for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("data set", title="Files", title_justify="left")
    for column in ("file", "state", "where, or reason"):
        table.add_column(column, overflow="fold")
    for row in rows:
        where = row.detail if row.where is None else f"{row.where}{': ' if row.detail else ''}{row.detail}"
        table.add_row(row.dataset, escape(row.path), row.state, escape(where))
    return table
