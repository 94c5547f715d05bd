"""The verb ``report``: results of a user's own runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet._files import require_run_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Group
    from rich.table import Table

    from lresnet.runs.report import FolderState, RunGroup

__all__ = ["report"]

_OTHER_METRICS = 2  # columns for further metrics, in a table without a comparison


def report(
    runs: Annotated[Positional[Path | None], arg(metavar="[RUNS_DIR]")] = None,
    json: Annotated[bool, FlagCreatePairsOff] = False,
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE.html")] = None,
    embedding: Annotated[Path | None, arg(metavar="RUN_DIR")] = None,
) -> int:
    """Show the test results of your runs: mean and deviation over seeds and splits, and the Euclidean baseline.

    Runs are averaged if they differ only in the seed or in the number of the split; runs with other settings have
    their own row. Runs on splits of different names are in different tables and are never compared.

    Example: lresnet report runs --json > results.json

    Example: lresnet report runs -o report.html --embedding runs/tree

    Args:
        runs: The folder that holds the run folders of `lresnet train`, or the JSON lines of `lresnet reproduce`. Runs
            have results once `lresnet evaluate` has read their test set; the others are listed with their state.
            None: runs, or results if there is no folder runs.
        json: Print a JSON list instead of tables, with one object per task, split, method and settings.
        out: Also write an HTML page with pictures and the details of every run; it needs no network.
        embedding: The folder of a run on a graph; the page shows its embedding in an interactive Poincaré disk.
    """
    if embedding is not None and out is None:
        raise ValueError("--embedding needs a page; name its file with -o FILE.html")
    if out is not None and out.suffix not in (".html", ".htm"):
        raise ValueError(f"the file name of a page must end with .html, got {str(out)!r}")
    if runs is None:
        runs = Path("runs") if Path("runs").is_dir() or not Path("results").is_dir() else Path("results")
    if not runs.is_dir():
        problem = "is a file, not a folder" if runs.exists() else "does not exist"
        raise FileNotFoundError(f"{runs} {problem}; `lresnet train --out FOLDER` writes run folders")
    if embedding is not None:
        require_run_folder(embedding)
    report_results = _report_of_results(runs)
    if report_results is not None:
        return report_results(runs, json, out, embedding)
    from rich.console import Console

    from lresnet.runs.report import read_report, report_json

    found = read_report(runs)
    if out is not None:
        from lresnet._files import write_atomically
        from lresnet.plots.html.runs_page import runs_page

        disk = None
        if embedding is not None:
            from lresnet.plots.embedding import embedding_of_run
            from lresnet.runs.run import Run

            disk = embedding_of_run(Run.open(embedding))
        write_atomically(out, runs_page(found, disk).encode())
    if json:
        for state in found.folders:  # the tables list them
            if state.is_damaged:
                print(f"lresnet: warning: {state.folder} is left out: {state.state}", file=sys.stderr)
        print(report_json(found))
        return 0
    console = Console()
    for title, groups in found.tables.items():
        console.print(results_table(title, groups))
    if not found.folders:
        console.print(f"{runs} holds no run folders; `lresnet train --out FOLDER` writes them", soft_wrap=True)
    elif not found.groups:
        console.print("No run has been evaluated yet; `lresnet evaluate FOLDER` reads the test set of a run.")
    if found.folders:
        console.print(folder_table(found.folders))
    if out is not None:
        console.print(f"The page: {out}", soft_wrap=True, highlight=False)
    return 0


def _report_of_results(folder: Path) -> "Callable[[Path, bool, Path | None, Path | None], int] | None":
    """Return the report for a folder of JSON lines, which another package provides; None: it holds run folders."""
    from importlib.metadata import entry_points

    has_runs = any(file for pattern in ("run.json", "*/run.json") for file in folder.glob(pattern))
    if has_runs or not any(folder.glob("*.jsonl")):
        return None
    for entry in entry_points(group="lresnet.reports"):
        return entry.load()  # type: ignore[no-any-return]
    raise ValueError(
        f"{folder} holds JSON lines, not run folders; `python -m lresnet_paper report {folder}` shows them"
    )


def results_table(title: str, groups: "Sequence[RunGroup]") -> "Group":
    """Return title, results and notes of one task and split for the terminal; the table fits 80 columns."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from lresnet.runs.names import one_line
    from lresnet.runs.report import BASELINE, untrained_result

    compared = any(group.difference is not None for group in groups)
    spec, unit = groups[0].spec, f" in {groups[0].unit}" if groups[0].unit else ", lower is better"
    heading = Text(f"{one_line(title)}: {groups[0].metric}{unit}, mean ± deviation over n runs", style="italic")
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    others = list(dict.fromkeys(name for group in groups for name in group.metrics if name != group.metric))
    others = [] if compared else others[:_OTHER_METRICS]
    columns = ("method", "test", "n", "valid.", *((f"minus {BASELINE}", "verdict") if compared else others))
    for column in columns:
        is_text = column in ("method", "verdict")
        justify: Literal["left", "right"] = "left" if is_text else "right"
        table.add_column(column, justify=justify, no_wrap=not is_text)
    for group in groups:
        validation = f"{group.validation.mean:{spec}}" if group.validation.n else ""
        values = [group.name, f"{group.test:{spec}}", str(group.test.n), validation]
        values += [f"{group.metrics[name]:{spec}}" if name in group.metrics else "" for name in others]
        if group.difference is not None:
            mark = " *" if group.difference.settings else ""
            values += [f"{group.difference.estimate:+{spec}}", f"{group.difference.verdict}{mark}"]
        table.add_row(*map(Text, values))
    untrained = untrained_result(record for group in groups for record in group.records)
    if untrained is not None:
        table.add_section()
        row = [f"{untrained.test:.2f}", str(untrained.test.n), f"{untrained.validation.mean:.2f}"]
        table.add_row(*map(Text, ["untrained", *row]), style="dim")
    notes = [*_untrained_notes(groups), *_setting_notes(groups), *_search_notes(groups)]
    return Group(heading, table, *(Text(note, style="dim") for note in notes), *([Text()] if notes else []))


