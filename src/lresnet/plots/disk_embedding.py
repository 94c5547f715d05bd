"""A graph in the Poincaré disk: what the pictures and the interactive page show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data import read_graph
from lresnet.data.registry import TASKS
from lresnet.geometry import Lorentz
from lresnet.models import from_pretrained
from lresnet.plots.hyperbolic_pca import hyperbolic_pca
from lresnet.plots.poincare_disk import inside
from lresnet.runs.folder import run_of, usable_device
from lresnet.runs.run_folders import whole_run
from lresnet_paper.run import graph_cell, graph_task

__all__ = ["DiskEmbedding", "disk_points", "embedding_of_run"]


@dataclass(frozen=True)
class DiskEmbedding:
    """Nodes in the unit Poincaré disk, the edges between them, and what they are called.

    Example:
        >>> DiskEmbedding("a pair", np.array([[0.0, 0.0], [0.5, 0.0]]), np.array([[0], [1]])).classes_of_nodes()
        ['', '']
    """

    title: str
    points: NDArray[np.float64]
    """[N, 2], inside the unit disk."""
    edges: NDArray[np.int64]
    """[2, E], numbers of nodes, each edge once."""
    labels: NDArray[np.int64] | None = None
    """[N], from 0."""
    classes: tuple[str, ...] = ()
    """What the labels are called."""
    names: tuple[str, ...] | None = None
    """[N]; None: nodes are called by their numbers."""
    note: str = ""
    """How the points came into the disk."""

    def __post_init__(self) -> None:
        n = len(self.points)
        if self.points.shape != (n, 2) or n == 0 or not bool(((self.points**2).sum(-1) < 1).all()):
            raise ValueError(f"points must be [N, 2], N >= 1, inside the unit disk; got {list(self.points.shape)}")
        if self.edges.size and not 0 <= self.edges.min() <= self.edges.max() < n:
            raise ValueError(f"edges must name nodes from 0 to {n - 1}, got {self.edges.min()} to {self.edges.max()}")
        for what, value in (("labels", self.labels), ("names", self.names)):
            if value is not None and len(value) != n:
                raise ValueError(f"{what} must be one for each of the {n} nodes, got {len(value)}")
        if self.labels is not None and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise ValueError(f"labels must be from 0 to {len(self.classes) - 1}, as many as there are classes")

    def classes_of_nodes(self) -> list[str]:
        """The class of each node in words; empty without labels."""
        return [""] * len(self.points) if self.labels is None else [self.classes[k] for k in self.labels]


def disk_points(x: Tensor, manifold: Lorentz) -> tuple[NDArray[np.float64], str]:
    """Points [N, n] of the manifold in the unit Poincaré disk [N, 2], their centroid in its centre, and how.

    In two dimensions that is an isometry; from more the points are projected by
    :func:`~lresnet.plots.hyperbolic_pca.hyperbolic_pca`, from one they lie on a diameter.
    """
    wide = x.detach().double()
    n = wide.shape[1]
    note = "Two dimensions: no distance was changed."
    if n > 2:
        plane = hyperbolic_pca(wide, manifold)
        wide = plane.points
        note = f"Projected from {n} dimensions by hyperbolic PCA, which keeps {100 * plane.kept:.1f} % of the spread."
    wide = torch.nn.functional.pad(wide, (0, 2 - wide.shape[1]))
    wide = manifold.boost(-manifold.centroid(wide), wide)
    points = manifold.to_poincare(wide) * manifold.kappa.detach().double().sqrt()
    return inside(points.cpu().numpy()), note


def embedding_of_run(folder: Path, *, device: str = "cpu") -> DiskEmbedding:
    """The graph of a run as its trained network has embedded it.

    Raises:
        FileNotFoundError: there is no run in the folder.
        ValueError: the run has not finished, is not of a graph, or its network is the Euclidean twin.
    """
    run = run_of(whole_run(folder))
    cell = graph_cell(run.cell)
    if cell is None:
        raise ValueError(f"{folder} holds a run on {run.cell}, which is no graph; take the folder of a run on a graph")
    if run.method == "euclidean":
        raise ValueError(f"{folder} holds a Euclidean twin, whose space is flat; take a run with another method")
    place = usable_device(device)
    model: Any = from_pretrained(folder / "model", place)
    task, graph = graph_task(run), read_graph(TASKS[cell].dataset)
    with torch.no_grad():
        z = model.eval().embed(task.x.to(place), task.edge_index.to(place)).cpu()
    points, note = disk_points(z, model.manifold.cpu())
    edges = graph.edges.numpy()
    labels = None if graph.labels is None else graph.labels.numpy()
    return DiskEmbedding(
        title=f"{run.cell}, {run.method}, seed {run.seed}",
        points=points,
        edges=edges[:, edges[0] != edges[1]],
        labels=labels,
        classes=tuple(f"class {k}" for k in range(graph.num_classes)),
        note=note,
    )
