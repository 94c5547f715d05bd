"""Tasks: data, its split into training, validation and test parts, and what is to be learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lresnet.data.image_data import ImageData, ImageSet, hold_out
from lresnet.data.source import NodeMetric

__all__ = ["GraphTask", "ImageTask", "LinkTask", "NodeMetric", "NodeTask", "Task"]

# Every method and seed holds out the same images, so that runs differ in their training only.
_HOLD_OUT_SEED = 0


@dataclass(frozen=True, eq=False)
class LinkTask:
    """Link prediction: distinguish held-out edges from pairs of nodes without an edge.

    Args:
        name: Name of the task, e.g. ``"disease/lp"``.
        x: Features ``[n, f]``, float32.
        edge_index: Graph for message passing, ``[2, 2 e]``: the training edges in both directions, without self loops.
        train_edges: Training edges ``[2, e]``. Each undirected edge occurs once, here and below.
        val_edges: Validation edges ``[2, v]``.
        val_negatives: Pairs without an edge, ``[2, v]``.
        test_edges: Test edges ``[2, t]``.
        test_negatives: Pairs without an edge, ``[2, t]``.
        num_nodes: Number of nodes n.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    train_edges: Tensor
    val_edges: Tensor
    val_negatives: Tensor
    test_edges: Tensor
    test_negatives: Tensor
    num_nodes: int

    def to(self, device: torch.device | str) -> LinkTask:
        """Return the task with its tensors on ``device``."""
        return replace(self, **_moved(self, device))


@dataclass(frozen=True, eq=False)
class NodeTask:
    """Node classification: predict the class of the test nodes.

    Args:
        name: Name of the task, e.g. ``"cora/nc"``.
        x: Features ``[n, f]``, float32.
        edge_index: The whole graph, ``[2, 2 e]``, in both directions, without self loops.
        y: Classes ``[n]``, int64.
        train_index: Training nodes ``[a]``. In the ``"legacy"`` split of airport a node may occur in several parts.
        val_index: Validation nodes ``[b]``.
        test_index: Test nodes ``[c]``.
        num_classes: Number of classes; labels are 0 to ``num_classes - 1``.
        metric: Metric that the literature reports: ``"f1_binary"`` (class 1 is the positive one) or ``"accuracy"``.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    y: Tensor
    train_index: Tensor
    val_index: Tensor
    test_index: Tensor
    num_classes: int
    metric: NodeMetric

    @property
    def num_nodes(self) -> int:
        """Number of nodes n."""
        return self.x.shape[0]

    def to(self, device: torch.device | str) -> NodeTask:
        """Return the task with its tensors on ``device``."""
        return replace(self, **_moved(self, device))


@dataclass(frozen=True, eq=False)
class ImageTask:
    """Image classification: predict the class of the test images.

    Args:
        name: Name of the task, e.g. ``"cifar10"``.
        data: Training and test images.
        holdout: Share of the training images that is kept for validation, e.g. 0.1. With 0 all images are used for
            training, and there is no validation.

    Raises:
        ValueError: ``holdout`` is not in [0, 1), or leaves no images for training or for validation.

    Example:
        >>> part = ImageSet(torch.zeros(50, 8, 8, 3, dtype=torch.uint8), torch.arange(50) % 2)
        >>> task = ImageTask("toy", ImageData("toy", part, part, ("a", "b"), (0.5,) * 3, (0.5,) * 3), holdout=0.1)
        >>> train, validation = task.split()
        >>> len(train), len(validation)
        (45, 5)
    """

    name: str
    data: ImageData
    holdout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise ValueError(f"holdout must be a share, at least 0 and below 1, got {self.holdout}")
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
        return self.data.train.images.shape[-1]

    @property
    def validation_count(self) -> int:
        """Number of training images that are kept for validation."""
        return round(self.holdout * len(self.data.train))

    def split(self) -> tuple[ImageSet, ImageSet | None]:
        """Return the training images and the validation images, None without validation.

        The split is the same for every seed and on every machine.
        """
        if not self.holdout:
            return self.data.train, None
        return hold_out(self.data.train, self.validation_count, _HOLD_OUT_SEED)

    def to(self, device: torch.device | str) -> ImageTask:
        """Return the task with its images on ``device``."""
        data = self.data
        return replace(self, data=replace(data, train=data.train.to(device), test=data.test.to(device)))


GraphTask = LinkTask | NodeTask
"""A task on a graph: what :func:`lresnet.data.load_task` returns."""

Task = LinkTask | NodeTask | ImageTask


def _moved(task: GraphTask, device: torch.device | str) -> dict[str, Any]:
    return {key: value.to(device) for key, value in vars(task).items() if isinstance(value, Tensor)}
