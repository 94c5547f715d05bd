"""Graphs in the disk for the tests and the benchmark in the browser."""

import numpy as np

from lresnet.plots.poincare_disk import DiskEmbedding

HOSTILE = "<img src=x onerror=\"console.log('run')\"> </script> &amp; 'quoted' \\ 🌲"
"""A name that would be executed or lost if it were inserted as markup."""


def tree_embedding(nodes: int, seed: int = 0) -> DiskEmbedding:
    """A random tree: a child lies 1.1 radii of curvature further out than its parent, in the parent's sector."""
    rng = np.random.default_rng(seed)
    parent = np.maximum(0, (np.arange(nodes) - 1) // 3)
    start, width, depth = np.zeros(nodes), np.full(nodes, 2 * np.pi), np.zeros(nodes)
    for child in range(1, nodes):
        above, place = parent[child], (child - 1) % 3
        width[child] = width[above] / 3
        start[child] = start[above] + place * width[child]
        depth[child] = depth[above] + 1
    angle = start + width * rng.uniform(0.3, 0.7, nodes)
    radius = np.tanh(0.55 * depth)
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    edges = np.stack([parent[1:], np.arange(1, nodes)])
    classes = ("even", "odd", "third </script><b>class</b>")
    labels = np.where(rng.random(nodes) < 0.2, 2, depth.astype(np.int64) % 2)
    names = tuple(HOSTILE if i == 5 else f"n{i}" for i in range(nodes))
    return DiskEmbedding("a tree & its branches", points, edges, labels, classes, names)


def cloud_embedding(nodes: int, edges: int, seed: int = 0) -> DiskEmbedding:
    """Points all over the disk with random edges: the worst case for drawing, as nothing is small on the screen."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, nodes), 0.98 * np.sqrt(rng.uniform(0, 1, nodes))
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    classes = tuple(f"class {k}" for k in range(7))
    return DiskEmbedding("a cloud", points, rng.integers(0, nodes, (2, edges)), rng.integers(0, 7, nodes), classes)
