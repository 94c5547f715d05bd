"""Figures as tables: for the terminal and for Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table

from lresnet.report.aggregate import Figure

__all__ = ["markdown_page", "markdown_table", "print_figures", "print_json", "terminal_table"]

_COLUMNS = ("cell", "method", "protocol", "ours", "n", "valid.", "paper", "against the paper")


def terminal_table(figures: Sequence[Figure], title: str) -> Table:
    """A rich table, a section for each cell and protocol; fits 80 columns."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for column in _COLUMNS[1:2] + _COLUMNS[3:]:
        justify: Literal["left", "right"] = "left" if column in ("method", "against the paper") else "right"
        table.add_column(column, justify=justify, no_wrap=column == "method")
    for heading, own in _grouped(figures, lambda figure: f"[bold]{figure.cell}[/], {figure.protocol}").items():
        table.add_row(heading)
        for figure in own:
            _, method, _, *rest = _cells(figure)
            table.add_row(f"  {method}", *rest)
        table.add_section()
    return table


def markdown_table(figures: Sequence[Figure]) -> str:
    """The same as Markdown."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_cells(figure)) + " |" for figure in figures]
    return "\n".join(lines)


def markdown_page(figures: Sequence[Figure]) -> str:
    """A heading and a Markdown table for each of the paper's tables."""
    tables = _grouped(figures, lambda figure: figure.table)
    parts = [f"## {name}\n\n{markdown_table(own)}\n" for name, own in tables.items()]
    return "\n".join(parts)


def print_figures(figures: Sequence[Figure]) -> None:
    """The terminal tables, one for each of the paper's."""
    console = Console()
    for name, own in _grouped(figures, lambda figure: figure.table).items():
        console.print(terminal_table(own, f"{name}: percent, mean ± deviation over the runs"))
    if not figures:
        console.print("no final runs yet; `lresnet reproduce` makes them")


def print_json(figures: Sequence[Figure]) -> None:
    """A list of objects, one for each figure."""
    sys.stdout.write(json.dumps([figure.as_dict() for figure in figures], indent=2, allow_nan=False) + "\n")


def _grouped(figures: Sequence[Figure], name: Callable[[Figure], str]) -> dict[str, list[Figure]]:
    """Figures of one name together, in the order in which the names first appear."""
    groups: dict[str, list[Figure]] = {}
    for figure in figures:
        groups.setdefault(name(figure), []).append(figure)
    return groups


def _cells(figure: Figure) -> tuple[str, ...]:
    # "9 of 10": the tenth run diverged and has no figure.
    runs = f"{figure.n} of {figure.n + figure.diverged}" if figure.diverged else str(figure.n)
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
