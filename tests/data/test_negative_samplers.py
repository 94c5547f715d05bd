"""Several samplers as one draw what each of them draws alone."""

from __future__ import annotations

import pytest
import torch

from lresnet.data import LinkTask, NegativeSampler, disease_tree, load_task
from lresnet.data.negatives import NegativeSamplers


def task(seed: int, nodes: int = 60) -> LinkTask:
    task = load_task("disease_tree/lp", graph=disease_tree(nodes=nodes), seed=seed)
    assert isinstance(task, LinkTask)
    return task


@pytest.mark.parametrize("splits", [(1, 1, 1), (1, 2, 3)], ids=["one split", "own splits"])
def test_each_draws_what_it_would_alone(splits):
    alone = [NegativeSampler(task(split), seed=10 + i) for i, split in enumerate(splits)]
    samplers = [NegativeSampler(task(split), seed=10 + i) for i, split in enumerate(splits)]
    together = NegativeSamplers(samplers)
    for _ in range(5):
        pairs = together()
        assert pairs.shape == (2, 3, task(1).train_edges.shape[1])
        assert torch.equal(pairs, torch.stack([sampler() for sampler in alone], dim=1))
    assert together.generators == [sampler.generator for sampler in samplers]


def test_tasks_with_different_numbers_of_free_pairs():
    """One that holds out less has more pairs to draw from: the shorter list of taken pairs is filled up."""
    full = task(1)
    half = full.test_edges.shape[1] // 2
    less = LinkTask(**vars(full) | {"test_negatives": full.test_negatives[:, :half]})
    alone, samplers = ([NegativeSampler(t, seed=3) for t in (full, less)] for _ in range(2))
    assert alone[0].allowed < alone[1].allowed
    assert torch.equal(NegativeSamplers(samplers)(), torch.stack([sampler() for sampler in alone], dim=1))


def test_tasks_of_different_sizes_are_refused():
    samplers = [NegativeSampler(task(1, nodes)) for nodes in (60, 80)]
    with pytest.raises(ValueError, match="equally many nodes and training edges are needed, got 60 and 52, 80 and 69"):
        NegativeSamplers(samplers)
