"""Training negatives: fresh pairs without an edge, every epoch, on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lresnet.data.pairs import PairNumbering, free_below
from lresnet.data.tasks import LinkTask

__all__ = ["NegativeSampler", "NegativeSamplers"]


class NegativeSampler:
    """Draws pairs that may serve as training negatives of ``task``, uniformly and with replacement.

    A pair is drawn among all i < j that are neither a training edge nor an evaluation pair: validation and test edges
    and the negatives that these are judged against. The literature trains on the latter; that teaches the test.

    The allowed pairs are never listed. They are numbered: a uniform number is drawn and one binary search among the
    forbidden pairs turns it into the pair of that number (:func:`lresnet.data.pairs.kth_free`). So there is nothing to
    reject and draw again: the result has the size asked for, is right on any graph, however dense, and nothing waits
    for the device.

    Args:
        task: the link prediction task.
        seed: the stream of pairs follows it, and nothing else does.
        device: where pairs are drawn; None: where the task's edges are.

    Raises:
        ValueError: every pair of nodes is an edge or an evaluation pair.

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
            raise ValueError(f"{task.name}: every pair of nodes is an edge or held out; no training negatives are left")
        self._free_below = free_below(forbidden)
        self._row_starts = self._numbering.row_starts(self._device)

    @property
    def allowed(self) -> int:
        """How many pairs there are to draw from."""
        return self._allowed

    def __call__(self, count: int | None = None) -> Tensor:
        """``[2, count]`` pairs i < j, int64; None: as many as there are training edges."""
        size = (self._count if count is None else count,)
        k = torch.randint(self._allowed, size, generator=self.generator, device=self._device)
        return self._numbering.decode(k + torch.searchsorted(self._free_below, k, right=True), self._row_starts)


class NegativeSamplers:
    """Several samplers as one: each draws from its own generator what it would draw alone, and one search serves all.

    Args:
        samplers: of tasks with equally many nodes and training edges, on one device; the splits may differ.

    Raises:
        ValueError: they have not.

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
            raise ValueError(f"samplers of equally many nodes and training edges are needed, got {shown}")
        first = samplers[0]
        self._samplers, self._numbering, self._row_starts = list(samplers), first._numbering, first._row_starts
        self._shape = len(samplers), first._count
        self._free_below = first._free_below
        if not all(torch.equal(sampler._free_below, first._free_below) for sampler in samplers[1:]):
            # Filled up to one length behind all pairs, where no search ends.
            rows = [sampler._free_below for sampler in samplers]
            self._free_below = torch.nn.utils.rnn.pad_sequence(rows, True, first._numbering.total)

    @property
    def generators(self) -> list[torch.Generator]:
        """One for each sampler, its own."""
        return [sampler.generator for sampler in self._samplers]

    def __call__(self) -> Tensor:
        """``[2, S, count]`` pairs i < j, int64: as many as there are training edges."""
        k = torch.empty(self._shape, dtype=torch.int64, device=self._row_starts.device)
        for row, sampler in zip(k, self._samplers, strict=True):
            row.random_(0, sampler._allowed, generator=sampler.generator)  # what randint does
        return self._numbering.decode(k + torch.searchsorted(self._free_below, k, right=True), self._row_starts)
