"""Rooted trees over classes: ancestors, lowest common ancestors, heights and distances in edges."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["ClassTree"]


class ClassTree:
    """A rooted tree whose first nodes are the classes of a data set.

    Nodes are numbered. Classes 0 to C - 1 are the nodes 0 to C - 1; they are usually leaves. The other nodes are
    superclasses. The *depth* of a node is its number of edges to the root. Its *height* is the number of edges of the
    longest path down to a leaf: 0 for a leaf. In the two-level tree of :meth:`from_groups` a superclass has height 1,
    the root 2.

    Args:
        parents: Parent of every node, integers [V]. The root is its own parent, or has the parent -1.
        num_classes: Number C of classes. Default: all nodes are classes.

    Raises:
        ValueError: There is no root or more than one, a parent does not exist, or parents form a cycle.

    Example:
        >>> tree = ClassTree.from_groups([0, 0, 1, 1])
        >>> tree.parents.tolist(), tree.height.tolist()
        ([4, 4, 5, 5, 6, 6, 6], [0, 0, 0, 0, 1, 1, 2])
        >>> tree.lca_height(torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2])).tolist()
        [0, 1, 2]
    """

    parents: Tensor
    """Parent of every node, [V]; the root is its own parent."""
    depth: Tensor
    """Number of edges to the root, [V]."""
    height: Tensor
    """Number of edges of the longest path down to a leaf, [V]."""
    paths: Tensor
    """Path from the root to every node, [V, D + 1]: column j holds the ancestor at depth j, or -1 below the node."""

    def __init__(self, parents: Tensor | Sequence[int], num_classes: int | None = None) -> None:
        own = torch.as_tensor(parents)
        if own.dim() != 1 or own.numel() == 0 or own.is_floating_point() or own.dtype == torch.bool:
            raise ValueError(f"parents must be integers [V], got {own.dtype} {tuple(own.shape)}")
        own = own.long()
        nodes = torch.arange(len(own), device=own.device)
        is_root = (own == -1) | (own == nodes)
        if int(is_root.sum()) != 1:
            raise ValueError(
                f"a class tree has one root, got {int(is_root.sum())}; the root is its own parent or has the parent -1"
            )
        own = torch.where(is_root, nodes, own)
        wrong = (own < 0) | (own >= len(own))
        if bool(wrong.any()):
            node = int(wrong.nonzero()[0])
            raise ValueError(f"node {node} has the parent {int(own[node])}, but nodes are 0 to {len(own) - 1}")
        self.num_classes = len(own) if num_classes is None else num_classes
        if not 1 <= self.num_classes <= len(own):
            raise ValueError(f"num_classes must be 1 to {len(own)} (the number of nodes), got {num_classes}")
        self.parents, self.root = own, int(is_root.nonzero()[0])
        upwards = _upwards(own, self.root)
        self.depth = (torch.stack(upwards) != self.root).sum(0)
        self.height = _height(own, self.depth)
        self.paths = _paths(upwards, self.depth)

    @classmethod
    def from_groups(cls, groups: Tensor | Sequence[int]) -> ClassTree:
        """Return the tree of two levels in which class c has the superclass ``groups[c]``, numbered from 0.

        Example:
            >>> ClassTree.from_groups([1, 0, 1]).num_classes
            3
        """
        own = torch.as_tensor(groups)
        if own.dim() != 1 or own.numel() == 0 or own.is_floating_point() or int(own.min()) < 0:
            raise ValueError(f"groups must be integers [C], 0 or more, got {own.dtype} {tuple(own.shape)}")
        own, count = own.long(), int(own.max()) + 1
        root = torch.full((count + 1,), len(own) + count, device=own.device)
        return cls(torch.cat([own + len(own), root]), num_classes=len(own))

    def __len__(self) -> int:
        return len(self.parents)

    def __repr__(self) -> str:
        return f"ClassTree({len(self)} nodes, {self.num_classes} classes, height {int(self.height[self.root])})"

    def to(self, device: torch.device | str) -> ClassTree:
        """Return the tree with its tensors on ``device``."""
        moved = object.__new__(ClassTree)
        moved.num_classes, moved.root = self.num_classes, self.root
        for name in ("parents", "depth", "height", "paths"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved

    def ancestor(self, node: Tensor, depth: int) -> Tensor:
        """Return the ancestor at ``depth`` of every node, or the node itself if it is not deeper.

        Example:
            >>> ClassTree.from_groups([0, 0, 1]).ancestor(torch.tensor([0, 1, 2]), depth=1)
            tensor([3, 3, 4])
        """
        found = self.paths[node, min(depth, self.paths.shape[1] - 1)]
        return torch.where(found < 0, node, found)

    def lca(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the lowest common ancestor of nodes; a and b broadcast."""
        return self._at_depth(a, self._shared(a, b) - 1)

    def lca_height(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the height of the lowest common ancestor, 0 for equal leaves; a and b broadcast."""
        return self.height[self.lca(a, b)]

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the number of edges of the path between two nodes; a and b broadcast."""
        return self.depth[a] + self.depth[b] - 2 * (self._shared(a, b) - 1)

    def levels(self, node: Tensor) -> Tensor:
        """Return the node and its ancestors below the root, from fine to coarse, as labels of a contrastive loss.

        A node that is less deep than others repeats itself on the finer levels.

        Shapes:
            [N] -> [N, D] with D the depth of the tree.

        Example:
            >>> ClassTree.from_groups([0, 0, 1]).levels(torch.tensor([1, 2]))
            tensor([[1, 3],
                    [2, 4]])
        """
        deepest = self.paths.shape[1] - 1
        return torch.stack([self.ancestor(node, depth) for depth in range(deepest, 0, -1)], -1)

    def _shared(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the number of ancestors (a node is one of its own) that a and b share."""
        p, q = self.paths[a], self.paths[b]
        return ((p == q) & (p >= 0)).sum(-1)

    def _at_depth(self, node: Tensor, depth: Tensor) -> Tensor:
        node, depth = torch.broadcast_tensors(node, depth)
        return self.paths[node].gather(-1, depth.unsqueeze(-1)).squeeze(-1)


def _upwards(parents: Tensor, root: int) -> list[Tensor]:
    """Return every node, its parent, its grandparent, ..., until all have reached the root."""
    steps = [torch.arange(len(parents), device=parents.device)]
    while bool((steps[-1] != root).any()):
        if len(steps) > len(parents):
            node = int((steps[-1] != root).nonzero()[0])
            raise ValueError(f"the parents of node {node} form a cycle and never reach the root {root}")
        steps.append(parents[steps[-1]])
    return steps


def _height(parents: Tensor, depth: Tensor) -> Tensor:
    height = torch.zeros_like(depth)
    for level in range(int(depth.max()), 0, -1):
        nodes = (depth == level).nonzero().squeeze(-1)
        height.scatter_reduce_(0, parents[nodes], height[nodes] + 1, "amax")
    return height


def _paths(upwards: list[Tensor], depth: Tensor) -> Tensor:
    """Return the table of ancestors by depth: k steps above a node of depth j stands its ancestor of depth j - k."""
    table = depth.new_full((len(depth), int(depth.max()) + 1), -1)
    for steps, nodes in enumerate(upwards):
        reached = (depth >= steps).nonzero().squeeze(-1)
        table[reached, depth[reached] - steps] = nodes[reached]
    return table
