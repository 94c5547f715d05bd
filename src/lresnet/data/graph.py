"""Graphs: the class, its checks, its conversion to PyG ``Data``, and its features as the input of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lresnet.data.pairs import both_directions, undirected
from lresnet.data.registry import GRAPHS

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = [
    "FeatureKind",
    "Features",
    "Graph",
    "dense",
    "prepare_features",
]


Features: TypeAlias = NDArray[np.float64] | sparse.csr_array
FeatureKind = Literal["published", "standardised", "raw"]

_HIGHEST_DEGREE = 5  # all degrees from here on share one column


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with node features and, usually, labels.

    Build it with :meth:`checked`, which reports an error in one line.

    Args:
        name: Name of the graph.
        features: ``[n, f]``, dense or CSR, as in the files.
        edges: ``[2, e]``, int64. Each edge occurs once, lower node first, sorted by row. Self loops of the files are
            kept.
        labels: ``[n]``, int64, classes 0, 1, ...; None without labels.
        masks: Official splits: ``"train"``, ``"val"`` and ``"test"`` to bool ``[n]`` or ``[n, splits]``.
        names: Names of the nodes, not necessarily unique; empty if the nodes have numbers only.
        classes: Names of the classes; empty if the classes have numbers only.

    Example:
        >>> graph = Graph.checked("path", np.eye(3), np.array([[0, 1], [1, 2]]))
        >>> graph.num_nodes, graph.edges.tolist()
        (3, [[0, 1], [1, 2]])
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
        """Number of nodes n."""
        return int(self.features.shape[0])

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""
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
        """Build a graph after a check of every value.

        Args:
            name: Name of the graph, for error messages.
            features: ``[n, f]``.
            edges: ``[2, m]``, in any direction, with or without repetitions.
            labels: ``[n]``.
            masks: ``[n]`` or ``[n, splits]``.
            names: n names, or none.
            classes: One name per class, or none.

        Raises:
            ValueError: There are no nodes or edges; an edge leads to a node that does not exist; features are not
                finite (the message names the row); a node has no label; there is a single class; a mask or the names
                have another length; a label has no class name.
        """
        n = features.shape[0]
        if n == 0 or features.shape[1] == 0:
            raise ValueError(
                f"{name}: the features have shape {list(features.shape)}; at least one node and one feature are needed"
            )
        _require_finite(name, features)
        _require_edges(name, edges, n)
        if labels is not None:
            _require_labels(name, labels, n)
        for part, mask in (masks or {}).items():
            if mask.shape[0] != n:
                raise ValueError(f"{name}: the {part} mask has {mask.shape[0]} entries for {n} nodes")
        if names and len(names) != n:
            raise ValueError(f"{name}: there are {len(names)} names for {n} nodes")
        if classes and labels is not None and labels.max() >= len(classes):
            raise ValueError(f"{name}: there are {len(classes)} class names, but a label is {labels.max():g}")
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
        """Return the graph as PyG ``Data``.

        It has ``x`` float32 ``[n, f]``, ``edge_index`` int64 ``[2, 2e]`` in both directions without self loops, ``y``
        int64 ``[n]``, and the official masks if there are any.
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
    """Return ``features`` as a dense float32 tensor ``[n, f]``."""
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
        raise ValueError(f"{name}: the features of node {rows[0]} (row {rows[0]}) contain NaN or infinity")


def _require_edges(name: str, edges: NDArray[np.int64], n: int) -> None:
    if edges.size == 0:
        raise ValueError(f"{name}: the graph has no edges")
    outside = np.flatnonzero(((edges < 0) | (edges >= n)).any(axis=0))
    if outside.size:
        i, j = edges[:, outside[0]]
        raise ValueError(f"{name}: edge {outside[0]} joins {i} and {j}, but the nodes are 0 to {n - 1}")


def _require_labels(name: str, labels: NDArray[np.float64] | NDArray[np.int64], n: int) -> None:
    if labels.shape != (n,):
        raise ValueError(f"{name}: the labels have shape {list(labels.shape)}, but there are {n} nodes")
    missing = np.flatnonzero(~(labels >= 0))  # a comparison with NaN is false
    if missing.size:
        raise ValueError(f"{name}: node {missing[0]} has no label")
    if (labels != np.floor(labels)).any():
        raise ValueError(f"{name}: labels must be integers")
    if (labels == labels[0]).all():
        raise ValueError(f"{name}: all labels are {labels[0]:g}; classification needs at least two classes")


def prepare_features(graph: Graph, edge_index: Tensor, kind: FeatureKind, columns: int | None = None) -> Tensor:
    """Return the features of ``graph`` as the input of a model.

    Args:
        graph: The graph.
        edge_index: The graph that is visible in training, ``[2, 2 e]``. Degrees are counted in it.
        kind: ``"published"``: each row is divided by its sum, unless the literature leaves the features of this graph
            as they are. ``"standardised"``: each column has mean 0 and standard deviation 1. ``"raw"``: as in the
            files. For a graph with degree columns (airport) the first two kinds append the one-hot degree, clipped at
            5, and a constant 1.
        columns: Number of raw columns to use; None means all.

    Returns:
        ``[n, f]``, float32.
    """
    if kind not in ("published", "standardised", "raw"):
        raise ValueError(f'features={kind!r}; choose "published", "standardised" or "raw"')
    source = GRAPHS.get(graph.name)
    raw = graph.features if columns is None else graph.features[:, :columns]
    if kind == "raw":
        return dense(raw)
    if kind == "standardised":
        x = _standardised(raw)
    else:
        x = dense(_row_normalised(raw) if source is None or source.row_normalised else raw)
    if source is not None and source.degree_columns:
        x = torch.cat([x, _degree_columns(edge_index, graph.num_nodes), torch.ones(graph.num_nodes, 1)], dim=1)
    return x


def _row_normalised(features: Features) -> Features:
    """Divide each row by its sum; a row with sum zero becomes zero."""
    total = np.asarray(features.sum(axis=1)).reshape(-1, 1)
    with np.errstate(divide="ignore"):
        factor = np.where(total == 0, 0.0, 1 / total)
    return features * factor if isinstance(features, np.ndarray) else features.multiply(factor).tocsr()


def _standardised(features: Features) -> Tensor:
    x = dense(features)
    deviation, mean = torch.std_mean(x, dim=0, correction=0)
    return (x - mean) / torch.where(deviation > 0, deviation, 1.0)


def _degree_columns(edge_index: Tensor, nodes: int) -> Tensor:
    degree = torch.bincount(edge_index[0], minlength=nodes).clamp_max(_HIGHEST_DEGREE)
    return torch.nn.functional.one_hot(degree, _HIGHEST_DEGREE + 1).float()
