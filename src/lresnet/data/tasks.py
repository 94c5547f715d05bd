"""Tasks: data, its split into training, validation and test parts, and what is to be learned."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from lresnet._metric_names import require_link_metric, require_node_metric
from lresnet.data.ancestors import AncestorTask
from lresnet.data.hierarchy import HierarchyTask
from lresnet.data.image_data import ImageData, ImageSet, hold_out, stratified_part
from lresnet.data.source import DataKind
from lresnet.data.task_on_graph import TaskOnGraph, require_features
from lresnet.data.text import TextTask
from lresnet.data.torch_dataset import DatasetTask

if TYPE_CHECKING:
    from lresnet.data.graph import Graph
    from lresnet.data.image_files import ImageFiles

__all__ = [
    "GraphLevelTask",
    "GraphTask",
    "HierarchyTask",
    "ImageTask",
    "LinkTask",
    "NodeTask",
    "Task",
]

# Every method and seed holds out the same images, so that runs differ in their training only.
_HOLD_OUT_SEED = 0


@dataclass(frozen=True, eq=False, repr=False)
class LinkTask(TaskOnGraph):
    """Link prediction: distinguish held-out edges from pairs of nodes without an edge.

    Args:
        name: Name of the task, e.g. ``"disease/lp"``.
        x: Features ``[n, f]``, float32, dense or a sparse COO tensor.
        edge_index: Graph for message passing, ``[2, 2 e]``: the training edges in both directions, without self loops.
        train_edges: Training edges ``[2, e]``. Each undirected edge occurs once, here and below.
        val_edges: Validation edges ``[2, v]``.
        val_negatives: Pairs without an edge, ``[2, v]``.
        test_edges: Test edges ``[2, t]``.
        test_negatives: Pairs without an edge, ``[2, t]``.
        num_nodes: Number of nodes n.
        edge_weight: Weights of ``edge_index``, ``[2 e]``, positive; None: all 1.
        metric: Metric to select by and to report first, one of :data:`lresnet.metrics.LINK_METRICS`. None: select by
            the mean of ``"roc_auc"`` and ``"average_precision"``, report both.
        graph: The graph, for names of nodes; None: nodes have numbers only.
        notes: What was done to the graph to make the task, one sentence each.
    """

    kind: ClassVar[str] = "link"

    name: str
    x: Tensor
    edge_index: Tensor
    train_edges: Tensor
    val_edges: Tensor
    val_negatives: Tensor
    test_edges: Tensor
    test_negatives: Tensor
    num_nodes: int
    edge_weight: Tensor | None = None
    metric: str | None = None
    graph: Graph | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.metric is not None:
            require_link_metric(self.metric)
        require_features(self.name, self.x, self.num_nodes)
        for part in ("train_edges", "val_edges", "val_negatives", "test_edges", "test_negatives"):
            pairs: Tensor | None = getattr(self, part)
            if pairs is None:  # a task that only trains needs no test part
                continue
            if pairs.dim() != 2 or pairs.shape[0] != 2:
                raise ValueError(f"{self.name}: {part} has shape {list(pairs.shape)}; pairs of nodes are [2, m]")
            if pairs.shape[1] == 0:
                raise ValueError(f"{self.name}: {part} is empty; hold out at least one edge in each part")


@dataclass(frozen=True, eq=False, repr=False)
class NodeTask(TaskOnGraph):
    """Node classification: predict the class of the test nodes.

    Args:
        name: Name of the task, e.g. ``"cora/nc"``.
        x: Features ``[n, f]``, float32, dense or a sparse COO tensor.
        edge_index: The whole graph, ``[2, 2 e]``, in both directions, without self loops.
        y: Classes ``[n]``, int64; -1 for a node without a label, which is in no part of the split.
        train_index: Training nodes ``[a]``. In the ``"legacy"`` split of airport a node may occur in several parts.
        val_index: Validation nodes ``[b]``.
        test_index: Test nodes ``[c]``.
        num_classes: Number of classes; labels are 0 to ``num_classes - 1``.
        metric: Metric to select by and to report first, one of :data:`lresnet.metrics.NODE_METRICS`.
        edge_weight: Weights of ``edge_index``, positive; None: all 1.
        graph: The graph, for names of nodes and classes; None: they have numbers only.
        notes: What was done to the graph to make the task, one sentence each.
    """

    kind: ClassVar[str] = "node"

    name: str
    x: Tensor
    edge_index: Tensor
    y: Tensor
    train_index: Tensor
    val_index: Tensor
    test_index: Tensor
    num_classes: int
    metric: str = "accuracy"
    edge_weight: Tensor | None = None
    graph: Graph | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_node_metric(self.metric, self.num_classes)
        require_features(self.name, self.x, self.num_nodes)
        for part in ("train_index", "val_index", "test_index"):
            _require_index(self.name, part, getattr(self, part), self.y)

    @property
    def num_nodes(self) -> int:
        """Number of nodes n."""
        return self.x.shape[0]


@dataclass(frozen=True, eq=False, repr=False)
class GraphLevelTask(TaskOnGraph):
    """Graph classification: predict the class of the test graphs.

    All graphs are stored as one, whose parts are not connected.

    Args:
        name: Name of the task.
        x: Features of all nodes ``[n, f]``, float32.
        edge_index: Edges of all graphs, ``[2, 2 e]``, in both directions, without self loops.
        batch: Number of the graph of each node ``[n]``, in increasing order.
        y: Classes of the graphs ``[g]``, int64.
        train_index: Training graphs ``[a]``.
        val_index: Validation graphs ``[b]``.
        test_index: Test graphs ``[c]``.
        num_classes: Number of classes; labels are 0 to ``num_classes - 1``.
        metric: Metric to select by and to report first, one of :data:`lresnet.metrics.NODE_METRICS`.
        edge_weight: Weights of ``edge_index``, positive; None: all 1.
        classes: Names of the classes; empty if they have numbers only.
        names: Names of the graphs; empty if they have numbers only.
        notes: What was done to the graphs to make the task, one sentence each.
    """

    kind: ClassVar[str] = "graph-level"

    name: str
    x: Tensor
    edge_index: Tensor
    batch: Tensor
    y: Tensor
    train_index: Tensor
    val_index: Tensor
    test_index: Tensor
    num_classes: int
    metric: str = "accuracy"
    edge_weight: Tensor | None = None
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    graph: Graph | None = field(default=None, init=False)  # many graphs have no common names

    def __post_init__(self) -> None:
        require_node_metric(self.metric, self.num_classes)
        require_features(self.name, self.x, self.num_nodes)
        if self.batch.shape != (self.num_nodes,):
            raise ValueError(f"{self.name}: batch has shape {list(self.batch.shape)}; it needs one number per node")
        for part in ("train_index", "val_index", "test_index"):
            _require_index(self.name, part, getattr(self, part), self.y)

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return self.x.shape[0]

    @property
    def num_graphs(self) -> int:
        """Number of graphs g."""
        return self.y.shape[0]


@dataclass(frozen=True, eq=False)
class ImageTask:
    """Image classification: predict the class of the test images.

    Args:
        name: Name of the task, e.g. ``"cifar10"``.
        data: Training and test images.
        holdout: Share of the training images that is kept for validation, e.g. 0.1. With 0 all images are used for
            training, and there is no validation. Data with validation images of their own allow nothing but 0.
        stratified: Whether the same share of every class is kept, chosen by content, see
            :func:`lresnet.data.image_data.stratified_part`. Otherwise the images are drawn from all classes together.

    Raises:
        ValueError: ``holdout`` is not in [0, 1), or leaves no images for training or for validation, or the data have
            validation images of their own.

    Example:
        >>> part = ImageSet(torch.zeros(50, 8, 8, 3, dtype=torch.uint8), torch.arange(50) % 2)
        >>> task = ImageTask("toy", ImageData("toy", part, part, ("a", "b"), (0.5,) * 3, (0.5,) * 3), holdout=0.1)
        >>> train, validation = task.split()
        >>> len(train), len(validation)
        (45, 5)
    """

    data_kind: ClassVar[DataKind] = "images"

    name: str
    data: ImageData
    holdout: float = 0.0
    stratified: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise ValueError(f"holdout must be a share, at least 0 and below 1, got {self.holdout}")
        if self.holdout and self.data.val is not None:
            raise ValueError(
                f"{self.data.name} has validation images of its own, so none of the training images are held out; "
                f"leave holdout {self.holdout} out"
            )
        images, count = len(self.data.train), self.validation_count
        if self.holdout and not 0 < count < images:
            raise ValueError(
                f"holdout {self.holdout} of {images:,} images is {count:,}; choose a share that leaves images for "
                "training and for validation, or 0 to train on all"
            )

    @property
    def num_classes(self) -> int:
        """Number of classes; labels are 0 to ``num_classes - 1``."""
        return len(self.data.classes)

    @property
    def in_channels(self) -> int:
        """Number of channels of an image."""
        return self.data.train.shape[-1]

    @property
    def validation_count(self) -> int:
        """Number of training images that are kept for validation."""
        if self.holdout and self.stratified:
            return len(self._held_out())
        return round(self.holdout * len(self.data.train))

    def split(self) -> tuple[ImageSet | ImageFiles, ImageSet | ImageFiles | None]:
        """Return the training images and the validation images, None without validation.

        The split is the same for every seed and on every machine.
        """
        if not self.holdout:
            return self.data.train, self.data.val
        if not self.stratified:
            return hold_out(self.data.train, self.validation_count, _HOLD_OUT_SEED)
        chosen = torch.tensor(self._held_out())
        rest = torch.ones(len(self.data.train), dtype=torch.bool)
        rest[chosen] = False
        return self.data.train.pick(rest.nonzero().flatten()), self.data.train.pick(chosen)

    def _held_out(self) -> list[int]:
        """Return the numbers of the validation images of a stratified split."""
        data = self.data
        contents = data.contents
        if contents is None:
            pixels = data.train.images.cpu().numpy()
            contents = tuple(hashlib.sha256(image.tobytes()).digest() for image in pixels)
        return stratified_part(data.train.labels.tolist(), contents, self.holdout, _HOLD_OUT_SEED)

    def model_sizes(self) -> dict[str, Any]:
        """Return the arguments of :func:`lresnet.create_model` that the task decides."""
        return {"num_classes": self.num_classes, "in_channels": self.in_channels}

    def describe(self) -> dict[str, Any]:
        """Return the name of the task and its share of validation images; the images have facts of their own."""
        return {"name": self.name, "holdout": self.holdout}

    def to(self, device: torch.device | str) -> ImageTask:
        """Return the task with its images on ``device``."""
        data = self.data
        return replace(
            self,
            data=replace(
                data,
                train=data.train.to(device),
                test=data.test.to(device),
                val=None if data.val is None else data.val.to(device),
            ),
        )


GraphTask = LinkTask | NodeTask
"""A task on one graph: what :func:`lresnet.data.load_task` returns."""

Task = LinkTask | NodeTask | HierarchyTask | GraphLevelTask | AncestorTask | ImageTask | TextTask | DatasetTask


def _require_index(name: str, part: str, index: Tensor | None, y: Tensor) -> None:
    """Check that a part of a split lists labelled items by number. None: a task that only trains has no test part."""
    if index is None:
        return
    if index.dtype == torch.bool:
        raise ValueError(f"{name}: {part} is a mask; give numbers: mask.nonzero().squeeze(1)")
    if index.dim() != 1 or index.numel() == 0:
        raise ValueError(f"{name}: {part} has shape {list(index.shape)}; every part of a split needs at least one item")
    if index.device.type == "cpu" and bool(((index < 0) | (index >= y.shape[0])).any()):
        raise ValueError(f"{name}: {part} lists numbers outside 0 to {y.shape[0] - 1}")
    if index.device.type == "cpu" and y.device.type == "cpu" and bool((y[index] < 0).any()):
        raise ValueError(f"{name}: {part} lists {int(index[(y[index] < 0).nonzero()[0, 0]])}, which has no label")
