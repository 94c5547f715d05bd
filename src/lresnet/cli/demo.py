"""The verb ``demo``: every residual connection on a small tree."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.runs.record import RunRecord
    from lresnet.runs.statistics import Summary

__all__ = ["demo", "demo_table"]

TASK_NAMES = {"disease_tree/lp": "link prediction", "disease_tree/nc": "node classification"}
_METRICS = {"disease_tree/lp": "ROC AUC", "disease_tree/nc": "F1"}


def demo(out: Path = Path("lresnet-demo.png"), workers: int = 2) -> int:
    """Train every residual connection on a tree, print the results and draw an embedding: about half a minute.

    The data is a simulated epidemic on a random tree of 1,000 people. Link prediction finds missing contacts, node
    classification finds who was infected. Six methods, five seeds. The picture shows a network's embedding of the tree.
    One feature, the home of a person, nearly solves link prediction without training; the demo prints its result too.

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
    from lresnet.runs.demo import DEMO_TASKS, demo_runs, run_demo
    from lresnet.runs.workers import require_workers

    require_writable_picture(out)  # before half a minute of training
    require_workers(workers)
    started, runs = time.monotonic(), demo_runs()
    with progress_bars() as progress:
        bars = {
            task: progress.add_task(
                f"{TASK_NAMES[task]:19}", total=sum(run.task.name == task for run in runs), state=""
            )
            for task in DEMO_TASKS
        }

        def show(record: "RunRecord") -> None:
            progress.update(bars[record.task_name], advance=1, state=record.method)

        records, embedding = run_demo(runs, workers=workers, report=show)
    console = Console()
    console.print(demo_table(records))
    console.print(
        "The last row learns nothing: it ranks pairs by the difference of one feature, the home. Link prediction\n"
        "here compares how methods use that feature, not how well a geometry fits.",
        highlight=False,
    )
    console.print(f"The picture: {draw_embedding(out, embedding)}", soft_wrap=True, highlight=False)
    console.print(f"{len(runs)} trainings in {time.monotonic() - started:.0f} s", highlight=False)
    return 0


def demo_table(records: "Sequence[RunRecord]") -> "Table":
    """Return one row per method and one column per task: mean and deviation of the test results over the seeds."""
    from rich.table import Table

    from lresnet.runs.report import untrained_result

    tasks = list(dict.fromkeys(record.task_name for record in records))
    seeds = len({record.seed for record in records})
    table = Table(
        title="Residual connections on an epidemic on a tree, 1,000 people",
        caption=f"test, percent: mean ± deviation over {seeds} seeds; epochs and settings chosen on validation data",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("residual", no_wrap=True)
    for task in tasks:
        table.add_column(f"{TASK_NAMES[task]}\n{_METRICS[task]}", justify="right", no_wrap=True)
    summaries = {task: _summaries(records, task) for task in tasks}
    best = {task: max(summaries[task], key=lambda method: summaries[task][method].mean) for task in tasks}
    for method in dict.fromkeys(record.method for record in records):
        shown = [f"{own[method]:.1f}" for own in summaries.values()]
        bold = [f"[bold]{text}[/]" if best[task] == method else text for task, text in zip(tasks, shown, strict=True)]
        table.add_row(method, *bold)
    untrained = [untrained_result(record for record in records if record.task_name == task) for task in tasks]
    if any(untrained):
        table.add_section()
        table.add_row("no training", *(f"{one.test:.1f}" if one else "" for one in untrained))
    return table


def _summaries(records: "Sequence[RunRecord]", task: str) -> "dict[str, Summary]":
    from lresnet.runs.statistics import summarise

    values: dict[str, list[float]] = {}
    for record in records:
        if record.task_name == task:
            values.setdefault(record.method, []).append(record.value or 0.0)
    return {method: summarise(own) for method, own in values.items()}
