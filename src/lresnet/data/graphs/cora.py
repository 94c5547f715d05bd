"""Cora: citations between 2,708 machine learning papers (Planetoid, Yang et al., ICML 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph

__all__ = ["SOURCE", "read"]

_URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
_FILES = {  # name: size and sha256
    "ind.cora.x": (22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
    "ind.cora.y": (4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
    "ind.cora.tx": (148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
    "ind.cora.ty": (28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
    "ind.cora.allx": (257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
    "ind.cora.ally": (47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
    "ind.cora.graph": (59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
    "ind.cora.test.index": (5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
}

SOURCE = GraphSource(
    name="cora",
    summary="citations: 2,708 papers, 5,278 edges, 1,433 words, 7 classes",
    files=tuple(File(f"planetoid/{name}", f"{_URL}/{name}", size, sha256) for name, (size, sha256) in _FILES.items()),
    licence="MIT (the Planetoid repository)",
    citation="Yang, Cohen, Salakhutdinov: Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016",
    tasks=(
        TaskSource("cora/lp", "cora", splits=("disjoint", "hgcn")),
        TaskSource("cora/nc", "cora", splits=("public", "legacy", "class-random", "disjoint"), nodes=2708),
    ),
)


def read(files: Files) -> Graph:
    """Return the graph with its public split: 140 training, 500 validation and 1,000 test nodes."""
    from lresnet.data.formats.planetoid import read_planetoid

    return read_planetoid(SOURCE.name, files)
