"""Airport: flight routes between 3,188 airports (Chami et al., HGCN, 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["SOURCE", "read"]

# The last feature is the scaled population of the airport's country. Its bins are the classes.
_POPULATION_BINS = (7 / 7, 8 / 7, 9 / 7)

SOURCE = GraphSource(
    name="airport",
    summary="flight routes: 3,188 airports, 18,631 routes (one from an airport to itself), 5 features, 4 classes",
    files=(
        File(
            "hgcn/airport.p",
            "https://raw.githubusercontent.com/HazyResearch/hgcn/master/data/airport/airport.p",
            size=554100,
            sha256="ab16b04cea3666e87dbd8a5bff3de68da61330f4604fa21082f7a17e806e64d8",
        ),
    ),
    licence="none stated by the publisher; made from OpenFlights data (Open Database License)",
    citation="Chami, Ying, Re, Leskovec: Hyperbolic Graph Convolutional Neural Networks, NeurIPS 2019",
    tasks=(
        TaskSource("airport/lp", "airport", splits=("disjoint", "hgcn")),
        # The class is a bin of the fifth feature, so the model must not see that feature.
        TaskSource("airport/nc", "airport", splits=("disjoint", "hgcn"), columns=4, balanced=(0.15, 0.15)),
    ),
    degree_columns=True,
)


def read(files: Files) -> Graph:
    """Return the graph with five features per node; nodes keep the order of the file."""
    import numpy as np

    from lresnet.data.formats.unpickle import PickledGraph, read_pickle, require_own_items
    from lresnet.data.graph import Graph

    path = files["airport.p"]
    graph = read_pickle(path)
    if not isinstance(graph, PickledGraph):
        raise ValueError(f"{path} does not hold a graph")
    number = {node: index for index, node in enumerate(graph.node)}
    try:
        require_own_items(path, [*graph.adj.values(), *(attributes["feat"] for attributes in graph.node.values())])
        features = np.array([attributes["feat"] for attributes in graph.node.values()], dtype=np.float64)
        pairs = [(number[a], number[b]) for a, neighbours in graph.adj.items() for b in neighbours]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: a node has no features, or an edge leads to a node that does not exist") from error
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Graph.checked(SOURCE.name, features, edges, np.digitize(features[:, -1], _POPULATION_BINS))
