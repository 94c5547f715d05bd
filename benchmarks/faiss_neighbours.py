"""Neighbours that FAISS proposes, against the exact search: python benchmarks/faiss_neighbours.py

`NearestNeighbours` searches the 10 nearest of 20,000 random points in 16 dimensions, K = -1, for 100 other points:
exactly, with a flat index of FAISS, and with its graph index HNSW. The share of the true neighbours that are found and
the median time of a search are printed. Needs FAISS: pip install "lresnet[faiss]"
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import faiss
import torch

from lresnet.geometry import NearestNeighbours

_POINTS, _DIMENSIONS, _QUERIES, _NEAREST, _REPEATS = 20_000, 16, 100, 10, 20


def hnsw(ef_search: int | None = None) -> Any:
    """Return a graph index with its default settings, except the size of its list of candidates if that is given."""
    index = faiss.IndexHNSWFlat(_DIMENSIONS + 1, 32, faiss.METRIC_INNER_PRODUCT)
    if ef_search is not None:
        index.hnsw.efSearch = ef_search
    return index


def main() -> None:
    """Search by every index and print a line for each."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    torch.manual_seed(0)
    points, queries = torch.randn(_POINTS, _DIMENSIONS), torch.randn(_QUERIES, _DIMENSIONS)
    indices: dict[str, Callable[[], NearestNeighbours]] = {
        "exact": lambda: NearestNeighbours(points, K=-1.0),
        'index="faiss"': lambda: NearestNeighbours(points, K=-1.0, index="faiss"),
        "HNSW, candidates=4": lambda: NearestNeighbours(points, K=-1.0, index=hnsw(), candidates=4),
        "HNSW, efSearch=256, candidates=8": lambda: NearestNeighbours(points, K=-1.0, index=hnsw(256), candidates=8),
    }
    true = None
    for name, build in indices.items():
        index, seconds = build(), []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            found = index.query(queries, _NEAREST).indices
            seconds.append(time.perf_counter() - start)
        true = found if true is None else true
        share = (found[:, :, None] == true[:, None, :]).any(2).double().mean()
        print(f"{name:<34} {share:>7.1%} of the {_NEAREST} nearest, {statistics.median(seconds):.4f} s")


if __name__ == "__main__":
    main()
