"""Graphs in one ``.npz`` file, such as the heterophilous graphs with their ten splits."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lresnet.data.graph import Graph
from lresnet.data.source import Files

__all__ = ["read_arrays", "read_heterophilous"]


def read_heterophilous(name: str, files: Files) -> Graph:
    """Read a graph of the heterophilous-graphs repository; its masks are ``[n, 10]``."""
    (path,) = files.values()
    parts = ("train", "val", "test")
    arrays = read_arrays(path, "node_features", "node_labels", "edges", *(f"{part}_masks" for part in parts))
    masks = {part: arrays[f"{part}_masks"].T for part in parts}
    features = arrays["node_features"].astype(np.float64)
    return Graph.checked(name, features, arrays["edges"].T, arrays["node_labels"], masks)


def read_arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Read the arrays ``names`` of a ``.npz`` file; pickled objects are refused.

    Raises:
        ValueError: An array is missing, or the file is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive.files]
            if missing:
                raise ValueError(f"it has no array {', '.join(missing)}")
            return {name: archive[name] for name in names}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
