"""Figures as tables: for the terminal and for Markdown."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from rich import box
from rich.console import Console, Group
from rich.table import Table

from lresnet.report.aggregate import Figure
from lresnet.report.paired import PairedDifference

__all__ = ["markdown_page", "markdown_table", "ours_and_paper", "print_figures", "print_json", "terminal_table"]

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


_PAGE = """\
# Results

Rendered from `results/*.jsonl` by `lresnet report --markdown`; every run is one line there, with its command, seed,
versions and hardware. Percent, mean and deviation over the runs; runtimes are seconds. Hyperparameters: at most 24
configurations per method and cell (eight for images), taken from the space in `src/lresnet/recipes/` before a test
figure was read, chosen by validation on seeds that are not reported. The test set is read once per run. *Against the
paper* compares our mean with the printed one: within one of our standard errors, better, or worse. *euclidean* is the
same network in flat space, same budget. Runs on graphs are float32; on images, convolutions are bfloat16 and the
geometry float32. Which torch and which device a run had, its line says."""

_PAIRED = """\
### Is the Lorentz residual better than the others?

Lorentz minus the other method, paired over seeds, with the 95 % interval of the mean.
"""


def markdown_page(
    figures: Sequence[Figure],
    differences: Sequence[PairedDifference] = (),
    notes: Mapping[str, str] | None = None,
    bodies: Mapping[str, str] | None = None,
) -> str:
    """For each of the paper's tables the figures, cell by cell, what was tried, and the paired differences.

    Args:
        bodies: by table, what to print in place of its figures.
    """
    parts = [_PAGE]
    for name, own in _grouped(figures, lambda figure: figure.table).items():
        by_cell = [figure for cell in _grouped(own, lambda figure: figure.cell).values() for figure in cell]
        parts.append(f"## {name}\n\n{(bodies or {}).get(name) or markdown_table(by_cell)}")
        parts += [f"*{cell}*: {note}" for cell, note in (notes or {}).items() if cell in {f.cell for f in own}]
        paired = [d for d in differences if d.table == name]
        if paired:
            parts.append(f"{_PAIRED}\n{_paired_table(paired)}")
    return "\n\n".join(parts) + "\n"


def _paired_table(differences: Sequence[PairedDifference]) -> str:
    lines = ["| cell | against | difference | interval | n | lorentz is |", "|---|---|---|---|---|---|"]
    protocols = _protocols(differences)
    for d in sorted(differences, key=lambda d: d.cell):
        interval = f"{d.interval[0]:+.2f} to {d.interval[1]:+.2f}"
        cell = d.cell if len(protocols[d.cell]) == 1 else f"{d.cell}, {d.protocol}"
        lines.append(f"| {cell} | {d.method} | {d.mean:+.2f} | {interval} | {d.n} | {d.verdict} |")
    return "\n".join(lines)


def _protocols(differences: Sequence[PairedDifference]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for d in differences:
        found.setdefault(d.cell, set()).add(d.protocol)
    return found


def print_figures(figures: Sequence[Figure], bodies: Mapping[str, Group] | None = None) -> None:
    """The terminal tables, one for each of the paper's; ``bodies``: by table, what to print in place of its figures."""
    console = Console()
    for name, own in _grouped(figures, lambda figure: figure.table).items():
        if bodies and name in bodies:
            console.print(bodies[name])
            continue
        unit = "seconds for 100 additions" if name == "runtime" else "percent, mean ± deviation over the runs"
        console.print(terminal_table(own, f"{name}: {unit}"))
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


def ours_and_paper(figure: Figure) -> tuple[str, str]:
    """Both figures in words: percent with deviations; runtimes in seconds. Some of the paper's have no deviation."""
    if figure.table == "runtime":
        return f"{figure.mean:.3g}", "" if figure.paper_mean is None else f"{figure.paper_mean:g}"
    deviation = "" if figure.paper_std is None else f" ± {figure.paper_std:g}"
    paper = "" if figure.paper_mean is None else f"{figure.paper_mean:.1f}{deviation}"
    return f"{figure.mean:.2f} ± {figure.std:.2f}", paper


def _cells(figure: Figure) -> tuple[str, ...]:
    # "9 of 10": the tenth run diverged and has no figure.
    runs = f"{figure.n} of {figure.n + figure.diverged}" if figure.diverged else str(figure.n)
    ours, paper = ours_and_paper(figure)
    return (
        figure.cell,
        figure.name,
        figure.protocol,
        ours,
        runs,
        "" if math.isnan(figure.validation) else f"{figure.validation:.2f}",
        paper,
        figure.verdict,
    )
