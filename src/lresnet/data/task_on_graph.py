"""Base class of tasks on graphs: printing, devices, sizes of a network, and the record for ``run.json``."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from lresnet.data.shaped import shaped
from lresnet.data.source import DataKind

__all__ = ["TaskOnGraph", "require_features"]


class TaskOnGraph:
    """Base class of the frozen dataclasses whose tensors are a graph and what is to be learned on it.

    A subclass has the fields ``name``, ``x`` and ``num_nodes``, and ``num_classes`` if it classifies; they may be
    properties.
    """

    kind: ClassVar[str]
    """What is learned, as ``run.json`` names it."""
    data_kind: ClassVar[DataKind] = "graphs"

    if TYPE_CHECKING:
        name: str

        @property
        def x(self) -> Tensor: ...

        @property
        def num_nodes(self) -> int: ...

    def __repr__(self) -> str:
        return shaped(self)

    def _tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def to(self, device: torch.device | str) -> Self:
        """Return the task with its tensors on ``device``."""
        moved: dict[str, Any] = {name: value.to(device) for name, value in self._tensors().items()}
        return replace(self, **moved)  # type: ignore[type-var]

    def model_sizes(self) -> dict[str, Any]:
        """Return the arguments of :func:`lresnet.create_model` that the task decides."""
        return {"in_features": self.x.shape[1], "num_classes": getattr(self, "num_classes", None)}

    def describe(self) -> dict[str, Any]:
        """Return what is learned, the sizes of the graph and a checksum of all tensors as JSON values."""
        digest = hashlib.sha256()
        for name, value in sorted(self._tensors().items()):
            digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
            is_dense = value.layout == torch.strided
            for part in [value] if is_dense else [value.coalesce().indices(), value.coalesce().values()]:
                digest.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return {"name": self.name, "task": self.kind, "nodes": self.num_nodes, "digest": digest.hexdigest()}


def require_features(name: str, x: Tensor, nodes: int) -> None:
    """Raise an error unless there is one row of features for each node."""
    if x.dim() != 2 or x.shape[0] != nodes:
        raise ValueError(f"{name}: the features have shape {list(x.shape)}; {nodes} nodes need as many rows")
