"""The verb ``reproduce``: run a table of the paper."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from lresnet.cli.options import require_seeds

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["reproduce"]

_ALL = "all"  # of the protocols


def reproduce(
    table: Annotated[Positional[str], arg(metavar="TABLE")],
    cell: Annotated[str | None, arg(metavar="CELL")] = None,
    protocol: Annotated[str | None, arg(metavar="NAME")] = None,
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD")] = (),
    seeds: Annotated[tuple[int, ...], arg(metavar="INT")] = (),
    stage: Literal["all", "search", "final"] = "all",
    workers: Annotated[int | None, arg(metavar="INT")] = None,
    device: str = "auto",
    minutes: Annotated[float | None, arg(metavar="M")] = None,
    results: Path = Path("results"),
) -> int:
    """Run a table of the paper: search for every method on validation data, then the chosen settings over all seeds.

    Every finished run is one line of RESULTS/TABLE.jsonl. Run the same command again to execute the missing runs.

    Several commands may write to one folder of results; no run is written twice. Give each its own --seeds, --methods
    or --cell: commands that plan the same runs on graphs take them in the same order and train most of them twice. A
    final run on images, which takes hours, is trained by one of them.

    Example: lresnet reproduce gnn --cell disease/lp --workers 4 --minutes 50

    Example: lresnet reproduce image_classification --cell cifar10 --methods lorentz euclidean --minutes 60

    Example: lresnet reproduce ood --cell cifar10/svhn/r20

    Example: lresnet reproduce deep --protocol all --workers 8 --device cuda

    Args:
        table: A table with recipes, e.g. gnn, image_classification or ood; or runtime, a timing without recipes.
        cell: One cell of the table, e.g. disease/lp, cifar10 or 2048/10000. In the table ood, cifar10/svhn/r20 is one
            out-of-distribution set, and cifar10/r20 is all three with one training. Default: all cells.
        protocol: Recipe of the cell, if it has several; for images fast, fast-learned, long, long-cutmix or paper;
            all for every recipe. Default: the first recipe.
        methods: Methods to run. Default: all methods of the recipe.
        seeds: Seeds of the final runs. Default: those of the recipe.
        stage: Run only the search, only the final runs (of methods whose search is complete), or both.
        workers: Number of processes, with one thread each. Default: 2, but 1 for images on a GPU, where every process
            would compile its own kernels. Several processes share a GPU well under NVIDIA's MPS
            (nvidia-cuda-mps-control -d).
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        minutes: Start no run after this many minutes.
        results: Folder of the results.
    """
    from lresnet.cli.console import progress_bars
    from lresnet.runs.device import usable_device
    from lresnet.runs.workers import require_workers
    from lresnet_paper.run import graph_cell
    from lresnet_paper.sweep import reproduce_cells

    require_seeds("--seeds", *seeds)
    if minutes is not None and not minutes >= 0:
        raise ValueError(f"--minutes must be 0 or more, got {minutes:g}")
    if table == "runtime":
        return _runtime([] if cell is None else [cell], methods, device, results)
    if workers is not None:
        require_workers(workers)
    recipes = _recipes(table, cell, protocol, methods)
    cells = list(dict.fromkeys(name for name, _ in recipes))
    place = str(usable_device(device))
    _warn_if_slow(table, recipes, place)
    file = results / f"{table}.jsonl"
    with _explain_interrupt(file), progress_bars() as progress:
        missing = reproduce_cells(
            table,
            recipes,
            file,
            methods=methods,
            seeds=seeds,
            stage=stage,
            workers=workers or (2 if place == "cpu" or all(map(graph_cell, cells)) else 1),
            device=place,
            minutes=minutes,
            report=lambda name, own: _Bars(progress, f"{name} {own}" if protocol == _ALL else name),
            skip=_warn_of_skipped if len(recipes) > 1 else None,
        )
    if not _print_cells(file, table, cells, None if protocol == _ALL else protocol):
        print(_why_no_results(table, recipes, stage))
    if missing:
        count = "1 run is" if missing == 1 else f"{missing} runs are"
        print(f"{count} still missing; run the same command again to resume")
    return 0


@contextlib.contextmanager
def _explain_interrupt(file: Path) -> Iterator[None]:
    """Add to an interrupt where the finished runs are."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f"finished runs are in {file}; run the same command again to resume"
        raise KeyboardInterrupt(kept if file.is_file() else "no run has finished yet") from None


def _warn_of_skipped(cell: str, error: Exception) -> None:
    """Say that a cell of several is skipped because its data are missing or another table must be run first."""
    print(f"warning: skipped {cell}: {error}", file=sys.stderr)


def _runtime(cells: Sequence[str], methods: Sequence[str], device: str, results: Path) -> int:
    """Run the paper's table of runtimes, timed with GPU synchronisation."""
    from lresnet.runs.device import usable_device
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


