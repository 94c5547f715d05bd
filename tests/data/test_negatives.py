"""Samplers of training negatives, one and several together."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from lresnet.data import LinkTask, NegativeSampler, NegativeSamplers, disease_tree, load_task

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def _task(nodes: int = 40, seed: int = 1) -> LinkTask:
    task = load_task("disease_tree/lp", graph=disease_tree(nodes=nodes), seed=seed)
    assert isinstance(task, LinkTask)
    return task


def _pairs(*edges: Tensor) -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for part in edges for a, b in part.T.tolist()}


def _used(task: LinkTask) -> set[tuple[int, int]]:
    return _pairs(task.train_edges, task.val_edges, task.val_negatives, task.test_edges, task.test_negatives)


@pytest.mark.parametrize("device", DEVICES)
def test_allowed_pairs_are_drawn_uniformly(device: str) -> None:
    task = _task()
    sampler = NegativeSampler(task, seed=2, device=device)
    draws = 200 * sampler.allowed
    pairs, counts = sampler(draws).cpu().unique(dim=1, return_counts=True)
    assert sampler.allowed == 40 * 39 // 2 - len(_used(task)) == counts.numel()
    assert not _pairs(pairs) & _used(task)
    assert (pairs[0] < pairs[1]).all()
    chi_squared = ((counts - 200) ** 2 / 200).sum() / (counts.numel() - 1)
    assert 0.8 < chi_squared < 1.2  # four standard deviations of chi squared with 736 degrees of freedom


def test_single_allowed_pair_is_drawn() -> None:
    every = torch.combinations(torch.arange(12)).T
    left = every[:, 17]
    rest = torch.cat([every[:, :17], every[:, 18:]], dim=1)
    task = replace(
        _task(),
        x=torch.zeros(12, 1),
        num_nodes=12,
        train_edges=rest.flip(0),
        val_edges=rest[:, :1],
        test_edges=rest[:, 1:2],
        val_negatives=torch.tensor([[3], [3]]),
        test_negatives=torch.tensor([[4], [4]]),
    )
    assert torch.equal(NegativeSampler(task)(5), left[:, None].expand(2, 5))
    with pytest.raises(ValueError, match="no training negatives are left"):
        NegativeSampler(replace(task, test_negatives=left[:, None]))


def test_pairs_follow_the_seed_and_a_restored_state() -> None:
    task = _task()
    first, again, other = NegativeSampler(task, seed=1), NegativeSampler(task, seed=1), NegativeSampler(task, seed=2)
    torch.manual_seed(0)
    a = first()
    torch.manual_seed(1)
    assert torch.equal(a, again())
    assert not torch.equal(a, other())
    assert not torch.equal(a, first()), "every call draws new pairs"
    state = first.generator.get_state()
    expected = [first(7), first()]
    resumed = NegativeSampler(task, seed=99)
    resumed.generator.set_state(state)
    assert all(torch.equal(x, resumed(x.shape[1])) for x in expected)


def test_drawing_does_not_synchronise_with_the_device() -> None:
    # A fake tensor has no values, so every synchronisation fails.
    sampler = NegativeSampler(_task())
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert sampler(100).shape == (2, 100)


def test_number_of_pairs_is_that_of_the_training_edges() -> None:
    task = _task()
    assert NegativeSampler(task)().shape == task.train_edges.shape
    assert NegativeSampler(task)(3).dtype == torch.int64


@pytest.mark.parametrize("splits", [(1, 1, 1), (1, 2, 3)], ids=["one split", "own splits"])
def test_each_sampler_of_several_draws_what_it_would_draw_alone(splits: tuple[int, ...]) -> None:
    alone = [NegativeSampler(_task(60, split), seed=10 + i) for i, split in enumerate(splits)]
    samplers = [NegativeSampler(_task(60, split), seed=10 + i) for i, split in enumerate(splits)]
    together = NegativeSamplers(samplers)
    for _ in range(5):
        pairs = together()
        assert pairs.shape == (2, 3, _task(60).train_edges.shape[1])
        assert torch.equal(pairs, torch.stack([sampler() for sampler in alone], dim=1))
    assert together.generators == [sampler.generator for sampler in samplers]


def test_several_samplers_with_different_numbers_of_free_pairs() -> None:
    """A task that holds out fewer pairs has more pairs to draw from; its shorter list of taken pairs is padded."""
    full = _task(60)
    half = full.test_edges.shape[1] // 2
    less = LinkTask(**vars(full) | {"test_negatives": full.test_negatives[:, :half]})
    alone, samplers = ([NegativeSampler(t, seed=3) for t in (full, less)] for _ in range(2))
    assert alone[0].allowed < alone[1].allowed
    assert torch.equal(NegativeSamplers(samplers)(), torch.stack([sampler() for sampler in alone], dim=1))


def test_samplers_of_tasks_of_different_sizes_are_refused() -> None:
    samplers = [NegativeSampler(_task(nodes)) for nodes in (60, 80)]
    with pytest.raises(
        ValueError, match="samplers need equal numbers of nodes and of training edges, got 60 and 52, 80 and 69"
    ):
        NegativeSamplers(samplers)
