"""A graph as read from its files, checked, and as PyG ``Data``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lresnet.data.pairs import both_directions, undirected

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["Features", "Graph", "dense"]

Features: TypeAlias = NDArray[np.float64] | sparse.csr_array


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with features and, mostly, labels.

    Args:
        name: the data set.
        features: ``[n, f]``, dense or CSR, as in the files.
        edges: ``[2, e]``, int64, each edge once, lower node first, row by row; self loops where the files have them.
        labels: ``[n]``, int64, classes 0, 1, ...; None without labels.
        masks: official splits, ``"train" | "val" | "test"`` -> ``[n]`` or ``[n, splits]``, bool.
        names: what the nodes are called, not always each differently; empty: by their numbers.
        classes: what the labels are called; empty: by their numbers.

    Build it with :meth:`checked`, which names what is wrong with a file in one line.
    """

    name: str
    features: Features
    edges: Tensor
    labels: Tensor | None = None
    masks: dict[str, Tensor] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def num_nodes(self) -> int:
        """n."""
        return int(self.features.shape[0])

    @property
    def num_classes(self) -> int:
        """How many classes the labels name."""
        return 0 if self.labels is None else int(self.labels.max()) + 1

    @classmethod
    def checked(
        cls,
        name: str,
        features: Features,
        edges: NDArray[np.int64],
        labels: NDArray[np.float64] | NDArray[np.int64] | None = None,
        masks: dict[str, NDArray[np.bool_]] | None = None,
        names: Sequence[str] = (),
        classes: Sequence[str] = (),
    ) -> Graph:
        """The graph, after a look at every value.

        Args:
            name: the data set, for the messages.
            features: ``[n, f]``.
            edges: ``[2, m]``, any direction, with or without repetitions.
            labels: ``[n]``.
            masks: ``[n]`` or ``[n, splits]``.
            names: n of them, or none.
            classes: one for each label, or none.

        Raises:
            ValueError: no node or no edge, an edge to a node that does not exist, features that are not finite (the
                row is named), a node without label, a single class, a mask or names of another length, a
                label that no class is named for.
        """
        n = features.shape[0]
        if n == 0 or features.shape[1] == 0:
            raise ValueError(f"{name}: features of shape {list(features.shape)}; there must be nodes and features")
        _require_finite(name, features)
        _require_edges(name, edges, n)
        if labels is not None:
            _require_labels(name, labels, n)
        for part, mask in (masks or {}).items():
            if mask.shape[0] != n:
                raise ValueError(f"{name}: the {part} mask has {mask.shape[0]} entries for {n} nodes")
        if names and len(names) != n:
            raise ValueError(f"{name}: {len(names)} names for {n} nodes")
        if classes and labels is not None and labels.max() >= len(classes):
            raise ValueError(f"{name}: {len(classes)} names of classes, but a label is {labels.max():g}")
        return cls(
            name,
            features,
            undirected(torch.from_numpy(np.ascontiguousarray(edges, dtype=np.int64)), n),
            None if labels is None else torch.from_numpy(labels.astype(np.int64)),
            {part: torch.from_numpy(np.ascontiguousarray(mask)) for part, mask in (masks or {}).items()},
            tuple(names),
            tuple(classes),
        )

    def to_data(self) -> Data:
        """As PyG ``Data``: ``x`` float32 ``[n, f]``, ``edge_index`` int64 ``[2, 2e]`` both ways without self loops,
        ``y`` int64 ``[n]`` and the official masks, where there are any.
        """
        from torch_geometric.data import Data

        data = Data(
            x=dense(self.features), edge_index=both_directions(self.edges, self.num_nodes), num_nodes=self.num_nodes
        )
        if self.labels is not None:
            data.y = self.labels
        for part, mask in self.masks.items():
            data[f"{part}_mask"] = mask
        return data


def dense(features: Features) -> Tensor:
    """``features`` as a dense float32 tensor ``[n, f]``."""
    if isinstance(features, np.ndarray):
        return torch.from_numpy(features.astype(np.float32))
    return torch.from_numpy(features.astype(np.float32).toarray())


def _require_finite(name: str, features: Features) -> None:
    if isinstance(features, np.ndarray):
        rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
    else:
        bad = np.flatnonzero(~np.isfinite(features.data))
        rows = np.searchsorted(features.indptr, bad, side="right") - 1
    if rows.size:
        raise ValueError(f"{name}: the features of node {rows[0]} (row {rows[0]}) hold NaN or infinity")


def _require_edges(name: str, edges: NDArray[np.int64], n: int) -> None:
    if edges.size == 0:
        raise ValueError(f"{name}: the graph has no edges")
    outside = np.flatnonzero(((edges < 0) | (edges >= n)).any(axis=0))
    if outside.size:
        i, j = edges[:, outside[0]]
        raise ValueError(f"{name}: edge {outside[0]} joins {i} and {j}, but the nodes are 0 to {n - 1}")


def _require_labels(name: str, labels: NDArray[np.float64] | NDArray[np.int64], n: int) -> None:
    if labels.shape != (n,):
        raise ValueError(f"{name}: labels of shape {list(labels.shape)} for {n} nodes")
    missing = np.flatnonzero(~(labels >= 0))  # a NaN compares false
    if missing.size:
        raise ValueError(f"{name}: node {missing[0]} has no label")
    if (labels != np.floor(labels)).any():
        raise ValueError(f"{name}: labels must be whole numbers")
    if (labels == labels[0]).all():
        raise ValueError(f"{name}: all labels are {labels[0]:g}; a classification needs two classes")
