"""The verb ``pages``: the generated pages and pictures of the documentation."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from lresnet.cli.app import App

__all__ = ["pages"]

_Results = Annotated[Positional[Path], arg(metavar="RESULTS_DIR")]

pages = App("Render the generated pages and pictures of the documentation. Without a verb: all pages.")


@pages.command
def all_(results: Path = Path("results"), docs: Path = Path("docs")) -> int:
    """Write all generated pages and pictures into the folder of the docs; skip those without results.

    Example: python -m lresnet_paper pages --results results --docs docs

    Args:
        results: The folder with the results, files of JSON lines.
        docs: The folder of the pages.
    """
    from lresnet_paper.results import NoResults

    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    steps: dict[str, Callable[..., object]] = {
        "start/when.md": when,
        "reproduction/index.md": verdict,
        "reproduction/results.md": results_,
        "reproduction/hierarchy.md": hierarchy,
        "reproduction/ancestors.md": functools.partial(ancestors, picture=images / "ancestors.png"),
        "reproduction/completion.md": functools.partial(completion, picture=images / "completion.png"),
        "reproduction/deep.md": functools.partial(deep, picture=images / "depth-connections.png"),
        "reproduction/splits.md": splits,
        "reproduction/transformers.md": transformers,
        "performance/index.md": performance,
        "performance/benchmarks.md": benchmarks,
        "performance/numerics.md": numerics,
        "howto/convert_zoo.md": conversion,
        "images/depth.png": _draw_depth,
        "images/depth-deep.png": functools.partial(_draw_depth, protocol="legacy-deep"),
    }
    for name, step in steps.items():
        try:
            step(results, out=docs / name)
        except (NoResults, FileNotFoundError) as error:
            print(f"skipped {name}: {error}")
    return 0


def _page(path: str, read: str = "files of JSON lines") -> Callable[[Callable[[Path], str]], Callable[..., int]]:
    """Return a decorator that makes a verb of a function from the folder of results to the text of a page.

    Args:
        path: The file of the page in the folder of the docs.
        read: The files in the folder of results that the page is made from.
    """

    def verb_of(render: Callable[[Path], str]) -> Callable[..., int]:
        def verb(results: _Results = Path("results"), out: Path = Path("docs") / path) -> int:
            from lresnet_paper.render import write_page

            write_page(out, render(results))
            print(f"The page: {out}")
            return 0

        verb.__name__ = render.__name__
        verb.__doc__ = f"""{render.__doc__}

        Example: python -m lresnet_paper pages {render.__name__.rstrip("_")} --out docs/{path}

        Args:
            results: The folder of results, with {read}.
            out: The Markdown file to write.
        """
        return pages.command(verb)

    return verb_of


@_page("reproduction/index.md")
def verdict(results: Path) -> str:
    """Write the page that answers whether the paper reproduces: its claims, and a summary of each of its tables."""
    from lresnet_paper.pages.verdict_page import verdict_page_of_folder

    return verdict_page_of_folder(results)


@_page("start/when.md")
def when(results: Path) -> str:
    """Write the page that says where hyperbolic space helped and where it did not, with a table for choosing."""
    from lresnet_paper.pages.when_page import when_page_of_folder

    return when_page_of_folder(results)


@_page("reproduction/results.md")
def results_(results: Path) -> str:
    """Write the page of all results: one section per table of the paper."""
    from lresnet_paper.pages.results_page import results_page_of_folder

    return results_page_of_folder(results)


@_page("performance/index.md", "benchmarks.jsonl and numerics.jsonl")
def performance(results: Path) -> str:
    """Write the page with the headline figures of speed and accuracy."""
    from lresnet_paper.pages.performance_page import performance_page

    return performance_page(results)


@_page("performance/benchmarks.md", "benchmarks.jsonl and runtime.jsonl")
def benchmarks(results: Path) -> str:
    """Write the page of all benchmarks, as `lresnet bench page` does."""
    from lresnet_paper.pages.benchmarks import benchmark_page, read_benchmarks

    return benchmark_page(read_benchmarks(results))


@_page("performance/numerics.md", "numerics.jsonl, which `python benchmarks/numerics.py` writes")
def numerics(results: Path) -> str:
    """Write the page of rounding errors."""
    from lresnet_paper.pages.numerics import numerics_page, read_numerics

    return numerics_page(read_numerics(results))


@_page("reproduction/hierarchy.md", "hierarchy_images.jsonl, which `python -m lresnet_paper hierarchy` writes")
def hierarchy(results: Path) -> str:
    """Write the page of hierarchy-aware losses."""
    from lresnet.train.results import read_results
    from lresnet_paper.pages.hierarchy_page import hierarchy_page

    return hierarchy_page(list(read_results(results / "hierarchy_images.jsonl")))


@_page("reproduction/transformers.md", "transformers.jsonl, which `lresnet reproduce transformers` writes")
def transformers(results: Path) -> str:
    """Write the page of transformers by depth: residual connections with 6, 12 and 24 blocks."""
    from lresnet.train.results import read_results
    from lresnet_paper.pages.transformers_page import transformers_page

    return transformers_page(list(read_results(results / "transformers.jsonl")))


@_page("reproduction/splits.md", "splits.jsonl, which `lresnet reproduce splits` writes")
def splits(results: Path) -> str:
    """Write the page that shows how much of a published difference is the split."""
    from lresnet.train.results import read_results
    from lresnet_paper.pages.splits_page import splits_page

    return splits_page(list(read_results(results / "splits.jsonl")))


@pages.command
def conversion(
    results: _Results = Path("results"),
    counts: Path = Path("benchmarks"),
    out: Path = Path("docs/howto/convert_zoo.md"),
) -> int:
    """Write the page of converted networks, which `python benchmarks/convert_zoo.py` measures.

    Example: python -m lresnet_paper pages conversion --out docs/howto/convert_zoo.md

    Args:
        results: The folder with conversion.jsonl.
        counts: The folder with conversion_truth.toml, the connections counted by hand.
        out: The Markdown file to write.
    """
    from lresnet_paper.pages.conversion_page import conversion_page, read_conversions, read_hand_counts
    from lresnet_paper.render import write_page

    write_page(out, conversion_page(read_conversions(results), read_hand_counts(counts)))
    print(f"The page: {out}")
    return 0


@pages.command
def completion(
    results: _Results = Path("results"),
    out: Path = Path("docs/reproduction/completion.md"),
    picture: Path = Path("docs/images/completion.png"),
) -> int:
    """Write the page of hierarchy completion and its picture, which `python -m lresnet_paper completion` measures.

    Example: python -m lresnet_paper pages completion --out docs/reproduction/completion.md

    Args:
        results: The folder with completion.jsonl.
        out: The Markdown file to write.
        picture: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.picture import require_writable_picture, save_picture
    from lresnet_paper.completion.study import own_lines
    from lresnet_paper.pages.completion_page import completion_page, completion_picture
    from lresnet_paper.render import write_page

    require_writable_picture(picture)
    lines = own_lines(results / "completion.jsonl")
    write_page(out, completion_page(lines))
    save_picture(completion_picture(lines), picture, dpi=120)
    print(f"The page: {out}; the picture: {picture}")
    return 0


