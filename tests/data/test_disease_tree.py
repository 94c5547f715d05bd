"""The generated epidemic on a tree."""

from typing import Any

import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from lresnet.data import disease_tree


@pytest.mark.parametrize("branching", [1.0, 1.5, 4.0, 100.0])
@pytest.mark.parametrize("nodes", [4, 57, 500])
def test_graph_is_a_tree(nodes: int, branching: float) -> None:
    edges = disease_tree(nodes=nodes, branching=branching, infection_rate=0.5, seed=3).edges.numpy()
    assert edges.shape == (2, nodes - 1)
    graph = csr_array((edges[0] * 0 + 1, edges), shape=(nodes, nodes))
    assert connected_components(graph, directed=False)[0] == 1


def test_tree_follows_its_seed_only() -> None:
    torch.manual_seed(1)
    first = disease_tree(seed=5)
    torch.manual_seed(2)
    again, other = disease_tree(seed=5), disease_tree(seed=6)
    assert torch.equal(first.edges, again.edges)
    assert (first.features == again.features).all()
    assert torch.equal(first.labels, again.labels)  # type: ignore[arg-type]
    assert (first.features != other.features).any()


def test_the_epidemic_spreads_along_the_tree() -> None:
    for seed in range(5):
        tree = disease_tree(seed=seed)
        assert tree.labels is not None
        above, below = tree.edges
        assert tree.labels[0] == 1
        assert (tree.labels[above] >= tree.labels[below]).all(), "only infected contacts infect"
        assert 0.05 < tree.labels.float().mean() < 0.95


def test_higher_infection_rate_infects_more_people() -> None:
    shares = [
        torch.stack([disease_tree(infection_rate=rate, seed=seed).labels.float().mean() for seed in range(8)]).mean()  # type: ignore[union-attr]
        for rate in (0.5, 0.7, 0.9)
    ]
    assert shares[0] < shares[1] < shares[2]


def test_features_without_noise_are_exact() -> None:
    tree = disease_tree(feature_noise=0.0, features=4)
    x = torch.from_numpy(tree.features)
    assert torch.equal(x[:, 0], x[:, 1])
    assert torch.equal(x[:, 2], 2.0 * tree.labels)  # type: ignore[operator]
    assert x[:, 3].abs().max() <= 1
    above, below = tree.edges
    contacts = (x[above, 3] - x[below, 3]).abs().median()
    strangers = (x[above, 3] - x[below.flip(0), 3]).abs().median()
    assert contacts < 0.1 * strangers


@pytest.mark.parametrize(
    "wrong",
    [{"nodes": 3}, {"branching": 0.5}, {"infection_rate": 1.0}, {"feature_noise": -1.0}, {"features": 2}],
)
def test_invalid_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs nodes >= 4"):
        disease_tree(**wrong)
