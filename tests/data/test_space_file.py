"""Users' files with a graph or with distances."""

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from lresnet.data import read_space

PATH_OF_4 = [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize(
    "text",
    [
        "0,1\n1,2\n2,3\n",
        "0 1\n1\t2\n\n2   3",
        "# a path\n0 1  # the first\n1 2 0.5\n2 3 {'weight': 1}\n",
        "source,target\n10, 20\n20, 30\n30, 40\n",
        "New York,Oslo\nOslo,Paris\nParis,Rome\n",
        "\ufeffa;x b;x\nb;x c;x\nc;x d;x\n",
    ],
    ids=["csv", "white space", "comments and columns", "titles", "names", "byte order mark"],
)
def test_every_form_of_edge_lists_is_read(text: str, tmp_path: Path) -> None:
    file = tmp_path / "graph.txt"
    file.write_text(text, encoding="utf-8")
    edges = read_space(file)
    assert edges.dtype == np.int64
    assert edges.T.tolist() == PATH_OF_4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no edges"),
        (b"# only a comment\n", "holds no edges"),
        (b"a b\nc\n", "line 2: expected two node names, found 'c'"),
        (b"a,b\n,c\n", "line 2: expected two node names"),
        (b"\xff\xfe\x00", "not a text file"),
    ],
)
def test_invalid_edge_lists_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "graph.csv"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_space(file)


def test_matrices_of_distances_are_read(tmp_path: Path) -> None:
    distances = np.array([[0, 3], [3, 0]])
    np.save(tmp_path / "d.npy", distances)
    np.savez(tmp_path / "d.npz", distances=distances.astype(np.float32))
    assert read_space(tmp_path / "d.npy").dtype == np.float64  # integers [2, 2] would be taken for edges
    assert read_space(tmp_path / "d.npz").dtype == np.float32
    assert np.array_equal(read_space(tmp_path / "d.npz"), distances)


def test_sparse_adjacency_matrix_is_read(tmp_path: Path) -> None:
    adjacency = sparse.csr_array(np.array([[0, 1], [1, 0]]))
    sparse.save_npz(tmp_path / "a.npz", adjacency)
    read = read_space(tmp_path / "a.npz")
    assert sparse.issparse(read)
    assert np.array_equal(read.toarray(), adjacency.toarray())


def test_invalid_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "long.npy", np.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"shape \[2, 5\]; distances must be a square matrix"):
        read_space(tmp_path / "long.npy")
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    with pytest.raises(ValueError, match=r"several arrays \(a, b\)"):
        read_space(tmp_path / "two.npz")
    (tmp_path / "broken.npy").write_bytes(b"not a NumPy file")
    with pytest.raises(ValueError, match="cannot be read"):
        read_space(tmp_path / "broken.npy")
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        read_space(tmp_path / "pickle.npy")
