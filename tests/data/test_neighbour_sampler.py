"""Neighbour sampling against brute force: subsets, k-hop subgraphs, uniformity, and PyG's loaders as they are."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.stats
import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import NegativeSampling, NeighborSampler
from torch_geometric.utils import k_hop_subgraph

from lresnet.data.neighbour_sampler import NeighbourSampler, make_sampler, mixed


def random_graph(nodes: int = 60, edges: int = 400, seed: int = 0) -> Tensor:
    """Return distinct directed edges in random order, self loops included; some nodes have no edge."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randperm((nodes - 5) ** 2, generator=generator)[:edges]
    return torch.stack([numbers // (nodes - 5), numbers % (nodes - 5)])


def edge_set(edge_index: Tensor) -> set[tuple[int, int]]:
    return set(map(tuple, edge_index.T.tolist()))


@pytest.mark.parametrize("neighbours", [[3], [3, 3], [2, 5, 1], [4, -1], [1000, 1000]])
def test_a_sample_is_a_subgraph_with_the_right_numbers_of_neighbours(neighbours: list[int]) -> None:
    edge_index = random_graph()
    sampler = NeighbourSampler(edge_index, 60, neighbours)
    seeds = torch.tensor([7, 59, 3, 20])
    out = sampler.sample(seeds, key=5)
    assert torch.equal(out.node[:4], seeds)
    assert out.node.unique().numel() == out.node.numel()
    pairs = torch.stack([out.node[out.row], out.node[out.col]])
    assert len(edge_set(pairs)) == pairs.shape[1], "an edge was drawn twice"
    assert torch.equal(pairs, edge_index[:, sampler.edge_permutation[out.edge]])
    assert bool((out.col.diff() >= 0).all())
    assert (sum(out.num_sampled_nodes), sum(out.num_sampled_edges)) == (out.node.numel(), out.row.numel())
    hops = list(itertools.accumulate(out.num_sampled_nodes, initial=0))
    ends = list(itertools.accumulate(out.num_sampled_edges, initial=0))
    degree = torch.bincount(edge_index[1], minlength=60)
    for hop, k in enumerate(neighbours):
        targets = torch.arange(hops[hop], hops[hop + 1])
        drawn = torch.bincount(out.col[ends[hop] : ends[hop + 1]], minlength=hops[-1])[targets]
        allowed = degree[out.node[targets]]
        assert torch.equal(drawn, allowed if k == -1 else allowed.clamp(max=k))
    assert torch.equal(sampler.degrees(out.node), degree[out.node])


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_all_neighbours_give_the_k_hop_subgraph(hops: int) -> None:
    edge_index = random_graph(edges=120)
    seeds = torch.tensor([4, 11])
    out = NeighbourSampler(edge_index, 60, [-1] * hops).sample(seeds, key=0)
    nodes, _, _, _ = k_hop_subgraph(seeds, hops, edge_index, num_nodes=60)
    assert torch.equal(out.node.sort().values, nodes)
    inner, _, _, _ = k_hop_subgraph(seeds, hops - 1, edge_index, num_nodes=60)
    expected = edge_index[:, torch.isin(edge_index[1], inner)]  # every edge into a node that is less than k hops away
    assert edge_set(torch.stack([out.node[out.row], out.node[out.col]])) == edge_set(expected)


@pytest.mark.parametrize(("degree", "k"), [(6, 1), (6, 2), (6, 3), (7, 5)])
def test_every_subset_of_neighbours_is_equally_likely(degree: int, k: int) -> None:
    star = torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.int64)])
    sampler = NeighbourSampler(star, degree + 1, [k])
    found = Counter()
    for key in range(4000):
        out = sampler.sample(torch.tensor([0]), key)
        found[tuple(sorted(out.node[out.row].tolist()))] += 1
    subsets = list(itertools.combinations(range(1, degree + 1), k))
    assert set(found) <= set(subsets)
    assert scipy.stats.chisquare([found[subset] for subset in subsets]).pvalue > 1e-3


