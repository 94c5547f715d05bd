"""The points that a trained network puts its data at: the nodes of a graph, test images, or a user's own images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lresnet.data import TASKS, read_graph
from lresnet.data.augmentation import normalise
from lresnet.geometry import Lorentz
from lresnet.geometry.delta import Delta, delta_hyperbolicity
from lresnet.models import LorentzResNet, from_pretrained
from lresnet.runs.folder import finished_run, run_of, usable_device
from lresnet.runs.images import images_of_run
from lresnet.runs.prediction import image_files, load_network, read_batches
from lresnet_paper.run import graph_cell, graph_task

__all__ = [
    "Embedding",
    "EmbeddingDelta",
    "distances",
    "embed_files",
    "embed_nodes",
    "embed_run",
    "embed_test_images",
    "embedding_delta",
    "space_of_run",
]


_PIXELS = 2**18  # that go through the network at once: 256 images of CIFAR
_ROWS = 2**12  # points whose distances are computed at once: temporary arrays stay small


@dataclass(frozen=True, eq=False)
class Embedding:
    """N points, and what they are called.

    Args:
        source: what they are of: the cell of a run, or the path of its images.
        kind: of one of them.
        points: space coordinates, float32 ``[N, n]``, on the CPU.
        manifold: whose points they are; None: vectors, as those of the Euclidean twin.
        names: N of them; numbers where there are no names.
        labels: int64 ``[N]``; None: not known.
        classes: what the labels are called.
        edges: of a graph, ``[2, e]``, each once.
        size: of image files, width and height that the network takes.
        resized: how many of them have another size.
        skipped: files that could not be read as images, and why.

    Example:
        >>> pair = Embedding("a pair", "node", torch.tensor([[0.0, 0.0], [3.0, 4.0]]), Lorentz(-1.0), ("a", "b"))
        >>> pair.radii()  # asinh of 5
        tensor([0.0000, 2.3124], dtype=torch.float64)
    """

    source: str
    kind: Literal["node", "test image", "image"]
    points: Tensor
    manifold: Lorentz | None
    names: tuple[str, ...]
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    edges: Tensor | None = None
    size: tuple[int, int] | None = None
    resized: int = 0
    skipped: tuple[tuple[Path, str], ...] = ()

    def __post_init__(self) -> None:
        wrong = int((~self.points.isfinite().all(-1)).sum())
        if wrong:
            raise ValueError(f"{wrong} of {len(self)} points of this network are not finite: it cannot be used")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def curvature(self) -> float:
        """K < 0; 0 for vectors."""
        return 0.0 if self.manifold is None else float(self.manifold.K)

    def label(self, index: int) -> str | None:
        """The class of one point in words."""
        return None if self.labels is None else self.classes[int(self.labels[index])]

    def distances(self, point: Tensor) -> Tensor:
        """From ``point`` ``[n]`` to all, float64 ``[N]``: geodesic, for vectors Euclidean."""
        return torch.cat([self._distances(point.double(), rows.double()) for rows in self.points.split(_ROWS)])

    def radii(self) -> Tensor:
        """Distances to the origin, float64 ``[N]``."""
        return self.distances(self.points.new_zeros(self.points.shape[1]))

    def _distances(self, point: Tensor, rows: Tensor) -> Tensor:
        return (rows - point).norm(dim=-1) if self.manifold is None else self.manifold.dist(point, rows)


def embed_run(folder: Path, images: Sequence[Path] = (), *, device: str = "cpu") -> Embedding:
    """The points of the network that ``lresnet train`` left in ``folder``, as its head or decoder sees them.

    Args:
        folder: of a finished run.
        images: of a run on images: files, or folders of them. None: its test images; of a graph: all nodes.
        device: see :func:`lresnet.runs.folder.usable_device`.

    Raises:
        FileNotFoundError: there is no run in the folder, its data are gone, or there is no such image.
        ValueError: the run has not finished, its data have changed, or it is of a graph and images are named.

    Example: ``embed_run(Path("runs/tree")).points`` is ``[1000, 16]`` for a tree of 1,000 nodes in 16 dimensions.
    """
    record = finished_run(folder)
    if "images" in record:
        return embed_files(folder, images, device=device) if images else embed_test_images(folder, device=device)
    if images:
        raise ValueError(f"{folder} holds a run on the graph {record['cell']}; images are for runs on images")
    return embed_nodes(folder, device=device)


def space_of_run(folder: Path) -> Lorentz | None:
    """The space that the points of the run in ``folder`` lie in; None: they are vectors. Its data are not read.

    Raises:
        FileNotFoundError: there is no run in the folder, or no model.
        ValueError: the run has not finished, or its model cannot be read.
    """
    finished_run(folder)
    return _space(from_pretrained(folder / "model"))


def embed_nodes(folder: Path, *, device: str = "cpu") -> Embedding:
    """The nodes of the graph that the run in ``folder`` is of; raises as :func:`embed_run`."""
    run = run_of(finished_run(folder))
    cell, place = graph_cell(run.cell), usable_device(device)
    if cell is None:
        raise ValueError(f"{folder} holds a run on {run.cell}, which is no graph")
    model: Any = from_pretrained(folder / "model", place)
    task, graph = graph_task(run), read_graph(TASKS[cell].dataset)
    with torch.no_grad():
        points = model.eval().embed(task.x.to(place), task.edge_index.to(place))
    return Embedding(
        source=run.cell,
        kind="node",
        points=points.float().cpu(),
        manifold=_space(model),
        names=graph.names or _numbers(graph.num_nodes),
        labels=graph.labels,
        classes=graph.classes or _numbers(graph.num_classes),
        edges=graph.edges,
    )


def embed_test_images(folder: Path, numbers: Sequence[int] | None = None, *, device: str = "cpu") -> Embedding:
    """The test images of the run in ``folder``; raises as :func:`embed_run`.

    Args:
        numbers: those images only, from 0; None: all.
    """
    place, record = usable_device(device), finished_run(folder)
    network = load_network(folder, place)
    data = images_of_run(record, folder)
    chosen = range(len(data.test)) if numbers is None else numbers
    for number in chosen:
        if not 0 <= number < len(data.test):
            raise ValueError(
                f"there is no test image {number}: those of {record['cell']} are 0 to {len(data.test) - 1}"
            )
    index = torch.tensor(list(chosen))
    together = max(1, _PIXELS // (network.height * network.width))
    parts = [network.embed(data.test.images[part].to(place)).float().cpu() for part in index.split(together)]
    return Embedding(
        source=record["cell"],
        kind="test image",
        points=torch.cat(parts),
        manifold=_space(network.model),
        names=tuple(str(number) for number in chosen),
        labels=data.test.labels[index],
        classes=network.classes,
    )


def embed_files(folder: Path, paths: Sequence[Path], *, device: str = "cpu") -> Embedding:
    """Image files, or folders of them, by the network of the run in ``folder``; raises as :func:`embed_run`.

    They are fitted to the network, and passed over where they cannot be read, as
    :func:`lresnet.runs.prediction.predict` does. There may be no point in the end.
    """
    place = usable_device(device)
    network, files, skipped = load_network(folder, place), image_files(paths), list[tuple[Path, str]]()
    names, points, resized = list[str](), list[Tensor](), 0
    for batch in read_batches(files, network, skipped):
        names += map(str, batch.files)
        points.append(network.embed(batch.pixels.to(place)).float().cpu())
        resized += sum(size != (network.width, network.height) for size in batch.sizes)
    return Embedding(
        source=str(finished_run(folder)["cell"]),
        kind="image",
        points=torch.cat(points) if points else torch.empty(0, 0),
        manifold=_space(network.model),
        names=tuple(names),
        size=(network.width, network.height),
        resized=resized,
        skipped=tuple(skipped),
    )


def _space(model: Any) -> Lorentz | None:
    """The space of the model's points, on the CPU and fixed as training left it; None where they are vectors."""
    return None if model.euclidean else Lorentz(float(model.manifold.K.detach()))


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


