"""Untrained baselines of link prediction: scores of raw features and of the training graph, on the splits of our runs.

A network that is trained for a link prediction task should rank the test pairs better than these scores, which learn
nothing. Where it does not, the task shows little about the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from lresnet.data import TASKS, LinkTask, load_task
from lresnet.metrics import average_precision, roc_auc
from lresnet.metrics.ranking import link_scores
from lresnet.train.results import environment
from lresnet_paper.results import Result

__all__ = [
    "SCORES",
    "SCORE_LABELS",
    "UNTRAINED_TABLE",
    "PairScores",
    "best_untrained",
    "link_cells",
    "protocol_of",
    "seeds_of",
    "untrained_runs",
]

UNTRAINED_TABLE = "untrained"
"""The name of the file of results, and of the field ``table`` of its lines."""

_SEEDS = (0, 1, 2, 3, 4)  # of splits that follow the seed; the demo has the same
_CHUNK = 4096  # pairs at a time: a row of the squared adjacency may have thousands of entries

Array = NDArray[np.float64]


class PairScores:
    r"""What the scores of pairs are computed from: raw features and the graph of the training edges.

    Args:
        task: a link prediction task with raw features (``load_task(..., features="raw")``).

    Example:
        >>> scores = PairScores(load_task("disease_tree/lp", features="raw"))
        >>> scores.degree(np.array([[0, 1], [2, 3]])).shape
        (2,)
    """

    def __init__(self, task: LinkTask) -> None:
        n = task.num_nodes
        x = task.x.to_dense() if task.x.is_sparse else task.x
        self.features = sparse.csr_array(x.numpy().astype(np.float64))
        row, column = task.edge_index.numpy()
        self.degrees = np.bincount(row, minlength=n).astype(np.float64)
        root = np.sqrt(np.maximum(self.degrees, 1.0))
        self.adjacency = sparse.csr_array((1 / (root[row] * root[column]), (row, column)), shape=(n, n))
        self._squared: sparse.csr_array | None = None

    def column_differences(self, pairs: NDArray[np.int64]) -> sparse.csc_array:
        """Return ``|x_i - x_j|`` of every raw feature column, ``[m, f]``."""
        return sparse.csc_array(abs(self.features[pairs[0]] - self.features[pairs[1]]))

    def feature_column(self, pairs: NDArray[np.int64], column: int) -> Array:
        """Return minus the difference of one raw feature, ``-|x_i - x_j|``, ``[m]``."""
        return -_dense_column(self.column_differences(pairs), column)

    def feature_distance(self, pairs: NDArray[np.int64]) -> Array:
        """Return minus the Euclidean distance of all raw features, ``[m]``."""
        return -np.sqrt(_row_sums(self.column_differences(pairs).power(2)))

    def feature_cosine(self, pairs: NDArray[np.int64]) -> Array:
        """Return the cosine of the angle between the raw features, ``[m]``; 0 for a node without features."""
        norm = np.sqrt(_row_sums(self.features.power(2)))
        product = _row_sums(self.features[pairs[0]].multiply(self.features[pairs[1]]))
        lengths = norm[pairs[0]] * norm[pairs[1]]
        return np.where(lengths > 0, product / np.where(lengths > 0, lengths, 1.0), 0.0)

    def hops(self, pairs: NDArray[np.int64]) -> Array:
        r"""Return :math:`(S^2 + S^3)_{ij}`, ``[m]``: weighted numbers of two- and three-hop paths.

        Here :math:`S = D^{-1/2} A D^{-1/2}` is the symmetrically normalised adjacency matrix of the training edges.
        """
        if self._squared is None:
            self._squared = sparse.csr_array(self.adjacency @ self.adjacency)
        reach = self._squared
        found = [
            _row_sums((self.adjacency[i] + reach[i]).multiply(self.adjacency[j]))
            for start in range(0, pairs.shape[1], _CHUNK)
            for i, j in [pairs[:, start : start + _CHUNK]]
        ]
        return np.concatenate(found)

    def degree(self, pairs: NDArray[np.int64]) -> Array:
        """Return the larger of the two degrees in the training graph, ``[m]``."""
        return np.asarray(self.degrees[pairs].max(axis=0))


def _dense_column(matrix: Any, column: int) -> Array:
    return np.asarray(matrix[:, [column]].toarray(), dtype=np.float64)[:, 0]


def _row_sums(matrix: Any) -> Array:
    return np.asarray(matrix.sum(axis=1)).reshape(-1)


SCORES: dict[str, Callable[[PairScores, NDArray[np.int64]], Array] | None] = {
    "feature_column": None,  # it has a column, which validation data choose
    "feature_distance": PairScores.feature_distance,
    "feature_cosine": PairScores.feature_cosine,
    "hops": PairScores.hops,
    "degree": PairScores.degree,
}
"""The untrained scores by name."""

SCORE_LABELS = {
    "feature_column": "one column",
    "feature_distance": "distance",
    "feature_cosine": "cosine",
    "hops": "hops",
    "degree": "degree",
}
"""The short names of the scores in tables."""


# --- lines of results -------------------------------------------------------------------------------------------------


def link_cells() -> list[str]:
    """Return the link prediction tasks of the library."""
    return [name for name in TASKS if name.endswith("/lp")]


def protocol_of(cell: str) -> str:
    """Return the split on which our runs of a cell are: the published one where there is one.

    Example:
        >>> protocol_of("disease/lp"), protocol_of("disease_tree/lp")
        ('legacy', 'disjoint')
    """
    return "legacy" if "hgcn" in TASKS[cell].splits else "disjoint"  # lines keep the older name of the split hgcn


def seeds_of(cell: str) -> tuple[int, ...]:
    """Return the seeds of a cell: one for a fixed split, because the scores are not random.

    Example:
        >>> seeds_of("disease/lp"), seeds_of("disease_tree/lp")
        ((0,), (0, 1, 2, 3, 4))
    """
    return (0,) if protocol_of(cell) == "legacy" else _SEEDS


def untrained_runs(cell: str, seed: int, *, command: str, task: LinkTask | None = None) -> list[dict[str, Any]]:
    """Return one line of results per score. Validation pairs choose the column; the test pairs are read once per score.

    Args:
        cell: a link prediction task, e.g. ``"disease/lp"``.
        seed: seed of the split, where it follows the seed.
        command: the command that the lines record.
        task: the task with raw features; None: it is loaded.

    Raises:
        FileNotFoundError: the data are not there and cannot be downloaded.
    """
    protocol = protocol_of(cell)
    if task is None:
        loaded = load_task(cell, protocol, seed=seed, features="raw")
        assert isinstance(loaded, LinkTask)
        task = loaded
    source = PairScores(task)
    return [_line(name, source, task, cell, protocol, seed, command) for name in SCORES]


def _line(
    name: str, source: PairScores, task: LinkTask, cell: str, protocol: str, seed: int, command: str
) -> dict[str, Any]:
    started = time.monotonic()
    valid = np.concatenate([task.val_edges.numpy(), task.val_negatives.numpy()], axis=1)
    test = np.concatenate([task.test_edges.numpy(), task.test_negatives.numpy()], axis=1)
    config: dict[str, Any] = {"score": name}
    score = SCORES[name]
    if score is None:
        differences = source.column_differences(valid)
        columns = [-_dense_column(differences, k) for k in range(differences.shape[1])]
        found = [_selection(_metrics(own, task.val_edges.shape[1])) for own in columns]
        chosen = int(np.argmax(found))
        validation, tested = found[chosen], source.feature_column(test, chosen)
        config |= {"features": "raw", "column": chosen, "columns": len(columns)}
    else:
        validation = _selection(_metrics(score(source, valid), task.val_edges.shape[1]))
        tested = score(source, test)
        config |= {"features": "raw"} if name.startswith("feature_") else {}
    metrics = _metrics(tested, task.test_edges.shape[1])
    return {
        "table": UNTRAINED_TABLE,
        "cell": cell,
        "method": name,
        "protocol": protocol,
        "seed": seed,
        "config": config,
        "split": None,
        "stage": "final",
        "metrics": {key: round(value, 4) for key, value in metrics.items()},
        "value": round(metrics["roc_auc"], 4),
        "validation": round(validation, 4),
        "seconds": round(time.monotonic() - started, 2),
        "command": command,
        **environment("cpu"),
    }


def _metrics(scores: Array, edges: int) -> dict[str, float]:
    """Return both metrics in percent of scores whose first ``edges`` belong to edges."""
    own = torch.from_numpy(np.ascontiguousarray(scores))
    ranked = link_scores(own[:edges], own[edges:])
    return {"roc_auc": 100 * float(roc_auc(*ranked)), "average_precision": 100 * float(average_precision(*ranked))}


def _selection(metrics: Mapping[str, float]) -> float:
    """Return what our trained runs select by, too: the mean of both metrics."""
    return (metrics["roc_auc"] + metrics["average_precision"]) / 2


# --- the best one of a cell -------------------------------------------------------------------------------------------


def best_untrained(results: Iterable[Result]) -> dict[tuple[str, str], Result]:
    """Return, by cell and protocol, the untrained score with the highest mean on validation data.

    Example:
        >>> best_untrained([])
        {}
    """
    best: dict[tuple[str, str], Result] = {}
    for one in results:
        if one.table == UNTRAINED_TABLE and one.n:
            key = one.cell, one.protocol
            if key not in best or one.validation > best[key].validation:
                best[key] = one
    return best
