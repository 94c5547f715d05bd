"""Users' graphs from folders, arrays, networkx files and objects of other libraries."""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data

from lresnet.data import Graph, load_graph, read_graph
from lresnet.data.formats.graph_paths import looks_like_graph

EDGES = "Ann,Bob\nBob,Cid\nCid,Dan\n"


def folder(path: Path, **files: str | bytes) -> Path:
    """Write the files of a graph; ``features_csv`` is the file features.csv."""
    path.mkdir(exist_ok=True)
    for name, content in ({"edges_csv": EDGES} | files).items():
        file = path / ".".join(name.rsplit("_", 1))
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- folders ----------------------------------------------------------------------------------------------------------


def test_folder_with_names_everywhere(tmp_path: Path) -> None:
    graph = read_graph(
        folder(
            tmp_path / "people",
            features_tsv="node\tage\theight\nDan\t4\t40\nCid\t3\t30\nEve\t5\t50\nBob\t2\t20\nAnn\t1\t10\n",
            labels_csv="name,label\nAnn,red\nDan,blue\nEve,red\n",
            splits_txt="Ann train\nDan validation\nEve TEST\n",
        )
    )
    assert graph.name == "people"
    assert graph.names == ("Ann", "Bob", "Cid", "Dan", "Eve")
    assert graph.edges.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]]
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, -1, -1, 0, 1]
    assert graph.classes == ("blue", "red")
    assert {part: mask.nonzero().ravel().tolist() for part, mask in graph.masks.items()} == {
        "train": [0],
        "val": [3],
        "test": [4],
    }
    assert graph.notes == (
        "edges.csv has 3 rows; columns are separated by a comma.",
        "Line 1 of features.tsv is a header.",
        "1 node has features in features.tsv but no edges.",
        "labels.csv has a header.",
        "3 of 5 nodes have a label.",
    )


def test_features_without_names_are_rows_of_the_nodes(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", edges_csv="0,1\n1,2\n", features_csv="0.5,1\n0.25,2\n0.125,3\n")
    graph = read_graph(path)
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[0.5, 1], [0.25, 2], [0.125, 3]]
    named = folder(tmp_path / "h", edges_csv="0,1\n1,2\n", features_csv="2,7\n0,5\n1,6\n")
    graph = read_graph(named)  # the first column holds every node once
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[5], [6], [7]]


def test_array_rows_are_integer_names_and_further_rows_are_isolated_nodes(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", edges_csv="4,1\n1,2\n")
    np.save(path / "features.npy", np.arange(6.0)[:, None])
    np.save(path / "labels.npy", np.array([0, 1, -1, 1, 0, -1]))
    graph = read_graph(path)
    assert graph.num_nodes == 6
    assert graph.names == ()
    assert graph.edges.tolist() == [[1, 1], [2, 4]]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, -1, 1, 0, -1]
    assert "Node names are row numbers of features.npy; 3 nodes have no edges." in graph.notes


def test_sparse_features_and_splits_as_arrays(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", edges_csv="0,1\n1,2\n")
    matrix = sparse.csr_array(np.array([[0, 1.5], [0, 0], [2.5, 0]]))
    sparse.save_npz(path / "features.npz", matrix)
    np.savez(path / "splits.npz", train=np.array([0]), val_mask=np.array([0, 1, 0], dtype=bool), idx_test=[2])
    graph = read_graph(path)
    assert isinstance(graph.features, sparse.csr_array)
    assert (graph.features != matrix).nnz == 0
    assert {part: mask.tolist() for part, mask in graph.masks.items()} == {
        "train": [True, False, False],
        "val": [False, True, False],
        "test": [False, False, True],
    }


def test_several_splits_are_columns(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", splits_csv="node,split 0,split 1\nAnn,train,test\nBob,val,\nCid,test,train\n")
    graph = read_graph(path)
    assert graph.masks["train"].tolist() == [[True, False], [False, False], [False, True], [False, False]]
    assert graph.masks["test"].tolist() == [[False, True], [False, False], [True, False], [False, False]]


def test_a_class_with_one_node_is_read(tmp_path: Path) -> None:
    graph = read_graph(folder(tmp_path / "g", labels_csv="Ann,a\nBob,b\nCid,b\nDan,b\n"))
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 1, 1]


def test_features_and_labels_of_their_own_replace_those_of_the_folder(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", features_csv="damaged", labels_csv="damaged")
    (tmp_path / "other.csv").write_text("Ann;1\nBob;2\nCid;3\nDan;4\n")
    graph = read_graph(path, features=tmp_path / "other.csv", labels=["x", "y", None, "x"])
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[1], [2], [3], [4]]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, -1, 0]