@pages.command
def deep(
    results: _Results = Path("results"),
    out: Path = Path("docs/reproduction/deep.md"),
    picture: Path = Path("docs/images/depth-connections.png"),
) -> int:
    """Write the page of deep graph networks, and its picture where chains and initial residuals have two depths.

    Example: python -m lresnet_paper pages deep --out docs/reproduction/deep.md

    Args:
        results: The folder with deep.jsonl, which `lresnet reproduce deep` writes, and untrained.jsonl.
        out: The Markdown file to write.
        picture: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.picture import require_writable_picture, save_picture
    from lresnet.train.results import read_results
    from lresnet_paper.pages.deep_page import deep_page
    from lresnet_paper.pages.depth_picture import connection_panels, connections_picture
    from lresnet_paper.render import write_page

    require_writable_picture(picture)
    untrained = results / "untrained.jsonl"
    scores = read_results(untrained) if untrained.exists() else []
    lines = list(read_results(results / "deep.jsonl"))
    write_page(out, deep_page(lines, scores))
    drawn = ""
    if connection_panels(lines):
        drawn = f"; the picture: {save_picture(connections_picture(lines), picture, dpi=120)}"
    print(f"The page: {out}{drawn}")
    return 0


@pages.command
def ancestors(
    results: _Results = Path("results"),
    out: Path = Path("docs/reproduction/ancestors.md"),
    picture: Path = Path("docs/images/ancestors.png"),
) -> int:
    """Write the page of k-hop ancestor retrieval and its picture, which `python -m lresnet_paper ancestors` measures.

    Example: python -m lresnet_paper pages ancestors --out docs/reproduction/ancestors.md

    Args:
        results: The folder with ancestors.jsonl.
        out: The Markdown file to write.
        picture: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.picture import require_writable_picture, save_picture
    from lresnet_paper.ancestors import TABLE, own_lines
    from lresnet_paper.pages.ancestors_page import ancestors_page, ancestors_picture
    from lresnet_paper.render import write_page

    require_writable_picture(picture)
    lines = own_lines(results / f"{TABLE}.jsonl")
    write_page(out, ancestors_page(lines))
    print(f"The page: {out}")
    print(f"The picture: {save_picture(ancestors_picture(lines), picture, dpi=120)}")
    return 0


