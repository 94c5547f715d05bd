"""Readers of the graphs, on small files in the formats of the publishers."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from lresnet.data import load_graph, read_graph
from tests.data import official


def test_disease_graphs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("disease_lp", "disease_nc"):
        official.write_disease(tmp_path, name)
        official.use(monkeypatch, tmp_path, name)
        data = load_graph(name)
        assert data.x.shape == (60, 4)
        assert data.edge_index.shape == (2, 118)
        assert data.y.dtype == torch.int64
        assert data.y.sum() == 20
    features = sparse.load_npz(tmp_path / "hgcn" / "disease_lp.feats.npz").toarray()
    assert torch.equal(load_graph("disease_lp").x, torch.from_numpy(features).float())


def test_airport_nodes_keep_the_order_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = official.write_airport(tmp_path)
    official.use(monkeypatch, tmp_path, "airport")
    read = read_graph("airport")
    names = list(graph)
    assert {tuple(sorted((names[a], names[b]))) for a, b in read.edges.T.tolist()} == {
        tuple(sorted(edge)) for edge in graph.edges
    }
    population = np.array([graph.nodes[name]["feat"][4] for name in names])
    assert read.labels is not None
    assert read.labels.tolist() == np.digitize(population, [1, 8 / 7, 9 / 7]).tolist()
    assert (read.edges[0] == read.edges[1]).sum() == 1
    assert not load_graph("airport").has_self_loops()


def test_planetoid_test_nodes_are_put_at_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = official.write_planetoid(tmp_path, "cora")
    official.use(monkeypatch, tmp_path, "cora")
    data = load_graph("cora")
    assert torch.equal(data.x, torch.from_numpy(written["features"]))
    assert torch.equal(data.y, torch.arange(1400) % 3)
    assert data.train_mask.nonzero().flatten().tolist() == list(range(20))
    assert data.val_mask.nonzero().flatten().tolist() == list(range(20, 520))
    assert data.test_mask.nonzero().flatten().tolist() == list(range(1300, 1400))
    pairs = {(a, b) for a, others in written["neighbours"].items() for b in others if a != b}
    assert set(map(tuple, data.edge_index.T.tolist())) == pairs


def test_heterophilous_graphs_have_ten_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (("chameleon", "chameleon_filtered"), ("squirrel", "squirrel_filtered"), ("actor", "actor")):
        official.write_heterophilous(tmp_path, file)
        official.use(monkeypatch, tmp_path, name)
        data = load_graph(name)
        assert data.train_mask.shape == (50, 10)
        assert (data.train_mask.int() + data.val_mask.int() + data.test_mask.int() == 1).all()


def test_wordnet_has_names_and_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.write_wordnet(tmp_path)
    official.use(monkeypatch, tmp_path, "wordnet")
    assert load_graph("wordnet").x.shape == (40, 5)
    graph = read_graph("wordnet")
    assert graph.names[:3] == ("word 0", "word 0", "word 1")
    assert graph.classes == ("noun", "verb", "adj", "adv")


def test_disease_tree_needs_no_file(tmp_path: Path) -> None:
    assert load_graph("disease_tree", root=tmp_path).num_nodes == 1000


def test_unknown_name_lists_the_known_names() -> None:
    with pytest.raises(ValueError, match=r"no data set 'corra'; choose one of .*cora"):
        load_graph("corra")


def _damaged_labels(root: Path) -> None:
    np.save(root / "hgcn" / "disease_lp.labels.npy", np.array([{}], dtype=object))


def _damaged_features(root: Path) -> None:
    (root / "hgcn" / "disease_lp.feats.npz").write_bytes(b"no archive")


def _damaged_edges(root: Path) -> None:
    (root / "hgcn" / "disease_lp.edges.csv").write_text("0,1\n1;2\n")


def _edge_out_of_range(root: Path) -> None:
    (root / "hgcn" / "disease_lp.edges.csv").write_text("0,1\n1,60\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_damaged_labels, "labels.npy cannot be read as an array"),
        (_damaged_features, "feats.npz cannot be read as a sparse matrix"),
        (_damaged_edges, "edges.csv, line 2: expected two node numbers, found '1;2'"),
        (_edge_out_of_range, "edge 1 joins 1 and 60"),
    ],
)
def test_damaged_disease_files_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: object, words: str
) -> None:
    official.write_disease(tmp_path, "disease_lp")
    assert callable(damage)
    damage(tmp_path)
    official.use(monkeypatch, tmp_path, "disease_lp")
    with pytest.raises(ValueError, match=words):
        load_graph("disease_lp")


@pytest.mark.parametrize(
    ("part", "content", "words"),
    [
        ("allx", pickle.dumps([1, 2]), "allx does not hold a matrix"),
        ("graph", pickle.dumps([1, 2]), "graph does not hold lists of neighbours"),
        ("test.index", b"1300\n1300\n", "must list the 100 test nodes 1300 to 1399, each once"),
        ("test.index", b"first\n", "one node number per line"),
    ],
)
def test_damaged_planetoid_files_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, content: bytes, words: str
) -> None:
    official.write_planetoid(tmp_path, "cora")
    (tmp_path / "planetoid" / f"ind.cora.{part}").write_bytes(content)
    official.use(monkeypatch, tmp_path, "cora")
    with pytest.raises(ValueError, match=words):
        load_graph("cora")


def test_damaged_airport_and_archive_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hgcn").mkdir()
    (tmp_path / "hgcn" / "airport.p").write_bytes(pickle.dumps({}))
    official.use(monkeypatch, tmp_path, "airport")
    with pytest.raises(ValueError, match="does not hold a graph"):
        load_graph("airport")
    (tmp_path / "heterophilous").mkdir()
    np.savez(tmp_path / "heterophilous" / "actor.npz", edges=np.zeros((3, 2)))
    official.use(monkeypatch, tmp_path, "actor")
    with pytest.raises(ValueError, match=r"actor\.npz cannot be read: it has no array node_features"):
        load_graph("actor")


@pytest.mark.parametrize(("name", "function"), [("cifar10", "load_images"), ("svhn", "load_ood_set")])
def test_image_sets_are_refused_as_graphs(name: str, function: str) -> None:
    with pytest.raises(
        ValueError, match=rf"{name} is a set of images, not a graph; read it with lresnet\.data\.{function}"
    ):
        read_graph(name)
