"""The verb ``demo``: every residual connection on a small tree."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.runs.statistics import Summary

__all__ = ["demo", "demo_table"]

TASK_NAMES = {"disease_tree/lp": "link prediction", "disease_tree/nc": "node classification"}
_METRICS = {"disease_tree/lp": "ROC AUC", "disease_tree/nc": "F1"}


def demo(out: Path = Path("lresnet-demo.png"), workers: int = 2) -> int:
    """Train every residual connection on a tree, print the results and draw an embedding: about half a minute.

    The data is a simulated epidemic on a random tree of 1,000 people. Link prediction finds missing contacts, node
    classification finds who was infected. Six methods, five seeds. The picture shows a network's embedding of the tree.

    Example: lresnet demo --out tree.png

    Args:
        out: The picture file; .png, .svg or .pdf.
        workers: Number of training processes, with one thread each.
    """
    import time

    from rich.console import Console

    from lresnet.cli.console import progress_bars
    from lresnet.plots.demo import draw_embedding
    from lresnet.plots.picture import require_writable_picture
    from lresnet.runs.demo import DEMO_CELLS, demo_runs, run_demo
    from lresnet.runs.workers import require_workers

    require_writable_picture(out)  # before half a minute of training
    require_workers(workers)
    started, runs = time.monotonic(), demo_runs()
    with progress_bars() as progress:
        bars = {
            cell: progress.add_task(f"{TASK_NAMES[cell]:19}", total=sum(run.cell == cell for run in runs), state="")
            for cell in DEMO_CELLS
        }

        def show(record: dict[str, Any]) -> None:
            progress.update(bars[record["cell"]], advance=1, state=record["method"])

        records, embedding = run_demo(runs, workers=workers, report=show)
    console = Console()
    console.print(demo_table(records))
    console.print(f"The picture: {draw_embedding(out, embedding)}", soft_wrap=True, highlight=False)
    console.print(f"{len(runs)} trainings in {time.monotonic() - started:.0f} s", highlight=False)
    return 0


def demo_table(records: Sequence[dict[str, Any]]) -> "Table":
    """Return one row per method and one column per task: mean and deviation of the test results over the seeds."""
    from rich.table import Table

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
    summaries = {cell: _summaries(records, cell) for cell in cells}
    best = {cell: max(summaries[cell], key=lambda method: summaries[cell][method].mean) for cell in cells}
    for method in dict.fromkeys(record["method"] for record in records):
        shown = [f"{own[method]:.1f}" for own in summaries.values()]
        bold = [f"[bold]{text}[/]" if best[cell] == method else text for cell, text in zip(cells, shown, strict=True)]
        table.add_row(method, *bold, end_section=False)
    return table


def _summaries(records: Sequence[dict[str, Any]], cell: str) -> "dict[str, Summary]":
    from lresnet.runs.statistics import summarise

    values: dict[str, list[float]] = {}
    for record in records:
        if record["cell"] == cell:
            values.setdefault(record["method"], []).append(record["value"])
    return {method: summarise(own) for method, own in values.items()}
