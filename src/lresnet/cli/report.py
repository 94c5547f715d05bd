"""The verb ``report``: what has been measured, by `lresnet reproduce` or in the folders of a user's own runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

if TYPE_CHECKING:
    from lresnet.runs.run_folders import FolderState
    from lresnet_paper.pages.claims import Claim

__all__ = ["report"]


def report(
    results: Annotated[Positional[Path], arg(metavar="RESULTS_DIR")] = Path("results"),
    json: Annotated[bool, FlagCreatePairsOff] = False,
    markdown: Annotated[Path | None, arg(metavar="FILE")] = None,
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE.html")] = None,
    embedding: Annotated[Path | None, arg(metavar="RUN_DIR")] = None,
    overview: Annotated[Path | None, arg(metavar="FILE.md")] = None,
) -> int:
    """Print what has been measured, mean and deviation over the runs, beside the paper's figures.

    Your own runs of one method are averaged where they differ in seed or split alone; others have a row each.

    Example: lresnet report results --json > figures.json

    Example: lresnet report -o report.html --embedding runs/tree

    Args:
        results: The folder with the results, files of JSON lines; or with the folders of runs of `lresnet train`, of
            which those that `lresnet evaluate` was called for have figures, and the others are listed.
        json: Print a list of objects instead of tables: one for each table, cell, method and protocol.
        markdown: Write the tables to this file too; of tables of the paper with the answers to its claims.
        out: Write all to this page too, with pictures and the details of every run; it needs no network.
        embedding: The folder of a run on a graph, whose embedding the page shows in an interactive Poincaré disk.
        overview: Rewrite the short table of graphs in this file, between the marks that it has for it.
    """
    from rich.console import Console

    from lresnet._files import write_atomically
    from lresnet.runs.run_folders import folder_runs, folder_states, folder_table
    from lresnet_paper.pages.depth_table import depth_terminal
    from lresnet_paper.pages.ood_table import ood_terminal
    from lresnet_paper.pages.terminal import print_figures, print_json
    from lresnet_paper.results import aggregate, read_runs

    if embedding is not None and out is None:
        raise ValueError("--embedding is for a page; name its file with -o FILE.html")
    if out is not None and out.suffix not in (".html", ".htm"):
        raise ValueError(f"the name of a page ends with .html, unlike {str(out)!r}; --markdown FILE writes Markdown")
    folders = folder_states(results)
    runs = read_runs(results) + folder_runs(folders)
    figures = aggregate(runs)
    if markdown is not None:
        write_atomically(markdown, _markdown(runs, folders, results).encode())
    if overview is not None:
        _rewrite_overview(overview, runs)
    if out is not None:
        write_atomically(out, _html(runs, folders, results, embedding).encode())
    if json:
        print_json(figures)
    else:
        print_figures(figures, {"ood": ood_terminal(runs), "oversmoothing": depth_terminal(runs)})
        if folders:
            Console().print(folder_table(folders))
    if out is not None and not json:
        print(f"The page: {out}")
    return 0


def _are_own(runs: Sequence[dict[str, Any]], folders: "Sequence[FolderState]") -> bool:
    """Whether there is nothing but runs of a user's own: what the paper claims is not about them."""
    return bool(folders) and all(run["table"] == "train" for run in runs)


def _claims(runs: Sequence[dict[str, Any]], results: Path) -> "list[Claim]":
    from lresnet.train.results import read_results
    from lresnet_paper.pages.claims import answer_claims
    from lresnet_paper.pages.depth_claims import depth_answers
    from lresnet_paper.results import aggregate

    numerics, benchmarks = (list(read_results(results / f"{name}.jsonl")) for name in ("numerics", "benchmarks"))
    return answer_claims(aggregate(runs), numerics, runs, benchmarks) + depth_answers(runs)


def _notes(runs: Sequence[dict[str, Any]]) -> dict[tuple[str, str, str], str]:
    from lresnet_paper.search import recipe_notes

    return recipe_notes({(run["table"], run["cell"]) for run in runs})


def _markdown(runs: Sequence[dict[str, Any]], folders: "Sequence[FolderState]", results: Path) -> str:
    """A user's own runs, where there is nothing else, have a page of their own, without the paper's claims."""
    from lresnet.runs.own_runs_page import own_runs_page
    from lresnet_paper.pages.computing_time import computing_time
    from lresnet_paper.pages.paired import paired_differences
    from lresnet_paper.results import aggregate

    if _are_own(runs, folders):
        return own_runs_page(results, aggregate(runs), paired_differences(runs), folders, computing_time(runs))
    return _paper_markdown(runs, results)


def _paper_markdown(runs: Sequence[dict[str, Any]], results: Path) -> str:
    from lresnet.runs.own_runs_page import own_runs_tables
    from lresnet_paper.pages.claims import claims_markdown
    from lresnet_paper.pages.computing_time import computing_time
    from lresnet_paper.pages.depth_runs import DEPTH_TABLE
    from lresnet_paper.pages.depth_table import depth_markdown
    from lresnet_paper.pages.markdown_page import markdown_page
    from lresnet_paper.pages.ood_table import ood_markdown
    from lresnet_paper.pages.paired import paired_differences
    from lresnet_paper.pages.planned import missing_sentences
    from lresnet_paper.results import aggregate

    figures, paired = aggregate(runs), paired_differences(runs)
    own = own_runs_tables([f for f in figures if f.table == "train"], [d for d in paired if d.table == "train"])
    bodies = {"ood": ood_markdown(runs), DEPTH_TABLE: depth_markdown(runs), "train": own}
    paired = [d for d in paired if d.table not in (DEPTH_TABLE, "train")]  # there they have places of their own
    openings = {"image_classification": " ".join(missing_sentences("image_classification", runs))}
    openings = {table: f"**{words}**" for table, words in openings.items() if words}
    page = markdown_page(figures, paired, _notes(runs), bodies, computing_time(runs), openings)
    return f"{page}\n{claims_markdown(_claims(runs, results))}"


def _html(
    runs: Sequence[dict[str, Any]], folders: "Sequence[FolderState]", results: Path, embedding: Path | None
) -> str:
    from lresnet.plots.disk_embedding import embedding_of_run
    from lresnet_paper.pages.html_page import html_page

    disk = None if embedding is None else embedding_of_run(embedding)
    claims = [] if _are_own(runs, folders) else _claims(runs, results)
    return html_page(runs, claims, _notes(runs), disk, folders)


def _rewrite_overview(file: Path, runs: Sequence[dict[str, Any]]) -> None:
    from lresnet._files import write_atomically
    from lresnet_paper.pages.overview import overview, overview_markdown, rewrite_between_marks
    from lresnet_paper.pages.paired import paired_differences
    from lresnet_paper.results import aggregate

    figures = [figure for figure in aggregate(runs) if figure.table == "gnn"]
    table = overview_markdown(overview(figures, [d for d in paired_differences(runs) if d.table == "gnn"]))
    write_atomically(file, rewrite_between_marks(file, table).encode())