def test_latin_1_labels_are_read_and_reported(tmp_path: Path) -> None:
    graph = read_graph(folder(tmp_path / "g", labels_csv="Ann,süß\nBob,sauer\n".encode("latin-1")))
    assert graph.classes == ("sauer", "süß")
    words = "labels.csv is not UTF-8 (line 1); it is read as Latin-1. If names look wrong, save it as UTF-8."
    assert words in graph.notes


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"features_csv": "Ann,1\nBob,nan\nCid,3\nDan,4\n"},
            r"features.csv, line 2: column 2 is 'nan'; features must be",
        ),
        ({"features_csv": "node,age\nAnn,1\nBob,\n"}, r"features.csv, line 3: column 2 \(age\) is ''"),
        (
            {"features_csv": "Ann,1\nBob,red\n"},
            "features.csv, line 2: column 2 is 'red'; features must be finite numbers",
        ),
        (
            {"features_csv": "Ann,1\nBob,2\nCid,3\n"},
            "features.csv has no row for node 'Dan'; it describes 3 of 4 nodes",
        ),
        (
            {"features_csv": "Ann,1\nBob,2\nAnn,3\n"},
            "features.csv, line 3: node 'Ann' occurs again; it is already in",
        ),
        ({"features_csv": "Ann,1,2\nBob,2\n"}, "features.csv, line 2: expected 3 columns separated by a comma"),
        ({"features_csv": "1,2\n3,4\n5,6\n"}, "features.csv: there are 3 rows for 4 nodes"),
        ({"features_csv": ""}, "features.csv holds no rows"),
        ({"features_parquet": "x"}, "features.parquet: this format is not read"),
        ({"features_npy": b"x"}, "features.npy cannot be read"),
        ({"labels_csv": "Ann,a\nBob,b\nZoe,a\n"}, "labels.csv, line 3: there is no node 'Zoe' in the graph"),
        ({"labels_csv": "who,what\nAnn,a\nBob,b\n"}, "labels.csv, line 1: there is no node 'who'.*title its columns"),
        ({"labels_csv": "Ann,a\nBob,a\n"}, "labels.csv: all labels are a; classification needs at least two classes"),
        ({"labels_csv": "Ann,a\nAnn,b\n"}, "labels.csv, line 2: node 'Ann' occurs again"),
        ({"labels_csv": "Ann,\nBob,\n"}, "labels.csv: no node has a label"),
        ({"labels_csv": "a\nb\n"}, "labels.csv has 2 labels without names for 4 nodes"),
        ({"labels_csv": f"Ann,a\n{'x' * 20000},b\n"}, r"labels.csv, line 2: there is no node 'xxx.*20,000 characters"),
        ({"splits_csv": "Ann,train\nBob,tset\n"}, "splits.csv, line 2: the part 'tset' is unknown"),
        ({"labels_csv": "Ann,a\u2028b\nBob,a\u2028b\n"}, r"labels.csv: all labels are a\\u2028b; classification"),
        ({"splits_csv": "Ann,train\nZoe,test\n"}, "splits.csv, line 2: there is no node 'Zoe'"),
        ({"splits_npz": b"PK"}, "splits.npz cannot be read: it is not a .npz archive"),
        ({"edges_tsv": EDGES}, "has several files edges.*: edges.csv, edges.tsv"),
    ],
)
def test_bad_folders_are_refused_in_one_line(files: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        read_graph(folder(tmp_path / "g", **files))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_arrays_of_a_folder_are_checked(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", edges_csv="0,1\n1,2\n")
    np.save(path / "features.npy", np.array([[1.0], [np.inf], [2.0]]))
    with pytest.raises(ValueError, match=r"features.npy: the features of node 1 \(row 1\) contain NaN"):
        read_graph(path)
    np.save(path / "features.npy", np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"features.npy: there are 2 rows for 3 nodes"):
        read_graph(path)
    (path / "features.npy").unlink()
    np.savez(path / "splits.npz", train=np.array([0, 3]))
    with pytest.raises(ValueError, match=r"splits.npz: train contains 3, but the numbers are 0 to 2"):
        read_graph(path)


# --- .npz -------------------------------------------------------------------------------------------------------------


def test_features_and_labels_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "g", edges_csv="0,1\n1,2\n")
    np.save(path / "features.npy", np.array(5.0))
    with pytest.raises(ValueError, match=r"features\.npy: the features are a single number"):
        read_graph(path)
    (path / "features.npy").unlink()
    sparse.save_npz(path / "labels.npz", sparse.csr_array(np.eye(3)))
    with pytest.raises(ValueError, match=r"labels\.npz holds a sparse matrix"):
        read_graph(path)
    (path / "labels.npz").unlink()
    np.save(path / "labels.npy", np.array([0, 1, 0], dtype=np.uint8))
    labels = read_graph(path).labels
    assert labels is not None
    assert labels.tolist() == [0, 1, 0]


def test_masks_of_more_splits_than_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet._limits.EXPANDED_BYTES", 10_000)
    monkeypatch.setattr("lresnet._limits.EXPANSION", 1)
    rows = "".join(f"{node},{node + 1}\n" for node in range(100))
    path = folder(tmp_path / "g", edges_csv=rows, splits_csv="0" + ",train" * 40 + "\n")
    with pytest.raises(
        ValueError, match=r"splits\.csv has 40 splits for 101 nodes; as masks they need more than 10,000"
    ):
        read_graph(path)


def test_numbers_of_nodes_that_the_file_does_not_describe_are_refused(tmp_path: Path) -> None:
    edges = np.array([[0, 1], [1, 2]])
    for arrays in ({"edge_index": edges, "num_nodes": np.array(10**9)}, {"edge_index": edges * 10**9}):
        with pytest.raises(ValueError, match=r"nodes and 2 edges; the limit for so few edges is 4,194,304 nodes"):
            read_graph(saved(tmp_path, **arrays))
    with pytest.raises(ValueError, match=r"the number of nodes is an integer from 1 to 2,147,483,648"):
        read_graph((edges, 2**40))  # pairs of nodes could not be numbered in 64 bits


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path / "graph.npz", **arrays)
    return path / "graph.npz"


