"""Splits of hierarchies: the closure against the definition, no leaks, deterministic, refused input."""

import networkx as nx
import pytest
import torch

from lresnet_paper.completion.splits import held_out_closure, held_out_leaves, subtree, transitive_closure


def random_hierarchy(nodes: int = 60, seed: int = 0) -> torch.Tensor:
    """Return edges (node, parent) of a connected hierarchy; every fifth node has two parents."""
    generator = torch.Generator().manual_seed(seed)
    pairs = {(node, int(torch.randint(node, (1,), generator=generator))) for node in range(1, nodes)}
    pairs |= {(node, int(torch.randint(node, (1,), generator=generator))) for node in range(5, nodes, 5)}
    shuffled = torch.randperm(len(pairs), generator=generator)
    return torch.tensor(sorted(pairs)).T[:, shuffled]


def as_set(pairs: torch.Tensor) -> set[tuple[int, int]]:
    return set(map(tuple, pairs.T.tolist()))


def test_closure_has_all_descendants_of_networkx():
    edges = random_hierarchy()
    graph = nx.DiGraph(edges.T.tolist())
    expected = {(node, ancestor) for node in graph for ancestor in nx.descendants(graph, node)}
    closure = transitive_closure(edges, 60)
    assert as_set(closure) == expected
    assert closure.T.tolist() == sorted(map(list, expected))
    assert torch.equal(transitive_closure(torch.cat([edges, edges], dim=1), 60), closure)


def test_cycles_are_refused():
    with pytest.raises(ValueError, match="its own ancestor"):
        transitive_closure(torch.tensor([[0, 1, 2], [1, 2, 0]]), 4)


def test_subtree_is_a_node_with_its_descendants():
    edges = random_hierarchy()
    graph = nx.DiGraph(edges.T.tolist())
    kept, own = subtree(edges, 60, 3)
    expected = nx.ancestors(graph, 3) | {3}
    assert set(kept.tolist()) == expected
    assert as_set(kept[own]) == {(a, b) for a, b in graph.edges if a in expected and b in expected}


def test_held_out_leaves_keep_no_edge_and_are_in_one_part():
    edges = random_hierarchy()
    split = held_out_leaves(edges, 60, seed=1, validation=0.2, test=0.3)
    parents = set(edges[1].tolist())
    val, test = set(split.val[0].tolist()), set(split.test[0].tolist())
    assert val
    assert test
    assert not val & test
    assert not (val | test) & parents
    for part in (split.train, split.edges):
        assert not (val | test) & set(part.flatten().tolist())
    assert as_set(split.train) | as_set(split.val) | as_set(split.test) == as_set(split.known) == as_set(edges)
    assert split.train.shape[1] + split.val.shape[1] + split.test.shape[1] == edges.shape[1]


def test_held_out_pairs_of_the_closure_are_no_edges_and_in_one_part():
    edges = random_hierarchy()
    split = held_out_closure(edges, 60, seed=1, validation=0.1, test=0.2)
    train, val, test = map(as_set, (split.train, split.val, split.test))
    assert as_set(split.edges) == as_set(edges) <= train
    assert not val & test
    assert not (val | test) & train
    closure = as_set(transitive_closure(edges, 60))
    assert train | val | test == as_set(split.known) == closure
    others = len(closure) - edges.shape[1]
    assert (len(val), len(test)) == (int(0.1 * others), int(0.2 * others))


@pytest.mark.parametrize("hold_out", [held_out_leaves, held_out_closure])
def test_splits_follow_the_seed(hold_out):
    edges = random_hierarchy()
    one, again, other = (hold_out(edges, 60, seed, 0.2, 0.2) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one.test, other.test)


@pytest.mark.parametrize("hold_out", [held_out_leaves, held_out_closure])
def test_impossible_shares_are_refused(hold_out):
    edges = random_hierarchy(8)
    with pytest.raises(ValueError, match="too few"):
        hold_out(edges, 8, 0, 0.01, 0.1)
    with pytest.raises(ValueError, match="nothing for training"):
        hold_out(edges, 8, 0, 0.5, 0.5)