_TOGETHER = 250  # images that go through the network at once


class EmbeddingDelta(NamedTuple):
    """Delta, and what it is of."""

    delta: Delta
    title: str


def embedding_delta(
    folder: Path, *, images: int = 1000, samples: int | None = None, seed: int = 0, device: str = "cpu"
) -> EmbeddingDelta:
    """Delta of the embeddings of test images: one point an image, after pooling, before the head.

    Distances are those of the model's own geometry, see :func:`distances`.

    Args:
        folder: of a finished run on images.
        images: how many test images are drawn; all, if there are fewer.
        samples: see :func:`lresnet.geometry.delta_hyperbolicity`.
        seed: of both drawings.
        device: see :func:`lresnet.runs.folder.usable_device`.

    Raises:
        FileNotFoundError: there is no run in the folder, or its images are gone.
        ValueError: the folder holds no finished run of images, its images have changed, or there are too few of them.
    """
    if images < 4:
        raise ValueError(f"images must be at least 4, as delta is of quadruples, got {images}")
    place = usable_device(device)
    network, record = load_network(folder, place), finished_run(folder)
    data = images_of_run(record, folder)
    test = data.test.images
    drawn = torch.from_numpy(np.random.RandomState(seed).permutation(len(test))[:images])
    batches = [part.to(place) for part in test[drawn].split(_TOGETHER)]
    with torch.no_grad():
        points = torch.cat([network.model.embed(normalise(part, network.mean, network.std)) for part in batches])
        space = distances(network.model, points.double())
    delta = delta_hyperbolicity(space.cpu(), samples=samples, seed=seed)
    return EmbeddingDelta(delta, _title(network.model, len(drawn)))


def distances(model: LorentzResNet, points: Tensor) -> Tensor:
    """Between all embeddings, [N, n] -> [N, N]: geodesic on the model's hyperboloid; Euclidean of vectors."""
    if model.euclidean:
        return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.stack([model.manifold.dist(point, points) for point in points])  # [N, N, n] would not fit in memory


def _title(model: LorentzResNet, count: int) -> str:
    network = f"resnet{model.config['depth']} {model.config['residual']}"
    return f"embeddings of {count:,} test images, {network}, {'Euclidean' if model.euclidean else 'geodesic'} distance"
