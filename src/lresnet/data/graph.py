"""Graphs: the class, its checks, its conversion to PyG ``Data``, and its features as the input of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lresnet._limits import NODES
from lresnet.data.edges import directed_pairs, merge_edges
from lresnet.data.labels import NumberedLabels, number_labels
from lresnet.data.pairs import both_directions
from lresnet.data.registry import GRAPHS
from lresnet.data.shaped import shaped

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = [
    "FeatureKind",
    "Features",
    "Graph",
    "checked_features",
    "checked_mask",
    "dense",
    "prepare_features",
]


Features: TypeAlias = NDArray[np.float64] | sparse.csr_array
FeatureKind = Literal["published", "standardised", "raw"]

_HIGHEST_DEGREE = 5  # all degrees from here on share one column


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph: edges and, if there are any, node features, labels, weights and names.

    Build it with :meth:`checked`, which reports an error in one line, with :meth:`from_data`, or with
    :func:`lresnet.data.read_graph`.

    Args:
        name: Name of the graph.
        features: ``[n, f]``, dense or CSR, as in the files; None if the nodes have no features.
        edges: ``[2, e]``, int64. Each edge occurs once, sorted by row. Undirected: lower node first. Directed: source,
            target. Self loops are kept.
        labels: ``[n]``, int64, classes 0, 1, ...; -1 for a node without a label; None without labels.
        masks: Splits: ``"train"``, ``"val"`` and ``"test"`` to bool ``[n]`` or ``[n, splits]``.
        names: Names of the nodes, not necessarily unique; empty if the nodes have numbers only.
        classes: Names of the classes; empty if the classes have numbers only.
        weights: ``[e]``, float32, positive; None if the edges have no weights.
        directed: Whether the edges have a direction.
        notes: What the reader of the graph detected and repaired, one sentence each.
        num_nodes: Number of nodes n. By default that of the features, the labels or the names, or else the highest
            node number of an edge plus 1.

    Example:
        >>> graph = Graph.checked("path", np.eye(3), np.array([[0, 1], [1, 2]]))
        >>> graph.num_nodes, graph.edges.tolist()
        (3, [[0, 1], [1, 2]])
    """

    name: str
    features: Features | None
    edges: Tensor
    labels: Tensor | None = None
    masks: dict[str, Tensor] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    weights: Tensor | None = None
    directed: bool = False
    notes: tuple[str, ...] = ()
    num_nodes: int = field(default=-1, kw_only=True)

    def __repr__(self) -> str:
        return shaped(self)

    def __post_init__(self) -> None:
        if self.num_nodes < 0:
            object.__setattr__(self, "num_nodes", _count_nodes(self.features, self.edges, self.labels, self.names))

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""
        return 0 if self.labels is None else int(self.labels.max()) + 1

    @classmethod
    def checked(
        cls,
        name: str,
        features: Any,
        edges: Any,
        labels: Any = None,
        masks: Mapping[str, Any] | None = None,
        names: Sequence[str] = (),
        classes: Sequence[str] = (),
        *,
        num_nodes: int | None = None,
        weights: Any = None,
        directed: bool = False,
        notes: Sequence[str] = (),
    ) -> Graph:
        """Build a graph after a check of every value. Arrays may be NumPy arrays, tensors or lists.

        Labels may be missing: negative numbers, NaN and empty text. A single class is an error, since there would be
        nothing to learn; leave the labels out. Edges that occur more than once are merged (see
        :func:`lresnet.data.edges.merge_edges` for their weights).

        Args:
            name: Name of the graph, for error messages.
            features: ``[n, f]``, dense or a SciPy sparse matrix, or None.
            edges: Integers ``[2, m]``, in any order, with or without repetitions; for an undirected graph in any
                direction. ``[m, 2]`` is transposed unless m is 2.
            labels: ``[n]``: integers, floats that are integers, booleans or text, see
                :func:`lresnet.data.labels.number_labels`.
            masks: Booleans ``[n]`` or ``[n, splits]``.
            names: n names, or none.
            classes: One name per class, or none.
            num_nodes: Number of nodes n; by default as for the class.
            weights: ``[m]``, positive.
            directed: Whether the edges have a direction.
            notes: Sentences about how the graph was read.

        Raises:
            ValueError: There are no nodes, or no edges other than self loops; an edge leads to a node that does not
                exist; features are not finite (the message names the row); a weight is not positive; there is a single
                class; labels, masks, names or weights have another length; a label has no class name.
        """
        matrix = None if features is None else checked_features(name, features)
        pairs = _checked_pairs(name, edges)
        n = _checked_count(name, matrix, pairs, labels, names, num_nodes)
        _require_edges(name, pairs, n)
        merged = merge_edges(
            torch.from_numpy(pairs),
            n,
            None if weights is None else _checked_weights(name, weights, pairs.shape[1]),
            directed=directed,
        )
        numbered = (
            NumberedLabels(None, tuple(classes), n)
            if labels is None
            else number_labels(name, _as_array(labels), n, classes)
        )
        if labels is not None and numbered.numbers is None:
            notes = (*notes, "No node has a label.")
        if names and len(names) != n:
            raise ValueError(f"{name}: there are {len(names)} names for {n} nodes")
        return cls(
            name,
            matrix,
            merged.edges,
            None if numbered.numbers is None else torch.from_numpy(numbered.numbers),
            {part: checked_mask(name, part, mask, n) for part, mask in (masks or {}).items()},
            tuple(names),
            numbered.classes,
            None if merged.weights is None else merged.weights.float(),
            directed,
            tuple(notes),
            num_nodes=n,
        )

    @classmethod
    def from_data(cls, data: Data, name: str = "graph") -> Graph:
        """Build a graph from PyG ``Data``.

        Args:
            data: ``edge_index``, and if present ``x`` (dense or sparse), ``edge_weight`` (or ``edge_attr`` with one
                positive number per edge), ``y`` with one label per node (negative or NaN: no label), and
                ``train_mask``, ``val_mask`` and ``test_mask``. The graph is undirected if each edge occurs in both
                directions with the same weight, unless ``data.directed`` is True; see :attr:`notes`.
            name: Name of the graph.

        Raises:
            ValueError: A value is refused by :meth:`checked`, or ``data`` has no edges or several types of nodes.

        Example:
            >>> from torch_geometric.data import Data
            >>> graph = Graph.from_data(Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=4))
            >>> graph.edges.tolist(), graph.directed, graph.num_nodes
            ([[0, 1], [1, 2]], False, 4)
        """
        from lresnet.data.formats.pyg_data import read_data

        return read_data(data, name)

    def to_data(self) -> Data:
        """Return the graph as PyG ``Data``; :meth:`from_data` reads it back.

        It has ``x`` float32 ``[n, f]`` if there are features, ``edge_index`` int64 without self loops, in both
        directions ``[2, 2e]`` if the graph is undirected, ``edge_weight`` float32 if there are weights, ``y`` int64
        ``[n]`` if there are labels (-1 for a node without one), and the masks if there are any. A directed graph has
        ``directed=True``. Names are not part of it.
        """
        from torch_geometric.data import Data

        n, weights = self.num_nodes, self.weights
        if self.directed:
            proper = self.edges[0] != self.edges[1]
            edge_index = self.edges[:, proper]
            weights = None if weights is None else weights[proper]
        elif weights is None:
            edge_index = both_directions(self.edges, n)
        else:
            edge_index, weights = directed_pairs(self.edges, n, weights)
        data = Data(edge_index=edge_index, num_nodes=n)
        if self.features is not None:
            data = Data(x=dense(self.features), edge_index=edge_index, num_nodes=n)
        if weights is not None:
            data.edge_weight = weights
        if self.labels is not None:
            data.y = self.labels
        for part, mask in self.masks.items():
            data[f"{part}_mask"] = mask
        if self.directed:
            data.directed = True
        return data


