"""Rooted trees: parents, depths, heights, ancestors, subtrees; complete and random trees."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lresnet._limits import NODES
from lresnet.data.quoting import quoted
from lresnet.data.shaped import shaped

__all__ = ["RootedTree", "complete_tree", "random_tree"]


@dataclass(frozen=True, eq=False)
class RootedTree:
    """A tree, or several trees with a root each, in which every node knows its parent. Checked on construction.

    Every property is computed once, on first use, in time linear in the number of nodes.

    Args:
        parent: Parent of each node ``[n]``, int64; -1 for a root.
        names: Names of the nodes, not necessarily unique; empty if the nodes have numbers only.

    Raises:
        ValueError: A parent is not a node, or the parents form a cycle.

    Example:
        >>> tree = RootedTree(torch.tensor([-1, 0, 0, 1]))
        >>> tree.depth.tolist(), tree.height.tolist()
        ([0, 1, 1, 2], [2, 1, 0, 0])
        >>> tree.ancestor(2).tolist()
        [-1, -1, -1, 0]
    """

    parent: Tensor
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parent, n = self.parent, self.parent.numel()
        if parent.dim() != 1 or parent.dtype != torch.int64 or parent.device.type != "cpu":
            raise ValueError(
                f"parent must be an int64 tensor [n] on the CPU, got {parent.dtype} of shape {list(parent.shape)} on "
                f"{parent.device}"
            )
        if self.names and len(self.names) != n:
            raise ValueError(f"{n} nodes need as many names, got {len(self.names)}")
        outside = ((parent < -1) | (parent >= n)).nonzero()
        if outside.numel():
            node = int(outside[0, 0])
            raise ValueError(
                f"the parent of {self.called(node)} is {int(parent[node])}; parents are 0 to {n - 1}, or -1"
            )
        if self.order.numel() < n:
            reached = torch.zeros(n, dtype=torch.bool)
            reached[self.order] = True
            node = int((~reached).nonzero()[0, 0])
            raise ValueError(f"the parents of {self.called(node)} lead back to a node on the way and to no root")

    def __repr__(self) -> str:
        return shaped(self)

    @classmethod
    def from_edges(cls, edges: Tensor, num_nodes: int | None = None, names: tuple[str, ...] = ()) -> RootedTree:
        """Build from pairs (child, parent) ``[2, e]``. Of several parents of a child, the first one listed counts.

        Args:
            edges: Children in row 0, parents in row 1.
            num_nodes: Number of nodes; None: the highest node number plus 1. Nodes without a parent are roots.
            names: Names of the nodes.

        Example:
            >>> RootedTree.from_edges(torch.tensor([[1, 2, 2], [0, 1, 0]])).parent.tolist()
            [-1, 0, 1]
        """
        if edges.dim() != 2 or edges.shape[0] != 2:
            raise ValueError(f"edges must be [2, e] with children in row 0, got shape {list(edges.shape)}")
        child, above = edges.long()
        highest = int(edges.max()) + 1 if edges.numel() else 0
        n = max(highest, len(names)) if num_nodes is None else num_nodes
        if n < highest or (edges.numel() and int(edges.min()) < 0):
            node = int(edges.max() if n < highest else edges.min())
            raise ValueError(f"edges has node {node}; nodes are 0 to {n - 1}")
        parent = torch.full((n,), -1)
        # Assigned from the last edge to the first; NumPy, unlike torch, promises that the last assignment stays.
        parent.numpy()[child.flip(0).numpy()] = above.flip(0).numpy()
        return cls(parent, names)

    # --- The whole tree -----------------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        """Number of nodes n."""
        return self.parent.numel()

    @cached_property
    def roots(self) -> Tensor:
        """Nodes without a parent, in increasing order."""
        return (self.parent < 0).nonzero().squeeze(1)

    @cached_property
    def levels(self) -> tuple[Tensor, ...]:
        """Nodes of depth 0, 1, ...; in each level, children of one parent stand together, in increasing order."""
        found, level = [], self.roots
        while level.numel():
            found.append(level)
            level = self._children_of(level)
        return tuple(found)

    @cached_property
    def order(self) -> Tensor:
        """All nodes ``[n]``, level by level: every parent stands before its children."""
        return torch.cat([self.roots[:0], *self.levels])

    @cached_property
    def depth(self) -> Tensor:
        """Number of edges from the root to each node ``[n]``."""
        depth = torch.zeros(self.num_nodes, dtype=torch.int64)
        for number, level in enumerate(self.levels):
            depth[level] = number
        return depth

    @cached_property
    def height(self) -> Tensor:
        """Number of edges from each node to the deepest node below it ``[n]``; 0 for a leaf."""
        height = torch.zeros(self.num_nodes, dtype=torch.int64)
        for level in reversed(self.levels[1:]):
            height.scatter_reduce_(0, self.parent[level], height[level] + 1, "amax")
        return height

    @cached_property
    def num_children(self) -> Tensor:
        """Number of children of each node ``[n]``."""
        return torch.bincount(self.parent[self.parent >= 0], minlength=self.num_nodes)

    @cached_property
    def subtree_size(self) -> Tensor:
        """Number of nodes of the subtree below each node, with the node itself ``[n]``."""
        size = torch.ones(self.num_nodes, dtype=torch.int64)
        for level in reversed(self.levels[1:]):
            size.index_add_(0, self.parent[level], size[level])
        return size

    @cached_property
    def position(self) -> Tensor:
        """Place of each node in depth-first order ``[n]``; a subtree is an interval of places."""
        position = torch.zeros(self.num_nodes, dtype=torch.int64)
        for number, level in enumerate(self.levels):
            before = torch.cat([torch.zeros(1, dtype=torch.int64), self.subtree_size[level].cumsum(0)[:-1]])
            if number == 0:
                position[level] = before
                continue
            above = self.parent[level]
            starts = torch.cat([torch.ones(1, dtype=torch.bool), above[1:] != above[:-1]])
            first = before[starts][starts.cumsum(0) - 1]  # of the nodes before the first sibling
            position[level] = position[above] + 1 + before - first
        return position

    @property
    def edge_index(self) -> Tensor:
        """Edges from parents to children ``[2, n - roots]``."""
        child = (self.parent >= 0).nonzero().squeeze(1)
        return torch.stack([self.parent[child], child])

    # --- Single nodes and pairs ---------------------------------------------------------------------------------------

    def children(self, node: int) -> Tensor:
        """Return the children of a node, in increasing order."""
        return self._children_of(torch.tensor([node]))

    def ancestor(self, hops: int) -> Tensor:
        """Return the ancestor of each node that many hops up ``[n]``; -1 where there is none, and the node for 0."""
        if hops < 0:
            raise ValueError(f"hops must be 0 or more, got {hops}")
        above = torch.arange(self.num_nodes)
        for _ in range(min(hops, len(self.levels))):
            above = torch.where(above >= 0, self.parent[above.clamp_min(0)], -1)
        return above

    def path_to_root(self, node: int) -> Tensor:
        """Return the ancestors of a node, the parent first and the root last."""
        path, above = [], int(self.parent[node])
        while above >= 0:
            path.append(above)
            above = int(self.parent[above])
        return torch.tensor(path, dtype=torch.int64)

    def is_ancestor(self, upper: Tensor, lower: Tensor) -> Tensor:
        """Return whether ``upper`` is a proper ancestor of ``lower``; the two broadcast."""
        start = self.position[upper]
        place = self.position[lower]
        return (start < place) & (place < start + self.subtree_size[upper])

    def subtree(self, node: int) -> Tensor:
        """Return a node and all nodes below it, in depth-first order.

        Example:
            >>> complete_tree(2, 2).subtree(1).tolist()
            [1, 3, 4]
        """
        start = int(self.position[node])
        return self._depth_first[start : start + int(self.subtree_size[node])]

    def closure(self) -> Tensor:
        """Return all pairs (node, proper ancestor) ``[2, m]``, the pairs one hop apart first.

        Example:
            >>> complete_tree(1, 2).closure().tolist()
            [[1, 2, 2], [0, 1, 0]]
        """
        node, above = torch.arange(self.num_nodes), self.parent
        pairs = []
        while bool((above >= 0).any()):
            node, above = node[above >= 0], above[above >= 0]
            pairs.append(torch.stack([node, above]))
            above = self.parent[above]
        return torch.cat(pairs, dim=1) if pairs else torch.empty(2, 0, dtype=torch.int64)

    def induced(self, nodes: Tensor) -> RootedTree:
        """Return the tree of some nodes, renumbered in the given order; a node whose parent is left out is a root.

        Example:
            >>> complete_tree(2, 2).induced(torch.tensor([1, 3, 4])).parent.tolist()
            [-1, 0, 0]
        """
        number = torch.full((self.num_nodes + 1,), -1)  # the last entry is that of the parent -1
        number[nodes] = torch.arange(nodes.numel())
        names = tuple(self.names[node] for node in nodes.tolist()) if self.names else ()
        return dataclasses.replace(self, parent=number[self.parent[nodes]], names=names)

    def called(self, node: int) -> str:
        """Return the name of a node for messages."""
        return f"node {quoted(self.names[node])}" if self.names else f"node {node}"

    @cached_property
    def _depth_first(self) -> Tensor:
        return self.position.argsort()

    @cached_property
    def _by_parent(self) -> tuple[Tensor, Tensor]:
        """The nodes that have a parent, sorted by it, and where the children of each node start [n + 1]."""
        order = self.parent.argsort(stable=True)[self.roots.numel() :]
        start = torch.cat([torch.zeros(1, dtype=torch.int64), self.num_children.cumsum(0)])
        return order, start

    def _children_of(self, nodes: Tensor) -> Tensor:
        order, start = self._by_parent
        counts = self.num_children[nodes]
        ends = counts.cumsum(0)
        within = torch.arange(int(ends[-1]) if ends.numel() else 0) - torch.repeat_interleave(ends - counts, counts)
        return order[torch.repeat_interleave(start[nodes], counts) + within]


def complete_tree(branching: int, depth: int) -> RootedTree:
    """Return the tree in which every node above ``depth`` has ``branching`` children; nodes are numbered by level.

    Example:
        >>> complete_tree(2, 2).parent.tolist()
        [-1, 0, 0, 1, 1, 2, 2]
    """
    if branching < 1 or depth < 0:
        raise ValueError(f"complete_tree(branching={branching}, depth={depth}): needs branching >= 1 and depth >= 0")
    nodes = sum(branching**level for level in range(depth + 1))
    if nodes > NODES:
        raise ValueError(
            f"complete_tree(branching={branching}, depth={depth}) has {nodes:,} nodes; the limit is {NODES:,}"
        )
    return RootedTree((torch.arange(nodes) - 1).div(branching, rounding_mode="floor").clamp_min(-1))


def random_tree(branching: float, depth: int, *, parts: int = 1, growing: int = 2, seed: int = 0) -> RootedTree:
    """Return a random tree whose size grows linearly with its depth: a root, and ``parts`` trees below it.

    Each part has a node with children at every level above ``depth``, so the tree is as deep as asked for. A node that
    grows has 1 to 2 ``branching`` - 1 children, ``branching`` on average; of all nodes of a level in a part, up to
    ``growing`` random ones grow, the others are leaves. The nodes of a part differ in degree, as in real taxonomies,
    which a complete tree does not show.

    Args:
        branching: Mean number of children of a node that grows, at least 1. 1 gives paths.
        depth: Depth of the deepest nodes, at least 1.
        parts: Number of children of the root.
        growing: Largest number of nodes that grow, per part and level.
        seed: Seed of all random numbers.

    Example:
        >>> tree = random_tree(3, depth=5, parts=10)
        >>> int(tree.height[0]), int((tree.height == 4).sum())
        (5, 10)
    """
    if not (branching >= 1 and depth >= 1 and parts >= 1 and growing >= 1):
        raise ValueError(
            f"random_tree(branching={branching}, depth={depth}, parts={parts}, growing={growing}): every number must "
            "be at least 1"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    parent = [-1] + [0] * parts
    level = [[part] for part in range(1, parts + 1)]
    for _ in range(1, depth):
        grown = []
        for nodes in level:
            below: list[int] = []
            for node in rng.permutation(nodes)[:growing].tolist():
                count = 1 + int(rng.uniform(0, 2 * (branching - 1)) + rng.random())
                below += range(len(parent), len(parent) + count)
                parent += [node] * count
            if len(parent) > NODES:
                raise ValueError(f"random_tree would have more than {NODES:,} nodes; choose fewer parts or levels")
            grown.append(below)
        level = grown
    return RootedTree(torch.tensor(parent))
