"""Checks of graphs and their conversion to PyG data."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data, HeteroData

from lresnet.data import Graph
from lresnet.data.edges import merge_edges

EDGES = np.array([[0, 1, 2, 2], [1, 0, 3, 2]])
FEATURES = np.arange(8.0).reshape(4, 2)
LABELS = np.array([0, 1, 1, 0])


def test_edges_are_made_undirected_and_data_has_no_self_loops() -> None:
    graph = Graph.checked("small", FEATURES, EDGES, LABELS, {"train": np.array([True, False, False, True])})
    assert graph.edges.tolist() == [[0, 2, 2], [1, 2, 3]]
    data = graph.to_data()
    assert data.edge_index.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    assert data.x.dtype == torch.float32
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.train_mask.tolist() == [True, False, False, True]
    assert data.num_nodes == 4
    assert not data.has_self_loops()
    assert data.is_undirected()


def _with_nan(row: int) -> Any:
    features = FEATURES.copy()
    features[row, 1] = np.nan
    return features


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edges": np.array([[0, 1], [1, 4]])}, "edge 1 joins 1 and 4, but the nodes are 0 to 3"),
        ({"edges": np.array([[0, -1], [1, 2]])}, "edge 1 joins -1 and 2"),
        ({"edges": np.zeros((2, 0), dtype=np.int64)}, "no edges"),
        ({"features": _with_nan(2)}, "features of node 2 .row 2. contain NaN"),
        ({"features": sparse.csr_array(_with_nan(3))}, "features of node 3"),
        ({"features": FEATURES[:0]}, "at least one node and one feature"),
        ({"edges": np.array([[0.0, 1.0], [1.0, 2.0]])}, "the edges are float64"),
        ({"edges": np.arange(9).reshape(3, 3)}, r"the edges have shape \[3, 3\]"),
        ({"edges": np.array([[1, 2], [1, 2]])}, "all 2 edges are self loops"),
        ({"features": FEATURES[:, 0]}, r"the features have shape \[4\]; give one row per node"),
        ({"features": np.array([["a"], ["b"]])}, "the features are <U1; features must be numbers"),
        ({"num_nodes": 3}, "the features have 4 rows for 3 nodes"),
        ({"num_nodes": True}, "num_nodes=True"),
        ({"weights": [1.0, 2.0]}, r"the weights have shape \[2\] for 4 edges"),
        ({"weights": [1.0, 2.0, 0.0, 1.0]}, "the weight of edge 2 is 0.0; weights must be positive and finite"),
        ({"weights": [1.0, 2.0, 1.0, -1.0]}, "the weight of edge 3 is -1.0"),
        ({"weights": [1.0, np.nan, 1.0, 1.0]}, "the weight of edge 1 is nan"),
        ({"weights": [1.0, 1e-60, 1.0, 1.0]}, "the weight of edge 1 is 1e-60"),
        ({"labels": np.array([0, 1, 10**9, 0])}, "the highest label is 1000000000"),
        ({"labels": ["a", "a", "", "a"]}, "all labels are a"),
        ({"labels": [True, True, True, True]}, "all labels are True"),
        ({"labels": ["a", "b", "b", "b"], "classes": ["a"]}, "the label 'b' is not among the 1 class names"),
        ({"masks": {"val": np.array([2, 0, 0, 0])}}, "the val mask is int64; a mask holds True or False"),
        ({"labels": np.array([0, 1])}, r"the labels have shape \[2\], but there are 4 nodes"),
        ({"labels": np.array([0.5, 1, 1, 1])}, "labels must be integers"),
        ({"labels": np.array([1, 1, 1, 1])}, "all labels are 1"),
        ({"masks": {"val": np.array([True])}}, "the val mask has 1 entries for 4 nodes"),
        ({"names": ["a", "b"]}, "there are 2 names for 4 nodes"),
        ({"classes": ["a"]}, "there are 1 class names, but a label is 1"),
    ],
)
def test_errors_are_reported_in_one_line(change: dict[str, Any], words: str) -> None:
    parts = {"features": FEATURES, "edges": EDGES, "labels": LABELS} | change
    with pytest.raises(ValueError, match=f"^small: .*{words}") as caught:
        Graph.checked("small", **parts)
    assert "\n" not in str(caught.value)


def test_edges_as_rows_are_transposed_and_never_cut() -> None:
    rows = np.array([[0, 1], [1, 2], [2, 3]])
    assert Graph.checked("rows", FEATURES, rows).edges.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert Graph.checked("columns", FEATURES, np.array([[0, 1], [2, 3]])).edges.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("labels", "numbers", "classes"),
    [
        (np.array([0, 1, -1, 0]), [0, 1, -1, 0], ()),
        (np.array([0, np.nan, 1, -5]), [0, -1, 1, -1], ()),
        (np.array([[0], [1], [1], [0]]), [0, 1, 1, 0], ()),
        (["cat", "dog", "", "cat"], [0, 1, -1, 0], ("cat", "dog")),
        (["10", "9", "-1", "10"], [1, 0, -1, 1], ("9", "10")),
        (["1", "0", "nan", "2"], [1, 0, -1, 2], ()),
        (np.array([None, "b", "a", "b"], dtype=object), [-1, 1, 0, 1], ("a", "b")),
        ([True, False, True, True], [1, 0, 1, 1], ("False", "True")),
        (torch.tensor([0.0, 1.0, 2.0, 2.0]), [0, 1, 2, 2], ()),
    ],
)
def test_labels_of_every_kind_are_numbered(labels: Any, numbers: list[int], classes: tuple[str, ...]) -> None:
    graph = Graph.checked("small", None, EDGES, labels)
    assert graph.labels is not None
    assert (graph.labels.tolist(), graph.classes) == (numbers, classes)
    assert graph.num_classes == max(numbers) + 1


def test_labels_that_are_all_missing_are_none_and_noted() -> None:
    graph = Graph.checked("small", None, EDGES, [-1, -1, -1, -1])
    assert graph.labels is None
    assert graph.num_classes == 0
    assert graph.notes == ("No node has a label.",)


def test_number_of_nodes_without_features() -> None:
    assert Graph.checked("edges", None, EDGES).num_nodes == 4
    assert Graph.checked("names", None, EDGES, names=list("abcde")).num_nodes == 5
    assert Graph.checked("given", None, EDGES, num_nodes=9).num_nodes == 9
    assert Graph("old", FEATURES, torch.tensor([[0], [1]])).num_nodes == 4
    with pytest.raises(ValueError, match="edge 2 joins 2 and 3, but the nodes are 0 to 2"):
        Graph.checked("few", None, EDGES, num_nodes=3)


def test_weights_of_repeated_edges_are_added_and_those_of_both_directions_averaged() -> None:
    edges = torch.tensor([[1, 0, 0, 2], [0, 1, 1, 3]])
    merged = merge_edges(edges, 4, torch.tensor([2.0, 1.0, 3.0, 5.0]))
    assert merged.edges.tolist() == [[0, 2], [1, 3]]
    assert merged.weights is not None
    assert merged.weights.tolist() == [3.0, 5.0]  # (2 + (1 + 3)) / 2
    assert (merged.repeated, merged.reversed, merged.unequal) == (1, 1, 1)
    kept = merge_edges(edges, 4, torch.tensor([2.0, 1.0, 3.0, 5.0]), directed=True)
    assert kept.edges.tolist() == [[0, 1, 2], [1, 0, 3]]
    assert kept.weights is not None
    assert kept.weights.tolist() == [4.0, 2.0, 5.0]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("featured", [False, True])
def test_data_round_trip(directed: bool, weighted: bool, featured: bool) -> None:
    # In the directed case (0, 1) and (1, 0) make a graph that would look undirected without data.directed.
    edges = np.array([[0, 1], [1, 0]]) if directed else np.array([[0, 1, 3], [1, 2, 0]])
    graph = Graph.checked(
        "round",
        FEATURES if featured else None,
        edges,
        [0, -1, 2, -1],
        {"train": np.eye(4, dtype=bool)[:, :3], "val": np.array([False, True, False, False])},
        num_nodes=4,
        weights=[0.5, 2.0, 3.0][: edges.shape[1]] if weighted else None,
        directed=directed,
    )
    again = Graph.from_data(graph.to_data(), "round")
    assert again.edges.tolist() == graph.edges.tolist()
    assert again.directed is directed
    assert again.num_nodes == 4
    assert again.labels is not None
    assert again.labels.tolist() == [0, -1, 2, -1]
    assert {part: mask.tolist() for part, mask in again.masks.items()} == {
        part: mask.tolist() for part, mask in graph.masks.items()
    }
    if weighted:
        assert again.weights is not None
        assert graph.weights is not None
        assert again.weights.dtype == torch.float32
        assert again.weights.tolist() == graph.weights.tolist()
    else:
        assert again.weights is None
    if featured:
        assert np.array_equal(again.features, FEATURES)
    else:
        assert again.features is None


def test_direction_of_data_is_detected_by_edges_and_weights() -> None:
    index = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    undirected = Graph.from_data(Data(edge_index=index, edge_weight=torch.tensor([2.0, 2.0, 3.0, 3.0, 9.0])))
    assert not undirected.directed
    assert undirected.edges.tolist() == [[0, 1], [1, 2]]
    assert undirected.notes == (
        "1 self loop is left out.",
        "The graph is undirected: each edge occurs in both directions.",
    )
    unequal = Graph.from_data(Data(edge_index=index, edge_weight=torch.tensor([2.0, 1.0, 3.0, 3.0, 9.0])))
    assert unequal.directed
    assert unequal.notes[-1] == "The graph is directed: 2 edges have no reverse edge of the same weight."
    one_way = Graph.from_data(Data(edge_index=index[:, :3], num_nodes=3))
    assert one_way.directed
    assert one_way.edges.tolist() == [[0, 1, 1], [1, 0, 2]]


def test_data_with_sparse_features_columns_and_attributes() -> None:
    x = torch.tensor([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])
    index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    data = Data(x=x.to_sparse(), edge_index=index, y=torch.tensor([[0.0], [1.0], [float("nan")]]))
    data.edge_attr = torch.tensor([[1.0], [1.0], [4.0], [4.0]])
    graph = Graph.from_data(data)
    assert isinstance(graph.features, sparse.csr_array)
    assert graph.features.toarray().tolist() == x.tolist()
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.weights is not None
    assert graph.weights.tolist() == [1.0, 4.0]
    data.edge_attr = torch.tensor([[1.0, 2.0]] * 4)
    assert "edge_attr [4, 2] is not read: it does not hold one positive number per edge." in Graph.from_data(data).notes
    data.y = torch.tensor([1])
    graph = Graph.from_data(data)
    assert graph.labels is None
    assert "y is not read: it is one label of the whole graph, not one per node." in graph.notes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (HeteroData(), "HeteroData is not a PyG Data with one type of nodes"),
        (Data(x=torch.zeros(2, 1)), "the data has no edge_index"),
        (Data(edge_index=torch.tensor([[0, 1], [1, 2], [2, 3]])), r"edge_index has shape \[3, 2\]"),
        (Data(edge_index=torch.tensor([[0.0], [1.0]])), "edge_index is torch.float32"),
        (Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [2]])), "edge 0 joins 0 and 2"),
        (Data(edge_index=torch.tensor([[0], [1]]), y=torch.zeros(2, 5)), r"y has shape \[2, 5\]"),
        (Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0.5, 1.5])), "labels must be integers"),
        (Data(edge_index=torch.tensor([[0], [0]])), "all 1 edges are self loops"),
        (Data(edge_index=torch.tensor([[0], [1]]), edge_weight=torch.tensor([-1.0])), "the weight of edge 0 is -1"),
    ],
)
def test_refused_data(data: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^graph: .*{words}") as caught:
        Graph.from_data(data)
    assert "\n" not in str(caught.value)
