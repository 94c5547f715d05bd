"""The verb ``delta``: how tree-like a graph, a metric space or an embedding is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from lresnet._files import has_file, require_run_folder
from lresnet.cli.options import require_seeds
from lresnet.runs.names import choose_one_of

if TYPE_CHECKING:
    from rich.table import Table

    from lresnet.geometry.delta import Delta

__all__ = ["delta"]

_UNWEIGHTED = {True: (), False: ("Weights are not used: the distance is the number of hops.",)}


def delta(
    space: Annotated[Positional[str], arg(metavar="FILE|NAME|RUN_DIR")],
    samples: Annotated[int | None, arg(metavar="INT")] = None,
    images: int = 1000,
    seed: int = 0,
    device: str = "auto",
    data_root: Annotated[Path | None, arg(metavar="FOLDER")] = None,
) -> int:
    """Measure how tree-like a graph, a metric space or a network's embeddings are: Gromov's delta (0 for a tree).

    For comparison, the paper quotes relative deltas of 0.26 for CIFAR-10 and 0.23 for CIFAR-100, for the features of a
    network that it does not name.

    Example: lresnet delta edges.csv --samples 100000

    Example: lresnet delta runs/cifar10-lorentz-0

    Args:
        space: A graph (the distance is the number of hops): an edge list with two node names per row (.csv, .tsv, .txt,
            ..., also gzipped), .graphml, .gml, .npz, a folder with edges.*, or a graph of `lresnet data list`; a square
            matrix of distances in .npy or .npz; or the folder of a run on images, for the distances between its
            embeddings of test images (geodesic distances, Euclidean ones for a Euclidean baseline).
        samples: Number of random quadruples of points. None: all quadruples up to 300 points, 50000 random ones beyond.
        images: Number of random test images, for the folder of a run.
        seed: Seed of the random numbers.
        device: Device for the folder of a run: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        data_root: The folder with the data sets. None: LRESNET_DATA, or the user's cache folder without it.
    """
    from rich.console import Console

    from lresnet.data.formats.graph_paths import looks_like_graph
    from lresnet.data.registry import DATASETS

    require_seeds("--seed", seed)
    file = Path(space)
    notes: tuple[str, ...] = ()
    is_run = has_file(file / "run.json")
    if is_run or (file.is_dir() and space not in DATASETS and not looks_like_graph(file)):
        require_run_folder(file)
        from lresnet.runs.embedding import embedding_delta
        from lresnet.runs.run import Run

        opened = Run.open(file, device=device)
        found, title = embedding_delta(opened, images=images, samples=samples, seed=seed)
    else:
        _require_space(file)
        from lresnet.geometry.delta import delta_hyperbolicity

        points, notes = _points(file, data_root)
        try:
            found, title = delta_hyperbolicity(points, samples=samples, seed=seed), file.name
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    for note in notes:
        Console().print(note, markup=False, highlight=False)
    Console().print(delta_table(found, title))
    return 0


def _require_space(file: Path) -> None:
    """Raise an error if there is no such file and no graph of that name; called before torch is imported."""
    from lresnet.data.registry import GRAPHS, IMAGE_SETS

    name = str(file)
    if file.is_dir() or has_file(file) or name in GRAPHS:
        return
    if name in IMAGE_SETS:
        raise ValueError(f"{name} is not a graph; train a network on it and give the folder of the run")
    raise ValueError(f"no file {name!r}, and no data set of that name; {choose_one_of(name, list(GRAPHS))}")


def _points(file: Path, data_root: Path | None) -> tuple[Any, tuple[str, ...]]:
    """Return the argument of ``delta_hyperbolicity`` for a file or the name of a graph, and how a file was read."""
    from lresnet.data import read_graph, read_space
    from lresnet.data.formats.edge_list import read_edge_list
    from lresnet.data.formats.graph_paths import NETWORKS, graph_suffix
    from lresnet.data.registry import GRAPHS

    if not file.exists() or (str(file) in GRAPHS and not file.is_file()):
        return read_graph(str(file), data_root).edges.numpy(), ()
    suffix = graph_suffix(file)
    if file.is_dir() or suffix in NETWORKS:
        graph = read_graph(file)
        return graph.edges.numpy(), (*graph.notes, *_UNWEIGHTED[graph.weights is None])
    if suffix in (".npy", ".npz"):
        return read_space(file), ()
    edges = read_edge_list(file)
    return edges.edges, (*edges.notes, *_UNWEIGHTED[edges.weights is None])


def delta_table(delta: "Delta", title: str) -> "Table":
    """Return the delta-hyperbolicity of a space with its bounds and sample size, for the terminal."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    nodes = f"{delta.nodes:,}"
    if delta.dropped_nodes:
        nodes += f" in the largest component ({delta.dropped_nodes:,} outside it)"
    table.add_row("points", nodes)
    table.add_row("diameter", f"{'' if delta.diameter_is_exact else 'at most '}{delta.diameter:g}")
    if delta.exact:
        table.add_row("delta", f"{delta.lower_bound:g}, exact")
        table.add_row("relative, 2 delta / diameter", f"{delta.relative:.4g}")
    else:
        table.add_row("delta", f"between {delta.lower_bound:g} (seen) and {delta.upper_bound:g} (half the diameter)")
        table.add_row("relative, 2 delta / diameter", f"at least {delta.relative:.4g}")
    mean = f"{delta.mean:.4g}"
    if delta.mean_interval is not None:
        mean += f" (95 % interval {delta.mean_interval[0]:.4g} to {delta.mean_interval[1]:.4g})"
    table.add_row("mean over quadruples", mean)
    quadruples = "all" if delta.mean_interval is None else f"{delta.quadruples:,} drawn at random"
    if delta.pool_nodes < delta.nodes:
        quadruples += f" from {delta.pool_nodes:,} of the points"
    table.add_row("quadruples", quadruples)
    return table
