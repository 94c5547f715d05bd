"""Graphs whose distances are known, and delta by brute force."""

from itertools import combinations

import numpy as np
import torch


def brute_force(d):
    """Delta of every quadruple, straight from the definition."""
    deltas = []
    for a, b, c, e in combinations(range(len(d)), 4):
        s = sorted([d[a, b] + d[c, e], d[a, c] + d[b, e], d[a, e] + d[b, c]])
        deltas.append((s[2] - s[1]) / 2)
    return max(deltas, default=0.0), float(np.mean(deltas)) if deltas else 0.0


def shortest_path_closure(d):
    d = np.array(d, dtype=float)
    for k in range(len(d)):
        d = np.minimum(d, d[:, k, None] + d[k])
    return d


def hop_matrix(edges, n):
    d = np.full((n, n), np.inf)
    np.fill_diagonal(d, 0)
    for a, b in edges:
        if a != b:
            d[a, b] = d[b, a] = 1
    return shortest_path_closure(d)


def largest_component(d):
    sizes = np.isfinite(d).sum(axis=1)
    members = np.flatnonzero(np.isfinite(d[sizes.argmax()]))
    return d[np.ix_(members, members)]


def edge_index(edges):
    return torch.tensor(sorted(edges), dtype=torch.int64).reshape(-1, 2).T


def cycle(n):
    return edge_index([(i, (i + 1) % n) for i in range(n)])


def grid(k):
    right = [(k * i + j, k * i + j + 1) for i in range(k) for j in range(k - 1)]
    down = [(k * i + j, k * i + j + k) for i in range(k - 1) for j in range(k)]
    return edge_index(right + down)


def tree(n, seed=0):
    rng = np.random.default_rng(seed)
    return edge_index([(i, int(rng.integers(i))) for i in range(1, n)])


def random_graph(n, extra, seed=0):
    rng = np.random.default_rng(seed)
    return torch.cat([tree(n, seed), torch.from_numpy(rng.integers(n, size=(2, extra)))], dim=1)
