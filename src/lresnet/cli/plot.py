"""The verb ``plot``: pictures of residual connections, embeddings, training curves and scores."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.app import App
from lresnet.cli.ood import detection_notes, listed, listed_sets

if TYPE_CHECKING:
    from lresnet.plots.poincare_disk import DiskEmbedding
    from lresnet.runs.run import Run

__all__ = ["plot"]

_PAGES = (".html", ".htm")

plot = App("Draw residuals, embeddings, training curves and score histograms.")


@plot.command
def residuals(
    x: tuple[float, float] = (2.0, -2.0),
    y: tuple[float, float] = (2.0, 2.0),
    curvature: float = -1.0,
    out: Path = Path("lresnet-residuals.png"),
) -> int:
    """Print and draw the result of every residual connection for two points.

    Example: lresnet plot residuals --x 1 0 --y 0 3 --curvature -0.5

    Args:
        x: The skipped point: its two space coordinates.
        y: The layer's output f(x): its two space coordinates.
        curvature: The curvature K of the space, a negative number.
        out: The picture file; .png, .svg or .pdf.
    """
    from rich.console import Console

    from lresnet.plots.picture import require_writable_picture
    from lresnet.plots.residuals import draw_residuals, residual_table

    require_writable_picture(out)
    console = Console()
    console.print(residual_table(x, y, curvature))
    console.print(f"The picture: {draw_residuals(out, x, y, curvature)}", soft_wrap=True, highlight=False)
    return 0


@plot.command
def embedding(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    centre: Annotated[str | None, arg(metavar="NODE")] = None,
    names: Annotated[int | None, arg(metavar="INT")] = None,
    images: Annotated[int | None, arg(metavar="INT")] = None,
    thumbnails: Annotated[int | None, arg(metavar="INT")] = None,
    out: Path = Path("lresnet-embedding.png"),
    device: str = "auto",
) -> int:
    """Draw the embedding of a graph or of test images by the network of a run in the Poincaré disk.

    An embedding in two dimensions is drawn without distortion; one in more dimensions is projected by hyperbolic PCA.
    Edges of a graph are geodesics. Images of a Euclidean baseline are drawn in a plane, by ordinary PCA.

    Example: lresnet plot embedding runs/tree --centre 0

    Example: lresnet plot embedding runs/animals-hierarchy-0 --out disk.html

    Example: lresnet plot embedding runs/cifar10 --thumbnails 60

    Example: lresnet plot embedding runs/friends-link-0 --centre "Ada Lovelace" --names 50

    Args:
        run: The folder of a run on a graph or on images.
        centre: Name or number of the node to move to the centre of the disk. None: the centroid of all nodes.
        names: Number of nodes whose names are drawn, those with most edges first; names that would overlap are left
            out, 0 draws none. None: all names of a small graph, 30 of a larger one, none if they are only numbers.
        images: Largest number of test images to draw, chosen at random, for a run on images. None: 2,000.
        thumbnails: Number of test images to draw as small pictures at their points, for a run on images. None: 0.
        out: The picture file; .png, .svg or .pdf. For a graph, .html writes an interactive disk: drag and zoom; more
            names appear as a region is enlarged.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    require_run_folder(run)
    for option, value, least in (("names", names, 0), ("images", images, 2), ("thumbnails", thumbnails, 0)):
        if value is not None and value < least:
            raise ValueError(f"--{option} must be at least {least}, got {value}")
    import warnings

    from lresnet._files import require_writable
    from lresnet.plots.embedding import (
        centred_at,
        disk_embedding,
        draw_disk_embedding,
        hyperbolic_nodes,
    )
    from lresnet.plots.picture import require_writable_picture
    from lresnet.runs.neighbours import find_node
    from lresnet.runs.run import Run

    (require_writable if out.suffix in _PAGES else require_writable_picture)(out)
    opened = Run.open(run, device=device)
    if opened.record.images is not None:
        for option, given in (("centre", centre), ("names", names)):
            if given is not None:
                raise ValueError(f"--{option} is for graphs, but {run} holds a run on images; leave it out")
        if out.suffix in _PAGES:
            raise ValueError(
                f"an interactive disk is for graphs, but {run} holds a run on images; use .png, .svg or .pdf"
            )
        return _image_embedding(opened, out, images, thumbnails)
    for option, number in (("images", images), ("thumbnails", thumbnails)):
        if number is not None:
            raise ValueError(f"--{option} is for runs on images, but {run} holds one on a graph; leave it out")
    nodes = hyperbolic_nodes(opened)
    node = None if centre is None else find_node(nodes, centre)
    found = disk_embedding(nodes, opened.record.name, opened.task)
    if out.suffix in _PAGES:
        return _interactive(found if node is None else centred_at(found, node), out)
    if found.note:
        print(found.note)
    with warnings.catch_warnings(record=True) as problems:
        warnings.filterwarnings("always", "Glyph .* missing from font")
        written = draw_disk_embedding(out, found, node, names)
    if any("missing from font" in str(problem.message) for problem in problems):
        print("Some characters of the names are missing from the font and are drawn as boxes.", file=sys.stderr)
    print(f"The picture: {written}")
    return 0


