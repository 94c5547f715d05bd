"""k-hop ancestor retrieval: anchors, codes and splits, and that nothing but k hops of messages gives the answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from lresnet import create_model
from lresnet.data import AncestorTask, RootedTree, ancestor_task, complete_tree, random_tree
from lresnet.data.ancestors import choose_anchors
from lresnet.models import LorentzGCN
from lresnet.nn import adjacency


def any_tree(nodes: int = 400, seed: int = 0) -> RootedTree:
    """A tree in which every node hangs below a random earlier one."""
    rng = np.random.default_rng(seed)
    parent = [-1] + [int(rng.integers(max(0, node - 8), node)) for node in range(1, nodes)]
    return RootedTree(torch.tensor(parent))


def a_task(hops: int = 3, **options: Any) -> AncestorTask:
    return ancestor_task(any_tree(), hops, **{"codes": 4} | options)


@pytest.mark.parametrize("hops", [1, 2, 4, 7])
def test_anchors_are_the_largest_antichain_of_nodes_with_descendants_k_hops_below(hops: int) -> None:
    tree = any_tree()
    anchors = choose_anchors(tree, hops, np.random.default_rng(0))
    assert not tree.is_ancestor(anchors.unsqueeze(1), anchors).any()
    candidates = tree.ancestor(hops).unique()
    candidates = candidates[candidates >= 0]
    assert torch.isin(anchors, candidates).all()
    # A chain cover as small as the antichain proves that none is larger (Dilworth): every candidate is one of the
    # anchors or lies above one.
    above = tree.is_ancestor(candidates.unsqueeze(1), anchors) | (candidates.unsqueeze(1) == anchors)
    assert above.any(1).all()


@pytest.mark.parametrize("hops", [1, 3, 5])
def test_queries_are_k_hops_below_their_own_anchor_and_farther_from_all_others(hops: int) -> None:
    tree = any_tree()
    task = ancestor_task(tree, hops, codes=4, queries_per_anchor=None)
    whole = nx.Graph(tree.edge_index.T.tolist())
    tops = task.nodes[task.anchors]
    queries = torch.cat([task.train_index, task.val_index, task.test_index])
    assert queries.unique().numel() == queries.numel()
    assert torch.equal(queries.sort().values, (tree.ancestor(hops)[task.nodes] == tops[task.anchor]).nonzero()[:, 0])
    for query in queries.tolist():
        distance = nx.single_source_shortest_path_length(whole, int(task.nodes[query]))
        own = int(tops[task.anchor[query]])
        assert distance[own] == hops
        assert min((distance[top] for top in tops.tolist() if top != own), default=99) >= hops + 2


@pytest.mark.parametrize("seed", [0, 1])
def test_the_parts_of_the_split_share_no_tree(seed: int) -> None:
    task = a_task(seed=seed)
    parts = [set(task.anchor[index].tolist()) for index in (task.train_index, task.val_index, task.test_index)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == task.anchors.numel()
    assert len(parts[0]) > len(parts[1]) == len(parts[2])
    joined = task.edge_index
    assert torch.equal(task.anchor[joined[0]], task.anchor[joined[1]])
    with pytest.raises(ValueError, match="a tree has query nodes of two parts"):
        dataclasses.replace(task, val_index=task.train_index)
    other = torch.tensor([[int(task.anchors[0])], [int(task.anchors[1])]])
    with pytest.raises(ValueError, match="an edge joins the trees of two anchors"):
        dataclasses.replace(task, edge_index=torch.cat([task.edge_index, other], dim=1))


def test_a_seed_decides_everything_and_another_seed_something_else() -> None:
    tensors = ("edge_index", "anchors", "train_index", "val_codes", "test_codes", "nodes")
    one, same, other = a_task(max_nodes=150), a_task(max_nodes=150), a_task(max_nodes=150, seed=1)
    assert all(torch.equal(getattr(one, name), getattr(same, name)) for name in tensors)
    assert not torch.equal(one.nodes, other.nodes)
    assert not torch.equal(one.val_codes, one.test_codes)


def test_every_code_is_equally_frequent_in_evaluation() -> None:
    task = a_task(rounds=3)
    for codes in (task.val_codes, task.test_codes):
        assert codes.shape == (12, task.anchors.numel())
        for code in range(4):
            assert ((codes == code).sum(0) == 3).all()


def test_features_are_the_codes_of_the_anchors_and_nothing_else() -> None:
    task = a_task()
    codes = task.test_codes[0]
    x = task.features(codes)
    assert torch.equal(x[task.anchors].argmax(1), codes)
    assert x.sum() == task.anchors.numel()
    assert torch.equal(task.answers(codes, task.test_index), codes[task.anchor[task.test_index]])
    assert not task.x.any()
    # No query node, nor any node fewer than k hops from it, has a feature: features alone cannot name the answer.
    reach, neighbours = torch.zeros(task.num_nodes, 1), adjacency(task.edge_index, task.num_nodes)
    reach[torch.cat([task.train_index, task.val_index, task.test_index])] = 1
    for _ in range(task.hops - 1):
        reach = neighbours @ reach
    assert not x[reach.squeeze(1) > 0].any()


@pytest.mark.parametrize("hops", [1, 2, 4])
def test_k_hops_of_propagation_solve_it_and_fewer_see_nothing(hops: int) -> None:
    task = ancestor_task(any_tree(), hops, codes=4)
    A = adjacency(task.edge_index, task.num_nodes)
    for part, codes in ((task.train_index, task.val_codes[0]), (task.test_index, task.test_codes[3])):
        x = task.features(codes)
        for _ in range(hops - 1):
            x = A @ x
        assert not x[part].any()
        assert torch.equal((A @ x)[part].argmax(1), task.answers(codes, part))


METHODS = ["lorentz", "parallel_transport", "tangent", "space", "none", "euclidean"]


def _model(task: AncestorTask, layers: int, method: str, **options: Any) -> LorentzGCN:
    torch.manual_seed(0)
    sizes = {"in_features": task.num_codes, "num_classes": task.num_codes, "hidden": 6, "num_layers": layers}
    return create_model("lorentz_gcn", residual=method, **sizes, **options).double()  # type: ignore[return-value]


@pytest.mark.parametrize("layer", ["space", "hybonet"])
@pytest.mark.parametrize("method", METHODS)
def test_the_output_of_k_layers_depends_on_the_code_and_that_of_fewer_does_not(method: str, layer: str) -> None:
    task = a_task(hops=3)
    for layers in (1, 2, 3):
        model = _model(task, layers, method, layer=layer)
        x = task.features(task.val_codes[0]).double().requires_grad_()
        output = model(x, task.edge_index)[task.test_index]
        (slope,) = torch.autograd.grad(output.square().sum(), x)
        other = task.features((task.val_codes[0] + 1) % 4).double()
        changed = (model(other, task.edge_index)[task.test_index] != output).any(1)
        if layers < 3:
            assert not slope[task.anchors].any()
            assert not changed.any()
        else:
            assert changed.all()
            below = task.anchor[task.test_index].unique()
            assert slope[task.anchors[below]].any(1).all()


@pytest.mark.parametrize("method", ["lorentz", "euclidean"])
def test_the_forest_gives_a_network_the_same_view_as_the_whole_tree(method: str) -> None:
    """The nodes above and beside the anchors are more than k hops away from the queries: leaving them out is exact."""
    tree = any_tree()
    task = ancestor_task(tree, 4, codes=4)
    model, codes = _model(task, 4, method, layer="space"), task.val_codes[0]
    x = task.features(codes).double()
    everything = torch.zeros(tree.num_nodes, 4, dtype=torch.float64)
    everything[task.nodes] = x
    edges = torch.cat([tree.edge_index, tree.edge_index.flip(0)], dim=1)
    queries = torch.cat([task.train_index, task.test_index])
    expected = model(everything, edges)[task.nodes[queries]]
    torch.testing.assert_close(model(x, task.edge_index)[queries], expected, rtol=1e-12, atol=1e-12)


def test_limits_on_anchors_nodes_and_queries() -> None:
    tree = random_tree(4, depth=4, parts=60, growing=3)
    assert ancestor_task(tree, 3, max_anchors=10).anchors.numel() == 10
    small = ancestor_task(tree, 3, max_nodes=200)
    assert 150 < small.num_nodes <= 200
    few = ancestor_task(tree, 3, queries_per_anchor=2)
    queries = torch.cat([few.train_index, few.val_index, few.test_index])
    counts = torch.bincount(few.anchor[queries])
    assert counts.max() == 2
    assert counts.min() >= 1
    assert counts.numel() == 60


@pytest.mark.parametrize(
    ("tree", "options", "message"),
    [
        (complete_tree(2, 3), {"hops": 3}, "has 1 subtrees of height 3, but training, validation and test need one"),
        (complete_tree(2, 4), {"hops": 2, "max_nodes": 15}, "has 2 subtrees of height 2 and at most 15 nodes in all"),
        (complete_tree(2, 4), {"hops": 0}, "needs hops >= 1"),
        (complete_tree(2, 4), {"hops": 2, "codes": 1}, "codes >= 2"),
        (complete_tree(2, 4), {"hops": 2, "split": (1, 1, 0)}, "three positive shares"),
    ],
)
def test_what_gives_no_task_is_refused(tree: RootedTree, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ancestor_task(tree, **options)


def test_the_smallest_tasks_have_a_tree_in_each_part() -> None:
    for levels in (3, 4):
        task = ancestor_task(complete_tree(2, levels), 1, codes=2, split=(0.02, 0.49, 0.49))
        assert min(len(index) for index in (task.train_index, task.val_index, task.test_index)) > 0
