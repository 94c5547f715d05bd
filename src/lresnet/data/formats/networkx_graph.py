"""Graphs from networkx objects, and from ``.graphml`` and ``.gml`` files, which networkx parses."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import numpy as np

from lresnet.data.formats.compressed import read_expanded
from lresnet.data.formats.edge_list import number_names
from lresnet.data.formats.graph_paths import graph_suffix
from lresnet.data.formats.text_rows import LONGEST_NAME, RestartError, TextFile, encoding_note
from lresnet.data.graph import Graph
from lresnet.data.quoting import quoted

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["networkx_graph", "read_network_file"]

_NAME_ATTRIBUTES = ("label", "name")


def networkx_graph(
    network: nx.Graph,
    name: str = "graph",
    features: Sequence[str] = (),
    labels: str | None = None,
    notes: Sequence[str] = (),
) -> Graph:
    """Return a networkx graph as :class:`~lresnet.data.Graph`.

    Directions are kept. The edge attribute ``weight`` is the weight; edges without it have weight 1, as in nx.
    Parallel edges are merged, and self loops are left out.

    Args:
        network: A ``Graph``, ``DiGraph``, ``MultiGraph`` or ``MultiDiGraph``.
        name: Name of the graph.
        features: Node attributes that are the features: numbers, or equally long lists of numbers.
        labels: Node attribute that is the label; nodes without it have no label.
        notes: Sentences about how the network was read.

    Raises:
        ValueError: An attribute is not a number, a weight is not positive, or two nodes have the same name.
    """
    nodes = list(network.nodes)
    texts = [str(node) for node in nodes]
    if len(set(texts)) < len(texts):
        twice = next(text for text, count in Counter(texts).items() if count > 1)
        raise ValueError(f"{name}: two nodes have the name {quoted(twice)}; names must differ as text")
    if longest := next((text for text in texts if len(text) > LONGEST_NAME), None):
        raise ValueError(f"{name}: the node name {quoted(longest)} is too long; up to {LONGEST_NAME:,} characters")
    order, names = number_names(texts)
    number = dict(zip(nodes, order.tolist(), strict=True))
    found = list(notes)
    rows = [(number[a], number[b], attributes) for a, b, attributes in network.edges(data=True)]
    weighted = sum("weight" in attributes for _, _, attributes in rows)
    loops = sum(a == b for a, b, _ in rows)
    if 0 < loops < len(rows):
        rows = [row for row in rows if row[0] != row[1]]
        found.append(f"{loops:,} self loop{' is' if loops == 1 else 's are'} left out.")
    if weighted:
        found.append("The weights are the edge attribute weight.")
        if weighted < len(rows):
            found.append(f"{len(rows) - weighted:,} edges have no weight and get the weight 1.")
    by_number = [nodes[position] for position in np.argsort(order)]
    return Graph.checked(
        name,
        _features(network, name, by_number, features) if features else None,
        np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2).T,
        None if labels is None else [_label(network.nodes[node].get(labels)) for node in by_number],
        names=names,
        num_nodes=max(len(nodes), 1),
        weights=[_number(name, "edge", "weight", attributes.get("weight", 1)) for *_, attributes in rows]
        if weighted
        else None,
        directed=network.is_directed(),
        notes=found,
    )


def read_network_file(path: Path) -> tuple[nx.Graph, tuple[str, ...]]:
    """Read a ``.graphml`` or ``.gml`` file, plain or gzipped, and return the network and notes.

    A GraphML file with a document type (DOCTYPE) is refused, since its entities may expand without bound.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged or of another form.
    """
    network, notes = (_graphml if graph_suffix(path) == ".graphml" else _gml)(path)
    for attribute in _NAME_ATTRIBUTES:
        texts = [attributes.get(attribute) for _, attributes in network.nodes(data=True)]
        if texts and all(isinstance(text, str) and text for text in texts) and len(set(texts)) == len(texts):
            import networkx as nx

            network = nx.relabel_nodes(network, dict(zip(network.nodes, texts, strict=True)))
            return network, (*notes, f"The names of the nodes are their attribute {attribute}.")
    return network, notes


def _graphml(path: Path) -> tuple[nx.Graph, tuple[str, ...]]:
    import networkx as nx

    data = read_expanded(path, is_text=True)
    _require_plain_xml(path, data)
    try:
        return nx.read_graphml(io.BytesIO(data)), ()
    except Exception as error:  # networkx fails in many ways on another kind of XML
        raise ValueError(f"{path} cannot be read as GraphML: {_one_line(error)}") from error


def _gml(path: Path) -> tuple[nx.Graph, tuple[str, ...]]:
    import networkx as nx

    file = TextFile(path)
    try:
        blocks = list(file.blocks())
    except RestartError:
        blocks = list(file.blocks())
    text = b"".join(block.text for block in blocks).decode()
    notes = (encoding_note(file),) if file.encoding != "UTF-8" else ()
    try:
        try:
            return nx.parse_gml(text), notes
        except nx.NetworkXError as error:
            if "label" not in str(error):
                raise
            return nx.parse_gml(text, label="id"), notes
    except Exception as error:
        raise ValueError(f"{path} cannot be read as GML: {_one_line(error)}") from error


class _DoctypeError(Exception):
    """The file declares a document type."""


def _require_plain_xml(path: Path, data: bytes) -> None:
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise _DoctypeError

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except _DoctypeError:
        raise ValueError(
            f"{path}, line {parser.CurrentLineNumber}: the file declares a document type (DOCTYPE), which is refused; "
            "delete the declaration"
        ) from None
    except expat.ExpatError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: this is not valid XML: {expat.ErrorString(error.code)}"
        ) from error


def _one_line(error: Exception) -> str:
    return quoted(" ".join(str(error).split()))[1:-1] or type(error).__name__


def _features(network: nx.Graph, name: str, nodes: Sequence[Any], attributes: Sequence[str]) -> Any:
    rows: list[list[float]] = []
    for node in nodes:
        row: list[float] = []
        for attribute in attributes:
            value = network.nodes[node].get(attribute)
            items = value if isinstance(value, list | tuple | np.ndarray) else [value]
            row += [_number(name, f"node {quoted(node)}", attribute, item) for item in items]
        if rows and len(row) != len(rows[0]):
            raise ValueError(
                f"{name}: node {quoted(node)} has {len(row)} features, but the nodes before it have {len(rows[0])}"
            )
        rows.append(row)
    return np.array(rows, dtype=np.float64)


def _number(name: str, what: str, attribute: str, value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"{name}: the attribute {attribute} of {what} is {quoted(value)}, not a number") from None


def _label(value: Any) -> Any:
    return "" if value is None else str(value)
