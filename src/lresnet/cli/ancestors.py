"""The verb ``ancestors``: rank the ancestors of a node of a taxonomy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.console import print_table
from lresnet.runs.defaults import LISTED_ANCESTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from lresnet.runs.hierarchy import RankedAncestors

__all__ = ["ancestors", "ranked_line", "ranked_table"]


def ancestors(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    node: Annotated[Positional[str], arg(metavar="NODE")],
    top: Annotated[int, arg(metavar="INT")] = LISTED_ANCESTORS,
    json: Annotated[str | None, arg(metavar="FILE|-")] = None,
    csv: Annotated[str | None, arg(metavar="FILE|-")] = None,
    device: str = "auto",
) -> int:
    """Rank all nodes of a taxonomy as ancestors of one node, with the model of a run.

    The nearest ancestor should come first, the root last, and other nodes below them. The last column shows the
    relation in the taxonomy: parent, ancestor, held-out parent or held-out ancestor (training has not seen this pair),
    descendant. An empty field: no ancestor in the file, but perhaps a missing one.

    Example: lresnet ancestors runs/animals-hierarchy-0 "polar bear" --top 10

    Args:
        run: The folder of a run on a taxonomy (lresnet train FILE --task hierarchy).
        node: The name or the number of a node.
        top: Number of candidates.
        json: Also write the candidates to this file; - prints JSON instead of the table.
        csv: Also write the candidates to this file; - prints CSV instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    require_run_folder(run)
    from lresnet.runs.hierarchy import rank_ancestors, ranked_as_csv, ranked_as_json
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    found = rank_ancestors(opened, node, top=top)
    if "-" not in (json, csv):
        print(ranked_line(found))
    print_table(ranked_table(found), ranked_as_json([found]), json, csv, ranked_as_csv([found]))
    if "-" not in (json, csv):
        for line in _explanations(found, opened.train_config.loss):
            print(line)
    return 0


def _explanations(ranked: "RankedAncestors", loss: str | None) -> "Iterator[str]":
    """Yield what a reader of the table has to know of the relations in it."""
    relations = {one.relation for one in ranked.found}
    if "" in relations:
        yield "An empty field: no ancestor in the file; it may be a missing one."
    if relations & {"held-out parent", "held-out ancestor"}:
        yield "Held out: in the file, but not seen in training; the figures of the run are measured on such pairs."
    if loss == "cones":
        yield "The loss cones does not order the ancestors of a node; train with --loss ranking for the nearest first."


def ranked_line(ranked: "RankedAncestors") -> str:
    """Return a line that states what was ranked among how many nodes."""
    from lresnet.runs.names import one_line

    what = "parents of the new term" if ranked.is_new else "ancestors of"
    among = f"among {ranked.candidates:,} nodes of {one_line(ranked.source)}"
    return f"{what} {one_line(ranked.name)} {among}, the best first"


def ranked_table(ranked: "RankedAncestors") -> "Table":
    """Return one row per candidate for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from lresnet.runs.names import one_line

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("node", overflow="fold")
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("depth", justify="right", no_wrap=True)
    if not ranked.is_new:
        table.add_column("in the taxonomy", no_wrap=True)
    for one in ranked.found:
        values = [str(one.rank), one_line(one.name), f"{one.score:.3f}", str(one.depth)]
        table.add_row(*map(Text, values if ranked.is_new else [*values, one.relation]))
    return table
