"""Users' graphs and metric spaces in one file, as input of :func:`lresnet.geometry.delta_hyperbolicity`."""

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
    """Read a graph or a matrix of distances. The suffix of ``path`` determines the format.

    - ``.npy``, or ``.npz`` with a single array: a square matrix of distances.
    - ``.npz`` written by ``scipy.sparse.save_npz``: the adjacency matrix of a graph.
    - Any other suffix: a graph as text with one edge per line, given by two node names separated by a comma or by white
      space. ``#`` starts a comment. Further columns are ignored, and so is a header line above numbers.

    Returns:
        The distances ``[n, n]``, the adjacency matrix, or the edges as integers ``[2, E]`` with renumbered nodes.

    Raises:
        OSError: The file cannot be read.
        ValueError: The content does not match the suffix.
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
    raise ValueError(f"{path} holds several arrays ({', '.join(names)}); save only the matrix of distances")


def _distances(matrix: NDArray[Any], path: Path) -> NDArray[Any]:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"{path} holds an array of shape {list(matrix.shape)}; distances must be a square matrix [n, n]"
        )
    # Integers of shape [2, 2] would be taken for two edges; a floating-point matrix always holds distances.
    return matrix.astype(np.float64) if matrix.dtype.kind in "iu" else matrix


def _edges(path: Path) -> NDArray[np.int64]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file; an edge list has two node names per line") from error
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
