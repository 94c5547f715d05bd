"""Squirrel: 2,223 Wikipedia pages about squirrels, without duplicates (Platonov et al., ICLR 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["SOURCE", "read"]

SOURCE = GraphSource(
    name="squirrel",
    summary="Wikipedia pages without duplicates: 2,223 nodes, 46,998 edges, 2,089 words, 5 classes, 10 splits",
    files=(
        File(
            "heterophilous/squirrel_filtered.npz",
            "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/squirrel_filtered.npz",
            size=208215,
            sha256="f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7",
        ),
    ),
    licence="MIT (the heterophilous-graphs repository)",
    citation="Platonov et al.: A critical look at the evaluation of GNNs under heterophily, ICLR 2023",
    tasks=(TaskSource("squirrel/nc", "squirrel", splits=("official_splits", "fresh_splits", "disjoint")),),
)


def read(files: Files) -> Graph:
    """Return the graph with its ten published splits as masks ``[n, 10]``."""
    from lresnet.data.formats.graph_arrays import read_heterophilous

    return read_heterophilous(SOURCE.name, files)
