"""Embeddings of a trained network: the points of a graph's nodes, of test images, or of a user's own images."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lresnet.data.augmentation import normalise
from lresnet.geometry import Lorentz, NearestNeighbours
from lresnet.geometry.delta import Delta, delta_hyperbolicity
from lresnet.models import LorentzResNet
from lresnet.models.image_model import ImageModel
from lresnet.runs.node_inputs import inputs_of_graph, inputs_of_run
from lresnet.runs.own_network import head_input
from lresnet.runs.prediction import image_files, image_network, read_batches
from lresnet.runs.run import Run
from lresnet.runs.text import require_no_text

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


_PIXELS = 2**18  # pixels per batch: 256 images of CIFAR
_DELTA_BATCH = 250  # images per batch for delta
_ROWS = 2**12  # points whose distances are computed at once, to keep temporary arrays small


@dataclass(frozen=True, eq=False)
class Embedding:
    """N points with their names.

    Args:
        source: what messages call the data: the task of the run, the file of a user's graph, or the path of images.
        kind: what a point stands for.
        points: space coordinates, float32 ``[N, n]``, on the CPU.
        manifold: the manifold of the points; None: they are vectors, as for the Euclidean baseline.
        names: N names; numbers if the data have no names.
        labels: int64 ``[N]``, -1 for a point without a label; None: unknown.
        classes: names of the labels.
        edges: edges of the graph, ``[2, e]``, each once; None for images.
        size: width and height of the network's images, for image files.
        resized: number of image files of another size.
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
            raise ValueError(f"{wrong} of {len(self)} points of this network are not finite, so it cannot be used")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def curvature(self) -> float:
        """K < 0; 0 for vectors."""
        return 0.0 if self.manifold is None else float(self.manifold.K)

    def label(self, index: int) -> str | None:
        """Return the class name of one point."""
        label = -1 if self.labels is None else int(self.labels[index])
        return None if label < 0 else self.classes[label]

    @functools.cached_property
    def index(self) -> NearestNeighbours:
        """The index that searches the points."""
        return NearestNeighbours(self.points, K=None if self.manifold is None else self.manifold.curvature)

    def distances(self, point: Tensor) -> Tensor:
        """Return the distances of all points to ``point`` ``[n]``, float64 ``[N]``: geodesic, Euclidean for vectors."""
        return torch.cat([self._distances(point.double(), rows.double()) for rows in self.points.split(_ROWS)])

    def radii(self) -> Tensor:
        """Return the distances to the origin, float64 ``[N]``."""
        return self.distances(self.points.new_zeros(self.points.shape[1]))

    def _distances(self, point: Tensor, rows: Tensor) -> Tensor:
        return (rows - point).norm(dim=-1) if self.manifold is None else self.manifold.dist(point, rows)


def embed_run(run: Run, images: Sequence[Path] = (), graph: Any = None) -> Embedding:
    """Embed the data of a run: the points that its head or decoder takes.

    Args:
        run: a finished run.
        images: for a run on images, image files or folders of them; none: its test images. A run on a graph embeds all
            nodes.
        graph: for a run on a graph, a new graph to embed, see :func:`lresnet.runs.node_inputs.inputs_of_graph`.

    Raises:
        FileNotFoundError: the data are gone, or an image does not exist.
        ValueError: the data have changed, images are given for a run on a graph, or a graph for a run on images.

    Example: ``embed_run(Run.open("runs/tree")).points`` is ``[1000, 16]`` for a tree of 1,000 nodes in 16 dimensions.
    """
    require_no_text(run, "points")
    if run.record.on_dataset and graph is None:
        return embed_items(run, images)
    if run.record.images is not None or run.record.on_dataset:
        if graph is not None:
            raise ValueError(f"{run.place} holds a run on the images {run.record.data_name}; graphs are for graph runs")
        return embed_files(run, images) if images else embed_test_images(run)
    if images:
        raise ValueError(f"{run.place} holds a run on the graph {run.record.data_name}; images are for runs on images")
    return embed_nodes(run, graph)


def space_of_run(run: Run) -> Lorentz | None:
    """Return the manifold of a run's points, on the CPU and as training left it; None: they are vectors."""
    require_no_text(run, "points")
    return image_network(run).space() if run.record.images is not None else _space(run.model)


def embed_items(run: Run, files: Sequence[Path] = ()) -> Embedding:
    """Embed the test items of a run on a user's own data set; raises as :func:`embed_run`.

    The points are the inputs of the network's head, see :func:`lresnet.runs.own_network.head_input`.
    """
    from lresnet.runs.dataset_runs import embed_inputs, test_items

    if files:
        raise ValueError(f"{run.place} holds a run on a data set of your own, which embeds its test items only")
    points, labels, manifold = list[Tensor](), list[Tensor](), None
    for inputs, numbers in test_items(run):
        found = embed_inputs(run, inputs)
        points.append(found.points)
        labels.append(numbers.argmax(-1) if numbers.is_floating_point() else numbers)
        manifold = found.manifold
    known = torch.cat(labels)
    names = tuple(run.record.task.get("classes") or map(str, range(int(known.max()) + 1)))
    return Embedding(
        source=run.record.data_name,
        kind="test image",
        points=torch.cat(points),
        manifold=None if manifold is None else Lorentz(float(manifold.K.detach())),
        names=tuple(map(str, range(len(known)))),
        labels=known.long().cpu(),
        classes=names,
    )


