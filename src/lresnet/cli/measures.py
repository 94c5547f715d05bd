"""The verbs ``delta`` and ``doctor``."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

__all__ = ["delta", "doctor"]


def delta(
    space: Annotated[Positional[str], arg(metavar="FILE|NAME")],
    samples: Annotated[int | None, arg(metavar="INT")] = None,
    seed: int = 0,
    data_root: Annotated[Path | None, arg(metavar="FOLDER")] = None,
) -> int:
    """Measure how tree-like a graph or metric space is: Gromov's delta (0 for a tree).

    Example: lresnet delta edges.csv --samples 100000

    Args:
        space: Edges as text, two node names a line (comma or white space between them, # for comments; the distance
            is the number of hops), distances as a square matrix in .npy or .npz, or a data set of `lresnet data list`.
        samples: Draw so many quadruples of points. None: look at all up to 300 points, draw 50000 beyond.
        seed: Seed of the drawing.
        data_root: The folder with the data sets. None: LRESNET_DATA, and without it the user's cache folder.
    """
    from rich.console import Console

    from lresnet.data import read_graph, read_space
    from lresnet.data.registry import DATASETS
    from lresnet.geometry.delta import delta_hyperbolicity
    from lresnet.report.delta_table import delta_table

    file = Path(space)
    if file.exists() or space not in DATASETS:
        if not file.exists():
            raise ValueError(f"no file {space!r}, and no data set of that name; there are: {', '.join(DATASETS)}")
        title, points = file.name, read_space(file)
    else:
        title, points = space, read_graph(space, data_root).edges.numpy()
    Console().print(delta_table(delta_hyperbolicity(points, samples=samples, seed=seed), title))
    return 0


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
