"""Checks of graphs and their conversion to PyG data."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from lresnet.data import Graph

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
        ({"labels": np.array([0, 1, -1, 0])}, "node 2 has no label"),
        ({"labels": np.array([0, np.nan, 1, 0])}, "node 1 has no label"),
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
