"""Which files and folders hold a graph, by their names alone; needs neither torch nor NumPy."""

from __future__ import annotations

import zipfile
from pathlib import Path

__all__ = ["EDGE_LISTS", "NETWORKS", "find_part", "graph_suffix", "looks_like_graph"]

EDGE_LISTS = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
"""Suffixes of edge lists as text; each may be followed by ``.gz``."""

NETWORKS = (".graphml", ".gml")
"""Suffixes of files that networkx reads."""

_EDGE_ARRAYS = {"edge_index", "edges", "adj_indptr"}
_SPARSE_ARRAYS = {"format", "shape", "data"}


def graph_suffix(path: str | Path) -> str:
    """Return the suffix of ``path`` in lower case, without ``.gz``.

    Example:
        >>> graph_suffix("web.EDGES.gz")
        '.edges'
    """
    path = Path(path)
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def looks_like_graph(path: str | Path) -> bool:
    """Return whether ``path`` is a file or folder that :func:`lresnet.data.read_graph` reads as a graph.

    True for an edge list, ``.graphml`` or ``.gml`` by its suffix, for a folder with a file ``edges.*``, and for a
    ``.npz`` file by the names of its arrays. No content is read.
    """
    path = Path(path)
    if path.is_dir():
        return any(child.is_file() and _is_part(child, "edges") for child in path.iterdir())
    if not path.is_file():
        return False
    suffix = graph_suffix(path)
    if suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                names = {name.removesuffix(".npy") for name in archive.namelist()}
        except Exception:  # a damaged directory fails in many ways
            return False
        return bool(names & _EDGE_ARRAYS) or names >= _SPARSE_ARRAYS
    return suffix in EDGE_LISTS + NETWORKS


def find_part(folder: Path, part: str, *, required: bool = False) -> Path | None:
    """Return the file ``part.*`` of a folder, e.g. ``edges.csv`` or ``edges.csv.gz``.

    Raises:
        ValueError: There are several such files, one of an unknown format, or none although it is ``required``.
    """
    found = sorted(child for child in folder.iterdir() if child.is_file() and child.name.startswith(f"{part}."))
    if unknown := next((child for child in found if not _is_part(child, part)), None):
        raise ValueError(f"{unknown}: this format is not read; use .csv, .tsv, .txt, .npy or .npz, or rename the file")
    if len(found) > 1:
        names = ", ".join(child.name for child in found)
        raise ValueError(f"{folder} has several files {part}.*: {names}; keep one of them")
    if not found and required:
        raise ValueError(f"{folder} has no file {part}.*, such as {part}.csv")
    return found[0] if found else None


def _is_part(path: Path, part: str) -> bool:
    suffix = graph_suffix(path)
    name = path.name[:-3] if path.suffix.lower() == ".gz" else path.name
    return Path(name).stem == part and suffix in (*EDGE_LISTS, ".npy", ".npz")