def dense(features: Features) -> Tensor:
    """Return ``features`` as a dense float32 tensor ``[n, f]``."""
    if isinstance(features, np.ndarray):
        return torch.from_numpy(features.astype(np.float32))
    return torch.from_numpy(features.astype(np.float32).toarray())


def _as_array(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _count_nodes(features: Features | None, edges: Tensor, labels: Any, names: Sequence[str]) -> int:
    if features is not None:
        return int(features.shape[0])
    if labels is not None:
        return len(labels)
    return len(names) if names else int(edges.max()) + 1 if edges.numel() else 0


def checked_features(name: str, features: Any) -> Features:
    """Return the features as float64 ``[n, f]``, dense or CSR; raise ValueError if they are not finite numbers."""
    matrix = sparse.csr_array(features) if sparse.issparse(features) else _as_array(features)
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"{name}: the features are {matrix.dtype}; features must be numbers")
    if matrix.ndim != 2:
        raise ValueError(f"{name}: the features have shape {list(matrix.shape)}; give one row per node, [n, f]")
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise ValueError(
            f"{name}: the features have shape {list(matrix.shape)}; at least one node and one feature are needed"
        )
    matrix = matrix.astype(np.float64, copy=False)
    _require_finite(name, matrix)
    return matrix


def _checked_pairs(name: str, edges: Any) -> NDArray[np.int64]:
    """Return the edges as int64 ``[2, m]``."""
    array = _as_array(edges)
    if array.size == 0:
        raise ValueError(f"{name}: the graph has no edges")
    if array.ndim != 2 or 2 not in array.shape:
        raise ValueError(f"{name}: the edges have shape {list(array.shape)}; give node numbers [2, m]")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name}: the edges are {array.dtype}; edges are pairs of node numbers, i.e. integers")
    return np.ascontiguousarray(array if array.shape[0] == 2 else array.T, dtype=np.int64)


def _checked_count(
    name: str,
    features: Features | None,
    pairs: NDArray[np.int64],
    labels: Any,
    names: Sequence[str],
    num_nodes: Any,
) -> int:
    if num_nodes is None:
        return _count_nodes(features, torch.from_numpy(pairs), labels, names)
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int | np.integer) or not 1 <= num_nodes <= NODES:
        raise ValueError(f"{name}: num_nodes={num_nodes!r}; the number of nodes is an integer from 1 to {NODES:,}")
    if features is not None and features.shape[0] != num_nodes:
        raise ValueError(f"{name}: the features have {features.shape[0]} rows for {num_nodes} nodes")
    return int(num_nodes)


