"""Small files in the formats of the publishers, for tests without the real data."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from lresnet.data import registry
from lresnet.data.source import DataSource, File


def use(monkeypatch: pytest.MonkeyPatch, root: Path, name: str) -> None:
    """Make the files under ``root`` the official files of data set ``name``, packed or unpacked."""
    source = registry.DATASETS[name]
    register(monkeypatch, replace(source, files=tuple(_official(file, root) for file in source.files)))
    monkeypatch.setenv("LRESNET_DATA", str(root))


def _official(file: File, root: Path) -> File:
    if file.unpacked is not None and not (root / file.path).exists():
        return replace(file, unpacked=replace(file.unpacked, **facts(root / file.unpacked.path)))
    return replace(file, **facts(root / file.path))


def register(monkeypatch: pytest.MonkeyPatch, source: DataSource) -> None:
    """Add ``source`` to the registry, or replace the data set of that name."""
    for table in (registry.DATASETS, registry.GRAPHS, registry.IMAGE_SETS, registry.OOD_SETS):
        if table is registry.DATASETS or source.name in table:
            monkeypatch.setitem(table, source.name, source)  # type: ignore[arg-type]


def facts(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "git_blob": None}


def file_of(content: bytes, path: str = "folder/file.bin", url: str | None = None) -> File:
    return File(path, url, len(content), hashlib.sha256(content).hexdigest())


def random_edges(rng: np.random.Generator, nodes: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A path through all nodes, and some more edges."""
    path = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    return np.concatenate([path, rng.integers(0, nodes, (2, nodes))], axis=1)


def write_disease(root: Path, name: str, nodes: int = 60, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    folder = root / "hgcn"
    folder.mkdir(parents=True, exist_ok=True)
    parents = [int(rng.integers(0, node)) for node in range(1, nodes)]
    (folder / f"{name}.edges.csv").write_text("".join(f"{p},{c}\n" for c, p in enumerate(parents, start=1)))
    sparse.save_npz(folder / f"{name}.feats.npz", sparse.csr_matrix(rng.standard_normal((nodes, 4))))
    np.save(folder / f"{name}.labels.npy", (np.arange(nodes) % 3 == 0).astype(np.float64))


def write_airport(root: Path, nodes: int = 80, seed: int = 0) -> nx.Graph:
    rng = np.random.default_rng(seed)
    graph = nx.Graph()
    names = rng.permutation(1000)[:nodes].tolist()
    for name in names:
        graph.add_node(name, feat=[*rng.random(4).tolist(), float(rng.uniform(0.9, 1.4))])
    graph.add_edges_from((names[a], names[b]) for a, b in random_edges(rng, nodes).T.tolist() if a != b)
    graph.add_edge(names[5], names[5])
    (root / "hgcn").mkdir(parents=True, exist_ok=True)
    (root / "hgcn" / "airport.p").write_bytes(pickle.dumps(graph, protocol=2))
    return graph


def old_names(content: bytes) -> bytes:
    """A pickle as scipy and NumPy wrote it a decade ago: the modules had other names."""
    return content.replace(b"scipy.sparse._csr", b"scipy.sparse.csr").replace(b"numpy._core", b"numpy.core")


def write_planetoid(root: Path, name: str, nodes: int = 1400, test: int = 100, train: int = 20) -> dict[str, Any]:
    """Node i has the feature row [i + 1, ...] and class i % 3; test nodes are stored in shuffled order."""
    rng = np.random.default_rng(0)
    folder = root / "planetoid"
    folder.mkdir(parents=True, exist_ok=True)
    features = rng.random((nodes, 6)).astype(np.float32)
    features[:, 0] = np.arange(nodes) + 1
    one_hot = np.eye(3, dtype=np.int32)[np.arange(nodes) % 3]
    order = rng.permutation(np.arange(nodes - test, nodes))
    neighbours: dict[int, list[int]] = {node: [] for node in range(nodes)}
    for a, b in random_edges(rng, nodes).T.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    parts = {
        "x": sparse.csr_matrix(features[:train]),
        "y": one_hot[:train],
        "allx": sparse.csr_matrix(features[: nodes - test]),
        "ally": one_hot[: nodes - test],
        "tx": sparse.csr_matrix(features[order]),
        "ty": one_hot[order],
        "graph": neighbours,
    }
    for part, content in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(old_names(pickle.dumps(content, protocol=2)))
    (folder / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in order))
    return {"features": features, "neighbours": neighbours}


def write_heterophilous(root: Path, file: str, nodes: int = 50) -> None:
    rng = np.random.default_rng(0)
    (root / "heterophilous").mkdir(parents=True, exist_ok=True)
    part = rng.integers(0, 3, (10, nodes))
    np.savez(
        root / "heterophilous" / f"{file}.npz",
        node_features=rng.integers(0, 2, (nodes, 7)).astype(np.float32),
        node_labels=np.arange(nodes) % 5,
        edges=random_edges(rng, nodes).T,
        train_masks=part == 0,
        val_masks=part == 1,
        test_masks=part == 2,
    )


def write_wordnet(root: Path, nodes: int = 40) -> None:
    rng = np.random.default_rng(0)
    (root / "wordnet").mkdir(parents=True, exist_ok=True)
    x = sparse.csr_array(rng.integers(0, 2, (nodes, 5)).astype(np.float32))
    np.savez(
        root / "wordnet" / "wordnet31_synsets.npz",
        edge_index=random_edges(rng, nodes),
        y=np.arange(nodes) % 4,
        x_data=x.data,
        x_indices=x.indices,
        x_indptr=x.indptr,
        x_shape=np.array(x.shape),
        synset_first_word=np.array([f"word {i // 2}" for i in range(nodes)]),
        lexnames=np.array(["noun", "verb", "adj", "adv"]),
        noun_hypernym=np.array([[1, 2, 3, 3, 4, 5, 5], [0, 0, 1, 2, 1, 2, 0]]),
    )
