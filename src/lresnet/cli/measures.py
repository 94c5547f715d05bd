"""The verbs ``delta`` and ``doctor``."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

from lresnet.cli.options import require_seeds

__all__ = ["delta", "doctor"]


def delta(
    space: Annotated[Positional[str], arg(metavar="FILE|NAME|RUN_DIR")],
    samples: Annotated[int | None, arg(metavar="INT")] = None,
    images: int = 1000,
    seed: int = 0,
    device: str = "auto",
    data_root: Annotated[Path | None, arg(metavar="FOLDER")] = None,
) -> int:
    """Measure how tree-like a graph, a metric space or a network's embeddings are: Gromov's delta (0 for a tree).

    For comparison: for CIFAR-10 and CIFAR-100 the paper quotes relative deltas of 0.26 and 0.23, of the features of a
    network that it does not name.

    Example: lresnet delta edges.csv --samples 100000

    Example: lresnet delta runs/cifar10-lorentz-0

    Args:
        space: Edges as text, two node names a line (comma or white space between them, # for comments; the distance
            is the number of hops), distances as a square matrix in .npy or .npz, a graph of `lresnet data list`, or
            the folder of a run on images: the distances between its embeddings of test images, geodesic ones, for
            the Euclidean twin Euclidean ones.
        samples: Draw so many quadruples of points. None: look at all up to 300 points, draw 50000 beyond.
        images: Of a run: draw so many test images.
        seed: Seed of the drawing.
        device: Of a run: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        data_root: The folder with the data sets. None: LRESNET_DATA, and without it the user's cache folder.
    """
    from rich.console import Console

    from lresnet.cli.delta_table import delta_table
    from lresnet.data.registry import DATASETS

    require_seeds("--seed", seed)
    file = Path(space)
    if file.is_dir() and (space not in DATASETS or (file / "run.json").is_file()):
        from lresnet.runs.embedding import embedding_delta
        from lresnet.runs.run import Run

        opened = Run.open(file, device=device)
        found, title = embedding_delta(opened, images=images, samples=samples, seed=seed)
    else:
        from lresnet.geometry.delta import delta_hyperbolicity

        found, title = delta_hyperbolicity(_points(file, data_root), samples=samples, seed=seed), file.name
    Console().print(delta_table(found, title))
    return 0


def _points(file: Path, data_root: Path | None) -> Any:
    """What ``delta_hyperbolicity`` takes, from a file or by the name of a graph."""
    from lresnet.data import read_graph, read_space
    from lresnet.data.registry import GRAPHS, IMAGE_SETS

    if file.exists() and not file.is_dir():
        return read_space(file)
    name = str(file)
    if name in IMAGE_SETS:
        raise ValueError(f"{name} is no graph; train a network on it, and name the folder of the run")
    if name not in GRAPHS:
        raise ValueError(f"no file {name!r}, and no data set of that name; there are: {', '.join(GRAPHS)}")
    return read_graph(name, data_root).edges.numpy()


def doctor(json: Annotated[bool, FlagCreatePairsOff] = False) -> int:
    """Report versions, devices and folders, and check the numerics on this machine.

    Ends with code 1 if a check fails.

    Example: lresnet doctor --json > doctor.json

    Args:
        json: Print one JSON object instead of tables.
    """
    from lresnet.doctor import examine, print_json, print_tables

    findings = examine()
    (print_json if json else print_tables)(findings)
    return 0 if findings.ok else 1
