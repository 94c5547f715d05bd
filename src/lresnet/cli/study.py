"""The verbs ``reproduce`` and ``report``: a table of the paper, and what has been measured."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["report", "reproduce"]


def reproduce(
    table: Annotated[Positional[str], arg(metavar="TABLE")],
    cell: Annotated[str | None, arg(metavar="CELL")] = None,
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD")] = (),
    stage: Literal["all", "search", "final"] = "all",
    workers: int = 2,
    minutes: Annotated[float | None, arg(metavar="M")] = None,
    results: Path = Path("results"),
) -> int:
    """Run a table of the paper: search for every method on validation data, then the chosen settings over ten seeds.

    Every finished run is a line of RESULTS/TABLE.jsonl; the same command does what is still missing there.

    Example: lresnet reproduce gnn --cell disease/lp --workers 4 --minutes 50

    Args:
        table: A table with recipes, e.g. gnn.
        cell: One cell, e.g. disease/lp. None: all that have a recipe.
        methods: Some of none, parallel_transport, tangent, space, lorentz, euclidean. None named: all.
        stage: Only the search, only the final runs of methods whose search is complete, or both.
        workers: Processes, of one thread each.
        minutes: Begin no run after so many minutes.
        results: The folder of the results.
    """
    from rich.console import Console

    from lresnet.cli.console import progress_bars
    from lresnet.report.aggregate import aggregate
    from lresnet.report.tables import terminal_table
    from lresnet.studies import METHODS, recipe_cells, reproduce_cell
    from lresnet.studies.single import require_known
    from lresnet.studies.workers import require_workers
    from lresnet.train.results import read_results

    require_workers(workers)
    for method in methods:
        require_known("method", method, METHODS)
    cells = recipe_cells(table)
    if cell is not None:
        require_known("cell", cell, cells)
        cells = [cell]
    file, missing, started = results / f"{table}.jsonl", 0, time.monotonic()
    with progress_bars() as progress:
        for name in cells:
            missing += reproduce_cell(
                table,
                name,
                file,
                methods=methods or METHODS,
                stage=stage,
                workers=workers,
                minutes=None if minutes is None else minutes - (time.monotonic() - started) / 60,
                report=_Bars(progress, name),
            )
    console = Console()
    figures = [figure for figure in aggregate(read_results(file)) if figure.table == table and figure.cell in cells]
    console.print(terminal_table(figures, f"{table}: percent, mean ± deviation over the seeds"))
    if missing:
        console.print(f"{missing} runs are still to do; the same command goes on with them", highlight=False)
    return 0


class _Bars:
    """A bar for each stage of one cell."""

    def __init__(self, progress: "Progress", cell: str) -> None:
        self.progress, self.cell = progress, cell
        self.bars: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int, record: dict[str, Any] | None) -> None:
        if record is None:
            self.bars[stage] = self.progress.add_task(f"{self.cell} {stage:6}", total=total, state="")
            return
        figure = "diverged" if record["validation"] is None else f"{record['validation']:.1f}"
        self.progress.update(self.bars[stage], completed=done, state=f"{record['method']} {figure}")


def report(
    results: Annotated[Positional[Path], arg(metavar="RESULTS_DIR")] = Path("results"),
    json: Annotated[bool, FlagCreatePairsOff] = False,
    markdown: Annotated[Path | None, arg(metavar="FILE")] = None,
) -> int:
    """Print what has been measured, mean and deviation over the runs, beside the paper's figures.

    Example: lresnet report results --json > figures.json

    Args:
        results: The folder with the results, files of JSON lines.
        json: Print a list of objects instead of tables: one for each table, cell, method and protocol.
        markdown: Write the tables to this file too.
    """
    from lresnet.report.aggregate import aggregate, read_runs
    from lresnet.report.paired import paired_differences
    from lresnet.report.tables import markdown_page, print_figures, print_json
    from lresnet.studies.search import recipe_notes
    from lresnet.train.checkpoint import write_atomically

    runs = read_runs(results)
    figures = aggregate(runs)
    if markdown is not None:
        page = markdown_page(figures, paired_differences(runs), recipe_notes({(f.table, f.cell) for f in figures}))
        write_atomically(markdown, page.encode())
    (print_json if json else print_figures)(figures)
    return 0
