"""Tests of the symmetric normalisation of an adjacency matrix."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from lresnet.nn import adjacency, symmetric_normalisation


@pytest.mark.parametrize("weighted", [False, True])
def test_normalisation_equals_pyg_s(weighted):
    """The graph is directed and has no self loops; node 5 is isolated."""
    edge_index = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 0, 4, 3, 3]])
    weight = torch.rand(6, generator=torch.Generator().manual_seed(0)) + 0.1 if weighted else None
    index, values = gcn_norm(edge_index, weight, num_nodes=6)
    expected = torch.zeros(6, 6).index_put((index[1], index[0]), values)
    found = symmetric_normalisation(adjacency(edge_index, 6, weight))
    torch.testing.assert_close(found @ torch.eye(6), expected)


def test_empty_rows_and_the_original_do_not_change():
    A = adjacency(torch.tensor([[0, 1], [1, 0]]), 3, torch.tensor([4.0, 4.0]), self_loops=False)
    B = symmetric_normalisation(A)
    assert B.values.tolist() == [1.0, 1.0]
    assert A.values.tolist() == [4.0, 4.0]
    assert (B @ torch.ones(3, 1)).flatten().tolist() == [1.0, 1.0, 0.0]


def test_gradients_of_edge_weights():
    edge_index = torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2]])
    x = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def product(weight: torch.Tensor) -> torch.Tensor:
        return symmetric_normalisation(adjacency(edge_index, 3, weight)) @ x

    weight = torch.tensor([0.5, 1.0, 2.0, 1.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(product, (weight,))