def _recipes(
    table: str, cell: str | None, protocol: str | None, methods: Sequence[str]
) -> list[tuple[str, str | None]]:
    """Return cells and their protocols to run; raise an error if a cell, protocol or method is in no recipe."""
    from lresnet.runs.names import require_known
    from lresnet_paper.ood import cells_served, training_cell
    from lresnet_paper.plan import cells_of, methods_of, plan_of, protocols, recipe_cells
    from lresnet_paper.run import split_depth

    if protocol == _ALL:
        names = dict.fromkeys(own for base in recipe_cells(table) for own in protocols(table, base))
        found: list[tuple[str, str | None]] = [(one, own) for own in names for one in cells_of(table, own)]
    else:
        found = [(one, protocol) for one in cells_of(table, protocol)]
    if cell is not None:
        # A depth study has a cell for each depth: with all protocols, cora/nc stands for those of cora/nc/64 too.
        names_of = {one: {one, *cells_served(table, one)} for one, _ in found}
        if protocol == _ALL:
            names_of = {one: own | {split_depth(one)[0]} for one, own in names_of.items()}
        require_known("cell", cell, dict.fromkeys(name for one in names_of for name in (one, *sorted(names_of[one]))))
        # A cell of one out-of-distribution set is run alone, without the other cells of its training.
        found = [
            (cell if cell in cells_served(table, one) else one, own) for one, own in found if cell in names_of[one]
        ]
    for one, own in found:
        allowed = methods_of(plan_of(table, training_cell(table, one), own))
        for method in methods:
            require_known(f"method of {one}", method, allowed)
    return found


def _warn_if_slow(table: str, recipes: Sequence[tuple[str, str | None]], device: str) -> None:
    from lresnet.data.registry import IMAGE_SETS, TEXTS
    from lresnet_paper.ood import training_cell
    from lresnet_paper.plan import plan_of

    large = [(cell, own) for cell, own in recipes if cell.split("/")[0] in (*IMAGE_SETS, *TEXTS)]
    slow = [cell for cell, own in large if plan_of(table, training_cell(table, cell), own).get("device") != "cpu"]
    if slow and device == "cpu":
        names = " and ".join(dict.fromkeys(slow))
        print(f"warning: training on {names} takes days on a CPU; use a GPU with --device cuda", file=sys.stderr)


def _why_no_results(table: str, recipes: Sequence[tuple[str, str | None]], stage: str) -> str:
    """Explain why there are no final runs yet; not every recipe has a search."""
    from lresnet_paper.plan import search_runs

    if any(search_runs(table, cell, protocol=own) for cell, own in recipes):
        return "no final run has finished yet; the final runs of a method start when its search is complete"
    if stage == "search":
        return "the recipe has no search, so --stage search does nothing; omit it to start the final runs"
    return "no final run has finished yet"


def _print_cells(file: Path, table: str, cells: Sequence[str], protocol: str | None) -> bool:
    """Print the results of ``cells`` so far and the comparisons of methods; return False if there are none."""
    from rich.console import Console

    from lresnet.train.results import read_results
    from lresnet_paper.comparisons import compare_methods
    from lresnet_paper.ood import cells_served
    from lresnet_paper.pages.ood_page import ood_terminal
    from lresnet_paper.pages.text_tables import comparison_table, result_table
    from lresnet_paper.results import aggregate, is_run, unique_runs
    from lresnet_paper.run import text_cell

    console = Console()
    own = {cell for name in cells for cell in cells_served(table, name)}
    runs = [run for run in read_results(file) if is_run(run) and run["table"] == table and run["cell"] in own]
    runs = unique_runs(run for run in runs if protocol in (None, run["protocol"]))
    if not any(run.get("stage", "final") == "final" for run in runs):
        return False
    if table == "ood":
        console.print(ood_terminal(runs))
    else:
        unit = "bits per byte for texts, else percent" if any(map(text_cell, own)) else "percent"
        console.print(result_table(aggregate(runs), f"{table}: {unit}, mean ± deviation over the seeds"))
    if comparisons := compare_methods(runs):
        console.print(comparison_table(comparisons))
    return True


class _Bars:
    """One progress bar per stage of a cell."""

    def __init__(self, progress: "Progress", cell: str) -> None:
        self.progress, self.cell = progress, cell
        self.bars: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int, record: dict[str, Any] | None) -> None:
        if record is None:
            self.bars[stage] = self.progress.add_task(f"{self.cell} {stage:6}", total=total, state="")
            return
        from lresnet_paper.run import text_cell

        figure = record["validation"] if record.get("value") is None else record["value"]
        state = "diverged" if figure is None else f"{figure:.3g}" if text_cell(record["cell"]) else f"{figure:.1f}"
        self.progress.update(self.bars[stage], completed=done, state=f"{record['method']} {state}")
        if not self.progress.console.is_terminal:  # a log file shows a bar only when it is complete
            seconds = record.get("seconds", 0)
            print(f"{self.cell} {stage} {done}/{total}: {record['method']} {state}, {seconds:.0f} s", flush=True)
