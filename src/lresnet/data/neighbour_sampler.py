"""Neighbour sampling in plain NumPy for PyG's ``NodeLoader`` and ``LinkLoader``, which need no pyg-lib with it.

Every node's neighbours are drawn uniformly and without replacement. The draw is a function of one key per batch and of
the node's number alone. Two processes that sample different seeds of one batch therefore draw the same neighbours for
the nodes they share, and a batch can be drawn again, earlier or in another thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch_geometric.typing
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NeighborSampler,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["ALL", "NeighbourSampler", "make_sampler", "mixed"]

ALL = -1
"""In place of a number of neighbours: all of them."""

# SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter times the golden ratio, then a bijective mix of the 64 bits.
_WORD, _GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15
_MULTIPLIERS, _SHIFTS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), (30, 27, 31)


class NeighbourSampler(BaseSampler):  # type: ignore[misc]
    r"""Sampler of the incoming edges of seed nodes, of their sources' incoming edges, and so on, one hop per layer.

    A node of in-degree d that asks for k neighbours gets all of them if :math:`d \le k`; otherwise each of the
    :math:`\binom dk` subsets has the same probability (Floyd's algorithm, vectorised over the nodes; a draw below d is
    uniform up to d / 2^64). A node that is reached more than once is sampled once, at its first hop. Time and memory
    depend on the size of the sample and not on that of the graph.

    The result has the form of PyG's ``NeighborSampler(subgraph_type="directional", disjoint=False)``: the seeds come
    first, then the nodes in the order of their hops; edges are ordered by target, and so by hop too.

    Args:
        edge_index: Edges (source, target), int64 ``[2, E]``. The order is free; edges sorted by target need no copy of
            the order.
        num_nodes: Number of nodes.
        neighbours: Number of neighbours per node for every hop, the hop next to the seeds first; :data:`ALL` (-1) takes
            all.
        seed: Seed of :attr:`generator`, from which every call draws its key. No other random state is used, except in
            the worker processes of a ``DataLoader``, which add their own seed: they hold copies of the generator.

    Raises:
        ValueError: An edge leads to a node that does not exist, or a number of neighbours is neither positive nor -1.

    Example:
        >>> path = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> sampler = NeighbourSampler(path, num_nodes=4, neighbours=[1, 1])
        >>> out = sampler.sample(torch.tensor([3]), key=0)
        >>> out.node, out.row, out.col
        (tensor([3, 2, 1]), tensor([1, 2]), tensor([0, 1]))
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, neighbours: Sequence[int], seed: int = 0) -> None:
        _require_edges(edge_index, num_nodes)
        self.neighbours = _checked_neighbours(neighbours)
        self.num_nodes, self.generator = num_nodes, torch.Generator().manual_seed(seed)
        source, target = edge_index.cpu()
        self._permutation: Tensor | None = None
        if bool((target[1:] < target[:-1]).any()):
            target, self._permutation = torch.sort(target, stable=True)
            source = source[self._permutation]
        counts = torch.bincount(target, minlength=num_nodes)
        self._starts: NDArray[np.int64] = np.concatenate([[0], counts.cumsum(0).numpy()])
        narrow = torch.int32 if num_nodes < 2**31 else torch.int64  # sampling reads hardly anything but indices
        self._sources: NDArray[Any] = source.to(narrow).numpy()

    @property
    def edge_permutation(self) -> Tensor | None:
        """Number of each sampled edge in ``edge_index``, for the entries of ``SamplerOutput.edge``; None: the same."""
        return self._permutation

    def degrees(self, nodes: Tensor) -> Tensor:
        """Return the in-degrees of ``nodes`` ``[m]``, int64."""
        index = nodes.numpy()
        return torch.from_numpy(self._starts[index + 1] - self._starts[index])

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        """Sample around seed nodes, for ``NodeLoader``."""
        return node_sample(index, self._sample)

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput:
        """Sample around the ends of seed edges, for ``LinkLoader``.

        Negatives are PyG's: uniform or weighted ends, which may form an edge by chance. Training with
        :func:`lresnet.fit` draws exact ones instead, see :class:`lresnet.data.NegativeSampler`.
        """
        negatives = None if neg_sampling is None else _SeededNegatives(neg_sampling, self._next_key())
        return edge_sample(index, self._sample, self.num_nodes, disjoint=False, neg_sampling=negatives)

    def sample(self, seeds: Tensor, key: int, neighbours: Sequence[int] | None = None) -> SamplerOutput:
        """Return the subgraph around ``seeds``, a function of its arguments.

        Args:
            seeds: Nodes ``[m]``, int64. A node that occurs twice is sampled twice, in the same way.
            key: Any whole number; another key gives other neighbours.
            neighbours: Number of neighbours for every hop; None: those of the sampler.
        """
        _require_nodes(seeds, self.num_nodes)
        fanouts = self.neighbours if neighbours is None else _checked_neighbours(neighbours)
        frontier: NDArray[np.int64] = seeds.cpu().numpy()
        known, place = np.unique(frontier, return_index=True)  # sorted nodes, and their numbers in the subgraph
        total, start = len(frontier), 0
        nodes, rows, cols, edges = [frontier], [], [], []
        for fanout in fanouts:
            counts, edge = self._draw(frontier, fanout, key)
            found, inverse = np.unique(self._sources[edge], return_inverse=True)
            at = np.minimum(np.searchsorted(known, found), len(known) - 1)
            is_new = known[at] != found if len(known) else np.ones(len(found), dtype=bool)
            fresh = found[is_new].astype(np.int64)
            local = np.empty(len(found), dtype=np.int64)
            local[~is_new], local[is_new] = place[at[~is_new]], np.arange(total, total + len(fresh))
            nodes.append(fresh)
            edges.append(edge)
            rows.append(local[inverse])
            cols.append(np.repeat(np.arange(start, start + len(frontier)), counts))
            known, place = np.concatenate([known, fresh]), np.concatenate([place, local[is_new]])
            order = np.argsort(known, kind="stable")
            known, place = known[order], place[order]
            frontier, start, total = fresh, total, total + len(fresh)
        return SamplerOutput(
            node=torch.from_numpy(np.concatenate(nodes)),
            row=torch.from_numpy(np.concatenate(rows)),
            col=torch.from_numpy(np.concatenate(cols)),
            edge=torch.from_numpy(np.concatenate(edges)),
            batch=None,
            num_sampled_nodes=[len(part) for part in nodes],
            num_sampled_edges=[len(part) for part in edges],
        )

    def _draw(self, nodes: NDArray[np.int64], fanout: int, key: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many edges each node gets, and these edges in the order of the nodes."""
        first = self._starts[nodes]
        degrees = self._starts[nodes + 1] - first
        counts = degrees if fanout == ALL else np.minimum(degrees, fanout)
        ends = np.cumsum(counts)
        edges = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - counts), counts)
        large = np.flatnonzero(degrees > counts)
        if len(large):
            chosen = _subsets(degrees[large], fanout, _streams(nodes[large], key))
            slots = (ends - counts)[large] + np.arange(fanout)[:, None]
            edges[slots] = first[large] + chosen
        return counts, edges

    def _sample(self, seed: Tensor, _: Any = None) -> SamplerOutput:
        return self.sample(seed, self._next_key())

    def _next_key(self) -> int:
        key = int(torch.randint(2**63 - 1, (), generator=self.generator))
        worker = torch.utils.data.get_worker_info()
        return key if worker is None else mixed(key, worker.seed)


def make_sampler(data: Data, neighbours: Sequence[int], seed: int = 0) -> BaseSampler:
    """Return a sampler for PyG's loaders: PyG's own where pyg-lib is installed, else :class:`NeighbourSampler`.

    PyG's own sampler draws from torch's global generator and ignores ``seed``. :func:`lresnet.fit` always uses
    :class:`NeighbourSampler`, because a resumed run must draw what the interrupted one would have drawn.

    Args:
        data: The graph.
        neighbours: Number of neighbours for every hop; -1 takes all.
        seed: Seed of :class:`NeighbourSampler`.

    Example:
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.loader import NodeLoader
        >>> data = Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> loader = NodeLoader(data, make_sampler(data, [2, 2]), input_nodes=torch.tensor([0, 2]), batch_size=2)
        >>> next(iter(loader)).num_nodes
        3
    """
    if torch_geometric.typing.WITH_PYG_LIB:
        return NeighborSampler(data, list(_checked_neighbours(neighbours)))
    return NeighbourSampler(data.edge_index, data.num_nodes, neighbours, seed)


def mixed(*numbers: int) -> int:
    """Return a hash of whole numbers, 64 bits: the key of one step from the seed, the epoch and the step.

    Example:
        >>> mixed(0, 1) != mixed(1, 0)
        True
    """
    state = 0
    for number in numbers:
        state = _mix_number((state + number + _GOLDEN) & _WORD)
    return state


def _mix_number(z: int) -> int:
    for shift, multiplier in zip(_SHIFTS, _MULTIPLIERS, strict=False):
        z = ((z ^ (z >> shift)) * multiplier) & _WORD
    return z ^ (z >> _SHIFTS[-1])


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, multiplier in zip(_SHIFTS, _MULTIPLIERS, strict=False):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(multiplier)
    return z ^ (z >> np.uint64(_SHIFTS[-1]))


def _streams(nodes: NDArray[np.int64], key: int) -> NDArray[np.uint64]:
    """Return the start of each node's stream of random numbers."""
    return _mix(nodes.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(mixed(key)))


def _subsets(sizes: NDArray[np.int64], count: int, streams: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return ``count`` distinct numbers below each of ``sizes``, ``[count, m]``; every subset is equally likely.

    Floyd's algorithm: number j is drawn from the first ``size - count + j + 1`` numbers, and replaced by the last of
    them if it was drawn before.
    """
    chosen = np.empty((count, len(sizes)), dtype=np.int64)
    for j in range(count):
        last = sizes - count + j
        state = streams + np.uint64((j + 1) * _GOLDEN & _WORD)
        drawn = (_mix(state) % (last + 1).astype(np.uint64)).astype(np.int64)
        chosen[j] = np.where((chosen[:j] == drawn).any(axis=0), last, drawn)
    return chosen


class _SeededNegatives(NegativeSampling):  # type: ignore[misc]
    """PyG's configuration of negatives, which draws from a generator of its own in place of torch's global one."""

    def __init__(self, config: NegativeSampling, seed: int) -> None:
        super().__init__(config.mode, config.amount, config.src_weight, config.dst_weight)
        self._generator = torch.Generator().manual_seed(seed)

    def sample(self, num_samples: int, endpoint: str, num_nodes: int | None = None) -> Tensor:
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        if weight is None:
            return torch.randint(num_nodes or 0, (num_samples,), generator=self._generator)
        return torch.multinomial(weight, num_samples, replacement=True, generator=self._generator)


def _checked_neighbours(neighbours: Sequence[int]) -> tuple[int, ...]:
    for number in neighbours:
        if number < 1 and number != ALL:
            raise ValueError(f"neighbours must be at least 1, or -1 for all, got {number} in {list(neighbours)}")
    if not neighbours:
        raise ValueError("neighbours must have one number for every hop, got none")
    return tuple(neighbours)


def _require_edges(edge_index: Tensor, num_nodes: int) -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
        raise ValueError(f"edge_index must be int64 [2, E], got {edge_index.dtype} of shape {list(edge_index.shape)}")
    _require_nodes(edge_index, num_nodes)


def _require_nodes(nodes: Tensor, num_nodes: int) -> None:
    if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
        wrong = int(nodes.min()) if int(nodes.min()) < 0 else int(nodes.max())
        raise ValueError(f"there is no node {wrong}; the nodes are 0 to {num_nodes - 1}")
