"""PubMed: citations between 19,717 papers on diabetes (Planetoid, Yang et al., ICML 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["SOURCE", "read"]

_URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
_FILES = {  # name: size and sha256
    "ind.pubmed.x": (23172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
    "ind.pubmed.y": (854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
    "ind.pubmed.tx": (405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
    "ind.pubmed.ty": (12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
    "ind.pubmed.allx": (7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
    "ind.pubmed.ally": (224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
    "ind.pubmed.graph": (471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
    "ind.pubmed.test.index": (6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
}

SOURCE = GraphSource(
    name="pubmed",
    summary="citations: 19,717 papers, 44,324 edges, 500 tf-idf words, 3 classes",
    files=tuple(File(f"planetoid/{name}", f"{_URL}/{name}", size, sha256) for name, (size, sha256) in _FILES.items()),
    licence="MIT (the Planetoid repository)",
    citation="Yang, Cohen, Salakhutdinov: Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016",
    tasks=(
        TaskSource("pubmed/lp", "pubmed", splits=("disjoint", "hgcn")),
        TaskSource("pubmed/nc", "pubmed", splits=("public", "legacy", "class-random", "disjoint"), nodes=19717),
    ),
)


def read(files: Files) -> Graph:
    """Return the graph with its public split: 60 training, 500 validation and 1,000 test nodes."""
    from lresnet.data.formats.planetoid import read_planetoid

    return read_planetoid(SOURCE.name, files)
