"""Samplers of training negatives: pairs of nodes without an edge, drawn on the device in every epoch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lresnet.data.pairs import PairNumbering, free_below
from lresnet.data.tasks import LinkTask

__all__ = ["NegativeSampler", "NegativeSamplers"]


class NegativeSampler:
    """Sampler of training negatives of a link prediction task, uniform and with replacement.

    It draws from all pairs i < j that are neither training edges nor evaluation pairs. Evaluation pairs are the
    validation and test edges and their negatives. The literature also trains on the evaluation negatives, which leaks
    the test set.

    The allowed pairs are numbered, not listed: a uniform number is drawn, and one binary search among the forbidden
    pairs turns it into a pair (:func:`lresnet.data.pairs.kth_free`). Nothing is rejected and drawn again, so that the
    result always has the requested size, the method works on any graph, however dense, and nothing synchronises with
    the device.

    Args:
        task: The link prediction task.
        seed: Seed of the pairs; no other random state is used.
        device: Device on which pairs are drawn; None means the device of the task's edges.

    Raises:
        ValueError: Every pair of nodes is an edge or an evaluation pair.

    Example:
        >>> from lresnet.data import load_task
        >>> task = load_task("disease_tree/lp")
        >>> sampler = NegativeSampler(task, seed=1)
        >>> sampler().shape, sampler(5).shape
        (torch.Size([2, 851]), torch.Size([2, 5]))
    """

    def __init__(self, task: LinkTask, seed: int = 0, device: torch.device | str | None = None) -> None:
        self._device = torch.device(device) if device is not None else task.train_edges.device
        self.generator = torch.Generator(self._device).manual_seed(seed)
        self._count = task.train_edges.shape[1]
        self._numbering = PairNumbering(task.num_nodes)
        used = [task.train_edges, task.val_edges, task.test_edges, task.val_negatives, task.test_negatives]
        pairs = torch.cat([part.to(self._device) for part in used], dim=1)
        forbidden = self._numbering.encode(pairs[:, pairs[0] != pairs[1]]).unique()
        self._allowed: int = self._numbering.total - forbidden.numel()
        if self._allowed == 0:
            raise ValueError(f"{task.name}: no training negatives are left; every pair of nodes is an edge or held out")
        self._free_below = free_below(forbidden)
        self._row_starts = self._numbering.row_starts(self._device)

    @property
    def allowed(self) -> int:
        """Number of pairs to draw from."""
        return self._allowed

    def __call__(self, count: int | None = None) -> Tensor:
        """Draw ``[2, count]`` pairs i < j, int64; None means as many as there are training edges."""
        size = (self._count if count is None else count,)
        k = torch.randint(self._allowed, size, generator=self.generator, device=self._device)
        return self._numbering.decode(k + torch.searchsorted(self._free_below, k, right=True), self._row_starts)


class NegativeSamplers:
    """Several samplers that draw together. Each uses its own generator and draws what it would draw alone.

    One search serves all samplers.

    Args:
        samplers: Samplers of tasks with equal numbers of nodes and of training edges, on one device. The splits may
            differ.

    Raises:
        ValueError: The numbers of nodes or of training edges differ.

    Example:
        >>> from lresnet.data import load_task
        >>> samplers = [NegativeSampler(load_task("disease_tree/lp", seed=seed), seed) for seed in (1, 2, 3)]
        >>> NegativeSamplers(samplers)().shape
        torch.Size([2, 3, 851])
    """

    def __init__(self, samplers: Sequence[NegativeSampler]) -> None:
        sizes = {(sampler._numbering.nodes, sampler._count) for sampler in samplers}
        if len(sizes) != 1:
            shown = ", ".join(f"{nodes} and {count}" for nodes, count in sorted(sizes))
            raise ValueError(f"samplers need equal numbers of nodes and of training edges, got {shown}")
        first = samplers[0]
        self._samplers, self._numbering, self._row_starts = list(samplers), first._numbering, first._row_starts
        self._shape = len(samplers), first._count
        self._free_below = first._free_below
        if not all(torch.equal(sampler._free_below, first._free_below) for sampler in samplers[1:]):
            # Padded to one length with the total number of pairs, where no search ends.
            rows = [sampler._free_below for sampler in samplers]
            self._free_below = torch.nn.utils.rnn.pad_sequence(rows, True, first._numbering.total)

    @property
    def generators(self) -> list[torch.Generator]:
        """Generators of the samplers, in order."""
        return [sampler.generator for sampler in self._samplers]

    def __call__(self) -> Tensor:
        """Draw ``[2, S, count]`` pairs i < j, int64, for S samplers; ``count`` is the number of training edges."""
        k = torch.empty(self._shape, dtype=torch.int64, device=self._row_starts.device)
        for row, sampler in zip(k, self._samplers, strict=True):
            row.random_(0, sampler._allowed, generator=sampler.generator)  # equals randint
        return self._numbering.decode(k + torch.searchsorted(self._free_below, k, right=True), self._row_starts)
