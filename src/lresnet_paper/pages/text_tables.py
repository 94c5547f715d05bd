"""Numbers as text, and small tables of text for Markdown pages and the terminal."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from lresnet.runs.statistics import Estimate, Summary, Verdict
from lresnet_paper.comparisons import Comparison
from lresnet_paper.render import render
from lresnet_paper.results import Result, grouped, in_order, method_label
from lresnet_paper.run import text_cell
from lresnet_paper.selected_on_test import Selection

__all__ = [
    "TextRow",
    "TextTable",
    "against_paper",
    "comparison_table",
    "difference_text",
    "has_paper_values",
    "markdown_tables",
    "non_inferiority_text",
    "our_value",
    "paper_value",
    "print_json",
    "print_results",
    "result_table",
    "selection_table",
    "terminal_tables",
    "validation_text",
    "verdict_text",
]

# --- numbers as text --------------------------------------------------------------------------------------------------


def our_value(result: Result) -> str:
    """Return mean ± deviation of our runs in percent, or seconds for runtimes.

    Example:
        >>> our_value(Result("gnn", "cora/nc", "none", "legacy", 80.0, 1.0, 10, 0, 81.0, None, None))
        '80.00 ± 1.00'
    """
    if not result.n:
        return "diverged"
    if result.table == "runtime":
        return f"{result.mean:.3g}"
    return f"{Summary(result.mean, result.std, result.n):.{_digits(result.cell)}f}"


def _digits(cell: str) -> int:
    """Return the digits after the point: two for percentages, four for bits per byte."""
    return 2 if text_cell(cell) is None else 4


def paper_value(result: Result) -> str:
    """Return the paper's value with as many digits as it prints; empty where it prints none."""
    if result.paper_mean is None:
        return ""
    if result.table == "runtime":
        return f"{result.paper_mean:g}"
    std = result.paper_std
    deviation = "" if std is None else f" ± {std:.1f}" if round(std, 1) == std else f" ± {std:g}"
    return f"{result.paper_mean:.1f}{deviation}"


def against_paper(result: Result) -> str:
    """Return the verdict against the paper and the difference of the means, e.g. ``"better, +0.79"``."""
    if not result.verdict or not result.n or result.paper_mean is None:
        return result.verdict
    return f"{result.verdict}, {result.mean - result.paper_mean:+.2f}"


def validation_text(result: Result) -> str:
    """Return the mean validation value; empty where there is none."""
    return "" if math.isnan(result.validation) else f"{result.validation:.{_digits(result.cell)}f}"


def difference_text(difference: Estimate, verdict: Verdict | None = None, digits: int = 2) -> str:
    """Return a difference with half of its 95 % interval and its number of pairs; a verdict only if it is decided.

    Example:
        >>> difference_text(Estimate(mean=1.0, low=0.5, high=1.5, n=10, p=0.001), "better")
        '+1.00 ± 0.50 (10), better'
    """
    words = "" if verdict in (None, "no difference shown") else f", {verdict}"
    return f"{difference:+.{digits}f} ({difference.n}){words}"


def verdict_text(comparison: Comparison) -> str:
    """Return the verdict on Lorentz, with non-inferiority if the recipe states a margin.

    Example:
        >>> estimate = Estimate(mean=0.2, low=-0.6, high=1.0, n=10, p=0.6)
        >>> place = "graph_transformer", "actor", "fresh_splits-sgformer", "euclidean"
        >>> verdict_text(Comparison(*place, estimate, "no difference shown", margin=1.0))
        'no difference shown, non-inferior'
    """
    return ", ".join(filter(None, [comparison.verdict, non_inferiority_text(comparison)]))


def non_inferiority_text(comparison: Comparison) -> str:
    """Return whether Lorentz is non-inferior; empty without a margin, and where it is better anyway."""
    if comparison.non_inferior is None or comparison.verdict == "better":
        return ""
    return "non-inferior" if comparison.non_inferior else "non-inferiority not shown"


# --- tables of text ---------------------------------------------------------------------------------------------------


class TextRow(NamedTuple):
    """A row: its name and one text per column, empty where nothing was measured."""

    name: str
    cells: tuple[str, ...]
    source: str = "ours"
    """``"ours"``, ``"paper"`` for the paper's own measurement, or ``"quoted"`` for what the paper cites."""

    @property
    def label(self) -> str:
        """The name, with its source if the value is not ours."""
        return self.name if self.source == "ours" else f"{self.source}: {self.name}"


