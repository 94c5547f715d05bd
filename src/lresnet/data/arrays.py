"""Graphs published as one ``.npz``: the heterophilous ones with their ten splits, and WordNet."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lresnet.data.graph import Graph

__all__ = ["read_heterophilous", "read_wordnet"]


def read_heterophilous(name: str, files: dict[str, Path]) -> Graph:
    """``chameleon``, ``squirrel`` (both without duplicate pages) or ``actor``; masks are ``[n, 10]``."""
    (path,) = files.values()
    parts = ("train", "val", "test")
    arrays = _load(path, "node_features", "node_labels", "edges", *(f"{part}_masks" for part in parts))
    masks = {part: arrays[f"{part}_masks"].T for part in parts}
    features = arrays["node_features"].astype(np.float64)
    return Graph.checked(name, features, arrays["edges"].T, arrays["node_labels"], masks)


def read_wordnet(name: str, files: dict[str, Path]) -> Graph:
    """``wordnet``: synsets joined by their relations; features count gloss words, classes are lexicographer files.

    A node is called by the first word of its synset, which it may share with others.
    """
    (path,) = files.values()
    arrays = _load(
        path, "edge_index", "y", "x_data", "x_indices", "x_indptr", "x_shape", "synset_first_word", "lexnames"
    )
    csr = (arrays["x_data"].astype(np.float64), arrays["x_indices"], arrays["x_indptr"])
    features = sparse.csr_array(csr, shape=tuple(arrays["x_shape"].tolist()))
    names, classes = arrays["synset_first_word"].tolist(), arrays["lexnames"].tolist()
    return Graph.checked(name, features, arrays["edge_index"], arrays["y"], names=names, classes=classes)


def _load(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive.files]
            if missing:
                raise ValueError(f"it has no {', '.join(missing)}")
            return {name: archive[name] for name in names}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