def test_arrays_by_their_common_names(tmp_path: Path) -> None:
    n, masks = 4, np.arange(12).reshape(3, 4) % 2 == 0
    graph = read_graph(
        saved(
            tmp_path,
            edges=np.array([[0, 1], [1, 2], [2, 2]]),
            node_features=np.eye(n),
            node_labels=np.array(["a", "b", "", "a"]),
            train_masks=masks,
            val_mask=masks[0],
            names=np.array(list("wxyz")),
            edge_weight=np.array([1.0, 2.0, 3.0]),
        )
    )
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.weights is not None
    assert graph.weights.tolist() == [1.0, 2.0]
    assert graph.names == tuple("wxyz")
    assert graph.masks["train"].shape == (4, 3)
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, -1, 0]
    assert graph.notes == ("1 self loop is left out.",)
    assert looks_like_graph(tmp_path / "graph.npz")


def test_sparse_adjacency_is_read_with_its_features(tmp_path: Path) -> None:
    adjacency = sparse.csr_array(np.array([[0, 2, 0], [0, 0, 1], [0, 0, 0]]))
    sparse.save_npz(tmp_path / "a.npz", adjacency)
    graph = read_graph(tmp_path / "a.npz")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.weights is not None
    assert graph.weights.tolist() == [2, 1]
    assert not graph.directed
    parts = {f"adj_{key}": getattr(adjacency, key) for key in ("data", "indices", "indptr", "shape")}
    attr = sparse.csr_array(np.eye(3))
    parts |= {f"attr_{key}": getattr(attr, key) for key in ("data", "indices", "indptr", "shape")}
    graph = read_graph(saved(tmp_path, **parts, labels=np.array([0, 1, 1])))
    assert isinstance(graph.features, sparse.csr_array)
    assert graph.features.toarray().tolist() == np.eye(3).tolist()


