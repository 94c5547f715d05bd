"""The verb ``reproduce``: a table of the paper."""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from lresnet.cli.options import require_seeds

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["reproduce"]


def reproduce(
    table: Annotated[Positional[str], arg(metavar="TABLE")],
    cell: Annotated[str | None, arg(metavar="CELL")] = None,
    protocol: Annotated[str | None, arg(metavar="NAME")] = None,
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD")] = (),
    seeds: Annotated[tuple[int, ...], arg(metavar="INT")] = (),
    stage: Literal["all", "search", "final"] = "all",
    workers: int | None = None,
    device: str = "auto",
    minutes: Annotated[float | None, arg(metavar="M")] = None,
    results: Path = Path("results"),
) -> int:
    """Run a table of the paper: search for every method on validation data, then the chosen settings over all seeds.

    Every finished run is a line of RESULTS/TABLE.jsonl; the same command does what is still missing there.

    Example: lresnet reproduce gnn --cell disease/lp --workers 4 --minutes 50

    Example: lresnet reproduce image_classification --cell cifar10 --methods lorentz euclidean --minutes 60

    Example: lresnet reproduce ood --cell cifar10/svhn/r20

    Args:
        table: A table with recipes, e.g. gnn, image_classification or ood; or runtime, which is timed and needs none.
        cell: One cell, e.g. disease/lp, cifar10 or 2048/10000; of ood cifar10/svhn/r20, or cifar10/r20 for all three
            sets by one training. None: all of the table.
        protocol: Which recipe of the cell, where it has several: for images fast, fast-learned, long,
            long-cutmix or paper. None: the first.
        methods: Some of those that the recipe compares. None named: all.
        seeds: Of the final runs. None named: those of the recipe.
        stage: Only the search, only the final runs of methods whose search is complete, or both.
        workers: Processes of one thread each. None: 2, and 1 for images on a GPU, where each of several would compile
            for itself. Several share a GPU well where NVIDIA's MPS runs (nvidia-cuda-mps-control -d).
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        minutes: Begin no run after so many minutes.
        results: The folder of the results.
    """
    from lresnet.cli.console import progress_bars
    from lresnet.runs.run import usable_device
    from lresnet.runs.workers import require_workers
    from lresnet_paper.reproduce import reproduce_cell
    from lresnet_paper.run import graph_cell

    require_seeds("--seeds", *seeds)
    if minutes is not None and not minutes >= 0:
        raise ValueError(f"--minutes must be 0 or more, got {minutes:g}")
    if table == "runtime":
        return _runtime([] if cell is None else [cell], methods, device, results)
    if workers is not None:
        require_workers(workers)
    cells = _known_cells(table, cell, protocol, methods)
    place = str(usable_device(device))
    _warn_of_days(cells, place)
    file, missing, started = results / f"{table}.jsonl", 0, time.monotonic()
    with _said_if_interrupted(file), progress_bars() as progress:
        for name in cells:
            with _left_out(name) if len(cells) > 1 else contextlib.nullcontext():
                missing += reproduce_cell(
                    table,
                    name,
                    file,
                    protocol=protocol,
                    methods=methods,
                    seeds=seeds,
                    stage=stage,
                    workers=workers or (2 if place == "cpu" or graph_cell(name) else 1),
                    device=place,
                    minutes=None if minutes is None else minutes - (time.monotonic() - started) / 60,
                    report=_Bars(progress, name),
                )
    if not _print_cells(file, table, cells, protocol):
        print(_why_no_figures(table, cells, protocol, stage))
    if missing:
        print(f"{missing} runs are still to do; the same command goes on with them")
    return 0