class TextTable(NamedTuple):
    """A small table with a title and a note."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[TextRow]


def markdown_tables(tables: Sequence[TextTable]) -> str:
    """Return tables as Markdown, each with its title as a heading of level three."""
    return render("text_tables.md.j2", tables=tables)


def terminal_tables(name: str, tables: Sequence[TextTable]) -> Group:
    """Return tables for a terminal of 80 columns; ``name`` is the table of the paper that they belong to."""
    return Group(*(_terminal_table(name, table) for table in tables))


def _terminal_table(name: str, own: TextTable) -> Table:
    title = f"\n{name}: {own.title}"
    table = Table(title=title, caption=own.note, box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.add_column("", overflow="fold")
    for column in own.columns:
        table.add_column(column.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in own.rows:
        table.add_row(row.label, *(cell.replace(" ± ", "±").replace(", ", "\n") for cell in row.cells))
    return table


# --- results in the terminal ------------------------------------------------------------------------------------------

_COLUMNS = ("method", "ours", "n", "valid.")
_PAPER_COLUMNS = ("paper", "against the paper")


def has_paper_values(results: Sequence[Result]) -> bool:
    """Whether the paper reports any of these results."""
    return any(result.paper_mean is not None for result in results)


def result_table(results: Sequence[Result], title: str) -> Table:
    """Return a table for the terminal with one section per cell and protocol; it fits 80 columns."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    columns = (*_COLUMNS, *_PAPER_COLUMNS) if has_paper_values(results) else _COLUMNS
    for column in columns:
        justify: Literal["left", "right"] = "left" if column in ("method", "against the paper") else "right"
        is_verdict = column == "against the paper"  # the only column that may wrap, between words
        table.add_column(column, justify=justify, no_wrap=not is_verdict, min_width=10 if is_verdict else None)
    width = max((max(2 + len(one.label), len(one.protocol)) for one in results), default=0)
    for heading, own in grouped(in_order(results), lambda one: f"{one.cell}, {one.protocol}").items():
        table.add_row(Text(textwrap.fill(heading, width, break_on_hyphens=False), style="bold"))
        for one in own:
            values = our_value(one), one.runs, validation_text(one), paper_value(one), one.verdict
            table.add_row(f"  {one.label}", *values[: len(columns) - 1])
        table.add_section()
    return table


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return a table for the terminal with one section per cell and protocol; it fits 80 columns."""
    table = Table(
        title="Lorentz minus the other method: points or bits per byte, 95 % interval, number of pairs"
        if any(map(text_cell, (one.cell for one in comparisons)))
        else "Lorentz minus the other method: points, 95 % interval, number of pairs",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for column, justify in (("other", "left"), ("difference", "right"), ("interval", "right"), ("n", "right")):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("Lorentz is")
    groups: dict[str, list[Comparison]] = {}
    for one in comparisons:
        groups.setdefault(f"[bold]{one.cell}[/], {one.protocol}", []).append(one)
    for heading, own in groups.items():
        table.add_row(heading)
        for one in own:
            found = one.difference
            digits = _digits(one.cell)
            interval = f"{found.low:+.{digits}f} to {found.high:+.{digits}f}"
            label = method_label(one.method)
            table.add_row(f"  {label}", f"{found.mean:+.{digits}f}", interval, str(found.n), verdict_text(one))
        table.add_section()
    return table


def selection_table(selections: Sequence[Selection]) -> Table:
    """Return a table for the terminal of test scores by what selected the epoch."""
    table = Table(
        title="test score at the best validation score, and the highest test score of all epochs",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for column in ("cell", "method", "epochs", "validation", "highest test", "gain", "n"):
        table.add_column(column, justify="left" if column in ("cell", "method") else "right", no_wrap=True)
    for one in selections:
        gain = "" if one.gain is None else f"{one.gain:+.2f}"
        scores = f"{one.by_validation:.2f}", f"{one.by_test:.2f}"
        table.add_row(one.cell, one.method, str(one.epochs), *scores, gain, str(one.by_test.n))
    return table


def print_results(results: Sequence[Result], replaced: Mapping[str, Group] | None = None) -> None:
    """Print one table per table of the paper.

    Args:
        replaced: by table, what to print instead of its results.
    """
    console = Console()
    for name, own in grouped(in_order(results), lambda one: one.table).items():
        if replaced and name in replaced:
            console.print(replaced[name])
            continue
        unit = "seconds for 100 additions" if name == "runtime" else "percent, mean ± deviation over the runs"
        console.print(result_table(own, f"{name}: {unit}"))
    if not results:
        console.print("There are no final runs yet. Run `lresnet reproduce TABLE` to make those of a table.")


def print_json(results: Sequence[Result]) -> None:
    """Print a list of objects, one per result."""
    sys.stdout.write(json.dumps([result.as_dict() for result in results], indent=2, allow_nan=False) + "\n")
