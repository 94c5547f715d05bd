"""The verb ``predict``: classes of images, nodes or graphs, ranked links, and parents of new terms."""

import io
import json
import sys
from collections.abc import Sequence
from csv import writer as csv_writer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.console import image_notes, print_skipped, print_table
from lresnet.runs.defaults import LISTED_LINKS, LISTED_PARENTS

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.runs.link_ranking import Ranking
    from lresnet.runs.prediction import GraphPrediction, NodePrediction, Predictions
    from lresnet.runs.run import Run

__all__ = ["predict"]


def predict(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    items: Annotated[Positional[tuple[str, ...]], arg(metavar="IMAGE|FOLDER|NODE")] = (),
    top: Annotated[int | None, arg(metavar="INT")] = None,
    links: Annotated[bool, FlagCreatePairsOff] = False,
    node: Annotated[str | None, arg(metavar="NAME")] = None,
    pairs: Annotated[Path | None, arg(metavar="FILE")] = None,
    graph: Annotated[str | None, arg(metavar="GRAPH")] = None,
    parents: Annotated[tuple[str, ...] | None, arg(metavar="TERM ...")] = None,
    json: Annotated[str | None, arg(metavar="FILE|-")] = None,
    csv: Annotated[str | None, arg(metavar="FILE|-")] = None,
    device: str = "auto",
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
) -> int:
    """Predict with the model of a run: classes of images, nodes or graphs, missing links, or parents of new terms.

    Images of another size than the training images are resized and cropped. Files that cannot be read are skipped; the
    exit code is 1 if none could be read. Links are pairs of nodes without an edge, the nearest points first.

    Example: lresnet predict runs/cifar10-lorentz-0 cat.png photos/ --top 3

    Example: lresnet predict runs/cora_nc-lorentz-0 0 17

    Example: lresnet predict runs/friends-link-0 --links --top 20 --node "Ada Lovelace"

    Example: lresnet predict runs/animals-hierarchy-0 --parents "polar fox" "okapi: a relative of the giraffe"

    Args:
        run: The folder of a run on images, on a graph or on a taxonomy.
        items: Image files, or folders of images; for a graph, names or numbers of nodes, or of graphs in a set
            of graphs (none: all).
        top: Number of most probable classes of each item. None: 1. With --links, the number of links. None: 50,
            or all pairs of --pairs. With --parents, the number of parents of each term. None: 10.
        links: Rank the pairs of nodes without an edge, for a run that predicts links.
        node: With --links, rank the links of this node only.
        pairs: With --links, rank the pairs of this file instead: two nodes per row.
        graph: A new graph, in any format that `lresnet train` reads, for a run on your own graph.
        parents: Rank the parents of new terms, for a run on a taxonomy whose features are names or texts. A text may
            follow the term: "okapi: a relative of the giraffe".
        json: Also write the predictions to this file; - prints JSON instead of the table.
        csv: Also write the predictions to this file, one row per line; - prints CSV instead of the table.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        verbose: List the files that could not be read, and why.
    """
    require_run_folder(run)
    if not links and (node is not None or pairs is not None):
        raise ValueError(f"--{'node' if node is not None else 'pairs'} is for ranked links; add --links")
    if node is not None and pairs is not None:
        raise ValueError("--node and --pairs contradict each other; leave one out")
    if links and items:
        raise ValueError(f"--links ranks pairs of nodes; write --node {items[0]!r} for the links of one node")
    if parents is not None and (links or items or graph is not None):
        option = "--links" if links else "--graph" if graph is not None else items[0]
        raise ValueError(f"--parents and {option} contradict each other; leave one out")
    from lresnet.data import GraphLevelTask
    from lresnet.runs.run import Run
    from lresnet.runs.text import require_no_text

    opened = Run.open(run, device=device)
    require_no_text(opened, "items to predict")
    if parents is not None:
        return _parents(opened, parents, LISTED_PARENTS if top is None else top, json, csv)
    if opened.record.images is not None:
        if links or graph is not None or csv is not None:
            option = "links" if links else "graph" if graph is not None else "csv"
            raise ValueError(f"--{option} is for graphs, but {run} holds a run on images; leave it out")
        return _images(opened, [Path(item) for item in items], 1 if top is None else top, json, verbose)
    if links:
        return _links(opened, top, node, pairs, graph, json, csv)
    classify = _graphs if isinstance(opened.task, GraphLevelTask) else _nodes
    return classify(opened, items, 1 if top is None else top, graph, json, csv)


