"""Split files: which nodes or edges of a graph are for training, validation and test."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from lresnet.data.formats.text_rows import Table
from lresnet.data.graph import Graph
from lresnet.data.quoting import quoted

__all__ = ["PART_NAMES", "read_link_split", "read_node_split"]

PART_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What users call the three parts of a split, in lower case."""


def read_node_split(path: str | os.PathLike[str], graph: Graph) -> dict[str, Tensor]:
    """Read a file with rows ``node, part``; a header is recognised by its unknown node and part.

    Returns:
        The node numbers of each part that the file lists, ``[m]``.

    Raises:
        ValueError: A node or a part is unknown; the message names the line.
    """
    return {part: numbers.squeeze(0) for part, numbers in _read(Path(path), graph, 1).items()}


def read_link_split(path: str | os.PathLike[str], graph: Graph) -> dict[str, Tensor]:
    """Read a file with rows ``node, node, part``.

    Returns:
        The edges of each part that the file lists, ``[2, m]``.

    Raises:
        ValueError: A node or a part is unknown; the message names the line.
    """
    return _read(Path(path), graph, 2)


def _read(path: Path, graph: Graph, nodes: int) -> dict[str, Tensor]:
    rows = list(Table(path))
    numbers = _numbers(graph)
    found: dict[str, list[list[int]]] = {}
    for place, (line, fields) in enumerate(rows):
        if len(fields) < nodes + 1:
            expected = "node, part" if nodes == 1 else "node, node, part"
            raise ValueError(f"{path}, line {line}: expected {expected}, found {quoted(', '.join(fields))}")
        part = PART_NAMES.get(fields[nodes].lower())
        if part is None:
            if place == 0 and not any(name in numbers for name in fields[:nodes]):
                continue  # a header
            raise ValueError(
                f"{path}, line {line}: {quoted(fields[nodes])} is not a part of a split; use train, val or test"
            )
        found.setdefault(part, []).append([_number(path, line, name, numbers) for name in fields[:nodes]])
    if not found:
        raise ValueError(f"{path} lists no nodes; write one row per item, ending with train, val or test")
    return {part: torch.tensor(items).T for part, items in found.items()}


def _numbers(graph: Graph) -> dict[str, int]:
    names: Sequence[str] = graph.names or [str(number) for number in range(graph.num_nodes)]
    return {name: number for number, name in enumerate(names)}


def _number(path: Path, line: int, name: str, numbers: dict[str, int]) -> int:
    if name not in numbers:
        raise ValueError(f"{path}, line {line}: the graph has no node {quoted(name)}")
    return numbers[name]
