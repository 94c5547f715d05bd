"""An epidemic on a random tree: the data set that is always there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lresnet.data.graph import Graph

__all__ = ["disease_tree"]

_SYMPTOM = 2.0  # what the symptoms of an infected person add to the feature that shows them
_HOME_NOISE = 0.01  # noise of the home, whose range is -1 to 1, relative to that of the other features


def disease_tree(
    nodes: int = 1000,
    branching: float = 4.0,
    infection_rate: float = 0.85,
    feature_noise: float = 1.0,
    features: int = 6,
    seed: int = 0,
) -> Graph:
    """A random tree of contacts, an SIR epidemic that starts at its root, and noisy features of the people in it.

    - The tree grows level by level: each person has 1 to 2 ``branching`` - 1 contacts below, until there are enough.
    - A person lives in the middle of a stretch of the line from -1 to 1 and shares it out among the contacts below.
      Contacts live close together, closer further down: with the graph, which tells who is how far down, a missing
      contact can be told (link prediction).
    - An infected person infects each contact below with a probability that is ``infection_rate`` on average and higher
      the more susceptible the contact is, and then recovers. Whoever was ever infected has label 1 (node
      classification). The epidemic reaches nobody but through the tree.
    - The features are ``features`` - 2 traits, each the susceptibility plus noise; the symptoms, 2 for the infected and
      0 for others, plus noise; and the home, with a hundredth of the noise. One person's traits and symptoms tell
      little, those of a neighbourhood tell much.

    Args:
        nodes: n, at least 4.
        branching: mean number of contacts below a person, at least 1; 1 is a path, larger is shallower.
        infection_rate: mean probability that an infection is passed on, in (0, 1); higher means more of label 1.
        feature_noise: standard deviation of the noise; susceptibility has deviation 1.
        features: f, at least 3.
        seed: everything random follows it.

    Returns:
        A graph of n nodes, n - 1 edges, f features and 2 classes; the root, where the epidemic starts, is node 0.

    Example:
        >>> tree = disease_tree(nodes=50, seed=1)
        >>> tree.edges.shape, tree.features.shape
        (torch.Size([2, 49]), (50, 6))
    """
    if nodes < 4 or features < 3 or branching < 1 or not 0 < infection_rate < 1 or feature_noise < 0:
        raise ValueError(
            f"disease_tree(nodes={nodes}, branching={branching}, infection_rate={infection_rate}, "
            f"feature_noise={feature_noise}, features={features}): needs nodes >= 4, branching >= 1, "
            "0 < infection_rate < 1, feature_noise >= 0 and features >= 3"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    parent = _random_tree(nodes, branching, rng)
    susceptibility = rng.standard_normal(nodes)
    infected = _epidemic(parent, susceptibility, infection_rate, rng)
    noise = feature_noise * rng.standard_normal((nodes, features))
    noise[:, -1] *= _HOME_NOISE
    traits = np.repeat(susceptibility[:, None], features - 2, axis=1)
    observed = np.column_stack([traits, _SYMPTOM * infected, _homes(parent)]) + noise
    edges = np.stack([parent[1:], np.arange(1, nodes)])
    return Graph.checked("disease_tree", observed, edges, infected.astype(np.int64))


def _random_tree(nodes: int, branching: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """The parent of each node, lower than the node itself; the root's is -1."""
    extra = rng.uniform(0, 2 * (branching - 1), size=nodes)  # beyond the one child everybody has
    children = 1 + np.floor(extra + rng.random(nodes)).astype(np.int64)
    parent = np.repeat(np.arange(nodes), children)[: nodes - 1]
    return np.concatenate([[-1], parent])


def _homes(parent: NDArray[np.int64]) -> NDArray[np.float64]:
    """The middle of everybody's stretch: the root's is [-1, 1], a child's an equal part of its parent's."""
    nodes = parent.size
    siblings = np.bincount(parent[1:], minlength=nodes)
    first_child = np.searchsorted(parent, np.arange(nodes))
    middle, half = np.zeros(nodes), np.ones(nodes)
    for node in range(1, nodes):
        above = parent[node]
        half[node] = half[above] / siblings[above]
        middle[node] = middle[above] - half[above] + (2 * (node - first_child[above]) + 1) * half[node]
    return middle


def _epidemic(
    parent: NDArray[np.int64], susceptibility: NDArray[np.float64], rate: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    rank = susceptibility.argsort().argsort() / (parent.size - 1)
    # A uniform variable to the power p has the mean 1 / (1 + p): over all people the chance is the rate.
    chance = rank ** (1 / rate - 1)
    passed_on = rng.random(parent.size) < chance
    infected = np.zeros(parent.size, dtype=np.bool_)
    infected[0] = True
    for node in range(1, parent.size):
        infected[node] = infected[parent[node]] and passed_on[node]
    return infected
