"""Figures as tables of the terminal, as JSON, and in words."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from rich import box
from rich.console import Console, Group
from rich.table import Table

from lresnet_paper.results import Figure, grouped, in_order

__all__ = [
    "against_paper",
    "beside_paper",
    "ours_and_paper",
    "print_figures",
    "print_json",
    "terminal_table",
]

_COLUMNS = ("method", "ours", "n", "valid.")
_PAPER_COLUMNS = ("paper", "against the paper")


def terminal_table(figures: Sequence[Figure], title: str) -> Table:
    """A rich table, a section for each cell and protocol; fits 80 columns."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    may_wrap = {"against the paper", *["method"] * any(figure.settings for figure in figures)}  # a cut name is no name
    columns = (*_COLUMNS, *_PAPER_COLUMNS) if beside_paper(figures) else _COLUMNS
    for column in columns:
        justify: Literal["left", "right"] = "left" if column in ("method", "against the paper") else "right"
        table.add_column(column, justify=justify, no_wrap=column not in may_wrap)
    for heading, own in grouped(in_order(figures), lambda f: f"[bold]{f.cell}[/], {f.protocol}").items():
        table.add_row(heading)
        for figure in own:
            table.add_row(f"  {figure.name}", *_cells(figure)[: len(columns) - 1])
        table.add_section()
    return table


def print_figures(figures: Sequence[Figure], bodies: Mapping[str, Group] | None = None) -> None:
    """The terminal tables, one for each of the paper's; ``bodies``: by table, what to print in place of its figures."""
    console = Console()
    for name, own in grouped(in_order(figures), lambda figure: figure.table).items():
        if bodies and name in bodies:
            console.print(bodies[name])
            continue
        unit = "seconds for 100 additions" if name == "runtime" else "percent, mean ± deviation over the runs"
        console.print(terminal_table(own, f"{name}: {unit}"))
    if not figures:
        console.print("no final runs yet: `lresnet reproduce` makes those of a table, `lresnet evaluate` that of a run")


def print_json(figures: Sequence[Figure]) -> None:
    """A list of objects, one for each figure."""
    sys.stdout.write(json.dumps([figure.as_dict() for figure in figures], indent=2, allow_nan=False) + "\n")


def beside_paper(figures: Sequence[Figure]) -> bool:
    """Whether the paper has a figure beside any of these; of one's own data it has none."""
    return any(figure.paper_mean is not None for figure in figures)


def ours_and_paper(figure: Figure) -> tuple[str, str]:
    """Both figures in words: percent with deviations; runtimes in seconds. Some of the paper's have no deviation."""
    if not figure.n:
        ours = "diverged"
    elif figure.table == "runtime":
        ours = f"{figure.mean:.3g}"
    else:
        ours = f"{figure.mean:.2f}" + (f" ± {figure.std:.2f}" if figure.n > 1 else "")
    if figure.paper_mean is None:
        return ours, ""
    if figure.table == "runtime":
        return ours, f"{figure.paper_mean:g}"
    std = figure.paper_std
    deviation = "" if std is None else f" ± {std:.1f}" if round(std, 1) == std else f" ± {std:g}"  # as it is printed
    return ours, f"{figure.paper_mean:.1f}{deviation}"


def against_paper(figure: Figure) -> str:
    """The verdict, and by how much: ``"better, +0.79"``; empty where the paper has no figure."""
    if not figure.verdict or not figure.n:
        return figure.verdict
    one = " (one run)" if figure.n == 1 else ""
    return f"{figure.verdict}, {figure.mean - (figure.paper_mean or 0.0):+.2f}{one}"


def _cells(figure: Figure) -> tuple[str, ...]:
    ours, paper = ours_and_paper(figure)
    validation = "" if math.isnan(figure.validation) else f"{figure.validation:.2f}"
    return ours, figure.runs, validation, paper, figure.verdict
