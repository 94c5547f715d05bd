"""The verb ``report``: the paper's tables with our results, in the terminal, as JSON or as an HTML page."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

__all__ = ["report", "show"]


def report(
    results: Annotated[Positional[Path], arg(metavar="RESULTS_DIR")] = Path("results"),
    json: Annotated[bool, FlagCreatePairsOff] = False,
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE.html")] = None,
    embedding: Annotated[Path | None, arg(metavar="RUN_DIR")] = None,
) -> int:
    """Print the results of `lresnet reproduce`, mean and deviation over the runs, next to the paper's.

    Example: python -m lresnet_paper report results --json > results.json

    Example: python -m lresnet_paper report -o report.html --embedding runs/tree

    Args:
        results: The folder with the results, files of JSON lines.
        json: Print a list of objects instead of tables, one per table, cell, method and protocol.
        out: Also write an HTML page with pictures, the paper's claims and the details of every run.
        embedding: The folder of a run on a graph; the page shows its embedding in an interactive Poincaré disk.
    """
    return show(results, json, out, embedding)


def show(results: Path, json: bool, out: Path | None, embedding: Path | None) -> int:
    """Print the results in a folder of JSON lines, and write the HTML page if ``out`` names one.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: ``out`` is not an HTML file, or ``embedding`` is given without it.
    """
    from lresnet_paper.pages.depth_page import DEPTH_TABLE, depth_terminal
    from lresnet_paper.pages.ood_page import ood_terminal
    from lresnet_paper.pages.text_tables import print_json, print_results
    from lresnet_paper.results import aggregate, read_runs

    if embedding is not None and out is None:
        raise ValueError("--embedding needs a page; name its file with -o FILE.html")
    if out is not None and out.suffix not in (".html", ".htm"):
        raise ValueError(f"the file name of a page must end with .html, got {str(out)!r}")
    runs = read_runs(results)
    if out is not None:
        _write_page(runs, results, out, embedding)
    if json:
        print_json(aggregate(runs))
        return 0
    print_results(aggregate(runs), {"ood": ood_terminal(runs), DEPTH_TABLE: depth_terminal(runs)})
    if out is not None:
        print(f"The page: {out}")
    return 0


def _write_page(runs: list[dict[str, object]], results: Path, out: Path, embedding: Path | None) -> None:
    from lresnet.plots.embedding import embedding_of_run
    from lresnet.runs.run import Run
    from lresnet_paper.pages.html_page import html_page
    from lresnet_paper.pages.results_page import claims_of_folder, notes_of
    from lresnet_paper.render import write_page

    disk = None if embedding is None else embedding_of_run(Run.open(embedding))
    page = html_page(runs, claims_of_folder(runs, results), notes_of(runs), disk)
    write_page(out, page)