@pages.command
def depth(
    results: _Results = Path("results"),
    layers: Annotated[int | None, arg(metavar="INT")] = None,
    protocol: Annotated[str | None, arg(metavar="NAME")] = None,
    second_protocol: Annotated[str | None, arg(metavar="NAME")] = None,
    out: Path = Path("lresnet-depth.png"),
) -> int:
    """Draw AUC by the number of layers, and in a second file each layer; print the paper's claims about depth.

    Example: python -m lresnet_paper pages depth --out depth.svg

    Args:
        results: The folder with the results of `lresnet reproduce oversmoothing`.
        layers: Depth of the networks that are drawn layer by layer. None: the deepest.
        protocol: Which runs to draw if there are several protocols: legacy or legacy-deep. None: the first.
        second_protocol: A second protocol in the same panels, with hollow markers: tuned settings or another network.
        out: The picture by depth to write; .png, .svg or .pdf. The name of the one by layer ends with -layers.
    """
    from lresnet_paper.pages.claims import depth_claims
    from lresnet_paper.results import read_runs

    _draw_depth(results, layers, protocol, second_protocol, out)
    for claim in depth_claims(read_runs(results)):
        print(f"{claim.sentence}: {claim.verdict}. {claim.evidence}".rstrip())
    return 0


def _draw_depth(
    results: Path,
    layers: int | None = None,
    protocol: str | None = None,
    second_protocol: str | None = None,
    out: Path = Path(),
) -> None:
    from lresnet.plots.picture import require_writable_picture
    from lresnet.runs.names import require_known
    from lresnet_paper.pages.depth_page import DEPTH_TABLE, depth_protocols
    from lresnet_paper.pages.depth_picture import draw_depth
    from lresnet_paper.plan import protocols, recipe_cells
    from lresnet_paper.results import NoResults, read_runs

    runs = read_runs(results)
    require_writable_picture(out)
    measured = depth_protocols(runs) or ["legacy"]
    planned = {name for cell in recipe_cells(DEPTH_TABLE) for name in protocols(DEPTH_TABLE, cell)}
    for name in (protocol, second_protocol):
        if name in planned.difference(measured):
            raise NoResults(
                f"the protocol {name} has no results; `lresnet reproduce {DEPTH_TABLE} --protocol {name}` makes them"
            )
        if name is not None:
            require_known("protocol with results", name, measured)
    print(f"The pictures: {', '.join(map(str, draw_depth(out, runs, layers, protocol, second_protocol)))}")


@pages.command
def connections(results: _Results = Path("results"), out: Path = Path("lresnet-connections.png")) -> int:
    """Draw a chain of residuals and the initial residual by the number of layers.

    Example: python -m lresnet_paper pages connections --out docs/images/depth-connections.png

    Args:
        results: The folder with the results of `lresnet reproduce deep`.
        out: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.picture import require_writable_picture, save_picture
    from lresnet.train.results import read_results
    from lresnet_paper.pages.depth_picture import connections_picture

    require_writable_picture(out)
    picture = connections_picture(read_results(results / "deep.jsonl"))
    print(f"The picture: {save_picture(picture, out, dpi=120)}")
    return 0


@pages.command
def comparison(
    results: _Results = Path("results"),
    table: Annotated[str | None, arg(metavar="TABLE")] = None,
    out: Path = Path("lresnet-comparison.png"),
) -> int:
    """Draw all methods of a table next to each other and to the paper: means with error bars.

    Example: python -m lresnet_paper pages comparison --table gnn --out gnn.svg

    Args:
        results: The folder with the results, files of JSON lines.
        table: A table of the paper with results. None: the only one, or gnn if there are several.
        out: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.picture import require_writable_picture
    from lresnet.runs.names import require_known
    from lresnet_paper.pages.comparison_picture import draw_comparison
    from lresnet_paper.results import NoResults, aggregate, read_runs

    found = aggregate(read_runs(results))
    if not found:
        raise NoResults(f"{results} has no final runs to compare; `lresnet reproduce TABLE` makes those of a table")
    tables = list(dict.fromkeys(one.table for one in found))
    table = table or (tables[0] if len(tables) == 1 else "gnn")
    require_known("table with results", table, tables)
    require_writable_picture(out)
    print(f"The picture: {draw_comparison(out, [one for one in found if one.table == table])}")
    return 0
