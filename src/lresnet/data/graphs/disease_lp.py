"""Disease for link prediction: a simulated epidemic on a tree of 2,665 people (Chami et al., HGCN, 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["SOURCE", "read"]

_URL = "https://raw.githubusercontent.com/HazyResearch/hgcn/master/data/disease_lp"

SOURCE = GraphSource(
    name="disease_lp",
    summary="an SIR epidemic on a tree: 2,665 nodes, 2,664 edges, 11 features, 2 classes",
    files=(
        File(
            "hgcn/disease_lp.edges.csv",
            f"{_URL}/disease_lp.edges.csv",
            size=22152,
            sha256="b5b7e41bbfd28fc7f61590e5587622103ee9c3aa1b59911c74873a6f328dca07",
        ),
        File(
            "hgcn/disease_lp.feats.npz",
            f"{_URL}/disease_lp.feats.npz",
            size=227859,
            sha256="b4a726b13598c036a75e1b49f08e92820553b972966ad950b8d4d5416eb339f8",
        ),
        File(
            "hgcn/disease_lp.labels.npy",
            f"{_URL}/disease_lp.labels.npy",
            size=21448,
            sha256="8f2b26602764fbb785b93775d9f71194f1f36920e185af8bc5c31aea07dde858",
        ),
    ),
    licence="none stated by the publisher",
    citation="Chami, Ying, Re, Leskovec: Hyperbolic Graph Convolutional Neural Networks, NeurIPS 2019",
    tasks=(TaskSource("disease/lp", "disease_lp", splits=("disjoint", "hgcn")),),
    row_normalised=False,
)


def read(files: Files) -> Graph:
    """Return the graph, whose nodes have two classes."""
    from lresnet.data.formats.hgcn import read_disease

    return read_disease(SOURCE.name, files)
