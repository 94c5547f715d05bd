"""The verbs ``demo`` and ``plot``."""

import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from lresnet.cli.app import App
from lresnet.cli.ood import listed, listed_sets

__all__ = ["demo", "plot"]


def demo(out: Path = Path("lresnet-demo.png"), workers: int = 2) -> int:
    """Train every residual connection on a tree, print the figures, draw what was learned: about half a minute.

    An epidemic on a random tree of 1,000 people, made on the spot: which contacts are missing (link prediction), and
    who was infected (node classification)? Six methods, five seeds. The picture is a network's embedding of the tree.

    Example: lresnet demo --out tree.png

    Args:
        out: The picture to write; .png, .svg or .pdf.
        workers: Processes to train with, of one thread each.
    """
    import time

    from rich.console import Console

    from lresnet.cli.console import progress_bars
    from lresnet.cli.demo_table import TASK_NAMES, demo_table
    from lresnet.plots.demo import draw_embedding, require_drawable
    from lresnet.runs.demo import DEMO_CELLS, demo_runs, run_demo
    from lresnet.runs.workers import require_workers

    require_drawable(out)  # before half a minute has passed
    require_workers(workers)
    started, runs = time.monotonic(), demo_runs()
    with progress_bars() as progress:
        bars = {
            cell: progress.add_task(f"{TASK_NAMES[cell]:19}", total=sum(run.cell == cell for run in runs), state="")
            for cell in DEMO_CELLS
        }

        def show(record: dict[str, Any]) -> None:
            progress.update(bars[record["cell"]], advance=1, state=record["method"])

        records, embedding = run_demo(runs, workers=workers, report=show)
    console = Console()
    console.print(demo_table(records))
    console.print(f"The picture: {draw_embedding(out, embedding)}", soft_wrap=True, highlight=False)
    console.print(f"{len(runs)} trainings in {time.monotonic() - started:.0f} s", highlight=False)
    return 0


plot = App()


@plot.command
def residuals(
    x: tuple[float, float] = (2.0, -2.0),
    y: tuple[float, float] = (2.0, 2.0),
    curvature: float = -1.0,
    out: Path = Path("lresnet-residuals.png"),
) -> int:
    """Print and draw where each residual connection puts two points.

    Example: lresnet plot residuals --x 1 0 --y 0 3 --curvature -0.5

    Args:
        x: The point that skips the layer: its two space coordinates.
        y: The layer's output f(x): its two space coordinates.
        curvature: The curvature K of the space, a negative number.
        out: The picture to write; .png, .svg or .pdf.
    """
    from rich.console import Console

    from lresnet.plots.demo import require_drawable
    from lresnet.plots.residuals import draw_residuals, residual_table

    require_drawable(out)
    console = Console()
    console.print(residual_table(x, y, curvature))
    console.print(f"The picture: {draw_residuals(out, x, y, curvature)}", soft_wrap=True, highlight=False)
    return 0


@plot.command
def embedding(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    centre: Annotated[int | None, arg(metavar="NODE")] = None,
    out: Path = Path("lresnet-embedding.png"),
    device: str = "auto",
) -> int:
    """Draw a graph in the Poincaré disk, as the network of a run has embedded it; edges are geodesics.

    An embedding in two dimensions is drawn as it is, one in more after hyperbolic PCA.

    Example: lresnet plot embedding runs/tree --centre 0

    Args:
        run: The folder of a run on a graph.
        centre: The node to move to the centre of the disk. None: the centroid of all.
        out: The picture to write; .png, .svg or .pdf.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    from lresnet.plots.demo import require_drawable
    from lresnet.plots.disk_embedding import embedding_of_run
    from lresnet.plots.embedding import draw_disk_embedding

    require_drawable(out)
    found = embedding_of_run(run, device=device)
    if found.note:
        print(found.note)
    print(f"The picture: {draw_disk_embedding(out, found, centre)}")
    return 0


@plot.command
def curves(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN_DIR")],
    out: Path = Path("lresnet-curves.png"),
) -> int:
    """Draw the validation figures of runs, epoch by epoch; a mark where the parameters were kept.

    Example: lresnet plot curves runs/tree runs/tree-none --out curves.svg

    Args:
        runs: The folders of finished runs.
        out: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.curves import draw_curves, read_curve
    from lresnet.plots.demo import require_drawable

    found = [read_curve(folder) for folder in runs]
    require_drawable(out)
    print(f"The picture: {draw_curves(out, found)}")
    return 0


