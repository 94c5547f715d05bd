"""Sets of labelled graphs in folders, and split files."""

from pathlib import Path

import pytest
import torch

from lresnet.data import Graph, graph_task, read_graphs
from lresnet.data.formats.split_file import read_link_split, read_node_split
from tests.data.graph_folders import write_graph_files, write_tu_files


def test_both_formats_hold_the_same_graphs(tmp_path: Path) -> None:
    files, tu = read_graphs(write_graph_files(tmp_path / "files")), read_graphs(write_tu_files(tmp_path / "tu"))
    assert len(files.graphs) == len(tu.graphs) == 24
    for one, other in zip(files.graphs, tu.graphs, strict=True):
        assert torch.equal(one.edges, other.edges)
        assert one.num_nodes == other.num_nodes
    assert [{"ring": "1", "star": "-1"}[label] for label in files.labels] == tu.labels
    assert files.graphs[3].name == "g3.csv"


def test_a_folder_of_graphs_is_a_task(tmp_path: Path) -> None:
    folder = write_graph_files(tmp_path)
    task, expected = graph_task(str(folder)), graph_task(*read_graphs(folder))
    assert task.num_graphs == 24
    assert torch.equal(task.y, expected.y)
    assert torch.equal(task.x, expected.x)
    with pytest.raises(ValueError, match="the folder has its own labels"):
        graph_task(folder, ["ring"] * 24)


def test_node_labels_and_attributes_of_the_tu_format_are_features(tmp_path: Path) -> None:
    folder = write_tu_files(tmp_path)
    nodes = len((folder / "X_graph_indicator.txt").read_text().split())
    (folder / "X_node_labels.txt").write_text("".join(f"{3 + 2 * (i % 2)}\n" for i in range(nodes)))
    (folder / "X_node_attributes.txt").write_text("".join(f"{i}, {-i}\n" for i in range(nodes)))
    features = read_graphs(folder).graphs[0].features
    assert features is not None
    assert features[:2].tolist() == [[0, 0, 1, 0], [1, -1, 0, 1]]


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("labels.csv", None, "has no labels.csv; write one row per graph: file name, label"),
        ("labels.csv", "g0.csv,ring\n", "has no label for 'g1.csv'; list every graph, or move the file away"),
        ("labels.csv", "file,label\n", "has no label for 'g0.csv'"),
        ("labels.csv", "g0.csv,a\ng99.csv,b\n", "labels.csv, line 2: there is no file 'g99.csv'"),
        ("labels.csv", "g0.csv\n", "labels.csv, line 1: expected file name, label, found 'g0.csv'"),
        ("g3.csv", "", "g3.csv holds no edges"),
    ],
)
def test_wrong_folders_of_files_are_refused(tmp_path: Path, file: str, content: str | None, words: str) -> None:
    folder = write_graph_files(tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        read_graphs(folder)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("X_graph_indicator.txt", None, "X_graph_indicator.txt does not exist"),
        ("X_graph_indicator.txt", "1\n99\n", "must number the graphs 1 to 24 in increasing order"),
        ("X_A.txt", "1, 2\n1, 99999\n", "X_A.txt must hold pairs of the nodes 1 to"),
        ("X_A.txt", "1, 9\n", "X_A.txt has an edge between two graphs"),
        ("X_A.txt", "1, 2\n", "X_A.txt has no edge of graph 2; leave this graph out"),
        ("X_A.txt", "1, b\n", "X_A.txt is not a table of numbers"),
        ("X_A.txt", "", "X_A.txt is empty"),
        ("X_graph_labels.txt", None, "X_graph_labels.txt"),
        ("X_node_labels.txt", "1\n2\n", "2 rows of node features for"),
    ],
)
def test_wrong_folders_in_the_tu_format_are_refused(tmp_path: Path, file: str, content: str | None, words: str) -> None:
    folder = write_tu_files(tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=r"^[^\n]*$") as caught:
        read_graphs(folder)
    assert words in str(caught.value)


def test_a_file_is_not_a_folder_of_graphs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a folder; graphs to classify are a folder"):
        read_graphs(tmp_path / "gone")


_NAMED = Graph.checked("towns", None, [[0, 1, 2], [1, 2, 3]], names=["Oslo", "Rome, Italy", "Bern", "Paris"])


def test_split_files_name_nodes_or_edges(tmp_path: Path) -> None:
    file = tmp_path / "split.csv"
    file.write_text('town,part\nOslo,train\n"Rome, Italy",Validation\nBern,TEST\nParis,train\n')
    found = read_node_split(file, _NAMED)
    assert {part: nodes.tolist() for part, nodes in found.items()} == {"train": [0, 3], "val": [1], "test": [2]}
    file.write_text('Oslo,"Rome, Italy",dev\nBern,Paris,test\n')
    links = read_link_split(file, _NAMED)
    assert {part: edges.tolist() for part, edges in links.items()} == {"val": [[0], [1]], "test": [[2], [3]]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Oslo,trian\nBern,test\n", "line 1: 'trian' is not a part of a split; use train, val or test"),
        ("node,part\nOslo,trian\n", "line 2: 'trian' is not a part"),
        ("Oslo,train\nLima,test\n", "line 2: the graph has no node 'Lima'"),
        ("Oslo\n", "line 1: expected node, part, found 'Oslo'"),
        ("node,part\n", "lists no nodes; write one row per item"),
        ("", "holds no rows"),
    ],
)
def test_wrong_split_files_are_refused_with_their_line(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "split.csv"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        read_node_split(file, _NAMED)
    assert str(file) in str(caught.value)
    assert words in str(caught.value)


def test_one_hot_labels_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet._limits.EXPANDED_BYTES", 10_000)
    monkeypatch.setattr("lresnet._limits.EXPANSION", 1)
    folder = write_tu_files(tmp_path)
    nodes = len((folder / "X_graph_indicator.txt").read_text().split())
    (folder / "X_node_labels.txt").write_text("".join(f"{i}\n" for i in range(nodes)))  # all different
    with pytest.raises(ValueError, match=rf"X_node_labels\.txt has {nodes} labels of {nodes} nodes; one-hot"):
        read_graphs(folder)