def _checked_weights(name: str, weights: Any, edges: int) -> Tensor:
    array = _as_array(weights)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (edges,):
        raise ValueError(f"{name}: the weights have shape {list(array.shape)} for {edges} edges")
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name}: the weights are {array.dtype}; weights are positive numbers")
    with np.errstate(over="ignore", under="ignore"):
        single = array.astype(np.float32)  # what the graph keeps; it may overflow or vanish
    wrong = np.flatnonzero(~((single > 0) & np.isfinite(single)))
    if wrong.size:
        raise ValueError(
            f"{name}: the weight of edge {wrong[0]} is {array[wrong[0]]}; weights must be positive and finite"
        )
    return torch.from_numpy(array.astype(np.float64))


def checked_mask(name: str, part: str, mask: Any, n: int) -> Tensor:
    """Return the mask as bool ``[n]`` or ``[n, splits]``; raise ValueError if it is not one."""
    array = _as_array(mask)
    if array.ndim not in (1, 2) or array.shape[0] != n:
        count = array.shape[0] if array.ndim in (1, 2) else f"shape {list(array.shape)}, not [n] or [n, splits],"
        raise ValueError(f"{name}: the {part} mask has {count} entries for {n} nodes")
    if array.dtype.kind != "b" and (array.dtype.kind not in "iu" or not np.isin(array, (0, 1)).all()):
        raise ValueError(f"{name}: the {part} mask is {array.dtype}; a mask holds True or False for each node")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.bool_))


def _require_finite(name: str, features: Features) -> None:
    if isinstance(features, np.ndarray):
        rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
    else:
        bad = np.flatnonzero(~np.isfinite(features.data))
        rows = np.searchsorted(features.indptr, bad, side="right") - 1
    if rows.size:
        raise ValueError(f"{name}: the features of node {rows[0]} (row {rows[0]}) contain NaN or infinity")


def _require_edges(name: str, edges: NDArray[np.int64], n: int) -> None:
    outside = np.flatnonzero(((edges < 0) | (edges >= min(n, NODES))).any(axis=0))
    if outside.size:
        i, j = edges[:, outside[0]]
        raise ValueError(f"{name}: edge {outside[0]} joins {i} and {j}, but the nodes are 0 to {min(n, NODES) - 1}")
    if (edges[0] == edges[1]).all():
        raise ValueError(f"{name}: all {edges.shape[1]} edges are self loops; an edge must join two different nodes")


def prepare_features(
    graph: Graph,
    edge_index: Tensor,
    kind: FeatureKind,
    columns: int | None = None,
    *,
    drop_columns: Sequence[int] = (),
) -> Tensor:
    """Return the features of ``graph`` as the input of a model.

    Args:
        graph: The graph.
        edge_index: The graph that is visible in training, ``[2, 2 e]``. Degrees are counted in it.
        kind: ``"published"``: each row is divided by its sum, unless the literature leaves the features of this graph
            as they are. ``"standardised"``: each column has mean 0 and standard deviation 1. ``"raw"``: as in the
            files. For a graph with degree columns (airport) the first two kinds append the one-hot degree, clipped at
            5, and a constant 1.
        columns: Number of raw columns to use; None means all.
        drop_columns: Raw columns to leave out, numbered from 0, before anything else is done to the features.

    Returns:
        ``[n, f]``, float32.

    Raises:
        ValueError: ``kind`` is unknown, the graph has no features, or a column to drop is none of them.
    """
    if kind not in ("published", "standardised", "raw"):
        raise ValueError(f'features={kind!r}; choose "published", "standardised" or "raw"')
    if graph.features is None:
        raise ValueError(f"{graph.name} has no node features")
    source = GRAPHS.get(graph.name)
    raw = graph.features if columns is None else graph.features[:, :columns]
    if drop_columns:
        raw = _without_columns(graph.name, raw, drop_columns)
    if kind == "raw":
        return dense(raw)
    if kind == "standardised":
        x = _standardised(raw)
    else:
        x = dense(_row_normalised(raw) if source is None or source.row_normalised else raw)
    if source is not None and source.degree_columns:
        x = torch.cat([x, _degree_columns(edge_index, graph.num_nodes), torch.ones(graph.num_nodes, 1)], dim=1)
    return x


def _without_columns(name: str, features: Features, dropped: Sequence[int]) -> Features:
    count = features.shape[1]
    if unknown := [column for column in dropped if not 0 <= column < count]:
        raise ValueError(f"{name} has the feature columns 0 to {count - 1}, not {unknown[0]}; drop_columns lists some")
    kept = np.setdiff1d(np.arange(count), dropped)
    if not kept.size:
        raise ValueError(f"{name} has {count} feature columns, and drop_columns lists all of them; keep at least one")
    return features[:, kept]


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
