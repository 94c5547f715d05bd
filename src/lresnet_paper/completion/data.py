"""WordNet's noun hierarchy with its glosses, the splits of the study, and the candidates of sampled rankings."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lresnet.data.files import source_files
from lresnet.data.formats.arrays import read_arrays, sparse_matrix
from lresnet.data.graphs import wordnet
from lresnet_paper.completion.splits import (
    HeldOutPairs,
    held_out_closure,
    held_out_leaves,
    subtree,
    transitive_closure,
)

__all__ = [
    "NEGATIVE_KINDS",
    "PROTOCOLS",
    "TASKS",
    "Cell",
    "Nouns",
    "Queries",
    "load_nouns",
    "make_cell",
    "noun_subtree",
    "sampled_negatives",
]

TASKS = ("leaves", "closure")
"""The two tasks: (A) parents of held-out leaves, (B) held-out pairs of the transitive closure."""

PROTOCOLS = ("none", "all", "without_ancestors")
"""Gloss words that a method reads: none, all, or those that are in no name of the node's ancestors."""

NEGATIVE_KINDS = ("degree_matched", "same_file")
"""Candidates of the sampled rankings: of similar degree, or of the same lexicographer file, as the true answer."""

NUM_NEGATIVES = 100
_DEGREE_WINDOW = 200  # candidates on either side, in the order of degrees, from which matched ones are drawn
_REDRAWS = 20

Side = str
"""Which end of a pair is ranked: ``"ancestor"`` or ``"node"``."""


@dataclass(frozen=True, eq=False)
class Nouns:
    """A hierarchy of synsets.

    Args:
        name: Name of the hierarchy, e.g. ``"wordnet"``.
        edges: Pairs (synset, hypernym) ``[2, e]``.
        names: First word of each synset, words joined by ``_``.
        files: Lexicographer file of each synset ``[n]``.
        glosses: Counts of gloss words ``[n, f]``.
        vocabulary: The gloss words ``[f]``.
    """

    name: str
    edges: Tensor
    names: Sequence[str]
    files: NDArray[np.int64]
    glosses: sparse.csr_array
    vocabulary: Sequence[str]

    @property
    def num_nodes(self) -> int:
        """Number of synsets."""
        return len(self.names)

    @functools.cached_property
    def closure(self) -> Tensor:
        """All pairs (synset, ancestor) ``[2, p]``, sorted."""
        return transitive_closure(self.edges, self.num_nodes)

    def features(self, protocol: str) -> sparse.csr_array:
        """Return the gloss words of a protocol, weighted by inverse document frequency, in rows of length 1 or 0.

        The words left out by ``"without_ancestors"`` are found with the true ancestors, also of held-out nodes: this is
        a control, and not a procedure for new terms.
        """
        counts = self.glosses if protocol == "all" else self._without_ancestor_names
        present = np.bincount(counts.indices, minlength=counts.shape[1])
        weighted = counts @ sparse.diags_array(np.log((1 + self.num_nodes) / (1 + present)))
        length = np.sqrt(np.asarray(weighted.power(2).sum(axis=1)).reshape(-1))
        return sparse.csr_array(sparse.diags_array(1 / np.where(length > 0, length, 1.0)) @ weighted)

    @functools.cached_property
    def _without_ancestor_names(self) -> sparse.csr_array:
        column = {word: number for number, word in enumerate(self.vocabulary)}
        named = [
            (node, column[token])
            for node, name in enumerate(self.names)
            for token in dict.fromkeys(name.lower().split("_"))
            if token in column
        ]
        shape = (self.num_nodes, len(self.vocabulary))
        rows, columns = np.array(named, dtype=np.int64).reshape(-1, 2).T
        own = sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=shape)
        node, ancestor = self.closure.numpy()
        above = sparse.csr_array((np.ones(node.size), (node, ancestor)), shape=(self.num_nodes, self.num_nodes))
        used = self.glosses.multiply((above @ own) > 0)
        left = sparse.csr_array(self.glosses - used)
        left.eliminate_zeros()
        return left


