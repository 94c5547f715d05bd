"""Node features as the input of a model."""

from random import Random

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from lresnet.data.graph import Graph
from lresnet.data.node_features import input_features, structural_features
from lresnet.data.pairs import both_directions


def _graph(features: object, nodes: int = 6) -> Graph:
    return Graph.checked("ring", features, np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes]))


def _index(graph: Graph) -> torch.Tensor:
    return both_directions(graph.edges, graph.num_nodes)


@st.composite
def _random_graphs(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    nodes = draw(st.integers(2, 12))
    pairs = [(i, j) for i in range(nodes) for j in range(i)]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    return both_directions(torch.tensor(chosen).T, nodes), nodes


@given(_random_graphs(), st.randoms(use_true_random=False))
def test_structural_features_follow_the_nodes_when_they_are_renumbered(
    graph: tuple[torch.Tensor, int], random: Random
) -> None:
    edge_index, nodes = graph
    order = list(range(nodes))
    random.shuffle(order)
    new = torch.tensor(order)
    renumbered = structural_features(new[edge_index], nodes)
    torch.testing.assert_close(renumbered[new], structural_features(edge_index, nodes), rtol=1e-6, atol=1e-6)


@given(_random_graphs())
def test_structural_features_are_those_of_networkx(graph: tuple[torch.Tensor, int]) -> None:
    edge_index, nodes = graph
    known = nx.Graph(edge_index.T.tolist())
    known.add_nodes_from(range(nodes))
    x = structural_features(edge_index, nodes)
    degree = torch.tensor([known.degree(i) for i in range(nodes)]).double()
    clustering = nx.clustering(known)
    torch.testing.assert_close(2 * x[:, 0].double(), degree.log1p(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(x[:, 3], torch.tensor([clustering[i] for i in range(nodes)]).float())
    rank = nx.pagerank(known, tol=1e-10, max_iter=1000)
    found = (2 * x[:, 4].double()).exp() / nodes
    torch.testing.assert_close(found, torch.tensor([rank[i] for i in range(nodes)]).double(), rtol=0.02, atol=1e-4)
    assert torch.equal(x[:, 5:].sum(1), torch.ones(nodes)), "one bin of the degree"


def test_without_features_the_input_is_one_row_of_the_identity_per_node() -> None:
    graph = _graph(None)
    x, note = input_features(graph, _index(graph))
    assert x.is_sparse
    assert torch.equal(x.to_dense(), torch.eye(6))
    table = torch.randn(6, 3)
    assert torch.equal(torch.sparse.mm(x, table), table), "a linear map of it is one learned vector per node"
    assert note == "The graph has no features: every node has a learned point."


def test_standardised_features_use_the_statistics_of_the_other_graph() -> None:
    generator = np.random.default_rng(0)
    trained, new = _graph(generator.normal(5, 3, (6, 4))), _graph(generator.normal(-1, 2, (8, 4)), 8)
    x, note = input_features(new, _index(new), like=trained)
    mean, deviation = trained.features.mean(0), trained.features.std(0)
    np.testing.assert_allclose(x.numpy(), (new.features - mean) / deviation, rtol=1e-5, atol=1e-5)
    assert note == "4 features per node, standardised."
    own = input_features(new, _index(new)).x
    torch.testing.assert_close(own.mean(0), torch.zeros(4), atol=1e-6, rtol=0)


def test_a_constant_column_is_0_and_not_nan() -> None:
    graph = _graph(np.stack([np.ones(6), np.arange(6.0)], axis=1))
    x = input_features(graph, _index(graph)).x
    assert torch.equal(x[:, 0], torch.zeros(6))
    assert bool(x.isfinite().all())


@pytest.mark.parametrize("as_sparse", [False, True])
def test_bags_of_words_have_rows_of_sum_1(as_sparse: bool) -> None:
    words = (np.random.default_rng(0).random((6, 40)) < 0.1).astype(float)
    words[2] = 0
    graph = _graph(sparse.csr_array(words) if as_sparse else words)
    x, note = input_features(graph, _index(graph))
    total = words.sum(1, keepdims=True)
    np.testing.assert_allclose(x.numpy(), np.divide(words, total, where=total > 0, out=np.zeros_like(words)), rtol=1e-6)
    assert note == "40 features per node, rows divided by their sums."


def test_wrong_sources_kinds_and_widths_are_refused() -> None:
    plain, own = _graph(None), _graph(np.eye(6))
    with pytest.raises(ValueError, match=r"^ring has no features; use learned or structural ones$"):
        input_features(plain, _index(plain), "own")
    with pytest.raises(ValueError, match=r"unknown source of node features 'guess'; choose one of own, learned"):
        input_features(own, _index(own), "guess")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='choose "published", "standardised" or "raw"'):
        input_features(own, _index(own), kind="nice")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^ring has 6 features per node, but 5 are needed$"):
        input_features(own, _index(own), like=_graph(np.ones((6, 5))))
    assert torch.equal(input_features(own, _index(own), kind="raw").x, torch.eye(6))


@pytest.mark.parametrize("kind", ["published", "raw"])
def test_sparse_features_that_stay_sparse_may_have_unsorted_columns(kind, monkeypatch) -> None:
    monkeypatch.setattr("lresnet.data.node_features._LARGEST_DENSE", 10)
    words = sparse.random_array((6, 40), density=0.1, rng=np.random.default_rng(0), format="csr")
    unsorted = sparse.csr_array(sparse.diags_array(np.ones(6)) @ words)  # products leave the columns in any order
    x = input_features(_graph(unsorted), _index(_graph(unsorted)), kind=kind).x
    assert x.is_sparse
    dense = words.toarray()
    total = dense.sum(axis=1, keepdims=True) if kind == "published" else np.ones((6, 1))
    np.testing.assert_allclose(x.to_dense().numpy(), np.divide(dense, total, where=total > 0, out=0 * dense), rtol=1e-6)
