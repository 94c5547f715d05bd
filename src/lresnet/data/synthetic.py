"""An epidemic on a random tree: the data set that is always there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lresnet.data.graph import Graph

__all__ = ["disease_tree"]

_SYMPTOM = 2.0  # how much higher the last feature of an infected person is, in steps of a trait along an edge


def disease_tree(
    nodes: int = 1000,
    branching: float = 3.0,
    infection_rate: float = 0.8,
    feature_noise: float = 1.5,
    features: int = 10,
    seed: int = 0,
) -> Graph:
    """A random tree of contacts, an SIR epidemic that starts at its root, and noisy traits of the people in it.

    - The tree grows level by level: each person has 1 to 2 ``branching`` - 1 contacts below, until there are enough.
    - Every person has ``features`` - 1 traits. They drift along the tree by a random step per edge, so that people are
      alike when they are close in the tree: from traits and graph a missing contact can be told (link prediction).
    - A person's susceptibility is a fixed direction of the traits. An infected person infects each contact below with
      a probability that is ``infection_rate`` on average and higher the more susceptible the contact is, and then
      recovers: whoever was ever infected has label 1 (node classification). It reaches nobody but through the tree.
    - The features are the traits and, last, the symptoms (2 for the infected, 0 for others), all with noise: one
      person's tell little, those of a neighbourhood tell much.

    Args:
        nodes: n, at least 4.
        branching: mean number of contacts below a person, at least 1; 1 is a path, larger is shallower.
        infection_rate: mean probability that an infection is passed on, in (0, 1); higher means more of label 1.
        feature_noise: standard deviation of the noise in units of one step of the traits; 0 shows traits and symptoms
            themselves, at 3 little is left of them.
        features: f, at least 2.
        seed: everything random follows it.

    Returns:
        A graph of n nodes, n - 1 edges, f features and 2 classes, the root being node 0.

    Example:
        >>> tree = disease_tree(nodes=50, seed=1)
        >>> tree.edges.shape, tree.features.shape
        (torch.Size([2, 49]), (50, 10))
    """
    if nodes < 4 or features < 2 or branching < 1 or not 0 < infection_rate < 1 or feature_noise < 0:
        raise ValueError(
            f"disease_tree(nodes={nodes}, branching={branching}, infection_rate={infection_rate}, "
            f"feature_noise={feature_noise}, features={features}): needs nodes >= 4, branching >= 1, "
            "0 < infection_rate < 1, feature_noise >= 0 and features >= 2"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    parent = _random_tree(nodes, branching, rng)
    traits = _drift(parent, features - 1, rng)
    infected = _epidemic(parent, traits, infection_rate, rng)
    observed = np.column_stack([traits, _SYMPTOM * infected]) + feature_noise * rng.standard_normal((nodes, features))
    edges = np.stack([parent[1:], np.arange(1, nodes)])
    return Graph.checked("disease_tree", observed, edges, infected.astype(np.int64))


def _random_tree(nodes: int, branching: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """The parent of each node, lower than the node itself; the root's is -1."""
    extra = rng.uniform(0, 2 * (branching - 1), size=nodes)  # beyond the one child everybody has
    children = 1 + np.floor(extra + rng.random(nodes)).astype(np.int64)
    parent = np.repeat(np.arange(nodes), children)[: nodes - 1]
    return np.concatenate([[-1], parent])


def _drift(parent: NDArray[np.int64], features: int, rng: np.random.Generator) -> NDArray[np.float64]:
    traits = rng.standard_normal((parent.size, features))
    for node in range(1, parent.size):
        traits[node] += traits[parent[node]]
    return traits


def _epidemic(
    parent: NDArray[np.int64], traits: NDArray[np.float64], rate: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    direction = rng.standard_normal(traits.shape[1])
    susceptibility = traits @ direction
    rank = susceptibility.argsort().argsort() / (parent.size - 1)  # 0 to 1, whatever the scale of the traits
    # A power of a uniform variable has mean 1 / (1 + power): the mean over all people is the rate.
    chance = rank ** (1 / rate - 1)
    passed_on = rng.random(parent.size) < chance
    infected = np.zeros(parent.size, dtype=np.bool_)
    infected[0] = True
    for node in range(1, parent.size):
        infected[node] = infected[parent[node]] and passed_on[node]
    return infected