def load_nouns() -> Nouns:
    """Return the noun hierarchy of WordNet 3.1: 82,192 synsets, 84,505 hypernyms, one root.

    Raises:
        FileNotFoundError: the file is under no data root; it is not published.
    """
    (path,) = source_files(wordnet.SOURCE).values()
    arrays = read_arrays(
        path,
        "noun_hypernym", "y", "x_data", "x_indices", "x_indptr", "x_shape", "synset_first_word", "gloss_vocab",
    )  # fmt: skip
    edges = torch.from_numpy(arrays["noun_hypernym"].astype(np.int64))
    nodes = int(edges.max()) + 1  # the nouns are the first synsets
    glosses = sparse_matrix({key: arrays[f"x_{key}"] for key in ("data", "indices", "indptr", "shape")})
    return Nouns(
        name="wordnet",
        edges=edges,
        names=arrays["synset_first_word"][:nodes].tolist(),
        files=arrays["y"][:nodes].astype(np.int64),
        glosses=sparse.csr_array(glosses[:nodes].astype(np.float64)),
        vocabulary=arrays["gloss_vocab"].tolist(),
    )


def noun_subtree(nouns: Nouns, name: str) -> Nouns:
    """Return a synset and its descendants; of several synsets of that name, the one with the most descendants.

    Raises:
        ValueError: no synset has the name.
    """
    numbers = [number for number, own in enumerate(nouns.names) if own == name]
    if not numbers:
        raise ValueError(f"no noun of WordNet has the first word {name!r}")
    descendants = torch.bincount(nouns.closure[1], minlength=nouns.num_nodes)
    root = max(numbers, key=lambda number: int(descendants[number]))
    kept, edges = subtree(nouns.edges, nouns.num_nodes, root)
    return Nouns(
        name=f"{nouns.name}:{name}",
        edges=edges,
        names=[nouns.names[number] for number in kept.tolist()],
        files=nouns.files[kept.numpy()],
        glosses=sparse.csr_array(nouns.glosses[kept.numpy()]),
        vocabulary=nouns.vocabulary,
    )


# --- one split of one task --------------------------------------------------------------------------------------------


class Queries(NamedTuple):
    """Pairs to rank, with one end of them as the query.

    Args:
        side: The end that is ranked.
        answers: Pairs (query, true candidate) ``[2, m]``.
        known: All true pairs (query, candidate), which a filtered ranking leaves out.
        negatives: By kind, candidates of a sampled ranking ``[m, 100]``; -1 where no candidate was found.
    """

    side: Side
    answers: Tensor
    known: Tensor
    negatives: Mapping[str, Tensor]

    def to(self, device: str) -> Queries:
        """Return the queries with their tensors on ``device``."""
        moved = {kind: own.to(device) for kind, own in self.negatives.items()}
        return Queries(self.side, self.answers.to(device), self.known.to(device), moved)


@dataclass(frozen=True, eq=False)
class Cell:
    """One split of one task: what methods learn from, and what they rank.

    Args:
        nouns: The hierarchy.
        task: One of :data:`TASKS`.
        seed: Seed of the split.
        split: The split.
        val: Validation queries, one entry for each ranked end.
        test: Test queries.
    """

    nouns: Nouns
    task: str
    seed: int
    split: HeldOutPairs
    val: Sequence[Queries]
    test: Sequence[Queries]

    @property
    def name(self) -> str:
        """Name of the cell in lines of results, e.g. ``"wordnet/leaves"``."""
        return f"{self.nouns.name}/{self.task}"

    @property
    def sides(self) -> tuple[Side, ...]:
        """The ends that are ranked."""
        return tuple(one.side for one in self.test)

    def to(self, device: str) -> Cell:
        """Return the cell with its tensors on ``device``."""
        if device == "cpu":
            return self
        split = HeldOutPairs(*(pairs.to(device) for pairs in self.split))
        parts = ([one.to(device) for one in part] for part in (self.val, self.test))
        return Cell(self.nouns, self.task, self.seed, split, *parts)

    @functools.cached_property
    def message_edges(self) -> Tensor:
        """The usable edges in both directions, ``[2, 2e]``."""
        return torch.cat([self.split.edges, self.split.edges.flip(0)], dim=1)


