"""Cora and PubMed as Planetoid published them: eight files ``ind.<name>.*``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lresnet.data.graph import Graph
from lresnet.data.unpickle import read_pickle

__all__ = ["VALIDATION_NODES", "read_planetoid"]

VALIDATION_NODES = 500


def read_planetoid(name: str, files: dict[str, Path]) -> Graph:
    """The graph with the public split: labelled nodes, the next 500, the test nodes.

    ``allx`` and ``ally`` hold the first nodes in order, ``tx`` and ``ty`` the test nodes in the shuffled order that
    ``test.index`` lists; here every node is put where its number says.
    """
    parts = {part: _read(files[f"ind.{name}.{part}"]) for part in ("x", "y", "tx", "ty", "allx", "ally")}
    order = _test_order(files[f"ind.{name}.test.index"], first=parts["allx"].shape[0], count=parts["tx"].shape[0])
    n = parts["allx"].shape[0] + order.size

    position = np.arange(n)
    position[order] = np.arange(parts["allx"].shape[0], n)
    features = sparse.vstack([parts["allx"], parts["tx"]], format="csr")[position].astype(np.float64)
    one_hot = np.vstack([parts["ally"], parts["ty"]])[position]
    labels = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)

    labelled = parts["y"].shape[0]
    node = np.arange(n)
    masks = {
        "train": node < labelled,
        "val": (node >= labelled) & (node < labelled + VALIDATION_NODES),
        "test": node >= parts["allx"].shape[0],
    }
    return Graph.checked(name, features, _edges(files[f"ind.{name}.graph"]), labels, masks)


def _read(path: Path) -> Any:
    content = read_pickle(path)
    if not isinstance(content, np.ndarray | sparse.csr_array) or content.ndim != 2:
        raise ValueError(f"{path} holds no matrix")
    return content


def _test_order(path: Path, first: int, count: int) -> NDArray[np.int64]:
    try:
        order = np.array(path.read_text(encoding="ascii").split(), dtype=np.int64)
    except ValueError:
        raise ValueError(f"{path} must hold one node number a line") from None
    if not np.array_equal(np.sort(order), np.arange(first, first + count)):
        raise ValueError(f"{path} must list the {count} test nodes {first} to {first + count - 1}, each once")
    return order


def _edges(path: Path) -> NDArray[np.int64]:
    neighbours = read_pickle(path)
    if not isinstance(neighbours, dict):
        raise ValueError(f"{path} holds no lists of neighbours")
    pairs = [(node, other) for node, others in neighbours.items() for other in others]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
