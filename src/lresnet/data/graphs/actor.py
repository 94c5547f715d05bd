"""Actor: 7,600 film actors, joined if they appear on the same Wikipedia page (Pei et al., ICLR 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["SOURCE", "read"]

SOURCE = GraphSource(
    name="actor",
    summary="film actors: 7,600 nodes, 26,659 edges, 932 words, 5 classes, 10 splits",
    files=(
        File(
            "heterophilous/actor.npz",
            "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/actor.npz",
            size=252956,
            sha256="c350eef06b2c2a9bf8218be2b57cac6d4003d0922eb597a039e9123f75817816",
        ),
    ),
    licence="MIT (the heterophilous-graphs repository)",
    citation=(
        "Pei et al.: Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020; "
        "Platonov et al.: A critical look at the evaluation of GNNs under heterophily, ICLR 2023"
    ),
    tasks=(TaskSource("actor/nc", "actor", splits=("official_splits", "fresh_splits", "disjoint")),),
)


def read(files: Files) -> Graph:
    """Return the graph with its ten published splits as masks ``[n, 10]``."""
    from lresnet.data.formats.graph_arrays import read_heterophilous

    return read_heterophilous(SOURCE.name, files)