def _images(run: "Run", images: Sequence[Path], top: int, json: str | None, verbose: bool) -> int:
    from lresnet.runs.prediction import predict_images

    found = predict_images(run, images, top=top)
    print_table(prediction_table(found) if found.images else None, prediction_json(found), json)
    for note in image_notes(len(found.images), found.size, found.resized, len(found.skipped)):
        print(note, file=sys.stderr)
    if verbose:
        print_skipped(found.skipped)
    return 0 if found.images else 1


def _parents(run: "Run", terms: Sequence[str], top: int, json: str | None, csv: str | None) -> int:
    from lresnet.cli.ancestors import ranked_line, ranked_table
    from lresnet.runs.hierarchy import rank_parents, ranked_as_csv, ranked_as_json

    found = rank_parents(run, terms, top=top)
    for number, one in enumerate(found):
        if "-" not in (json, csv):
            print(ranked_line(one))
        last = number == len(found) - 1  # files are written once, and JSON and CSV hold all terms
        print_table(
            ranked_table(one) if "-" not in (json, csv) else None,
            ranked_as_json(found),
            json if last else None,
            csv if last else None,
            ranked_as_csv(found),
        )
    return 0


def _nodes(run: "Run", items: Sequence[str], top: int, graph: str | None, json: str | None, csv: str | None) -> int:
    from lresnet.runs.prediction import predict_nodes

    found = predict_nodes(run, items, top=top, graph=graph)
    print_table(node_table(found), node_json(found), json, csv, node_csv(found))
    return 0


def _graphs(run: "Run", items: Sequence[str], top: int, graph: str | None, json: str | None, csv: str | None) -> int:
    from lresnet.runs.prediction import predict_graphs

    if graph is not None:
        raise ValueError(f"--graph is for runs on one graph, but {run.place} classifies many; leave it out")
    found = predict_graphs(run, items, top=top)
    print_table(graph_table(found), graph_json(found), json, csv, graph_csv(found))
    return 0


def _links(
    run: "Run",
    top: int | None,
    node: str | None,
    pairs: Path | None,
    graph: str | None,
    json: str | None,
    csv: str | None,
) -> int:
    from lresnet.runs.link_ranking import links_as_csv, links_as_json, rank_links, read_pairs, score_pairs
    from lresnet.runs.node_inputs import inputs_of_graph, inputs_of_run

    inputs = inputs_of_run(run) if graph is None else inputs_of_graph(run, graph)
    if pairs is None:
        found = rank_links(run, top=LISTED_LINKS if top is None else top, node=node, inputs=inputs)
    else:
        found = score_pairs(run, read_pairs(pairs, inputs), inputs, top=top)
    if "-" not in (json, csv):
        print(link_line(found, pairs is not None))
    table = link_table(found, with_known=pairs is not None) if found.links else None
    print_table(table, links_as_json(found), json, csv, links_as_csv(found))
    return 0 if found.links else 1


def link_line(ranking: "Ranking", given: bool) -> str:
    """Return what was ranked, in one line."""
    from lresnet.runs.names import one_line

    pairs = "given pairs" if given else "pairs without an edge"
    return f"{len(ranking.links):,} of {ranking.candidates:,} {pairs} of {one_line(ranking.source)}, the nearest first"


