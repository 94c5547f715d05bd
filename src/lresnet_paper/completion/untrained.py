"""Untrained scores of hierarchy completion: degree, gloss cosine, SVD of propagated glosses, reachability."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from lresnet_paper.completion.data import Cell, Side
from lresnet_paper.completion.evaluation import Scorer, mean_reciprocal_rank
from lresnet_paper.completion.splits import transitive_closure

__all__ = ["UNTRAINED", "UntrainedScorer", "untrained_names", "untrained_scorers"]

UNTRAINED: Mapping[str, str] = {
    "chance": "random scores",
    "degree": "max degree",
    "reachability": "following the edges",
    "gloss_cosine": "gloss cosine",
    "svd": "SVD of propagated glosses",
}
"""The untrained scores and their labels."""

_HOPS = (1, 2)  # of propagation, from which the validation pairs choose
_ROWS = 2**13  # of the dense blocks of propagated glosses


class UntrainedScorer(NamedTuple):
    """An untrained score of a cell."""

    method: str
    protocol: str
    dimension: int | None
    """Dimension of the vectors; None: there are none."""
    options: Mapping[str, Any]
    """What the validation pairs chose."""
    scorer: Scorer


def untrained_names(
    task: str, protocols: Sequence[str], dimensions: Sequence[int]
) -> list[tuple[str, str, int | None]]:
    """Return method, protocol and dimension of every untrained score of a task.

    Example:
        >>> untrained_names("leaves", ["all"], [4])
        [('chance', 'none', None), ('degree', 'none', None), ('gloss_cosine', 'all', None), ('svd', 'all', 4)]
    """
    names: list[tuple[str, str, int | None]] = [("chance", "none", None), ("degree", "none", None)]
    if task == "closure":  # held-out leaves have no edges to follow
        names.append(("reachability", "none", None))
    for protocol in protocols:
        names += [("gloss_cosine", protocol, None), *(("svd", protocol, dimension) for dimension in dimensions)]
    return names


def untrained_scorers(cell: Cell, protocols: Sequence[str], dimensions: Sequence[int]) -> Iterator[UntrainedScorer]:
    """Yield every untrained score of a cell, in the order of :func:`untrained_names`.

    Args:
        cell: the split.
        protocols: those of :data:`lresnet_paper.completion.data.PROTOCOLS` with glosses.
        dimensions: dimensions of the SVD.
    """
    features, bases = {name: cell.nouns.features(name) for name in protocols}, dict[str, dict[int, Tensor]]()
    for method, protocol, dimension in untrained_names(cell.task, protocols, dimensions):
        options: dict[str, Any] = {}
        if dimension is not None:
            if protocol not in bases:
                bases = {
                    protocol: {hops: _projected(cell, features[protocol], hops, max(dimensions)) for hops in _HOPS}
                }
            options, scorer = _best_svd(cell, bases[protocol], dimension)
        elif method == "gloss_cosine":
            scorer = _Cosine(features[protocol])
        else:
            scorer = _WITHOUT_GLOSSES[method](cell)
        yield UntrainedScorer(method, protocol, dimension, options, scorer)


class _Chance:
    """Independent uniform scores: the mean reciprocal rank of chance, with its spread."""

    def __init__(self, cell: Cell) -> None:
        self.nodes, self.generator = cell.nouns.num_nodes, torch.Generator().manual_seed(cell.seed)

    def __call__(self, queries: Tensor, side: Side) -> Tensor:
        return torch.rand(queries.numel(), self.nodes, generator=self.generator)


class _Degree:
    """The number of training pairs in which a candidate is at the ranked end; the query has no influence."""

    def __init__(self, cell: Cell) -> None:
        node, ancestor = cell.split.train
        n = cell.nouns.num_nodes
        self.count = {
            "ancestor": torch.bincount(ancestor, minlength=n).float(),
            "node": torch.bincount(node, minlength=n).float(),
        }

    def __call__(self, queries: Tensor, side: Side) -> Tensor:
        return self.count[side].expand(queries.numel(), -1)


class _Reachability:
    """1 if the usable edges lead from the node to the ancestor, otherwise 0."""

    def __init__(self, cell: Cell) -> None:
        n = cell.nouns.num_nodes
        node, ancestor = transitive_closure(cell.split.edges, n).numpy()
        above = sparse.csr_array((np.ones(node.size, dtype=np.float32), (node, ancestor)), shape=(n, n))
        self.reached = {"ancestor": above, "node": sparse.csr_array(above.T)}

    def __call__(self, queries: Tensor, side: Side) -> Tensor:
        return torch.from_numpy(self.reached[side][queries.numpy()].toarray())


class _Cosine:
    """Cosine of the weighted gloss words, the same for both ends."""

    def __init__(self, features: sparse.csr_array) -> None:
        self.rows = features.astype(np.float32)
        self.columns = sparse.csr_array(self.rows.T)

    def __call__(self, queries: Tensor, side: Side) -> Tensor:
        return torch.from_numpy((self.rows[queries.numpy()] @ self.columns).toarray())


class _Product:
    """Inner product of vectors, the same for both ends."""

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors

    def __call__(self, queries: Tensor, side: Side) -> Tensor:
        return self.vectors[queries] @ self.vectors.T


_WITHOUT_GLOSSES: Mapping[str, Callable[[Cell], Scorer]] = {
    "chance": _Chance,
    "degree": _Degree,
    "reachability": _Reachability,
}


def _best_svd(cell: Cell, bases: Mapping[int, Tensor], dimension: int) -> tuple[dict[str, Any], Scorer]:
    """Return the number of hops and the score (cosine or product) that rank the validation pairs best."""
    candidates = [{"hops": hops, "score": score} for hops in bases for score in ("cosine", "product")]

    def scorer_of(options: Mapping[str, Any]) -> Scorer:
        cut = bases[options["hops"]][:, :dimension]
        return _Product(torch.nn.functional.normalize(cut) if options["score"] == "cosine" else cut)

    values = [mean_reciprocal_rank(scorer_of(one), cell.val, cell.nouns.num_nodes) for one in candidates]
    options = candidates[int(np.argmax(values))]
    return options, scorer_of(options)


def _projected(cell: Cell, features: sparse.csr_array, hops: int, dimension: int) -> Tensor:
    r"""Return the propagated glosses in the space of their first right singular vectors, ``[n, d]``.

    The glosses are :math:`S^h X` with the symmetrically normalised matrix S of the usable edges and self loops, so that
    a node without edges keeps its own words.
    """
    n = cell.nouns.num_nodes
    row, column = cell.message_edges.numpy()
    adjacency = sparse.csr_array((np.ones(row.size), (row, column)), shape=(n, n)) + sparse.eye_array(n)
    adjacency.data[:] = 1
    root = sparse.diags_array(1 / np.sqrt(np.asarray(adjacency.sum(axis=1)).reshape(-1)))
    step = sparse.csr_array(root @ adjacency @ root).astype(np.float32)
    spread = features.astype(np.float32)
    for _ in range(hops):
        spread = step @ spread
    blocks = [slice(start, start + _ROWS) for start in range(0, n, _ROWS)]
    gram = torch.zeros(spread.shape[1], spread.shape[1], dtype=torch.float64)
    for block in blocks:
        dense = torch.from_numpy(spread[block].toarray())
        gram += (dense.T @ dense).double()
    vectors = torch.linalg.eigh(gram).eigenvectors.flip(1)[:, :dimension].float()
    return torch.cat([torch.from_numpy(spread[block] @ vectors.numpy()) for block in blocks])
