"""Chameleon: 890 Wikipedia pages about chameleons, without duplicates (Platonov et al., ICLR 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["SOURCE", "read"]

SOURCE = GraphSource(
    name="chameleon",
    summary="Wikipedia pages without duplicates: 890 nodes, 8,854 edges, 2,325 words, 5 classes, 10 splits",
    files=(
        File(
            "heterophilous/chameleon_filtered.npz",
            "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/chameleon_filtered.npz",
            size=58924,
            sha256="bf46f07e1fb5249280447e5fe3100f3e82fc4b93ad1e13ffcfdec924b6ac0bb5",
        ),
    ),
    licence="MIT (the heterophilous-graphs repository)",
    citation="Platonov et al.: A critical look at the evaluation of GNNs under heterophily, ICLR 2023",
    tasks=(TaskSource("chameleon/nc", "chameleon", splits=("official_splits", "fresh_splits", "disjoint")),),
)


def read(files: Files) -> Graph:
    """Return the graph with its ten published splits as masks ``[n, 10]``."""
    from lresnet.data.formats.graph_arrays import read_heterophilous

    return read_heterophilous(SOURCE.name, files)