def link_table(ranking: "Ranking", *, with_known: bool) -> "Table":
    """Return one row per link, for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from lresnet.runs.names import one_line

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("node", overflow="fold")
    table.add_column("node", overflow="fold")
    table.add_column("distance", justify="right", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    if with_known:
        table.add_column("in the graph", no_wrap=True)
    for rank, link in enumerate(ranking.links, 1):
        values = [str(rank), one_line(link.first), one_line(link.second), f"{link.distance:.4g}", f"{link.score:.4g}"]
        table.add_row(*map(Text, values + (["edge" if link.known else ""] if with_known else [])))
    return table


def prediction_table(predictions: "Predictions") -> "Table":
    """Return one row per image and class, for the terminal; each file is named once."""
    return _class_table("image", [(str(one.file), one.classes, one.probabilities) for one in predictions.images])


def node_table(predictions: "Sequence[NodePrediction]") -> "Table":
    """Return one row per node and class, for the terminal; each node is named once."""
    return _class_table("node", [(one.name, one.class_names, one.probabilities) for one in predictions])


def graph_table(predictions: "Sequence[GraphPrediction]") -> "Table":
    """Return one row per graph and class, for the terminal; each graph is named once."""
    return _class_table("graph", [(one.name, one.class_names, one.probabilities) for one in predictions])


def _class_table(kind: str, items: Sequence[tuple[str, Sequence[str], Sequence[float]]]) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from lresnet.runs.names import one_line

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(kind, overflow="fold")
    table.add_column("class", overflow="fold")
    table.add_column("probability", justify="right", no_wrap=True)
    for name, classes, probabilities in items:
        for rank, (label, share) in enumerate(zip(classes, probabilities, strict=True)):
            table.add_row("" if rank else escape(one_line(name)), escape(one_line(label)), f"{100 * share:.1f} %")
    return table


def prediction_json(predictions: "Predictions") -> str:
    """Return one JSON object: ``images`` with file, size and classes, and the ``skipped`` files."""
    images = [
        {"file": str(image.file), "size": list(image.size), "predictions": _pairs(image.classes, image.probabilities)}
        for image in predictions.images
    ]
    skipped = [{"file": str(file), "reason": reason} for file, reason in predictions.skipped]
    return json.dumps({"size": list(predictions.size), "images": images, "skipped": skipped}, indent=2)


def node_json(predictions: "Sequence[NodePrediction]") -> str:
    """Return one JSON object: ``nodes`` with number, name and classes."""
    nodes = [{"node": one.node, "name": one.name, "predictions": _class_pairs(one)} for one in predictions]
    return json.dumps({"nodes": nodes}, indent=2)


def graph_json(predictions: "Sequence[GraphPrediction]") -> str:
    """Return one JSON object: ``graphs`` with number, name and classes."""
    graphs = [{"graph": one.graph, "name": one.name, "predictions": _class_pairs(one)} for one in predictions]
    return json.dumps({"graphs": graphs}, indent=2)


def node_csv(predictions: "Sequence[NodePrediction]") -> str:
    """Return a table with a header: node, name, rank, class, probability."""
    return _class_csv("node", predictions)


def graph_csv(predictions: "Sequence[GraphPrediction]") -> str:
    """Return a table with a header: graph, name, rank, class, probability."""
    return _class_csv("graph", predictions)


def _class_csv(kind: str, predictions: "Sequence[NodePrediction] | Sequence[GraphPrediction]") -> str:
    buffer = io.StringIO()
    writer = csv_writer(buffer, lineterminator="\n")
    writer.writerow([kind, "name", "rank", "class", "probability"])
    for one in predictions:
        for rank, (label, share) in enumerate(zip(one.class_names, one.probabilities, strict=True), 1):
            writer.writerow([one[0], one.name, rank, label, f"{share:.6f}"])
    return buffer.getvalue()


def _class_pairs(one: "NodePrediction | GraphPrediction") -> list[dict[str, str | int | float]]:
    named = one.class_names != tuple(map(str, one.classes))
    return _pairs(one.class_names if named else one.classes, one.probabilities)


def _pairs(classes: Sequence[str | int], probabilities: Sequence[float]) -> list[dict[str, str | int | float]]:
    return [
        {"class": label, "probability": round(share, 6)} for label, share in zip(classes, probabilities, strict=True)
    ]
