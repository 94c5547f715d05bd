"""Node features of any graph as the input of a model: its own ones, learned points, or structural features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lresnet.data.graph import FeatureKind, Features, Graph, dense
from lresnet.data.source import FEATURE_SOURCES, FeatureSource

__all__ = ["PreparedFeatures", "input_features", "structural_features"]

# From here on a sparse tensor takes less memory than it costs in time: 2^26 float32 values are 256 MB.
_LARGEST_DENSE = 2**26
# Counting triangles visits every path of two edges; a hub of degree d has d^2 of them.
_MOST_PATHS = 5 * 10**7
_DEGREE_BINS = 10
_PAGERANK_STEPS, _PAGERANK_DAMPING = 30, 0.85


class PreparedFeatures(NamedTuple):
    """Features ``[n, f]`` as a model takes them, and a sentence on what they are."""

    x: Tensor
    note: str


def input_features(
    graph: Graph,
    edge_index: Tensor,
    source: FeatureSource | None = None,
    kind: FeatureKind = "published",
    like: Graph | None = None,
) -> PreparedFeatures:
    """Return the features of a user's graph as the input of a model.

    Args:
        graph: The graph.
        edge_index: The graph that is visible in training, ``[2, m]``, in both directions. Structural features are
            computed on it, so that held-out edges do not leak into them.
        source: One of :data:`lresnet.data.source.FEATURE_SOURCES`. None: the graph's own features if it has any,
            otherwise learned points.
        kind: ``"published"``: rows of non-negative sparse features are divided by their sums (bags of words), all other
            features are standardised. ``"standardised"``: each column has mean 0 and standard deviation 1. ``"raw"``:
            as they are.
        like: Prepare the features as those of this graph: with its means and deviations. None: the graph itself.

    Returns:
        ``x`` float32 ``[n, f]``: dense; a sparse COO tensor for learned points and for large sparse features.

    Raises:
        ValueError: The graph has no features of its own, or ``source`` or ``kind`` is unknown.

    Example:
        >>> triangle = Graph.checked("triangle", None, np.array([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> input_features(triangle, torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])).note
        'The graph has no features: every node has a learned point.'
    """
    if source is None:
        source = "learned" if graph.features is None else "own"
    if source not in FEATURE_SOURCES:
        raise ValueError(f"unknown source of node features {source!r}; choose one of {', '.join(FEATURE_SOURCES)}")
    without = "The graph has no features" if graph.features is None else "The features of the graph are not used"
    if source == "learned":
        return PreparedFeatures(_identity(graph.num_nodes), f"{without}: every node has a learned point.")
    if source == "structural":
        x = structural_features(edge_index, graph.num_nodes)
        return PreparedFeatures(x, f"{without}: {x.shape[1]} features describe the structure around a node.")
    if graph.features is None:
        raise ValueError(f"{graph.name} has no features; use learned or structural ones")
    reference = graph.features if like is None or like.features is None else like.features
    if reference.shape[1] != graph.features.shape[1]:
        raise ValueError(
            f"{graph.name} has {graph.features.shape[1]} features per node, but {reference.shape[1]} are needed"
        )
    return _own_features(graph.features, kind, reference)


def _own_features(features: Features, kind: FeatureKind, reference: Features) -> PreparedFeatures:
    if kind not in ("published", "standardised", "raw"):
        raise ValueError(f'features={kind!r}; choose "published", "standardised" or "raw"')
    columns = f"{features.shape[1]} feature{'s' if features.shape[1] > 1 else ''} per node"
    if kind == "published":
        kind = "standardised"
        if _is_bag_of_words(reference):
            total = np.asarray(features.sum(axis=1)).reshape(-1)
            inverse = np.divide(1.0, total, out=np.zeros_like(total, dtype=np.float64), where=total != 0)
            rows = sparse.diags_array(inverse) @ sparse.csr_array(features)
            return PreparedFeatures(_tensor(rows.tocsr()), f"{columns}, rows divided by their sums.")
    if kind == "raw":
        return PreparedFeatures(_tensor(features), f"{columns}, as they are.")
    return PreparedFeatures(_standardised(features, reference), f"{columns}, standardised.")


def _is_bag_of_words(features: Features) -> bool:
    """Whether most entries are zero and none is negative, as counts of words are."""
    values = features if isinstance(features, np.ndarray) else features.data
    share = np.count_nonzero(values) / max(1, features.shape[0] * features.shape[1])
    return bool(share < 0.3 and features.shape[1] > 16 and values.size and values.min() >= 0)


def _tensor(features: Features) -> Tensor:
    if isinstance(features, np.ndarray) or features.shape[0] * features.shape[1] <= _LARGEST_DENSE:
        return dense(features)
    csr = sparse.csr_array(features, copy=True)
    csr.sum_duplicates()  # sorts the columns too, which products of matrices leave in any order
    coo = csr.tocoo()
    index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    return _coalesced(index, torch.from_numpy(coo.data.astype(np.float32)), features.shape)


def _standardised(features: Features, reference: Features) -> Tensor:
    if not isinstance(features, np.ndarray) and features.shape[0] * features.shape[1] > _LARGEST_DENSE:
        raise ValueError(
            f"sparse features of shape {list(features.shape)} would become dense; use --features raw, or fewer columns"
        )
    x = dense(features)
    deviation, mean = torch.std_mean(x if reference is features else dense(reference), dim=0, correction=0)
    return (x - mean) / torch.where(deviation > 0, deviation, 1.0)


def _identity(nodes: int) -> Tensor:
    """Return the identity as a sparse matrix: a linear map of it is a table of one learned vector per node."""
    number = torch.arange(nodes)
    return _coalesced(torch.stack([number, number]), torch.ones(nodes), (nodes, nodes))


def _coalesced(index: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a sparse matrix whose entries are sorted and unique.

    The context checks them. ``check_invariants=True`` as an argument would too, but torch 2.11 then warns that checks
    are not switched on.
    """
    with torch.sparse.check_sparse_tensor_invariants():
        return torch.sparse_coo_tensor(index, values, shape, is_coalesced=True)


def structural_features(edge_index: Tensor, nodes: int) -> Tensor:
    """Return features that describe the structure around each node; they mean the same on every graph.

    The columns are the logarithm of the degree, the means of it over the neighbours and over their neighbours, the
    share of connected pairs of neighbours (local clustering; omitted for graphs with very large hubs), the logarithm of
    the PageRank times the number of nodes, and the degree in bins of powers of two, one-hot.

    Args:
        edge_index: Edges in both directions without repetitions, ``[2, m]``.
        nodes: Number of nodes n.

    Returns:
        ``[n, 15]``, float32. Columns are scaled by constants, not by the statistics of this graph, so that a model can
        be applied to another graph.

    Example:
        >>> x = structural_features(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
        >>> x.shape, bool(x[0].equal(x[2]))
        (torch.Size([3, 15]), True)
    """
    row, column = edge_index.cpu().numpy()
    A = sparse.csr_array((np.ones(row.size), (row, column)), shape=(nodes, nodes))
    degree = np.asarray(A.sum(axis=1)).reshape(-1)
    mean = sparse.diags_array(np.divide(1.0, degree, out=np.zeros(nodes), where=degree > 0)) @ A
    log_degree = np.log1p(degree)
    around = mean @ log_degree
    bins = np.minimum(np.ceil(np.log2(degree + 1)).astype(np.int64), _DEGREE_BINS - 1)
    columns = [log_degree / 2, around / 2, (mean @ around) / 2, _clustering(A, degree), _log_pagerank(mean, degree) / 2]
    x = np.concatenate([np.stack(columns, axis=1), np.eye(_DEGREE_BINS)[bins]], axis=1)
    return torch.from_numpy(x.astype(np.float32))


def _clustering(A: sparse.csr_array, degree: NDArray[np.float64]) -> NDArray[np.float64]:
    pairs = degree * (degree - 1)
    if float((degree**2).sum()) > _MOST_PATHS:
        return np.zeros_like(degree)
    closed: NDArray[np.float64] = np.asarray((A @ A).multiply(A).sum(axis=1)).reshape(-1)
    share: NDArray[np.float64] = np.divide(closed, pairs, out=np.zeros_like(degree), where=pairs > 0)
    return share


def _log_pagerank(mean: sparse.csr_array, degree: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(n PageRank); nodes without neighbours give their rank to all nodes."""
    n = degree.size
    rank, step, lonely = np.full(n, 1.0 / n), mean.T.tocsr(), degree == 0
    for _ in range(_PAGERANK_STEPS):
        rank = _PAGERANK_DAMPING * (step @ rank + rank[lonely].sum() / n) + (1 - _PAGERANK_DAMPING) / n
    return np.asarray(np.log(n * rank))