def embed_nodes(run: Run, graph: Any = None) -> Embedding:
    """Embed the nodes of the run's graph, or of a new graph; raises as :func:`embed_run`.

    Args:
        graph: a new graph, see :func:`lresnet.runs.node_inputs.inputs_of_graph`; None: the run's own.
    """
    require_no_text(run, "nodes")
    if run.record.images is not None or run.record.on_dataset:
        raise ValueError(f"{run.place} holds a run on the images {run.record.data_name}; this needs one on a graph")
    inputs = inputs_of_run(run) if graph is None else inputs_of_graph(run, graph)
    return Embedding(
        source=inputs.source,
        kind="node",
        points=inputs.points(run),
        manifold=_space(run.model),
        names=inputs.names,
        labels=inputs.labels,
        classes=inputs.classes,
        edges=inputs.edges,
    )


def embed_test_images(run: Run, numbers: Sequence[int] | None = None) -> Embedding:
    """Embed test images of the run; raises as :func:`embed_run`.

    Args:
        numbers: numbers of the images, from 0; None: all.
    """
    network, data = image_network(run), run.images
    chosen = range(len(data.test)) if numbers is None else numbers
    for number in chosen:
        if not 0 <= number < len(data.test):
            raise ValueError(
                f"there is no test image {number}; {run.record.data_name} has test images 0 to {len(data.test) - 1}"
            )
    index = torch.tensor(list(chosen))
    batch = max(1, _PIXELS // (network.height * network.width))
    parts = [network.embed(data.test.read(part).to(run.device)).float().cpu() for part in index.split(batch)]
    return Embedding(
        source=run.record.data_name,
        kind="test image",
        points=torch.cat(parts),
        manifold=network.space(),
        names=tuple(str(number) for number in chosen),
        labels=data.test.labels[index],
        classes=network.classes,
    )


def embed_files(run: Run, paths: Sequence[Path]) -> Embedding:
    """Embed image files, or folders of them; raises as :func:`embed_run`.

    Images are resized, and unreadable files skipped, as :func:`lresnet.runs.prediction.predict_images` does. The
    embedding may be empty.
    """
    network, files, skipped = image_network(run), image_files(paths), list[tuple[Path, str]]()
    names, points, resized = list[str](), list[Tensor](), 0
    for batch in read_batches(files, network, skipped):
        names += map(str, batch.files)
        points.append(network.embed(batch.pixels.to(run.device)).float().cpu())
        resized += sum(size != (network.width, network.height) for size in batch.sizes)
    return Embedding(
        source=run.record.data_name,
        kind="image",
        points=torch.cat(points) if points else torch.empty(0, 0),
        manifold=network.space(),
        names=tuple(names),
        size=(network.width, network.height),
        resized=resized,
        skipped=tuple(skipped),
    )


class EmbeddingDelta(NamedTuple):
    """Gromov's delta of an embedding, and a title that says what was measured."""

    delta: Delta
    title: str


def embedding_delta(run: Run, *, images: int = 1000, samples: int | None = None, seed: int = 0) -> EmbeddingDelta:
    """Measure Gromov's delta of the embeddings of test images: one point per image, after pooling, before the head.

    Distances are those of the model's own geometry, see :func:`distances`.

    Args:
        run: a finished run on images.
        images: number of test images that are drawn; all, if there are fewer.
        samples: see :func:`lresnet.geometry.delta_hyperbolicity`.
        seed: seed of both draws.

    Raises:
        FileNotFoundError: the images are gone.
        ValueError: the run is not on images, its images have changed, or there are too few of them.
    """
    if images < 4:
        raise ValueError(f"images must be at least 4, because delta compares quadruples, got {images}")
    network = image_network(run)
    test = run.images.test
    drawn = torch.from_numpy(np.random.RandomState(seed).permutation(len(test))[:images])
    batches = [part.to(run.device) for part in test.read(drawn).split(_DELTA_BATCH)]
    with torch.no_grad():
        inputs = [normalise(part, network.mean, network.std) for part in batches]
        points = torch.cat([head_input(network.model, part).points for part in inputs])
        manifold = network.space()
        space = distances(manifold, points.double())
    delta = delta_hyperbolicity(space.cpu(), samples=samples, seed=seed)
    return EmbeddingDelta(delta, _title(network.model, len(drawn), manifold is None))


def distances(manifold: Lorentz | None, points: Tensor) -> Tensor:
    """Return all pairwise distances, [N, n] -> [N, N]: geodesic on the manifold, Euclidean for vectors (None)."""
    if manifold is None:
        return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    own = Lorentz(float(manifold.K.detach())).to(points.device)
    return torch.stack([own.dist(point, points) for point in points])  # [N, N, n] would not fit in memory


def _space(model: Any) -> Lorentz | None:
    """Return the manifold of the model's points, on the CPU and fixed; None: the points are vectors."""
    return None if model.euclidean else Lorentz(float(model.manifold.K.detach()))


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def _title(model: Any, count: int, is_flat: bool) -> str:
    network = type(model).__name__
    if isinstance(model, ImageModel):
        kind = model.model_name.removeprefix("lorentz_")
        depth = model.config["depth"] if isinstance(model, LorentzResNet) else model.config["layers"]
        network = f"{kind}{depth} {model.config['residual']}"
    return f"embeddings of {count:,} test images, {network}, {'Euclidean' if is_flat else 'geodesic'} distance"