def test_the_draws_of_different_nodes_and_hops_are_independent() -> None:
    """Two nodes with the same neighbours: all pairs of their draws are equally likely, and so over successive keys."""
    neighbours = torch.arange(2, 6)
    edge_index = torch.cat([torch.stack([neighbours, torch.full_like(neighbours, node)]) for node in (0, 1)], dim=1)
    sampler = NeighbourSampler(edge_index, 6, [1])
    draws = np.array([sampler.sample(torch.tensor([0, 1]), key).edge.numpy() % 4 for key in range(4000)])
    for one, other in ((draws[:, 0], draws[:, 1]), (draws[:-1, 0], draws[1:, 0])):
        table = np.zeros((4, 4))
        np.add.at(table, (one, other), 1)
        assert scipy.stats.chisquare(table.ravel()).pvalue > 1e-3


def test_the_neighbours_of_a_node_depend_on_the_key_and_the_node_alone() -> None:
    edge_index = random_graph(edges=900)
    sampler = NeighbourSampler(edge_index, 60, [4, 4])
    whole = sampler.sample(torch.arange(40), key=3)
    again, other = sampler.sample(torch.arange(40), key=3), sampler.sample(torch.arange(40), key=4)
    assert torch.equal(whole.edge, again.edge)
    assert not torch.equal(whole.edge, other.edge)
    parts = [sampler.sample(part, key=3) for part in (torch.arange(0, 25), torch.arange(25, 40))]
    assert set(whole.edge.tolist()) >= set(torch.cat([part.edge for part in parts]).tolist())
    for part in parts:
        for target in part.node[: part.num_sampled_nodes[0] + part.num_sampled_nodes[1]].tolist():
            local, in_whole = (int((out.node == target).nonzero()) for out in (part, whole))
            assert torch.equal(part.edge[part.col == local], whole.edge[whole.col == in_whole])


def test_a_repeated_seed_is_sampled_twice_in_the_same_way() -> None:
    edge_index = random_graph(edges=900)
    out = NeighbourSampler(edge_index, 60, [3]).sample(torch.tensor([8, 2, 8]), key=0)
    assert out.node[:3].tolist() == [8, 2, 8]
    assert torch.equal(out.row[out.col == 0], out.row[out.col == 2])
    assert out.row[out.col == 0].numel() == 3


def test_no_seeds_and_no_edges_give_empty_results() -> None:
    sampler = NeighbourSampler(torch.empty(2, 0, dtype=torch.int64), 3, [2, 2])
    out = sampler.sample(torch.tensor([1]), key=0)
    assert (out.node.tolist(), out.row.numel(), out.num_sampled_nodes) == ([1], 0, [1, 0, 0])
    out = NeighbourSampler(random_graph(), 60, [2]).sample(torch.empty(0, dtype=torch.int64), key=0)
    assert (out.node.numel(), out.row.numel()) == (0, 0)


def test_edges_that_are_sorted_by_target_need_no_permutation() -> None:
    edge_index = random_graph()
    ordered = edge_index[:, edge_index[1].argsort(stable=True)]
    one, other = NeighbourSampler(edge_index, 60, [3]), NeighbourSampler(ordered, 60, [3])
    assert other.edge_permutation is None
    seeds = torch.arange(10)
    assert torch.equal(one.sample(seeds, key=1).edge, other.sample(seeds, key=1).edge)


def graph_data() -> Data:
    edge_index = random_graph()
    numbers = torch.arange(60)
    return Data(x=numbers.unsqueeze(-1).float(), edge_index=edge_index, edge_attr=torch.arange(400), y=numbers % 3)


@pytest.mark.parametrize("workers", [0, 2])
def test_node_loader_takes_the_sampler_as_it_is(workers: int) -> None:
    data, edges = graph_data(), edge_set(random_graph())
    sampler = NeighbourSampler(data.edge_index, 60, [3, 2], seed=1)
    loader = NodeLoader(data, sampler, input_nodes=torch.arange(10, 30), batch_size=8, num_workers=workers)
    seen = []
    for batch in loader:
        assert torch.equal(batch.n_id[: batch.batch_size], torch.arange(10, 30)[batch.input_id])
        assert torch.equal(batch.x.squeeze(-1).long(), batch.n_id)
        pairs = batch.n_id[batch.edge_index]
        assert edge_set(pairs) <= edges
        assert torch.equal(pairs, data.edge_index[:, batch.edge_attr])
        seen.append(batch.e_id)
    assert len(seen) == 3
    again = torch.cat([batch.e_id for batch in loader])
    assert not torch.equal(torch.cat(seen), again)  # every epoch draws other neighbours, also in worker processes


