"""Splits of edges and nodes, and the replay of a legacy shuffle."""

import hashlib
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lresnet.data import disease_tree
from lresnet.data.pairs import undirected
from lresnet.data.splits import (
    NodeSplit,
    class_random_nodes,
    disjoint_edges,
    disjoint_nodes,
    fresh_nodes,
    front_of_shuffle,
    legacy_edges,
    legacy_nodes,
)


def _pairs(edges: Tensor) -> list[tuple[int, int]]:
    return [(a, b) for a, b in edges.T.tolist()]


def _digest(split: NodeSplit) -> str:
    return hashlib.sha256(b"".join(part.numpy().astype("<i8").tobytes() for part in split)).hexdigest()[:16]


def _random_graph(nodes: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return undirected(torch.randint(nodes, (2, 3 * nodes), generator=generator), nodes)


@pytest.mark.parametrize("nodes", [20, 83])
def test_legacy_edges_equal_the_rule_that_lists_all_pairs(nodes: int) -> None:
    edges = _random_graph(nodes, seed=nodes)  # with self loops, as in airport
    known = set(_pairs(edges))
    everything = combinations_with_replacement(range(nodes), 2)
    rng = np.random.RandomState(1234)
    positive = np.array(_pairs(edges))
    rng.shuffle(positive)
    negative = np.array([pair for pair in everything if pair not in known])
    rng.shuffle(negative)
    val, test = int(len(positive) * 0.05), int(len(positive) * 0.1)
    split = legacy_edges(edges, nodes)
    assert np.array_equal(split.val.T.numpy(), positive[:val])
    assert np.array_equal(split.test.T.numpy(), positive[val : val + test])
    assert np.array_equal(split.train.T.numpy(), positive[val + test :])
    assert np.array_equal(split.val_negatives.T.numpy(), negative[:val])
    assert np.array_equal(split.test_negatives.T.numpy(), negative[val : val + test])


@settings(max_examples=30, deadline=None)
@given(st.integers(15, 60), st.integers(0, 2**31))
def test_disjoint_edges_do_not_overlap(nodes: int, seed: int) -> None:
    edges = _random_graph(nodes, seed)
    proper = {(a, b) for a, b in _pairs(edges) if a != b}
    split = disjoint_edges(edges, nodes, seed)
    parts = [_pairs(part) for part in split]
    assert sorted(parts[0] + parts[1] + parts[2]) == sorted(proper)
    negatives = parts[3] + parts[4]
    assert len(set(negatives)) == len(negatives) == len(parts[1]) + len(parts[2])
    assert not set(negatives) & proper
    assert all(a < b for a, b in negatives)
    assert len(parts[1]) == int(len(proper) * 0.05) == len(parts[3])


def test_disjoint_edges_follow_the_seed() -> None:
    edges = disease_tree().edges
    first, again, other = (disjoint_edges(edges, 1000, seed) for seed in (1, 1, 2))
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_negatives_are_found_on_a_graph_that_is_nearly_complete() -> None:
    every = torch.combinations(torch.arange(30)).T
    split = disjoint_edges(every[:, 70:], 30, seed=0)
    held_out = set(_pairs(split.val_negatives)) | set(_pairs(split.test_negatives))
    assert held_out <= set(_pairs(every[:, :70]))
    with pytest.raises(ValueError, match="only 10 pairs without an edge"):
        disjoint_edges(every[:, 10:], 30, seed=0)


def test_graph_with_too_few_edges_is_refused() -> None:
    with pytest.raises(ValueError, match="the graph has 5 edges; holding out 5 % needs"):
        disjoint_edges(torch.stack([torch.arange(5), torch.arange(1, 6)]), 6, seed=0)


def test_legacy_nodes_of_two_classes_are_balanced_and_disjoint() -> None:
    labels = (torch.arange(1044) < 211).long()
    split = legacy_nodes(labels, 0.10, 0.60)
    assert [part.numel() for part in split] == [748, 42, 254]
    assert torch.cat(list(split)).unique().numel() == 1044
    assert labels[split.val].sum() == 21
    assert labels[split.test].sum() == 127


def test_legacy_nodes_of_four_classes_overlap_as_published() -> None:
    labels = torch.arange(400) % 4
    split = legacy_nodes(labels, 0.15, 0.15)
    train, test = set(split.train.tolist()), set(split.test.tolist())
    assert train & test
    assert all(labels[node] >= 2 for node in train & test)


def test_disjoint_nodes_are_disjoint_and_follow_the_seed() -> None:
    split = disjoint_nodes(101, seed=1)
    assert [part.numel() for part in split] == [71, 15, 15]
    assert torch.cat(list(split)).unique().numel() == 101
    assert torch.equal(split.test, disjoint_nodes(101, seed=1).test)
    assert not torch.equal(split.test, disjoint_nodes(101, seed=2).test)


def test_class_random_splits_have_20_training_nodes_per_class() -> None:
    labels = torch.arange(2708) ** 2 % 7  # classes of different sizes
    labels[5] = -1
    split = class_random_nodes(labels, 3)
    assert torch.bincount(labels[split.train], minlength=5).tolist() == [20, 20, 20, 0, 20]
    assert [part.numel() for part in split] == [80, 500, 1000]
    every = torch.cat(list(split))
    assert every.unique().numel() == every.numel()
    assert 5 not in every
    assert not torch.equal(split.test, class_random_nodes(labels, 4).test)


def test_class_random_splits_are_uniform() -> None:
    """Over 200 splits, every node of a class is in training equally often, by the statistic chi squared."""
    labels = torch.arange(3000) % 30
    counts = torch.zeros(3000)
    for number in range(200):
        counts[class_random_nodes(labels, number).train] += 1
    expected = 200 * 20 / 100
    variance = expected * (1 - 20 / 100)
    statistic = ((counts - expected) ** 2 / variance).sum() * 99 / 100
    assert abs(statistic - 2970) < 5 * (2 * 2970) ** 0.5
    assert counts.min() > 0


def test_fresh_splits_have_the_sizes_of_the_published_ones() -> None:
    split = fresh_nodes(7600, 1)  # actor
    assert [part.numel() for part in split] == [3648, 2432, 1520]
    assert torch.cat(list(split)).unique().numel() == 7600
    assert not torch.equal(split.test, fresh_nodes(7600, 2).test)


def test_numbered_splits_are_the_same_on_every_machine() -> None:
    assert [_digest(class_random_nodes(torch.arange(2000) % 7, number)) for number in (0, 1)] == [
        "d136ab747adcad16",
        "532ebf7ae0eec122",
    ]
    assert [_digest(fresh_nodes(890, number)) for number in (0, 1)] == ["7e0b2b98885cbbaf", "0cef7dd7ed45f984"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.arange(2000).clamp_max(1), "class 0 has 1 nodes; the split class-random needs at least 20"),
        (torch.arange(1539) % 2, "1499 nodes are left for validation and test"),
        (torch.full((3,), -1), "0 nodes are left"),
    ],
)
def test_a_graph_too_small_for_class_random_splits_is_refused(labels: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        class_random_nodes(labels, 0)


@pytest.mark.parametrize(
    ("n", "k"),
    [(1, 1), (2, 1), (2, 2), (10, 3), (1000, 1000), (1024, 7), (1025, 7), (65_536, 10), (70_000, 500), (300_000, 4000)],
)
@pytest.mark.parametrize("seed", [0, 1234])
def test_front_of_shuffle_equals_the_shuffled_list(n: int, k: int, seed: int) -> None:
    whole = np.arange(n)
    np.random.RandomState(seed).shuffle(whole)
    assert np.array_equal(front_of_shuffle(np.random.RandomState(seed), n, k), whole[:k])


def test_front_of_shuffle_starts_at_the_state_of_the_generator() -> None:
    whole, ours = np.random.RandomState(5), np.random.RandomState(5)
    for rng in (whole, ours):
        rng.shuffle(np.arange(77))
    expected = np.arange(5000)
    whole.shuffle(expected)
    assert np.array_equal(front_of_shuffle(ours, 5000, 20), expected[:20])


def test_a_list_too_long_for_32_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="2\\^32"):
        front_of_shuffle(np.random.RandomState(0), 2**32 + 1, 1)
