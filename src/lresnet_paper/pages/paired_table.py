"""Paired differences for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from lresnet_paper.pages.paired import PairedDifference

__all__ = ["paired_table"]


def paired_table(differences: Sequence[PairedDifference]) -> Table:
    """A row a difference, a section for each cell and protocol; fits 80 columns."""
    table = Table(
        title="Lorentz minus the other, paired over seeds: points, 95 % interval (Student's t)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for column, justify in (("against", "left"), ("difference", "right"), ("interval", "right"), ("n", "right")):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("lorentz is")
    groups: dict[str, list[PairedDifference]] = {}
    for difference in differences:
        groups.setdefault(f"[bold]{difference.cell}[/], {difference.protocol}", []).append(difference)
    for heading, own in groups.items():
        table.add_row(heading)
        for d in own:
            interval = f"{d.interval[0]:+.2f} to {d.interval[1]:+.2f}"
            table.add_row(f"  {d.method}", f"{d.mean:+.2f}", interval, str(d.n), d.verdict)
        table.add_section()
    return table
