"""The paper's report: tables, Markdown page, HTML page and pictures of the results of `lresnet reproduce`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

if TYPE_CHECKING:
    from lresnet_paper.pages.claims import Claim

__all__ = ["comparison", "depth", "report"]


def report(
    results: Annotated[Positional[Path], arg(metavar="RESULTS_DIR")] = Path("results"),
    json: Annotated[bool, FlagCreatePairsOff] = False,
    markdown: Annotated[Path | None, arg(metavar="FILE")] = None,
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE.html")] = None,
    embedding: Annotated[Path | None, arg(metavar="RUN_DIR")] = None,
    overview: Annotated[Path | None, arg(metavar="FILE.md")] = None,
) -> int:
    """Print what has been measured, mean and deviation over the runs, beside the paper's figures.

    Args:
        results: The folder with the results, files of JSON lines.
        json: Print a list of objects instead of tables: one for each table, cell, method and protocol.
        markdown: Write the tables to this file too, with the answers to the paper's claims.
        out: Write all to this page too, with pictures and the details of every run; it needs no network.
        embedding: The folder of a run on a graph, whose embedding the page shows in an interactive Poincaré disk.
        overview: Rewrite the short table of graphs in this file, between the marks that it has for it.
    """
    from lresnet._files import write_atomically
    from lresnet_paper.pages.depth_table import depth_terminal
    from lresnet_paper.pages.ood_table import ood_terminal
    from lresnet_paper.pages.terminal import print_figures, print_json
    from lresnet_paper.results import aggregate, read_runs

    if embedding is not None and out is None:
        raise ValueError("--embedding is for a page; name its file with -o FILE.html")
    if out is not None and out.suffix not in (".html", ".htm"):
        raise ValueError(f"the name of a page ends with .html, unlike {str(out)!r}; --markdown FILE writes Markdown")
    runs = read_runs(results)
    figures = aggregate(runs)
    if markdown is not None:
        write_atomically(markdown, _markdown(runs, results).encode())
    if overview is not None:
        _rewrite_overview(overview, runs)
    if out is not None:
        write_atomically(out, _html(runs, results, embedding).encode())
    if json:
        print_json(figures)
    else:
        print_figures(figures, {"ood": ood_terminal(runs), "oversmoothing": depth_terminal(runs)})
    if out is not None and not json:
        print(f"The page: {out}")
    return 0


def comparison(
    results: Annotated[Positional[Path], arg(metavar="RESULTS_DIR")] = Path("results"),
    table: Annotated[str | None, arg(metavar="TABLE")] = None,
    out: Path = Path("lresnet-comparison.png"),
) -> int:
    """Draw all methods of a table beside each other and beside the paper, means with error bars.

    Example: lresnet plot comparison results --table gnn --out gnn.svg

    Args:
        results: The folder with the results, files of JSON lines.
        table: A table of the paper with results. None: the only one there is, else gnn.
        out: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.picture import require_writable_picture
    from lresnet.runs.single import require_known
    from lresnet_paper.pages.comparison_picture import draw_comparison
    from lresnet_paper.results import aggregate, read_runs

    figures = aggregate(read_runs(results))
    if not figures:
        raise ValueError(f"{results} holds no final runs to compare; `lresnet reproduce` makes them")
    tables = list(dict.fromkeys(figure.table for figure in figures))
    table = table or (tables[0] if len(tables) == 1 else "gnn")
    require_known("table with results", table, tables)
    require_writable_picture(out)
    print(f"The picture: {draw_comparison(out, [figure for figure in figures if figure.table == table])}")
    return 0


def depth(
    results: Annotated[Positional[Path], arg(metavar="RESULTS_DIR")] = Path("results"),
    layers: Annotated[int | None, arg(metavar="INT")] = None,
    protocol: Annotated[str | None, arg(metavar="NAME")] = None,
    out: Path = Path("lresnet-depth.png"),
) -> int:
    """Draw AUC against the number of layers, and what the layers do; print what that says of the paper's claims.

    Example: lresnet plot depth results --out depth.svg

    Args:
        results: The folder with the results of `lresnet reproduce oversmoothing`.
        layers: How deep the networks are that are drawn layer by layer. None: the deepest.
        protocol: Which runs, where there are several protocols: legacy or legacy-deep. None: the first.
        out: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.picture import require_writable_picture
    from lresnet.runs.single import require_known
    from lresnet_paper.pages.depth_claims import depth_answers
    from lresnet_paper.pages.depth_picture import draw_depth
    from lresnet_paper.pages.depth_runs import depth_protocols
    from lresnet_paper.results import read_runs

    runs = read_runs(results)
    require_writable_picture(out)
    if protocol is not None:
        require_known("protocol with results", protocol, depth_protocols(runs) or ["legacy"])
    path = draw_depth(out, runs, layers, protocol)
    for claim in depth_answers(runs):
        print(f"{claim.sentence}: {claim.verdict}" + (f" ({claim.evidence})" if claim.evidence else ""))
    print(f"The picture: {path}")
    return 0


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


def _markdown(runs: Sequence[dict[str, Any]], results: Path) -> str:
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
    bodies = {"ood": ood_markdown(runs), DEPTH_TABLE: depth_markdown(runs)}
    paired = [d for d in paired if d.table != DEPTH_TABLE]  # there they have places of their own
    openings = {"image_classification": " ".join(missing_sentences("image_classification", runs))}
    openings = {table: f"**{words}**" for table, words in openings.items() if words}
    page = markdown_page(figures, paired, _notes(runs), bodies, computing_time(runs), openings)
    return f"{page}\n{claims_markdown(_claims(runs, results))}"


def _html(runs: Sequence[dict[str, Any]], results: Path, embedding: Path | None) -> str:
    from lresnet.plots.embedding import embedding_of_run
    from lresnet_paper.pages.html_page import html_page

    disk = None if embedding is None else embedding_of_run(embedding)
    return html_page(runs, _claims(runs, results), _notes(runs), disk)


def _rewrite_overview(file: Path, runs: Sequence[dict[str, Any]]) -> None:
    from lresnet._files import write_atomically
    from lresnet_paper.pages.overview import overview, overview_markdown, rewrite_between_marks
    from lresnet_paper.pages.paired import paired_differences
    from lresnet_paper.results import aggregate

    figures = [figure for figure in aggregate(runs) if figure.table == "gnn"]
    table = overview_markdown(overview(figures, [d for d in paired_differences(runs) if d.table == "gnn"]))
    write_atomically(file, rewrite_between_marks(file, table).encode())
