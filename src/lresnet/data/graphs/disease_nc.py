"""Disease for node classification: a simulated epidemic on a tree of 1,044 people (Chami et al., HGCN, 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["SOURCE", "read"]

_URL = "https://raw.githubusercontent.com/HazyResearch/hgcn/master/data/disease_nc"

SOURCE = GraphSource(
    name="disease_nc",
    summary="an SIR epidemic on a tree: 1,044 nodes, 1,043 edges, 1,000 features, 2 classes",
    files=(
        File(
            "hgcn/disease_nc.edges.csv",
            f"{_URL}/disease_nc.edges.csv",
            size=7851,
            sha256="08b2dcf00db1e6a8f491af5294dee98197f1251a63bc9190d05fb4e77507782e",
        ),
        File(
            "hgcn/disease_nc.feats.npz",
            f"{_URL}/disease_nc.feats.npz",
            # No sha256: nobody who wrote this had the file.
            git_blob="a80617c2b4ccf3f96b3adc936cf3d784451e459d",
        ),
        File(
            "hgcn/disease_nc.labels.npy",
            f"{_URL}/disease_nc.labels.npy",
            size=8480,
            sha256="70be7f91a854d924f3b7ac423615d75b1f9ee2506261c44113de27cc2caadd51",
        ),
    ),
    licence="none stated by the publisher",
    citation="Chami, Ying, Re, Leskovec: Hyperbolic Graph Convolutional Neural Networks, NeurIPS 2019",
    tasks=(
        TaskSource("disease/nc", "disease_nc", splits=("disjoint", "hgcn"), metric="f1_binary", balanced=(0.10, 0.60)),
    ),
)


def read(files: Files) -> Graph:
    """Return the graph, whose nodes have two classes."""
    from lresnet.data.formats.hgcn import read_disease

    return read_disease(SOURCE.name, files)
