"""The symmetric normalisation of an adjacency, which a graph convolution after Kipf and Welling aggregates with."""

from __future__ import annotations

import torch

from lresnet.nn.sparse import SparseMatrix

__all__ = ["symmetric_normalisation"]


def symmetric_normalisation(A: SparseMatrix) -> SparseMatrix:
    r""":math:`D^{-1/2} A D^{-1/2}` with the row sums D, differentiable in the values; made once for many products.

    Nodes without neighbours keep their empty row. Of a directed graph, rows are targets, as in PyG's GCNConv.

    Example:
        >>> from lresnet.nn import adjacency
        >>> symmetric_normalisation(adjacency(torch.tensor([[0, 1], [1, 0]]), 2)).values
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    degree = A.sum_rows(A.values).squeeze(-1)
    root = torch.where(degree > 0, degree, 1.0).rsqrt()
    return A.with_values(A.values * root[A.row] * root[A.col])
