"""Data sets and their files as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from lresnet.data.files import DatasetRow, FileRow

__all__ = ["dataset_table", "file_table"]


def dataset_table(rows: Sequence[DatasetRow]) -> Table:
    """A row a data set."""
    table = Table("name", "files here", "what it is", "licence", title="Data sets", title_justify="left")
    table.columns[0].no_wrap = True
    for row in rows:
        here = f"{row.present} of {row.files}" if row.files else "made here"
        note = f" ({row.note})" if row.note else ""
        table.add_row(row.name, here, escape(row.summary + note), escape(row.licence))
    return table


def file_table(rows: Sequence[FileRow]) -> Table:
    """A row a file, with its state."""
    table = Table("data set", title="Files", title_justify="left")
    for column in ("file", "state", "where, or why"):
        table.add_column(column, overflow="fold")
    for row in rows:
        where = row.detail if row.where is None else f"{row.where}{': ' if row.detail else ''}{row.detail}"
        table.add_row(row.dataset, escape(row.path), row.state, escape(where))
    return table
