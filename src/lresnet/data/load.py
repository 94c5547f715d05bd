"""A graph by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lresnet.data.arrays import read_heterophilous, read_wordnet
from lresnet.data.files import Root, dataset_files
from lresnet.data.graph import Graph
from lresnet.data.hgcn import read_airport, read_disease
from lresnet.data.planetoid import read_planetoid
from lresnet.data.registry import dataset
from lresnet.data.synthetic import disease_tree

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["load_graph", "read_graph"]

_READERS: dict[str, Callable[[str, dict[str, Path]], Graph]] = {
    "disease_lp": read_disease,
    "disease_nc": read_disease,
    "airport": read_airport,
    "cora": read_planetoid,
    "pubmed": read_planetoid,
    "chameleon": read_heterophilous,
    "squirrel": read_heterophilous,
    "actor": read_heterophilous,
    "wordnet": read_wordnet,
}


def read_graph(name: str, root: Root = None) -> Graph:
    """The graph ``name`` as its files have it: see :class:`~lresnet.data.graph.Graph`.

    Args:
        name: a name of :data:`lresnet.data.registry.DATASETS`.
        root: the data roots, see :func:`lresnet.data.files.data_roots`.

    Raises:
        FileNotFoundError: a file is neither under a root nor to be downloaded.
        ValueError: there is no such data set, or a file is not what it should be.
    """
    entry = dataset(name)
    if entry.name == "disease_tree":
        return disease_tree()
    if name not in _READERS:
        raise ValueError(f"{name} is a set of images, not a graph; lresnet.data.load_images reads it")
    return _READERS[name](name, dataset_files(name, root))


def load_graph(name: str, root: Root = None) -> Data:
    """The graph ``name`` as PyG ``Data``.

    Args:
        name: ``"disease_tree"`` (needs no file), ``"disease_lp"``, ``"disease_nc"``, ``"airport"``, ``"cora"``,
            ``"pubmed"``, ``"chameleon"``, ``"squirrel"``, ``"actor"`` or ``"wordnet"``.
        root: the data roots: a folder or several; None: ``LRESNET_DATA``, and without it the user's cache folder.

    Returns:
        ``x`` float32 ``[n, f]`` as published, ``edge_index`` int64 ``[2, 2e]`` in both directions without self loops
        or repetitions, ``y`` int64 ``[n]``, and the official masks where there are any (``[n]``; ``[n, 10]`` for
        chameleon, squirrel and actor).

    Example:
        >>> load_graph("disease_tree")
        Data(x=[1000, 6], edge_index=[2, 1998], num_nodes=1000, y=[1000])
    """
    return read_graph(name, root).to_data()
