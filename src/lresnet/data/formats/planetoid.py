"""Citation graphs as Planetoid publishes them: eight files ``ind.<name>.*``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lresnet._files import read_file
from lresnet.data.formats.unpickle import read_pickle, require_own_items
from lresnet.data.graph import Graph
from lresnet.data.source import Files
from lresnet.data.splits import PLANETOID_VALIDATION

__all__ = ["read_planetoid"]

_NUMBER = re.compile(rb"[0-9]{1,18}")


def read_planetoid(name: str, files: Files) -> Graph:
    """Read a graph with its public split: the labelled nodes, the next 500 nodes, and the test nodes.

    ``allx`` and ``ally`` hold the first nodes in order. ``tx`` and ``ty`` hold the test nodes in the shuffled order
    that ``test.index`` lists. The result has every node at its own number.
    """
    parts = {part: _matrix(files[f"ind.{name}.{part}"]) for part in ("x", "y", "tx", "ty", "allx", "ally")}
    _require_sizes(name, files, parts)
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
        "val": (node >= labelled) & (node < labelled + PLANETOID_VALIDATION),
        "test": node >= parts["allx"].shape[0],
    }
    return Graph.checked(name, features, _edges(files[f"ind.{name}.graph"]), labels, masks)


def _matrix(path: Path) -> Any:
    content = read_pickle(path)
    if not isinstance(content, np.ndarray | sparse.csr_array) or content.ndim != 2:
        raise ValueError(f"{path} does not hold a matrix")
    return content


def _require_sizes(name: str, files: Files, parts: dict[str, Any]) -> None:
    """Raise ValueError unless features and labels have the same rows, and all parts the same columns."""
    for features, labels in (("x", "y"), ("tx", "ty"), ("allx", "ally")):
        path = files[f"ind.{name}.{labels}"]
        if not isinstance(parts[labels], np.ndarray) or parts[labels].dtype.kind not in "biuf":
            raise ValueError(f"{path} does not hold an array of numbers")
        if parts[labels].shape[0] != parts[features].shape[0]:
            raise ValueError(
                f"{path} has {parts[labels].shape[0]} rows, but there are {parts[features].shape[0]} nodes"
            )
        for part, whole in ((features, "allx"), (labels, "ally")):
            if parts[part].shape[1] != parts[whole].shape[1]:
                raise ValueError(
                    f"{files[f'ind.{name}.{part}']} has {parts[part].shape[1]} columns, and {whole} has "
                    f"{parts[whole].shape[1]}"
                )


def _test_order(path: Path, first: int, count: int) -> NDArray[np.int64]:
    words = read_file(path).split()
    if not all(_NUMBER.fullmatch(word) for word in words):
        raise ValueError(f"{path} must hold one node number per line")
    order = np.array([int(word) for word in words], dtype=np.int64)
    if not np.array_equal(np.sort(order), np.arange(first, first + count)):
        raise ValueError(f"{path} must list the {count} test nodes {first} to {first + count - 1}, each once")
    return order


def _edges(path: Path) -> NDArray[np.int64]:
    neighbours = read_pickle(path)
    if not isinstance(neighbours, dict) or not all(isinstance(others, list) for others in neighbours.values()):
        raise ValueError(f"{path} does not hold lists of neighbours")
    require_own_items(path, neighbours.values())
    pairs = [(node, other) for node, others in neighbours.items() for other in others]
    try:
        return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: a neighbour is not the number of a node") from error
