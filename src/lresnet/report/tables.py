"""Figures as tables: for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from lresnet.report.aggregate import Figure

__all__ = ["markdown_table", "terminal_table"]

_COLUMNS = ("cell", "method", "protocol", "ours", "n", "validation", "paper", "against the paper")


def terminal_table(figures: Sequence[Figure], title: str) -> Table:
    """A rich table, a section for each cell."""
    table = Table(title=title)
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column in ("ours", "n", "validation", "paper") else "left")
    for previous, figure in zip([None, *figures], figures, strict=False):
        if previous is not None and previous.cell != figure.cell:
            table.add_section()
        table.add_row(*_cells(figure))
    return table


def markdown_table(figures: Sequence[Figure]) -> str:
    """The same as Markdown."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_cells(figure)) + " |" for figure in figures]
    return "\n".join(lines)


def _cells(figure: Figure) -> tuple[str, ...]:
    runs = str(figure.n) + (f" (+{figure.diverged} diverged)" if figure.diverged else "")
    paper = "" if figure.paper_mean is None else f"{figure.paper_mean:.1f} ± {figure.paper_std:.1f}"
    return (
        figure.cell,
        figure.method,
        figure.protocol,
        f"{figure.mean:.2f} ± {figure.std:.2f}",
        runs,
        f"{figure.validation:.2f}",
        paper,
        figure.verdict,
    )
