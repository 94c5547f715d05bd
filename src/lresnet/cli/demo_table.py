"""The demo's results as a table for the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table

__all__ = ["TASK_NAMES", "demo_table"]

TASK_NAMES = {"disease_tree/lp": "link prediction", "disease_tree/nc": "node classification"}
_METRICS = {"disease_tree/lp": "ROC AUC", "disease_tree/nc": "F1"}


def demo_table(records: Sequence[dict[str, Any]]) -> Table:
    """A row a method, a column a task: mean and sample deviation of the test figures over the seeds."""
    cells = list(dict.fromkeys(record["cell"] for record in records))
    seeds = len({record["seed"] for record in records})
    table = Table(
        title="Residual connections on an epidemic on a tree, 1,000 people",
        caption=f"test, percent: mean ± deviation over {seeds} seeds; epochs and settings chosen on validation data",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("residual", no_wrap=True)
    for cell in cells:
        table.add_column(f"{TASK_NAMES[cell]}\n{_METRICS[cell]}", justify="right", no_wrap=True)
    figures = {cell: _figures(records, cell) for cell in cells}
    best = {cell: max(figures[cell], key=lambda method: figures[cell][method][0]) for cell in cells}
    for method in dict.fromkeys(record["method"] for record in records):
        shown = ["{:.1f} ± {:.1f}".format(*figures[cell][method]) for cell in cells]
        bold = [f"[bold]{text}[/]" if best[cell] == method else text for cell, text in zip(cells, shown, strict=True)]
        table.add_row(method, *bold, end_section=False)
    return table


def _figures(records: Sequence[dict[str, Any]], cell: str) -> dict[str, tuple[float, float]]:
    values: dict[str, list[float]] = {}
    for record in records:
        if record["cell"] == cell:
            values.setdefault(record["method"], []).append(record["value"])
    return {method: (statistics.fmean(v), statistics.stdev(v) if len(v) > 1 else 0.0) for method, v in values.items()}