CSR: dict[str, Any] = {
    "format": np.array(b"csr"),
    "shape": np.array([3, 3]),
    "data": np.ones(2),
    "indices": np.array([1, 2]),
    "indptr": np.array([0, 1, 2, 2]),
}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.eye(2)}, "there is no array edge_index among x"),
        ({"edges": np.array([[0, 1], [1, 2]])}, r"edges has shape \[2, 2\], which may be \[2, m\] or \[m, 2\]"),
        ({"edge_index": np.zeros((3, 2), dtype=int)}, r"edge_index has shape \[3, 2\]; it must be \[2, m\]"),
        ({"edge_index": np.array([[0], [5]]), "x": np.eye(3)}, "edge 0 joins 0 and 5, but the nodes are 0 to 2"),
        ({"edge_index": np.array([[0], [1]]), "num_nodes": np.array([1, 2])}, "num_nodes is int64"),
        ({"edge_index": np.array([[0], [1]]), "names": np.eye(2)}, "names is float64"),
        ({"edge_index": np.array([[0], [1]]), "edge_weight": np.array([-1.0])}, "the weight of edge 0 is -1"),
        (CSR | {"indptr": np.array([0, 5, 2, 2])}, "indptr of the sparse matrix must rise from 0 to 2 in 4 entries"),
        (CSR | {"indptr": np.array([0, 1])}, "indptr of the sparse matrix must rise"),
        (CSR | {"indptr": np.array([0, 1, 2, 10**9])}, "indptr of the sparse matrix must rise"),
        (CSR | {"indices": np.array([1, 7])}, "indices contains 7, but the numbers are 0 to 2"),
        (CSR | {"indices": np.array([-1, 1])}, "indices contains -1"),
        (CSR | {"indices": np.array([1])}, "indices has 1 entries, but there are 2"),
        (CSR | {"shape": np.array([3, 4])}, r"the adjacency matrix has shape \[3, 4\]; it must be square"),
        (CSR | {"shape": np.array([-3, 3])}, "the shape of the sparse matrix is"),
        (CSR | {"data": np.array([1.0, -1.0])}, "the weight of edge 1 is -1"),
        (CSR | {"format": np.array(b"dia")}, "the sparse matrix has the format 'dia'"),
        ({"edge_index": np.array([{}], dtype=object)}, "it holds pickled objects"),
    ],
)
def test_bad_arrays_are_refused_in_one_line(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = saved(tmp_path, **arrays)
    with pytest.raises(ValueError, match=words) as caught:
        read_graph(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# --- networkx ---------------------------------------------------------------------------------------------------------


def test_networkx_graphs_with_attributes() -> None:
    club = nx.karate_club_graph()
    graph = read_graph(club, labels="club")
    assert (graph.num_nodes, graph.edges.shape[1], graph.classes) == (34, 78, ("Mr. Hi", "Officer"))
    assert graph.weights is not None
    assert graph.weights.sum() == sum(weight for *_, weight in club.edges(data="weight"))
    network = nx.MultiDiGraph()
    network.add_node("lonely", age=1.0, place=[5, 6])
    network.add_node("b", age=2, place=[7, 8])
    network.add_node("c", age=3, place=[9, 9])
    network.add_edges_from([("b", "c"), ("c", "b"), ("b", "c")])
    graph = read_graph(network, features=["age", "place"])
    assert graph.directed
    assert graph.names == ("lonely", "b", "c")
    assert graph.edges.tolist() == [[1, 2], [2, 1]]
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[1, 5, 6], [2, 7, 8], [3, 9, 9]]
    assert read_graph(nx.relabel_nodes(nx.path_graph(3), {0: 2, 2: 0})).names == ()


@pytest.mark.parametrize(
    ("network", "options", "words"),
    [
        (nx.Graph(), {}, "the graph has no edges"),
        (nx.path_graph(3), {"labels": "color"}, "the nodes have no attribute 'color'; their attributes are: none"),
        (nx.karate_club_graph(), {"features": ["club"]}, "the attribute club of node '0' is 'Mr. Hi', not a number"),
        (nx.Graph([(1, "1")]), {}, "two nodes have the name '1'"),
        (nx.Graph([(0, 1, {"weight": -1})]), {}, "the weight of edge 0 is -1"),
        (nx.Graph([(0, 1, {"weight": "x"})]), {}, "the attribute weight of edge is 'x', not a number"),
        (
            nx.Graph([(0, 1, {"weight": 10**400})]),
            {},
            r"the attribute weight of edge is '10+\.\.\.' \(401 characters\), not",
        ),
    ],
)
def test_refused_networks(network: nx.Graph, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_graph(network, **options)


@pytest.mark.parametrize("suffix", [".graphml", ".gml", ".graphml.gz", ".gml.gz"])
def test_network_files(suffix: str, tmp_path: Path) -> None:
    network = nx.DiGraph()
    network.add_edge("Zürich", "Bern", weight=2.5)
    network.add_edge("Bern", "Genève", weight=1.5)
    nx.set_node_attributes(network, {"Zürich": "de", "Bern": "de", "Genève": "fr"}, "language")
    path = tmp_path / f"swiss{suffix}"
    (nx.write_graphml if "graphml" in suffix else nx.write_gml)(network, path)
    graph = read_graph(path, labels="language")
    assert graph.name == path.name
    assert graph.directed
    assert graph.names == ("Zürich", "Bern", "Genève")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.weights is not None
    assert graph.weights.tolist() == [2.5, 1.5]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 0, 1]
    assert looks_like_graph(path)


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">]>
<graphml><graph edgedefault="undirected"><node id="&lol2;"/></graph></graphml>
"""


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.graphml", LAUGHS.encode(), r"a.graphml, line 2: the file declares a document type \(DOCTYPE\)"),
        ("a.graphml", LAUGHS.encode("utf-16"), "DOCTYPE"),
        ("a.graphml.gz", gzip.compress(LAUGHS.encode(), mtime=0), "DOCTYPE"),
        ("a.graphml", b"<graphml>\n<graph>", "a.graphml, line 2: this is not valid XML: no element found"),
        ("a.graphml", b"<svg/>", "cannot be read as GraphML"),
        ("a.graphml", b"", "a.graphml, line 1: this is not valid XML"),
        ("a.gml", b"graph [ node [ id 0", "cannot be read as GML"),
        ("a.gml", b"", "cannot be read as GML"),
        ("a.gml", b"graph [ node [ id 0 ] node [ id 1 ] ]", "a.gml: the graph has no edges"),
    ],
)
def test_bad_network_files_are_refused_in_one_line(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_graph(tmp_path / name)
    assert "\n" not in str(caught.value)


# --- objects and names ------------------------------------------------------------------------------------------------


def test_objects_of_other_libraries() -> None:
    index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    expected = [[0, 1], [1, 2]]
    matrix = sparse.coo_matrix((np.ones(4), index.numpy()), shape=(5, 5))
    for source in (
        Data(edge_index=index, num_nodes=5),
        (index, 5),
        (index.numpy(), 5),
        matrix,
        sparse.csr_array(matrix),
    ):
        graph = read_graph(source)
        assert (graph.num_nodes, graph.edges.tolist(), graph.weights, graph.directed) == (5, expected, None, False)
        assert read_graph(graph) is graph
    assert read_graph((index[:, :1], 3), directed=True).directed
    one_way = sparse.csr_array(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    assert read_graph(one_way).directed
    assert load_graph((index, 5)).num_nodes == 5


def test_stored_zeros_of_a_matrix_are_not_edges() -> None:
    matrix = sparse.csr_array((np.array([1.0, 0.0]), (np.array([0, 1]), np.array([1, 2]))), shape=(3, 3))
    graph = read_graph(matrix)
    assert graph.edges.tolist() == [[0], [1]]
    assert graph.notes[0] == "1 stored zeros of the adjacency matrix are not edges."


@pytest.mark.parametrize(
    ("source", "options", "error", "words"),
    [
        ("nosuchgraph", {}, ValueError, "there is no data set 'nosuchgraph'; choose one of"),
        ("no/such.csv", {}, FileNotFoundError, "such.csv does not exist"),
        ("cifar10", {}, ValueError, "cifar10 is a set of images"),
        (42, {}, ValueError, "a graph cannot be read from int"),
        ((np.array([[0], [1]]), np.zeros(2)), {}, ValueError, "a graph cannot be read from tuple"),
        ("disease_tree", {"directed": True}, ValueError, "directed=True is for edge lists"),
        (sparse.csr_array((2, 3)), {}, ValueError, r"the adjacency matrix has shape \[2, 3\]"),
        (sparse.csr_array((2, 2)), {}, ValueError, "the graph has no edges"),
        (
            "disease_tree",
            {"features": np.zeros((3, 2))},
            ValueError,
            "features of disease_tree: there are 3 rows for 1,000 nodes",
        ),
    ],
)
def test_refused_sources(source: Any, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        read_graph(source, **options)
    assert "\n" not in str(caught.value)


def test_shipped_name_comes_before_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "disease_tree")
    monkeypatch.chdir(tmp_path)
    assert read_graph("disease_tree").num_nodes == 1000
    assert read_graph("./disease_tree").num_nodes == 4
    assert read_graph(Path("disease_tree")).name == "disease_tree/"  # its features are not those of the shipped graph


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("x")
    with pytest.raises(ValueError, match=r"the suffix .parquet is not a graph format; use .csv"):
        read_graph(tmp_path / "a.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no file edges.\*, such as edges.csv"):
        read_graph(tmp_path / "empty")


def test_labelled_subgraph_of_a_graph_with_given_labels() -> None:
    graph = read_graph(Graph.checked("g", None, [[0, 1], [1, 2]]), labels=torch.tensor([1, -1, 0]))
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, -1, 0]


def test_what_looks_like_a_graph(tmp_path: Path) -> None:
    for name in ("a.csv", "a.edges.gz", "a.TXT", "a.gml"):
        (tmp_path / name).write_text("")
        assert looks_like_graph(tmp_path / name)
    assert looks_like_graph(folder(tmp_path / "graph"))
    np.savez(tmp_path / "images.npz", train_images=np.zeros(1), train_labels=np.zeros(1))
    (tmp_path / "broken.npz").write_text("")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "train").mkdir()
    for name in ("images.npz", "broken.npz", "images", "nothing.csv"):
        assert not looks_like_graph(tmp_path / name)


def test_looking_at_a_path_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from lresnet.data.formats.graph_paths import looks_like_graph; looks_like_graph('.'); "
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("suffix", ["graphml", "gml"])
def test_a_compressed_network_has_the_limit_of_texts(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}.gz"
    path.write_bytes(gzip.compress(b" " * 2_000_000))
    with pytest.raises(ValueError, match=rf"a\.{suffix}\.gz expands to more than 1,048,576 bytes, the limit for this"):
        read_graph(path)