@plot.command
def comparison(
    results: Annotated[Positional[Path], arg(metavar="RESULTS_DIR")] = Path("results"),
    table: Annotated[str | None, arg(metavar="TABLE")] = None,
    out: Path = Path("lresnet-comparison.png"),
) -> int:
    """Draw all methods of a table beside each other and beside the paper, means with error bars.

    Example: lresnet plot comparison results --table gnn --out gnn.svg

    Args:
        results: The folder with the results, files of JSON lines, or with the folders of evaluated runs.
        table: A table of the paper with results; of runs in folders: train. None: the only one there is, else gnn.
        out: The picture to write; .png, .svg or .pdf.
    """
    from lresnet.plots.demo import require_drawable
    from lresnet.runs.run_folders import folder_runs, folder_states
    from lresnet.runs.single import require_known
    from lresnet_paper.pages.comparison_picture import draw_comparison
    from lresnet_paper.results import aggregate, read_runs

    figures = aggregate(read_runs(results) + folder_runs(folder_states(results)))
    if not figures:
        raise ValueError(f"{results} holds no final runs to compare; `lresnet reproduce` makes them")
    tables = list(dict.fromkeys(figure.table for figure in figures))
    table = table or (tables[0] if len(tables) == 1 else "gnn")
    require_known("table with results", table, tables)
    require_drawable(out)
    print(f"The picture: {draw_comparison(out, [figure for figure in figures if figure.table == table])}")
    return 0


@plot.command
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
    from lresnet.plots.demo import require_drawable
    from lresnet.runs.single import require_known
    from lresnet_paper.pages.depth_claims import depth_answers
    from lresnet_paper.pages.depth_picture import draw_depth
    from lresnet_paper.pages.depth_runs import depth_protocols
    from lresnet_paper.results import read_runs

    runs = read_runs(results)
    require_drawable(out)
    if protocol is not None:
        require_known("protocol with results", protocol, depth_protocols(runs) or ["legacy"])
    path = draw_depth(out, runs, layers, protocol)
    for claim in depth_answers(runs):
        print(f"{claim.sentence}: {claim.verdict}" + (f" ({claim.evidence})" if claim.evidence else ""))
    print(f"The picture: {path}")
    return 0


@plot.command
def ood(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    ood: Annotated[tuple[str, ...], arg(metavar="SET,SET,...")] = ("svhn,places,textures",),
    scores: Annotated[tuple[str, ...], arg(metavar="SCORE,SCORE,...")] = ("energy",),
    out: Path = Path("lresnet-ood.png"),
    device: str = "auto",
) -> int:
    """Draw histograms of scores: the test images of a run beside images of other sets.

    The figures that belong to them: `lresnet ood RUN_DIR`, which draws the same with --out.

    Example: lresnet plot ood runs/cifar10-lorentz-0 --ood svhn,photos/ --scores energy,origin_distance

    Args:
        run: The folder of a run on images.
        ood: Sets, with commas between them, as `lresnet ood` takes them.
        scores: One or several, or all; `lresnet ood --help` names them.
        out: The picture to write; .png, .svg or .pdf.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    from lresnet.cli.detection_table import detection_notes
    from lresnet.plots.demo import require_drawable
    from lresnet.plots.score_histograms import draw_score_histograms
    from lresnet.runs.detection import score_folder

    require_drawable(out)
    found, sets = score_folder(run, listed_sets(ood), scores=listed(scores), device=device)
    for note in detection_notes(sets):
        print(note, file=sys.stderr)
    print(f"The picture: {draw_score_histograms(out, found)}")
    return 0
