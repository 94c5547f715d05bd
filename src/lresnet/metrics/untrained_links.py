"""Link prediction by scores that learn nothing: raw features, degrees, common neighbours, two- and three-hop counts.

A network that is trained for a link prediction task should rank the test pairs better than these scores. Where it does
not, the task shows little about the network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata
from torch import Tensor

from lresnet.data import LinkTask
from lresnet.metrics.by_name import link_metric

__all__ = ["UNTRAINED_SCORES", "PairScores", "UntrainedScore", "best_untrained_score", "untrained_link_scores"]

UNTRAINED_SCORES: Mapping[str, str] = {
    "feature_column": "one raw feature",
    "feature_distance": "distance of the raw features",
    "feature_cosine": "cosine of the raw features",
    "common_neighbours": "common neighbours",
    "hops": "two- and three-hop counts",
    "degree": "maximum degree",
}
"""The scores by name, with what outputs call them. Those of features need features."""

_MOST_ENTRIES = 4_000_000  # of the sparse rows that are in memory at once
_COLUMN_PAIRS = 20_000  # validation edges, and as many other pairs, that choose a column
_SHORTLIST = 20  # columns whose ROC AUC is furthest from 50; the metric of the task decides among them
_MOST_PATHS = 5 * 10**9  # two-hop paths of all pairs together; about a minute on one core
_DIGITS = 12  # equal sums whose terms are added in another order stay equal

Array = NDArray[np.float64]
Pairs = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class UntrainedScore:
    """What an untrained score reaches on a task.

    Args:
        name: one of :data:`UNTRAINED_SCORES`.
        validation: what a network would be selected by, in percent: the task's metric, or without one the mean of ROC
            AUC and average precision.
        metrics: test metrics in percent, the one to report first; None: the test pairs were not read.
        column: for ``"feature_column"``, the raw feature that the validation pairs chose, numbered from 0.
        sign: -1: pairs with a small difference of this feature rank first; 1: those with a large one.
    """

    name: str
    validation: float
    metrics: Mapping[str, float] | None = None
    column: int | None = None
    sign: int | None = None

    @property
    def label(self) -> str:
        """The score in words, e.g. ``"one raw feature (column 10)"``."""
        from lresnet.metrics.untrained_hierarchy import UNTRAINED_HIERARCHY_SCORES  # which imports this module

        words = {**UNTRAINED_SCORES, **UNTRAINED_HIERARCHY_SCORES}.get(self.name, self.name)
        return words if self.column is None else f"{words} (column {self.column})"

    @property
    def value(self) -> float | None:
        """The first test metric, the one to report; None: the test pairs were not read."""
        return None if self.metrics is None else next(iter(self.metrics.values()))

    def as_dict(self) -> dict[str, Any]:
        """Return the score as JSON values, rounded to four digits; what is None is left out."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        values["validation"] = round(self.validation, 4)
        if self.metrics is not None:
            values["metrics"] = {name: round(value, 4) for name, value in self.metrics.items()}
        return values


def untrained_link_scores(task: LinkTask, features: Any = None, *, test: bool = True) -> list[UntrainedScore]:
    """Return what every untrained score reaches on a task, best first. Only validation pairs choose and order them.

    Args:
        task: link prediction; its metric is used, see :class:`UntrainedScore`. Message passing edges count as
            undirected, and self loops do not count.
        features: raw features ``[n, f]``: an array, a SciPy sparse matrix or a tensor. None: those of the task's graph;
            of a task without its graph the features that a network sees. Without features the scores of features are
            left out; one learned point per node is none.
        test: read the test pairs, once per score.

    Two- and three-hop counts are left out where the validation pairs have more than 5e9 two-hop paths (a large graph
    with hubs), because they would take minutes.

    Example:
        >>> from lresnet.data import load_task
        >>> task = load_task("disease_tree/lp", features="raw")
        >>> best = untrained_link_scores(task)[0]
        >>> best.label, round(best.value, 1)
        ('one raw feature (column 5)', 97.7)
    """
    source = PairScores(task, features)
    pairs, edges = _joined(task.val_edges, task.val_negatives)
    found = []
    for name in source.names(pairs):
        column, sign = source.best_column(pairs, edges, task.metric) if name == "feature_column" else (None, None)
        values = source.score(name, pairs, column, sign)
        found.append(UntrainedScore(name, _selection(task.metric, values, edges), column=column, sign=sign))
    found.sort(key=lambda one: -one.validation)  # of equal ones the first stays first
    if not test:
        return found
    pairs, edges = _joined(task.test_edges, task.test_negatives)
    tested = (source.score(one.name, pairs, one.column, one.sign) for one in found)
    return [
        dataclasses.replace(one, metrics=_metrics(task.metric, values, edges))
        for one, values in zip(found, tested, strict=True)
    ]