def make_cell(
    nouns: Nouns, task: str, seed: int, settings: Mapping[str, Any], *, validation: float = 0.05, test: float = 0.1
) -> Cell:
    """Return a split with its queries; everything follows from the seed.

    Args:
        nouns: The hierarchy.
        task: One of :data:`TASKS`.
        seed: Seed of the split and of the sampled negatives.
        settings: The plan's ``evaluation``: at most ``validation_pairs`` and ``test_pairs`` are ranked, drawn at
            random.
        validation: share of the leaves, or of the closure's other pairs, held out for validation.
        test: share held out for test.
    """
    hold_out = held_out_leaves if task == "leaves" else held_out_closure
    split = hold_out(nouns.edges, nouns.num_nodes, seed, validation, test)
    rng = np.random.Generator(np.random.PCG64([seed, TASKS.index(task)]))
    parts = []
    for pairs, most in ((split.val, settings["validation_pairs"]), (split.test, settings["test_pairs"])):
        chosen = np.sort(rng.permutation(pairs.shape[1])[:most])
        drawn = pairs[:, torch.from_numpy(chosen)]
        parts.append([_queries(nouns, split, drawn, side, rng) for side in _sides(task)])
    return Cell(nouns, task, seed, split, *parts)


def _sides(task: str) -> tuple[Side, ...]:
    return ("ancestor",) if task == "leaves" else ("ancestor", "node")


def _queries(nouns: Nouns, split: HeldOutPairs, pairs: Tensor, side: Side, rng: np.random.Generator) -> Queries:
    answers, known = (pairs, split.known) if side == "ancestor" else (pairs.flip(0), split.known.flip(0))
    degree = np.bincount(split.train.numpy().reshape(-1), minlength=nouns.num_nodes)
    negatives = {
        kind: sampled_negatives(answers, known, degree if kind == "degree_matched" else nouns.files, kind, rng)
        for kind in NEGATIVE_KINDS
    }
    return Queries(side, answers, known, negatives)


def sampled_negatives(
    answers: Tensor, known: Tensor, values: NDArray[np.int64], kind: str, rng: np.random.Generator
) -> Tensor:
    """Draw candidates that resemble the true ones and are wrong, ``[m, 100]``, with replacement.

    Args:
        answers: Pairs (query, true candidate) ``[2, m]``.
        known: All true pairs (query, candidate).
        values: What must be similar ``[n]``: training degrees or lexicographer files.
        kind: ``"same_file"``: of equal value; ``"degree_matched"``: among the 400 candidates nearest in the order of
            values.
        rng: Random generator.

    Returns:
        Numbers of candidates; -1 where 20 draws found true candidates only.
    """
    n, m = values.size, answers.shape[1]
    order = np.lexsort((rng.random(n), values))  # equal values in random order
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    query, true = answers.numpy()
    if kind == "same_file":
        ordered = values[order]
        low, high = (np.searchsorted(ordered, values[true], side=side) for side in ("left", "right"))
    else:
        low = np.clip(place[true] - _DEGREE_WINDOW, 0, None)
        high = np.clip(place[true] + _DEGREE_WINDOW + 1, None, n)
    taken = np.sort(known.numpy()[0] * n + known.numpy()[1])

    def is_wrong(drawn: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        code = query[rows] * n + drawn
        found = np.clip(np.searchsorted(taken, code), 0, taken.size - 1)
        return np.asarray((taken[found] != code) & (drawn != query[rows]))

    drawn = np.full((m, NUM_NEGATIVES), -1, dtype=np.int64)
    for _ in range(_REDRAWS):
        rows, columns = (drawn < 0).nonzero()
        if rows.size == 0:
            break
        fresh = order[rng.integers(low[rows], high[rows])]
        good = is_wrong(fresh, rows)
        drawn[rows[good], columns[good]] = fresh[good]
    return torch.from_numpy(drawn)
