"""Rooted trees against networkx and definitions written out."""

from pathlib import Path

import networkx as nx
import pytest
import torch

from lresnet.data import RootedTree, complete_tree, load_tree, random_tree
from tests.data import official


def _random_parents(nodes: int, seed: int) -> torch.Tensor:
    """Parents with arbitrary node numbers and two roots."""
    generator = torch.Generator().manual_seed(seed)
    names = torch.randperm(nodes, generator=generator)
    parent = torch.full((nodes,), -1)
    for number in range(2, nodes):
        parent[names[number]] = names[int(torch.randint(number, (1,), generator=generator))]
    return parent


@pytest.mark.parametrize("seed", range(5))
def test_every_property_agrees_with_networkx(seed: int) -> None:
    tree = RootedTree(_random_parents(60, seed))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(60))
    graph.add_edges_from(tree.edge_index.T.tolist())
    assert tree.roots.tolist() == sorted(node for node in graph if graph.in_degree(node) == 0)
    seen = set[int]()
    for node in tree.order.tolist():
        assert int(tree.parent[node]) in seen | {-1}
        seen.add(node)
    assert len(seen) == 60
    pairs = set[tuple[int, int]]()
    for node in range(60):
        above, below = nx.ancestors(graph, node), nx.descendants(graph, node)
        lengths = nx.single_source_shortest_path_length(graph, node)
        assert tree.depth[node] == len(above) == tree.path_to_root(node).numel()
        assert set(tree.path_to_root(node).tolist()) == above
        assert tree.height[node] == max(lengths.values())
        assert tree.num_children[node] == graph.out_degree(node)
        assert tree.children(node).tolist() == sorted(graph.successors(node))
        assert tree.subtree_size[node] == 1 + len(below)
        assert tree.subtree(node)[0] == node
        assert set(tree.subtree(node).tolist()) == {node} | below
        pairs |= {(node, other) for other in above}
        for hops in range(4):
            for other, length in lengths.items():
                assert length != hops or tree.ancestor(hops)[other] == node
    assert sorted(tree.position.tolist()) == list(range(60))
    assert len(tree.closure().T) == len(pairs)
    assert set(map(tuple, tree.closure().T.tolist())) == pairs
    everyone = torch.arange(60)
    found = tree.is_ancestor(everyone.unsqueeze(1), everyone)
    assert {(lower, upper) for upper, lower in found.nonzero().tolist()} == pairs


def test_ancestors_above_the_root_are_missing() -> None:
    tree = complete_tree(1, 3)
    assert tree.ancestor(0).tolist() == [0, 1, 2, 3]
    assert tree.ancestor(3).tolist() == [-1, -1, -1, 0]
    assert tree.ancestor(100).tolist() == [-1] * 4
    with pytest.raises(ValueError, match="hops must be 0 or more, got -1"):
        tree.ancestor(-1)


def test_the_first_listed_parent_counts() -> None:
    edges = torch.tensor([[3, 1, 3, 2, 3], [2, 0, 1, 0, 0]])
    assert RootedTree.from_edges(edges).parent.tolist() == [-1, 0, 0, 2]
    assert RootedTree.from_edges(edges, num_nodes=5).parent.tolist() == [-1, 0, 0, 2, -1]
    with pytest.raises(ValueError, match="edges has node 3; nodes are 0 to 2"):
        RootedTree.from_edges(edges, num_nodes=3)
    with pytest.raises(ValueError, match=r"edges has node -1"):
        RootedTree.from_edges(edges - 1)


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        (torch.tensor([-1, 2, 1]), "node 'b' lead back"),
        (torch.tensor([0, 0, 0]), "node 'a' lead back"),
        (torch.tensor([-1, 3, 0]), "parent of node 'b' is 3; parents are 0 to 2, or -1"),
        (torch.tensor([-1, -2, 0]), "is -2"),
        (torch.tensor([-1, 0]), "2 nodes need as many names, got 3"),
        (torch.tensor([-1.0, 0.0, 0.0]), "int64 tensor"),
    ],
)
def test_what_is_no_tree_is_refused(parent: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RootedTree(parent, ("a", "b", "c"))


def test_an_empty_tree_and_a_single_node_have_all_properties() -> None:
    for nodes in (0, 1):
        tree = RootedTree(torch.full((nodes,), -1))
        for name in ("roots", "order", "depth", "height", "subtree_size", "position"):
            assert getattr(tree, name).numel() == nodes
        assert tree.closure().shape == tree.edge_index.shape == (2, 0)


def test_part_of_a_tree_keeps_names_and_loses_parents_that_are_left_out() -> None:
    tree = RootedTree(torch.tensor([-1, 0, 1, 1, 0]), tuple("abcde"))
    part = tree.induced(torch.tensor([3, 1, 4]))
    assert part.parent.tolist() == [1, -1, -1]
    assert part.names == ("d", "b", "e")


@pytest.mark.parametrize(("branching", "depth"), [(1, 4), (2, 3), (3, 2), (5, 0)])
def test_complete_trees(branching: int, depth: int) -> None:
    tree = complete_tree(branching, depth)
    assert [level.numel() for level in tree.levels] == [branching**number for number in range(depth + 1)]
    inner = tree.height > 0
    assert (tree.num_children[inner] == branching).all()
    assert torch.equal(tree.height, depth - tree.depth)
    with pytest.raises(ValueError, match="needs branching >= 1"):
        complete_tree(0, 2)
    with pytest.raises(ValueError, match="the limit is"):
        complete_tree(10, 20)


def test_random_trees_have_parts_of_the_full_depth_and_random_degrees() -> None:
    tree = random_tree(3, depth=8, parts=40, growing=2, seed=1)
    tops = tree.children(0)
    assert tops.numel() == 40
    assert (tree.height[tops] == 7).all()
    assert tree.num_nodes < 40 * 8 * 2 * 6  # linear in the depth
    below = tree.num_children[(tree.height > 0) & (tree.depth > 0)]
    assert sorted(set(below.tolist())) == [1, 2, 3, 4, 5]
    assert 2.8 < float(below.double().mean()) < 3.2
    for top in tops.tolist():
        part = tree.induced(tree.subtree(top))
        assert all(int((part.num_children[level] > 0).sum()) <= 2 for level in part.levels)
    assert torch.equal(tree.parent, random_tree(3, depth=8, parts=40, growing=2, seed=1).parent)
    assert not torch.equal(tree.parent[:200], random_tree(3, depth=8, parts=40, growing=2, seed=2).parent[:200])
    assert (random_tree(1, depth=5, parts=3).num_children <= 3).all()
    with pytest.raises(ValueError, match="every number must be at least 1"):
        random_tree(0.5, depth=3)


def test_wordnets_noun_tree_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.write_wordnet(tmp_path)
    official.use(monkeypatch, tmp_path, "wordnet")
    tree = load_tree("wordnet")
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1, 2]
    assert tree.names == ("word 0", "word 0", "word 1", "word 1", "word 2", "word 2")
    with pytest.raises(ValueError, match="cora is no hierarchy; choose wordnet"):
        load_tree("cora")
