"""Small tables of ready words, methods down and columns across: for Markdown and for the terminal."""

from __future__ import annotations

from typing import NamedTuple

from rich import box
from rich.table import Table

__all__ = ["Row", "Sheet", "sheet_markdown", "sheet_terminal"]


class Row(NamedTuple):
    """A method; ``cells`` in the order of the sheet's columns, empty where nothing was measured."""

    name: str
    cells: tuple[str, ...]
    source: str = "ours"
    """``"ours"``, ``"paper"`` for what the paper measured itself, or ``"quoted"`` for what it took from others."""

    @property
    def label(self) -> str:
        """The name, with its source where that is not we."""
        return self.name if self.source == "ours" else f"{self.source}: {self.name}"


class Sheet(NamedTuple):
    """A small table."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[Row]


def sheet_markdown(sheet: Sheet) -> str:
    """A title, a note and the table."""
    rows = [("", *sheet.columns), ("---",) * (1 + len(sheet.columns)), *((row.label, *row.cells) for row in sheet.rows)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    return "\n\n".join(filter(None, (f"### {sheet.title}", sheet.note, table)))


def sheet_terminal(table_name: str, sheet: Sheet) -> Table:
    """The same for 80 columns; ``table_name``: the table of the paper that it is part of."""
    title = f"\n{table_name}: {sheet.title}"
    table = Table(title=title, caption=sheet.note, box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.add_column("", overflow="fold")
    for column in sheet.columns:
        table.add_column(column.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in sheet.rows:
        table.add_row(row.label, *(cell.replace(" ± ", "±") for cell in row.cells))
    return table