def _untrained_notes(groups: "Sequence[RunGroup]") -> list[str]:
    """Return one line that names the untrained score, and the methods that are below it."""
    from lresnet.runs.report import untrained_result

    untrained = untrained_result(record for group in groups for record in group.records)
    if untrained is None:
        return []
    lower = [group.name for group in groups if group.test.mean < untrained.test.mean]
    higher = f"; higher than {', '.join(lower)}" if lower else ""
    return [f"untrained: {untrained.label}, which learns nothing; chosen on validation pairs{higher}"]


def _search_notes(groups: "Sequence[RunGroup]") -> list[str]:
    """Return one line if settings were chosen by a search."""
    counts = [count for group in groups for count in group.search_trials]
    searched = [count for count in counts if count]
    if not searched:
        return []
    trials = str(max(searched)) if min(searched) == max(searched) else f"{min(searched)} to {max(searched)}"
    runs = f"{len(searched)} of {len(counts)} runs" if len(counts) > 1 else "the run"
    plural = "" if max(searched) == 1 else "s"
    return [f"Settings of {runs}: the best of {trials} trial{plural} of a search on validation data."]


def _setting_notes(groups: "Sequence[RunGroup]") -> list[str]:
    """Return one line for each set of settings that differ from those of the baseline."""
    from lresnet.runs.report import BASELINE

    names: dict[str, list[str]] = {}
    for group in groups:
        if group.difference is not None and group.difference.settings:
            names.setdefault(group.difference.settings, []).append(group.name)
    return [f"* {'; '.join(own)}: other settings than {BASELINE}: {settings}" for settings, own in names.items()]


def folder_table(states: "Sequence[FolderState]") -> "Table":
    """Return one row per run folder with its state, for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Run folders", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("folder", overflow="fold")
    table.add_column("state", overflow="fold")
    for state in states:
        table.add_row(Text(str(state.folder)), Text(state.state))
    return table