def _interactive(embedding: "DiskEmbedding", out: Path) -> int:
    """Write a page with the interactive disk; it needs no network."""
    from lresnet._files import write_atomically
    from lresnet.plots.html.page import html_page

    write_atomically(out, html_page([], embedding, title=embedding.title).encode())
    print(f"The page: {out}")
    return 0


def _image_embedding(run: "Run", out: Path, images: int | None, thumbnails: int | None) -> int:
    from lresnet.plots.image_embedding import draw_image_points, image_points

    found = image_points(run) if images is None else image_points(run, images)
    print(found.note)
    print(f"The picture: {draw_image_points(out, found, thumbnails or 0)}")
    return 0


@plot.command
def curves(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN_DIR")],
    out: Path = Path("lresnet-curves.png"),
) -> int:
    """Draw the validation results of runs by epoch; a marker shows the epoch whose parameters were kept.

    Example: lresnet plot curves runs/tree runs/tree-none --out curves.svg

    Args:
        runs: The folders of finished runs.
        out: The picture file; .png, .svg or .pdf.
    """
    for folder in runs:
        require_run_folder(folder)
    from lresnet.plots.curves import draw_curves, read_curve
    from lresnet.plots.picture import require_writable_picture

    found = [read_curve(folder) for folder in runs]
    require_writable_picture(out)
    print(f"The picture: {draw_curves(out, found)}")
    return 0


@plot.command
def ood(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    ood: Annotated[tuple[str, ...], arg(metavar="SET,SET,...")] = ("svhn,places,textures",),
    scores: Annotated[tuple[str, ...], arg(metavar="SCORE,SCORE,...")] = ("energy",),
    out: Path = Path("lresnet-ood.png"),
    device: str = "auto",
) -> int:
    """Draw histograms of scores: the test images of a run and out-of-distribution images.

    `lresnet ood RUN_DIR` prints the metrics of the same scores, and draws the same picture with --out.

    Example: lresnet plot ood runs/cifar10-lorentz-0 --ood svhn,photos/ --scores energy,origin_distance

    Args:
        run: The folder of a run on images.
        ood: Out-of-distribution sets, separated by commas, as in `lresnet ood`.
        scores: One or more scores, separated by commas, or all; `lresnet ood --help` lists them.
        out: The picture file; .png, .svg or .pdf.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    require_run_folder(run)
    from lresnet.plots.picture import require_writable_picture
    from lresnet.plots.score_histograms import draw_score_histograms
    from lresnet.runs.detection import score_run
    from lresnet.runs.run import Run

    require_writable_picture(out)
    found, sets = score_run(Run.open(run, device=device), listed_sets(ood), scores=listed(scores))
    for note in detection_notes(sets):
        print(note, file=sys.stderr)
    print(f"The picture: {draw_score_histograms(out, found)}")
    return 0
