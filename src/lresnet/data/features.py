"""Features as the literature feeds them, or as one should."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lresnet.data.graph import Features, Graph, dense

__all__ = ["FeatureKind", "prepare_features"]

FeatureKind = Literal["published", "standardised", "raw"]

_HIGHEST_DEGREE = 5  # airports: degrees from here on share a column

# Left as they are in the literature; all others are divided by their row sums.
_UNNORMALISED = {"disease_lp", "disease_tree"}


def prepare_features(graph: Graph, edge_index: Tensor, kind: FeatureKind, columns: int | None = None) -> Tensor:
    """The features of ``graph`` as a model's input.

    Args:
        graph: as read.
        edge_index: the graph that may be seen in training, ``[2, 2 e]``; airport's features count degrees in it.
        kind: ``"published"``: each row divided by its sum (disease_lp and disease_tree: as they are), and for airport,
            after that, the degree, one-hot and cut at 5, and a constant 1 as further columns. ``"standardised"``: each
            column with mean 0 and deviation 1, then airport's further columns. ``"raw"``: as in the files.
        columns: how many of the raw columns to use; None: all.

    Returns:
        ``[n, f]``, float32.
    """
    if kind not in ("published", "standardised", "raw"):
        raise ValueError(f'features={kind!r}; choose "published", "standardised" or "raw"')
    raw = graph.features if columns is None else graph.features[:, :columns]
    if kind == "raw":
        return dense(raw)
    if kind == "standardised":
        x = _standardised(raw)
    else:
        x = dense(raw if graph.name in _UNNORMALISED else _row_normalised(raw))
    if graph.name == "airport":
        x = torch.cat([x, _degree_columns(edge_index, graph.num_nodes), torch.ones(graph.num_nodes, 1)], dim=1)
    return x


def _row_normalised(features: Features) -> Features:
    """Each row divided by its sum; a row of sum zero becomes zero."""
    total = np.asarray(features.sum(axis=1)).reshape(-1, 1)
    with np.errstate(divide="ignore"):
        factor = np.where(total == 0, 0.0, 1 / total)
    return features * factor if isinstance(features, np.ndarray) else features.multiply(factor).tocsr()


def _standardised(features: Features) -> Tensor:
    x = dense(features)
    deviation, mean = torch.std_mean(x, dim=0, correction=0)
    return (x - mean) / torch.where(deviation > 0, deviation, 1.0)


def _degree_columns(edge_index: Tensor, nodes: int) -> Tensor:
    degree = torch.bincount(edge_index[0], minlength=nodes).clamp_max(_HIGHEST_DEGREE)
    return torch.nn.functional.one_hot(degree, _HIGHEST_DEGREE + 1).float()
