"""A graph or a metric space from one file, in the form :func:`lresnet.geometry.delta_hyperbolicity` takes."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["read_space"]


def read_space(path: str | Path) -> NDArray[Any] | sparse.sparray | sparse.spmatrix:
    """Read ``path``, whose name says what it holds.

    - ``.npy``, or ``.npz`` with a single array: a square matrix of distances.
    - ``.npz`` as ``scipy.sparse.save_npz`` writes it: the adjacency matrix of a graph.
    - anything else: a graph as text, one edge a line, two node names separated by a comma or by white space.
      ``#`` starts a comment; further columns are not read; a first line of titles above numbers is skipped.

    Returns:
        The distances ``[n, n]``, the adjacency matrix, or the edges as integers ``[2, E]``, nodes numbered anew.

    Raises:
        OSError: the file cannot be read.
        ValueError: it does not hold what its name says.
    """
    path = Path(path)
    if path.suffix in {".npy", ".npz"}:
        return _arrays(path)
    return _edges(path)


def _arrays(path: Path) -> NDArray[Any] | sparse.sparray | sparse.spmatrix:
    from scipy import sparse

    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return _distances(content, path)
            names = content.files
            if len(names) == 1:
                return _distances(content[names[0]], path)
        if {"format", "shape", "data"} <= set(names):
            return sparse.load_npz(path)
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as NumPy arrays: {error}") from error
    raise ValueError(f"{path} holds several arrays ({', '.join(names)}); save the matrix of distances alone")


def _distances(matrix: NDArray[Any], path: Path) -> NDArray[Any]:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{path} holds an array of shape {list(matrix.shape)}; distances form a square matrix [n, n]")
    # Integers of shape [2, 2] would pass for two edges; a floating point matrix is always one of distances.
    return matrix.astype(np.float64) if matrix.dtype.kind in "iu" else matrix


def _edges(path: Path) -> NDArray[np.int64]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file; an edge list has two node names a line") from error
    rows = [
        (number, _names(text)) for number, line in enumerate(lines, start=1) if (text := line.partition("#")[0].strip())
    ]
    for number, names in rows:
        if len(names) < 2 or not all(names[:2]):
            raise ValueError(f"{path}, line {number}: expected two node names, found {lines[number - 1].strip()!r}")
    pairs = [(names[0], names[1]) for _, names in rows]
    if len(pairs) > 1 and not _numeric(pairs[:1]) and _numeric(pairs[1:]):
        pairs = pairs[1:]
    if not pairs:
        raise ValueError(f"{path} holds no edges")
    _, numbers = np.unique(np.array(pairs), return_inverse=True)
    return numbers.reshape(-1, 2).T.astype(np.int64)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if "," in text else text.split()


def _numeric(pairs: list[tuple[str, str]]) -> bool:
    return all(name.lstrip("-").isdigit() for pair in pairs for name in pair)
