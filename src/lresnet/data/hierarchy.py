"""Hierarchy tasks: a taxonomy, which of its (node, ancestor) pairs are held out, and the nodes' features."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from lresnet._metric_names import require_hierarchy_metric
from lresnet.data.graph import Graph
from lresnet.data.node_features import input_features
from lresnet.data.pairs import both_directions
from lresnet.data.source import HIERARCHY_SPLITS, HierarchySplit
from lresnet.data.task_on_graph import TaskOnGraph, require_features
from lresnet.data.taxonomy import (
    Taxonomy,
    ancestor_pairs,
    cycle_in_words,
    depths,
    find_cycle,
    read_taxonomy,
    read_texts,
)
from lresnet.data.text_features import text_features

__all__ = ["HierarchyTask", "feature_tensor", "hierarchy_task"]

_SHARES = 0.05, 0.10
_FEWEST = 20  # pairs or leaves from which some can be held out
_FEW = 20  # validation pairs or leaves below which a note says that figures are rough
_ORDERED_NODES, _ORDERED_ANCESTORS = 500, 64  # nodes whose ancestors are compared, and ancestors of each
_DISTANCES = 2**22  # in memory
_MOST_SCORES = 2**28  # of a ranking of the held-out pairs, each among all nodes


@dataclass(frozen=True, eq=False, repr=False)
class HierarchyTask(TaskOnGraph):
    """Hierarchy completion: rank the ancestors of a node among all nodes.

    Args:
        name: Name of the task.
        x: Features ``[n, f]``, float32, dense or a sparse COO tensor.
        edge_index: Graph for message passing, ``[2, 2 e]``: the training edges in both directions.
        closure: All true pairs (node, ancestor), ``[2, p]``, sorted. A filtered ranking leaves them out.
        parents: Edges (child, parent), ``[2, e]``, each once, held-out ones included.
        depths: Depth of every node, ``[n]``: the edges on the shortest path to a root.
        train_pairs: Pairs (node, ancestor) to learn from, ``[2, a]``.
        val_pairs: Validation pairs, ``[2, v]``.
        test_pairs: Test pairs, ``[2, t]``.
        num_nodes: Number of nodes n.
        split: ``"closure"``: the held-out pairs are at least two edges apart, and all edges are training edges.
            ``"leaves"``: the held-out pairs are the edges of held-out leaves, of which training sees no pair.
        metric: Metric to select by and to report first, one of :data:`lresnet.metrics.HIERARCHY_METRICS`.
            ``"ordered_mrr"`` sees the order of a node's ancestors, the others do not. In ``"closure"`` it is the
            filtered mean reciprocal rank of the held-out pairs times the share of ancestors in the right order
            (:meth:`ancestors_in_order`); in ``"leaves"`` it is the mean reciprocal rank of the parents of held-out
            leaves, with the other ancestors of a leaf as competitors.
        graph: Names, edges and features of the nodes; None: nodes have numbers only.
        notes: How the task was made, one sentence each.
        edge_weight: Weights of ``edge_index``; None: all 1.
        new_term_alphas: Preferences for general nodes (alpha of :func:`lresnet.nn.ancestor_energy`) among which the
            validation pairs of ``"leaves"`` choose, to rank the parents of leaves and terms that training has not seen.

    Example:
        >>> task = hierarchy_task([(str(i), str((i - 1) // 2)) for i in range(1, 63)])
        >>> task.num_nodes, task.closure.shape, task.test_pairs.shape
        (63, torch.Size([2, 258]), torch.Size([2, 20]))
    """

    kind: ClassVar[str] = "hierarchy"

    name: str
    x: Tensor
    edge_index: Tensor
    closure: Tensor
    parents: Tensor
    depths: Tensor
    train_pairs: Tensor
    val_pairs: Tensor
    test_pairs: Tensor
    num_nodes: int
    split: HierarchySplit = "closure"
    metric: str = "ordered_mrr"
    graph: Graph | None = None
    notes: tuple[str, ...] = ()
    edge_weight: Tensor | None = None
    new_term_alphas: tuple[float, ...] = (0.5, 0.25, 0.0)

    def __post_init__(self) -> None:
        require_hierarchy_metric(self.metric)
        require_features(self.name, self.x, self.num_nodes)
        for part in ("train_pairs", "val_pairs", "test_pairs"):
            pairs: Tensor = getattr(self, part)
            if pairs.dim() != 2 or pairs.shape[0] != 2 or pairs.shape[1] == 0:
                raise ValueError(
                    f"{self.name}: {part} has shape {list(pairs.shape)}; pairs (node, ancestor) are [2, m] with m > 0"
                )

    def ancestors_in_order(self, held_out: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pairs (node, ancestor) whose order is measured, ``[2, k]``, and the steps up to the ancestor.

        In the split ``"closure"`` these are training pairs, so that nothing about held-out pairs enters: training ranks
        a held-out ancestor below the others, as it ranks all nodes that are not known to be ancestors. In ``"leaves"``
        they are all ancestors of the held-out leaves. At most 500 nodes and about 64 ancestors of each are taken, at
        even places.

        Args:
            held_out: ``val_pairs`` or ``test_pairs``.

        Returns:
            Pairs and steps, 1 for a parent, 2 for a grandparent; with several ways up, the shortest one counts.

        Example:
            >>> task = hierarchy_task([(str(i), str((i - 1) // 2)) for i in range(1, 63)])
            >>> (nodes, ancestors), steps = task.ancestors_in_order(task.val_pairs)
            >>> parents = dict(task.parents.T.tolist())
            >>> all((parents[int(a)] == int(b)) == (s == 1) for a, b, s in zip(nodes, ancestors, steps, strict=True))
            True
        """
        pairs = self.train_pairs
        if self.split == "leaves":
            pairs = self.closure[:, torch.isin(self.closure[0], held_out[0])]
        nodes = pairs[0].unique()
        nodes = nodes[:: -(-nodes.numel() // _ORDERED_NODES)]
        pairs = pairs[:, torch.isin(pairs[0], nodes)]
        steps = self._steps(pairs, nodes)
        order = torch.from_numpy(np.lexsort((steps.cpu().numpy(), pairs[0].cpu().numpy()))).to(pairs.device)
        pairs, steps = pairs[:, order], steps[order]
        _, row, count = pairs[0].unique(return_inverse=True, return_counts=True)
        place, most = torch.arange(row.numel(), device=row.device) - (count.cumsum(0) - count)[row], _ORDERED_ANCESTORS
        evenly = place * most // count[row] != (place - 1) * most // count[row]
        kept = evenly | (count[row] <= most) | (steps == 1)
        return pairs[:, kept], steps[kept]

    def _steps(self, pairs: Tensor, nodes: Tensor) -> Tensor:
        """Return the edges on the shortest way up of each pair (node, ancestor) of some sorted nodes."""
        parents = self.parents.cpu().numpy()
        upwards = sparse.csr_array((np.ones(parents.shape[1]), (parents[0], parents[1])), shape=(self.num_nodes,) * 2)
        place, above = (
            torch.searchsorted(nodes.contiguous(), pairs[0].contiguous()).cpu().numpy(),
            pairs[1].cpu().numpy(),
        )
        steps, rows = np.empty(place.size, dtype=np.int64), max(1, _DISTANCES // self.num_nodes)
        for start in range(0, nodes.numel(), rows):
            some = nodes[start : start + rows].cpu().numpy()
            hops = csgraph.dijkstra(upwards, indices=some, unweighted=True)
            here = (place >= start) & (place < start + rows)
            steps[here] = hops[place[here] - start, above[here]]
        return torch.from_numpy(steps).to(pairs.device)


def hierarchy_task(
    source: Taxonomy | Sequence[tuple[str, str]] | str | os.PathLike[str],
    *,
    name: str | None = None,
    split: HierarchySplit | None = None,
    seed: int = 0,
    validation: float = _SHARES[0],
    test: float = _SHARES[1],
    metric: str = "ordered_mrr",
    node_features: str | os.PathLike[str] | None = None,
) -> HierarchyTask:
    """Return hierarchy completion on a taxonomy: held-out ancestors are to be ranked above all other nodes.

    Args:
        source: A :class:`~lresnet.data.Taxonomy`, pairs (child, parent) of names, or a file that
            :func:`lresnet.data.read_taxonomy` reads.
        name: Name of the task. None: the name of the taxonomy and ``/hierarchy``.
        split: ``"closure"``: hold out pairs (node, ancestor) that are at least two edges apart; all edges stay in the
            training graph, so every node keeps its place in it. ``"leaves"``: hold out leaves with all their edges, to
            rank parents for new terms; the features have to tell where they belong. None: ``"leaves"`` if the features
            are texts or names, otherwise ``"closure"``.
        seed: Seed of the split.
        validation: Share of the pairs or leaves held out for validation. A taxonomy of more than about 50,000 nodes has
            fewer: at most 2^28 / n, because each is ranked among all n nodes.
        test: Share held out for test; the same limit holds.
        metric: Metric to select by and to report first, see :class:`~lresnet.data.HierarchyTask`.
        node_features: ``"learned"``: a learned point per node. ``"structural"``: degrees, clustering, PageRank in the
            training graph. ``"names"``: hashed words and letters of the names. ``"own"``: those of the texts and names.
            Or a file with rows ``name,text``, whose texts are used so. None: ``"own"`` if the taxonomy has texts,
            otherwise ``"learned"``.

    Raises:
        ValueError: The taxonomy is too small or too flat to hold pairs out, a share is wrong, or a name is unknown.

    Example:
        >>> task = hierarchy_task([(f"{i} kind", f"{(i - 1) // 3} kind") for i in range(1, 120)], node_features="names")
        >>> task.split, task.x.shape[0]
        ('leaves', 120)
    """
    taxonomy = _taxonomy(source)
    kind = "own" if taxonomy.texts is not None else "learned"
    if node_features in ("own", "learned", "structural", "names"):
        kind = str(node_features)
    elif node_features is not None:
        texts = read_texts(Path(node_features), taxonomy.names)
        taxonomy, kind = replace(taxonomy, texts=texts), "own"
    if kind == "own" and taxonomy.texts is None:
        raise ValueError(f"{taxonomy.name} has no texts; give a third column, a file name,text, or names")
    chosen = split or ("leaves" if kind in ("own", "names") else "closure")
    if chosen not in HIERARCHY_SPLITS:
        raise ValueError(f"unknown split {split!r} of a taxonomy; choose {' or '.join(HIERARCHY_SPLITS)}")
    if not (0 < validation < 1 and 0 < test < 1 and validation + test < 1):
        raise ValueError(
            f"validation and test must be shares above 0 that sum to less than 1, got {validation}, {test}"
        )
    n = len(taxonomy.names)
    pairs = ancestor_pairs(taxonomy)
    edges = taxonomy.edges[:, np.lexsort(taxonomy.edges[::-1])]
    parts = (_hold_out_pairs if chosen == "closure" else _hold_out_leaves)(
        taxonomy.name, pairs, edges, n, seed, validation, test
    )
    edge_index = both_directions(torch.from_numpy(np.sort(parts.edges, axis=0)), n)
    features = None
    if kind in ("own", "names"):
        words = taxonomy.names if kind == "names" or taxonomy.texts is None else _joined(taxonomy)
        features = text_features(words)
    graph = Graph.checked(taxonomy.name, features, edges, names=taxonomy.names, num_nodes=n, directed=True)
    if features is None:
        x, note = input_features(graph, edge_index, kind)  # type: ignore[arg-type]
    else:
        x = feature_tensor(features)
        note = f"Features: hashed words and letters of the {'names' if kind == 'names' else 'names and texts'}."
        if kind == "own" and node_features not in (None, "own"):
            assert taxonomy.texts is not None
            note = f"Texts: {sum(map(bool, taxonomy.texts)):,} of {n:,} names have one. {note}"
    if chosen == "leaves" and features is None:
        note += " Nothing tells where a held-out leaf belongs: use texts, --node-features names or the split closure."
    return HierarchyTask(
        name=name or f"{taxonomy.name}/hierarchy",
        x=x,
        edge_index=edge_index,
        closure=torch.from_numpy(pairs),
        parents=torch.from_numpy(np.ascontiguousarray(edges)),
        depths=torch.from_numpy(depths(taxonomy)),
        train_pairs=torch.from_numpy(parts.train),
        val_pairs=torch.from_numpy(parts.validation),
        test_pairs=torch.from_numpy(parts.test),
        num_nodes=n,
        split=chosen,
        metric=metric,
        graph=graph,
        notes=(*taxonomy.notes, parts.note, note.replace("The graph", "The taxonomy")),
    )


def _taxonomy(source: Taxonomy | Sequence[tuple[str, str]] | str | os.PathLike[str]) -> Taxonomy:
    if isinstance(source, Taxonomy):
        return source
    if isinstance(source, str | os.PathLike):
        return read_taxonomy(Path(source))
    number: dict[str, int] = {}
    pairs = {(number.setdefault(str(a), len(number)), number.setdefault(str(b), len(number))) for a, b in source}
    if not pairs:
        raise ValueError("there are no pairs (child, parent); a taxonomy needs at least one")
    taxonomy = Taxonomy("taxonomy", tuple(number), np.array(sorted(pairs), dtype=np.int64).T.copy())
    cycle = find_cycle(taxonomy.edges, len(taxonomy.names))
    if cycle:
        words = cycle_in_words(cycle, taxonomy.names)
        raise ValueError(f"the parents form a cycle: {words}; remove one of these pairs (child, parent)")
    return taxonomy


def _joined(taxonomy: Taxonomy) -> list[str]:
    assert taxonomy.texts is not None
    return [f"{name} {text}" for name, text in zip(taxonomy.names, taxonomy.texts, strict=True)]


def feature_tensor(features: sparse.csr_array) -> Tensor:
    """Return sparse features as the input of a model, a sparse COO tensor in float32."""
    coo = features.tocoo()
    index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    with torch.sparse.check_sparse_tensor_invariants():
        return torch.sparse_coo_tensor(
            index, torch.from_numpy(coo.data.astype(np.float32)), features.shape, is_coalesced=True
        )


@dataclass(frozen=True)
class _Parts:
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    edges: NDArray[np.int64]
    """Edges of the training graph."""
    note: str


def _held_out(share: float, count: int, nodes: int) -> int:
    """Return how many pairs or leaves to hold out: a share, but not more than can be ranked in a short time."""
    return max(1, min(round(share * count), _MOST_SCORES // nodes))


def _few(validation: int) -> str:
    return f" Figures on so few ({validation}) are rough." if validation < _FEW else ""


def _hold_out_pairs(
    name: str, pairs: NDArray[np.int64], edges: NDArray[np.int64], n: int, seed: int, validation: float, test: float
) -> _Parts:
    """Hold out pairs of the closure that are no edges."""
    far = np.flatnonzero(~np.isin(pairs[0] * n + pairs[1], edges[0] * n + edges[1]))
    if far.size < _FEWEST:
        count = "1 pair" if far.size == 1 else f"{far.size} pairs"
        has_leaves = np.setdiff1d(edges[0], edges[1]).size >= _FEWEST
        other = "; or hold out leaves, e.g. with --node-features names" if has_leaves else ""
        raise ValueError(
            f"{name} has {count} of a node and an ancestor that is not its parent; at least {_FEWEST} are needed to "
            f"hold some out: add {'levels' if has_leaves else 'names and levels'}{other}"
        )
    order = np.random.default_rng(seed).permutation(far)
    v, t = (_held_out(share, far.size, n) for share in (validation, test))
    held = order[:v], order[v : v + t]
    rest = np.setdiff1d(np.arange(pairs.shape[1]), np.concatenate(held))
    note = (
        f"Split closure, seed {seed}: of {far.size:,} pairs of a node and an ancestor beyond its parents, {v:,} are "
        f"held out for validation and {t:,} for test; all edges are training edges."
    )
    note += _few(v)
    return _Parts(pairs[:, rest], pairs[:, np.sort(held[0])], pairs[:, np.sort(held[1])], edges, note)


def _hold_out_leaves(
    name: str, pairs: NDArray[np.int64], edges: NDArray[np.int64], n: int, seed: int, validation: float, test: float
) -> _Parts:
    """Hold out leaves; one child of every parent stays, so that no parent of a held-out leaf is unknown."""
    leaves = np.setdiff1d(edges[0], edges[1])
    order = np.random.default_rng(seed).permutation(leaves)
    v, t = (_held_out(share, leaves.size, n) for share in (validation, test))
    children, chosen = np.bincount(edges[1], minlength=n), list[int]()
    parents: dict[int, list[int]] = {}
    for child, parent in edges.T.tolist():
        parents.setdefault(child, []).append(parent)
    for leaf in order.tolist():
        if len(chosen) == v + t:
            break
        if all(children[parent] > 1 for parent in parents[leaf]):
            children[parents[leaf]] -= 1
            chosen.append(leaf)
    if leaves.size < _FEWEST:
        count = "1 leaf" if leaves.size == 1 else f"{leaves.size} leaves"
        raise ValueError(f"{name} has {count}; at least {_FEWEST} are needed to hold some out")
    if len(chosen) < 2:
        raise ValueError(
            f"{name} has {leaves.size} leaves, but {len(chosen)} can be held out, since one child of every parent "
            "stays; at least 2 are needed: add children to the parents, or use the split closure"
        )
    v = min(v, len(chosen) // 2)
    held = np.array(chosen[:v]), np.array(chosen[v:])
    seen = ~np.isin(edges[0], np.concatenate(held))
    note = (
        f"Split leaves, seed {seed}: of {leaves.size:,} leaves, {held[0].size:,} are held out for validation and "
        f"{held[1].size:,} for test, with all their edges; one child of every parent stays."
    )
    note += _few(held[0].size)
    return _Parts(
        pairs[:, ~np.isin(pairs[0], np.concatenate(held))],
        edges[:, np.isin(edges[0], held[0])],
        edges[:, np.isin(edges[0], held[1])],
        edges[:, seen],
        note,
    )
