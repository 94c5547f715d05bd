"""Class trees: ancestors, heights and distances against a search along the parents."""

import pytest
import torch

from lresnet.geometry import ClassTree


def random_tree(nodes: int = 40, classes: int = 25, seed: int = 0) -> ClassTree:
    g = torch.Generator().manual_seed(seed)
    # The last node is the root; every other node has a parent with a larger number.
    parents = [int(torch.randint(node + 1, nodes, (), generator=g)) for node in range(nodes - 1)] + [-1]
    return ClassTree(parents, num_classes=classes)


def path(tree: ClassTree, node: int) -> list[int]:
    found = [node]
    while found[-1] != tree.root:
        found.append(int(tree.parents[found[-1]]))
    return found


def test_general_tree_agrees_with_a_search_along_the_parents():
    tree = random_tree()
    nodes = torch.arange(len(tree))
    lca, distance = tree.lca(nodes[:, None], nodes), tree.distance(nodes[:, None], nodes)
    for a in range(len(tree)):
        up = path(tree, a)
        assert int(tree.depth[a]) == len(up) - 1
        below = [v for v in range(len(tree)) if a in path(tree, v)]
        assert int(tree.height[a]) == max(path(tree, v).index(a) for v in below)
        for b in range(len(tree)):
            own = path(tree, b)
            meeting = next(node for node in up if node in own)
            assert int(lca[a, b]) == meeting
            assert int(distance[a, b]) == up.index(meeting) + own.index(meeting)
    assert torch.equal(tree.lca_height(nodes, nodes.flip(0)), tree.height[tree.lca(nodes, nodes.flip(0))])


def test_levels_repeat_a_node_that_is_less_deep():
    #        5
    #      4   3
    #    0  1     2 is a child of the root
    tree = ClassTree([4, 4, 5, 5, 5, -1], num_classes=4)
    assert tree.levels(torch.tensor([0, 2])).tolist() == [[0, 4], [2, 2]]
    assert tree.ancestor(torch.tensor([0, 2]), 1).tolist() == [4, 2]
    assert tree.ancestor(torch.tensor([0, 2]), 7).tolist() == [0, 2]


def test_root_may_be_its_own_parent_and_a_single_node_is_a_tree():
    assert torch.equal(ClassTree([1, 1]).parents, ClassTree([1, -1]).parents)
    assert int(ClassTree([-1]).height[0]) == 0


def test_tree_moves_to_a_device_and_has_a_short_repr():
    tree = ClassTree.from_groups([0, 0, 1])
    assert tree.to("meta").paths.device.type == "meta"
    assert repr(tree) == "ClassTree(6 nodes, 3 classes, height 2)"


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([1, 0, -1], "form a cycle"),
        ([-1, -1], "one root, got 2"),
        ([1, 0], "one root, got 0"),
        ([5, -1], "node 0 has the parent 5"),
        ([-2, -1], "node 0 has the parent -2"),
        ([], "integers"),
        ([0.5], "integers"),
    ],
)
def test_parents_that_are_no_tree_are_reported(parents, message):
    with pytest.raises(ValueError, match=message):
        ClassTree(parents)


def test_wrong_groups_and_numbers_of_classes_are_reported():
    with pytest.raises(ValueError, match="groups must be integers"):
        ClassTree.from_groups([-1, 0])
    with pytest.raises(ValueError, match="num_classes must be 1 to 2"):
        ClassTree([1, -1], num_classes=3)