@contextlib.contextmanager
def _said_if_interrupted(file: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        kept = f"the runs that have ended are in {file}, the same command goes on with the others"
        raise KeyboardInterrupt(kept if file.is_file() else "no run has ended yet") from None


@contextlib.contextmanager
def _left_out(cell: str) -> Iterator[None]:
    """In a whole table a cell whose data are not to be had, or that waits for another table, does not stop the rest."""
    from lresnet_paper.plan import NothingChosen

    try:
        yield
    except (FileNotFoundError, NothingChosen) as error:
        print(f"warning: {cell} is left out: {error}", file=sys.stderr)


def _runtime(cells: Sequence[str], methods: Sequence[str], device: str, results: Path) -> int:
    """The paper's table of runtimes, by a clock that waits."""
    from lresnet.runs.run import usable_device
    from lresnet.train.results import append_result
    from lresnet_paper.bench import bench_runtime, runtime_line
    from lresnet_paper.cli.bench import print_tables

    place = usable_device(device)
    command = " ".join(["lresnet reproduce runtime", *(f"--cell {cell}" for cell in cells)])
    records = [runtime_line(one, command, place) for one in bench_runtime(cells, methods, place)]
    for record in records:
        append_result(results / "runtime.jsonl", record)
    print_tables(records)
    return 0


def _known_cells(table: str, cell: str | None, protocol: str | None, methods: Sequence[str]) -> list[str]:
    """The cells to run; what their recipes do not know is refused."""
    from lresnet.runs.names import require_known
    from lresnet_paper.ood import cells_served, training_cell
    from lresnet_paper.plan import cells_of, methods_of, plan_of

    cells = cells_of(table, protocol)
    if cell is not None:
        served = [own for name in cells for own in cells_served(table, name)]
        require_known("cell", cell, dict.fromkeys([*cells, *served]))
        cells = [cell]
    for name in cells:
        known = methods_of(plan_of(table, training_cell(table, name), protocol))
        for method in methods:
            require_known(f"method of {name}", method, known)
    return cells


def _warn_of_days(cells: Sequence[str], device: str) -> None:
    from lresnet.data.registry import IMAGE_SETS

    images = [cell for cell in cells if cell.split("/")[0] in IMAGE_SETS]
    if images and device == "cpu":
        print(
            f"warning: on a CPU {' and '.join(images)} takes days rather than minutes; --device cuda chooses a GPU",
            file=sys.stderr,
        )


def _why_no_figures(table: str, cells: Sequence[str], protocol: str | None, stage: str) -> str:
    """What final runs wait for; not every recipe has a search."""
    from lresnet_paper.plan import search_runs

    if any(search_runs(table, cell, protocol=protocol) for cell in cells):
        return "no final run has ended yet; those of a method begin when its search is complete"
    if stage == "search":
        return "nothing is searched here, so --stage search has nothing to do; without it the final runs begin"
    return "no final run has ended yet"


def _print_cells(file: Path, table: str, cells: Sequence[str], protocol: str | None) -> bool:
    """The figures of ``cells`` so far, and what the Lorentz residual is better or worse by; False: there are none."""
    from rich.console import Console

    from lresnet.train.results import read_results
    from lresnet_paper.comparisons import compare_methods
    from lresnet_paper.ood import cells_served
    from lresnet_paper.pages.ood_page import ood_terminal
    from lresnet_paper.pages.text_tables import comparison_table, result_table
    from lresnet_paper.results import aggregate, is_run

    console = Console()
    own = {cell for name in cells for cell in cells_served(table, name)}
    runs = [run for run in read_results(file) if is_run(run) and run["table"] == table and run["cell"] in own]
    runs = [run for run in runs if protocol in (None, run["protocol"])]
    if not any(run.get("stage", "final") == "final" for run in runs):
        return False
    if table == "ood":
        console.print(ood_terminal(runs))
    else:
        console.print(result_table(aggregate(runs), f"{table}: percent, mean ± deviation over the seeds"))
    if comparisons := compare_methods(runs):
        console.print(comparison_table(comparisons))
    return True


class _Bars:
    """A bar for each stage of one cell."""

    def __init__(self, progress: "Progress", cell: str) -> None:
        self.progress, self.cell = progress, cell
        self.bars: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int, record: dict[str, Any] | None) -> None:
        if record is None:
            self.bars[stage] = self.progress.add_task(f"{self.cell} {stage:6}", total=total, state="")
            return
        figure = record["validation"] if record.get("value") is None else record["value"]
        state = "diverged" if figure is None else f"{figure:.1f}"
        self.progress.update(self.bars[stage], completed=done, state=f"{record['method']} {state}")
        if not self.progress.console.is_terminal:  # a bar shows in a log file only when all is over
            seconds = record.get("seconds", 0)
            print(f"{self.cell} {stage} {done}/{total}: {record['method']} {state}, {seconds:.0f} s", flush=True)