def best_untrained_score(scores: Sequence[UntrainedScore]) -> UntrainedScore:
    """Return the score with the highest validation metric; of equal ones the first.

    Example:
        >>> best_untrained_score([UntrainedScore("degree", 70.0), UntrainedScore("hops", 80.0)]).label
        'two- and three-hop counts'
    """
    return max(scores, key=lambda one: one.validation)


class PairScores:
    r"""The untrained scores as functions of pairs of nodes ``[2, m]``; a higher score means a more likely edge.

    Rows of sparse matrices are multiplied in chunks: no matrix ``[n, n]`` is formed.

    Args:
        task: link prediction. The scores read its message passing graph, which holds the training edges only.
        features: see :func:`untrained_link_scores`.

    Example:
        >>> from lresnet.data import load_task
        >>> scores = PairScores(load_task("disease_tree/lp", features="raw"))
        >>> scores.degree(np.array([[0, 1], [2, 3]])).shape
        (2,)
    """

    def __init__(self, task: LinkTask, features: Any = None) -> None:
        n = task.num_nodes
        self.features = _raw_features(task, features)
        row, column = task.edge_index.cpu().numpy()
        weight = np.ones(row.size) if task.edge_weight is None else task.edge_weight.double().cpu().numpy()
        proper = row != column
        one_way = sparse.coo_array((weight[proper], (row[proper], column[proper])), shape=(n, n)).tocsr()
        weights = sparse.csr_array(one_way.maximum(one_way.T))
        self.neighbours = sparse.csr_array((np.ones(weights.nnz), weights.indices, weights.indptr), shape=(n, n))
        self.degrees = np.diff(weights.indptr).astype(np.float64)
        self._reach = self.neighbours @ self.degrees + self.degrees  # at least the number of nodes within two hops
        strength = _row_sums(weights)
        root = np.sqrt(np.where(strength > 0, strength, 1.0))
        rows = np.repeat(np.arange(n), np.diff(weights.indptr))
        normalised = weights.data / (root[rows] * root[weights.indices])
        self.adjacency = sparse.csr_array((normalised, weights.indices, weights.indptr), shape=(n, n))

    def names(self, pairs: Pairs) -> list[str]:
        """Return the scores that the task has features for and that are cheap enough for these pairs."""
        left_out = set[str]()
        if self.features is None:
            left_out |= {name for name in UNTRAINED_SCORES if name.startswith("feature_")}
        if self._reach[pairs].min(axis=0).sum() > _MOST_PATHS:
            left_out |= {"hops"}
        return [name for name in UNTRAINED_SCORES if name not in left_out]

    def score(self, name: str, pairs: Pairs, column: int | None = None, sign: int | None = None) -> Array:
        """Return the score ``name`` of the pairs, ``[m]``; ``column`` and ``sign`` are those of a feature column."""
        if column is not None:
            return self.feature_column(pairs, column, -1 if sign is None else sign)
        return _BY_NAME[name](self, pairs)

    def degree(self, pairs: Pairs) -> Array:
        """Return the larger of the two numbers of neighbours, ``[m]``; weights do not count."""
        return np.asarray(self.degrees[pairs].max(axis=0))

    def common_neighbours(self, pairs: Pairs) -> Array:
        """Return the number of nodes that are neighbours of both, ``[m]``; weights do not count."""
        first, second = self._cheaper_first(pairs, self.degrees)
        found = [
            _row_sums(self.neighbours[first[part]].multiply(self.neighbours[second[part]]))
            for part in _chunks(self.degrees[first] + self.degrees[second])
        ]
        return np.concatenate(found)

    def hops(self, pairs: Pairs) -> Array:
        r"""Return :math:`(S^2 + S^3)_{ij}`, ``[m]``: weighted numbers of paths of two and of three edges.

        :math:`S = D^{-1/2} W D^{-1/2}` is the symmetrically normalised adjacency matrix of the training graph: W holds
        the weights of the edges (1 without weights) and D their row sums. The three-hop paths of a pair start at the
        node that has fewer two-hop paths.
        """
        first, second = self._cheaper_first(pairs, self._reach)
        found = []
        for part in _chunks(self._reach[first] + self.degrees[second]):
            one_hop = self.adjacency[first[part]]
            found.append(_row_sums((one_hop + one_hop @ self.adjacency).multiply(self.adjacency[second[part]])))
        return np.asarray(np.concatenate(found).round(_DIGITS))

    def feature_column(self, pairs: Pairs, column: int, sign: int = -1) -> Array:
        """Return the difference of one raw feature with a sign, ``sign * |x_i - x_j|``, ``[m]``."""
        own = self._features[:, [column]].toarray()[:, 0]
        return np.asarray(sign * np.abs(own[pairs[0]] - own[pairs[1]]))

    def feature_distance(self, pairs: Pairs) -> Array:
        """Return minus the Euclidean distance of all raw features, ``[m]``."""
        return self._of_features(pairs, lambda first, second: -np.sqrt(_row_sums((first - second).power(2))))

    def feature_cosine(self, pairs: Pairs) -> Array:
        """Return the cosine of the angle between the raw features, ``[m]``; 0 for a node without features."""
        norm = np.sqrt(_row_sums(self._features.power(2)))
        product = self._of_features(pairs, lambda first, second: _row_sums(first.multiply(second)))
        lengths = norm[pairs[0]] * norm[pairs[1]]
        return np.where(lengths > 0, product / np.where(lengths > 0, lengths, 1.0), 0.0)

    def best_column(self, pairs: Pairs, edges: int, metric: str | None = None) -> tuple[int, int]:
        """Return the feature column that ranks pairs best, and its sign.

        Args:
            pairs: edges, then pairs without an edge. At most 20,000 of each are read, evenly spaced.
            edges: number of edges.
            metric: the task's metric, see :class:`UntrainedScore`. It decides among the 20 columns whose ROC AUC is
                furthest from one half.
        """
        positive, negative = (part[:, _evenly_spaced(part.shape[1])] for part in (pairs[:, :edges], pairs[:, edges:]))
        pairs, edges = np.concatenate([positive, negative], axis=1), positive.shape[1]
        differences = sparse.csc_array(abs(self._features[pairs[0]] - self._features[pairs[1]]))
        count = differences.shape[1]
        wide = max(1, _MOST_ENTRIES // pairs.shape[1])
        auc = np.concatenate(
            [_roc_auc(differences[:, start : start + wide].toarray(), edges) for start in range(0, count, wide)]
        )
        shortlist = np.sort(np.argsort(-np.abs(auc - 0.5), kind="stable")[:_SHORTLIST])
        candidates = [(int(column), sign) for column in shortlist for sign in (-1, 1)]
        return max(candidates, key=lambda one: _selection(metric, self.feature_column(pairs, *one), edges))

    @property
    def _features(self) -> sparse.csr_array:
        if self.features is None:
            raise ValueError("the task has no raw features; use a score of the graph")
        return self.features

    def _of_features(self, pairs: Pairs, function: Callable[[Any, Any], Array]) -> Array:
        features = self._features
        entries = np.diff(features.indptr)[pairs].sum(axis=0)
        return np.concatenate(
            [function(features[pairs[0, part]], features[pairs[1, part]]) for part in _chunks(entries)]
        )

    def _cheaper_first(self, pairs: Pairs, cost: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the two nodes of each pair, the one of lower cost first: all scores are symmetric."""
        swap = cost[pairs[0]] > cost[pairs[1]]
        return np.where(swap, pairs[1], pairs[0]), np.where(swap, pairs[0], pairs[1])


_BY_NAME: Mapping[str, Callable[[PairScores, Pairs], Array]] = {
    "feature_distance": PairScores.feature_distance,
    "feature_cosine": PairScores.feature_cosine,
    "common_neighbours": PairScores.common_neighbours,
    "hops": PairScores.hops,
    "degree": PairScores.degree,
}


def _raw_features(task: LinkTask, given: Any) -> sparse.csr_array | None:
    """Return features as CSR in float64, with the values that float32 holds, as a network sees them."""
    values = given
    if values is None:
        values = task.x if task.graph is None else task.graph.features
        if isinstance(values, Tensor) and values.is_sparse and values.shape[1] == task.num_nodes:
            return None  # one learned point per node
    if values is None:
        return None
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.is_sparse:
            values = values.coalesce()
            entries = values.values().numpy(), tuple(values.indices().numpy())
            values = sparse.coo_array(entries, shape=tuple(values.shape))
        else:
            values = values.numpy()
    matrix = sparse.csr_array(values).astype(np.float32).astype(np.float64)
    if matrix.shape[0] != task.num_nodes:
        raise ValueError(f"{task.name}: the features have {matrix.shape[0]} rows for {task.num_nodes} nodes")
    return matrix


def _joined(edges: Tensor, others: Tensor) -> tuple[Pairs, int]:
    """Return edges and other pairs as one array ``[2, m]``, and the number of edges."""
    return np.concatenate([edges.cpu().numpy(), others.cpu().numpy()], axis=1), edges.shape[1]


def _chunks(costs: Array | NDArray[np.integer[Any]]) -> Iterator[slice]:
    """Yield slices of items whose costs sum to about the number of entries that fit; one item at least."""
    total = np.cumsum(costs, dtype=np.float64)
    start = 0
    while start < total.size:
        before = total[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(total, before + _MOST_ENTRIES, side="right")))
        yield slice(start, stop)
        start = stop


def _evenly_spaced(count: int) -> NDArray[np.int64]:
    return np.arange(count) if count <= _COLUMN_PAIRS else np.linspace(0, count - 1, _COLUMN_PAIRS).astype(np.int64)


def _roc_auc(scores: Array, edges: int) -> Array:
    """Return the ROC AUC of every column of ``scores`` ``[m, f]``, whose first rows belong to edges."""
    others = scores.shape[0] - edges
    ranks = rankdata(scores, axis=0)[:edges].sum(axis=0)
    return np.asarray((ranks - edges * (edges + 1) / 2) / (edges * others))


def _row_sums(matrix: Any) -> Array:
    return np.asarray(matrix.sum(axis=1), dtype=np.float64).reshape(-1)


def _parts(scores: Array, edges: int) -> tuple[Tensor, Tensor]:
    own = torch.from_numpy(np.ascontiguousarray(scores))
    return own[:edges], own[edges:]


def _selection(metric: str | None, scores: Array, edges: int) -> float:
    """Return in percent what :class:`lresnet.train.LinkPrediction` selects by, too."""
    names = ("roc_auc", "average_precision") if metric is None else (metric,)
    parts = _parts(scores, edges)
    return sum(100 * float(link_metric(name)(*parts)) for name in names) / len(names)


def _metrics(metric: str | None, scores: Array, edges: int) -> dict[str, float]:
    """Return in percent the test metrics that :class:`lresnet.train.LinkPrediction` reports, too."""
    names = dict.fromkeys([metric or "roc_auc", "roc_auc", "average_precision"])
    parts = _parts(scores, edges)
    return {name: 100 * float(link_metric(name)(*parts)) for name in names}