def test_two_samplers_of_one_seed_draw_the_same_and_a_generator_resumes() -> None:
    data = graph_data()
    one, other = (NeighbourSampler(data.edge_index, 60, [3], seed=4) for _ in range(2))

    def edges(sampler: NeighbourSampler) -> Tensor:
        return next(iter(NodeLoader(data, sampler, input_nodes=torch.arange(60), batch_size=60))).e_id

    torch.manual_seed(0)
    first = edges(one)
    torch.manual_seed(1)  # torch's own generator has no part in it
    assert torch.equal(first, edges(other))
    state = one.generator.get_state()
    second = edges(one)
    assert not torch.equal(first, second)
    other.generator.set_state(state)
    assert torch.equal(second, edges(other))


@pytest.mark.parametrize("mode", ["none", "binary", "triplet", "weighted"])
def test_link_loader_takes_the_sampler_as_it_is(mode: str) -> None:
    data = graph_data()
    sampler = NeighbourSampler(data.edge_index, 60, [3, 2], seed=1)
    weight = torch.zeros(60)
    weight[10:20] = 1.0
    negatives = {
        "none": None,
        "binary": NegativeSampling("binary", 2),
        "triplet": NegativeSampling("triplet", 1),
        "weighted": NegativeSampling("binary", 1, src_weight=weight, dst_weight=weight),
    }[mode]
    pairs = data.edge_index[:, :50]
    loader = LinkLoader(data, sampler, edge_label_index=pairs, neg_sampling=negatives, batch_size=20)
    batch = next(iter(loader))
    assert torch.equal(batch.x.squeeze(-1).long(), batch.n_id)
    if mode == "triplet":
        assert torch.equal(batch.n_id[torch.stack([batch.src_index, batch.dst_pos_index])], pairs[:, :20])
        assert batch.dst_neg_index.shape == (20,)
        return
    labelled = batch.n_id[batch.edge_label_index]
    assert torch.equal(labelled[:, :20], pairs[:, :20])
    amount = {"none": 0, "binary": 40, "weighted": 20}[mode]
    assert labelled.shape[1] == 20 + amount
    if mode == "weighted":
        assert set(labelled[:, 20:].flatten().tolist()) <= set(range(10, 20))
    again = NeighbourSampler(data.edge_index, 60, [3, 2], seed=1)
    other = next(iter(LinkLoader(data, again, edge_label_index=pairs, neg_sampling=negatives, batch_size=20)))
    assert torch.equal(other.n_id, batch.n_id)


def test_pygs_own_sampler_is_used_where_pyg_lib_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = graph_data()
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    sampler = make_sampler(data, [3, 2], seed=7)
    assert isinstance(sampler, NeighbourSampler)
    assert (sampler.neighbours, sampler.num_nodes, sampler.generator.initial_seed()) == ((3, 2), 60, 7)
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    sampler = make_sampler(data, [3, 2])
    assert isinstance(sampler, NeighborSampler)
    assert list(sampler.num_neighbors.values) == [3, 2]


def test_hashes_of_different_numbers_differ() -> None:
    keys = {mixed(seed, kind, step) for seed in range(20) for kind in range(4) for step in range(200)}
    assert len(keys) == 20 * 4 * 200
    assert all(0 <= key < 2**64 for key in keys)


@pytest.mark.parametrize(
    ("edge_index", "neighbours", "words"),
    [
        (torch.tensor([[0, 1], [1, 3]]), [2], "there is no node 3; the nodes are 0 to 2"),
        (torch.tensor([[0, -1], [1, 2]]), [2], "there is no node -1; the nodes are 0 to 2"),
        (torch.zeros(3, 2, dtype=torch.int64), [2], r"edge_index must be int64 \[2, E\], got torch.int64 of shape"),
        (torch.zeros(2, 3), [2], r"edge_index must be int64 \[2, E\], got torch.float32"),
        (torch.tensor([[0], [1]]), [2, 0], r"neighbours must be at least 1, or -1 for all, got 0 in \[2, 0\]"),
        (torch.tensor([[0], [1]]), [], "neighbours must have one number for every hop, got none"),
    ],
)
def test_wrong_arguments_are_refused(edge_index: Tensor, neighbours: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NeighbourSampler(edge_index, 3, neighbours)


def test_a_seed_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no node 60; the nodes are 0 to 59"):
        NeighbourSampler(random_graph(), 60, [2]).sample(torch.tensor([1, 60]), key=0)
