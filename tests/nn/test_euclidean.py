"""Tests of the Euclidean baseline's graph convolution: a linear layer, then the mean of the neighbours."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.nn import EuclideanGraphConv, SparseMatrix, adjacency
from lresnet.nn.graph_conv import aggregate
from lresnet.nn.sparse import mean_normalisation

NODES = 9


def graph(weighted: bool) -> tuple[Tensor, Tensor | None]:
    """Return an undirected graph with both directions of every edge; the last node is isolated."""
    g = torch.Generator().manual_seed(0)
    one_way = torch.combinations(torch.arange(NODES - 1))[torch.randperm(28, generator=g)[:12]].T
    edge_index = torch.cat([one_way, one_way.flip(0)], dim=1)
    weight = torch.rand(12, generator=g, dtype=torch.float64).repeat(2) + 0.1
    return edge_index, weight if weighted else None


def features() -> Tensor:
    return torch.randn(NODES, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loops", [True, False])
def test_each_row_is_the_weighted_mean_of_its_neighbours(weighted, self_loops):
    torch.manual_seed(0)
    conv = EuclideanGraphConv(5, 3, self_loops=self_loops).double()
    edge_index, weight = graph(weighted)
    y = conv(features(), edge_index, weight)
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    dense[edge_index[1], edge_index[0]] = 1.0 if weight is None else weight
    if self_loops:
        dense += torch.eye(NODES, dtype=torch.float64)
    total = dense.sum(1, keepdim=True)
    expected = dense @ conv.linear(features()) / torch.where(total > 0, total, 1.0)
    torch.testing.assert_close(y, expected)
    assert bool(y[-1].any()) == self_loops


def test_the_mean_is_the_flat_limit_of_the_centroid():
    edge_index, weight = graph(True)
    A = adjacency(edge_index, NODES, weight)
    torch.testing.assert_close(aggregate(features(), A, 1e-12), mean_normalisation(A) @ features())


def test_the_bias_is_added_before_the_aggregation():
    conv = EuclideanGraphConv(5, 3).double()
    with torch.no_grad():
        conv.linear.bias.normal_()
    edge_index, _ = graph(False)
    A = mean_normalisation(adjacency(edge_index, NODES).to(dtype=torch.float64))
    torch.testing.assert_close(conv(features(), edge_index), A @ conv.linear(features()))
    assert torch.equal(conv(features(), A), conv(features(), edge_index))


def test_mean_normalisation_does_not_change_empty_rows_or_the_original():
    A = adjacency(torch.tensor([[0, 1], [1, 0]]), 3, torch.tensor([4.0, 4.0]), self_loops=False)
    B = mean_normalisation(A)
    assert B.values.tolist() == [1.0, 1.0]
    assert A.values.tolist() == [4.0, 4.0]
    assert (B @ torch.ones(3, 1)).flatten().tolist() == [1.0, 1.0, 0.0]


def test_sparse_features_give_the_same_result_as_dense_ones():
    conv = EuclideanGraphConv(5, 3).double()
    edge_index, weight = graph(True)
    x = features() * (features() > 0)
    gradients = []
    for kind in (x, SparseMatrix.from_dense(x)):
        conv.zero_grad()
        conv(kind, edge_index, weight).square().sum().backward()
        gradients.append([p.grad.clone() for p in conv.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_autocast_is_close_to_float32():
    conv = EuclideanGraphConv(5, 3)
    edge_index, _ = graph(False)
    x = features().float()
    with torch.autocast("cpu", torch.bfloat16):
        y = conv(x, edge_index)
    y.float().sum().backward()
    torch.testing.assert_close(y.float(), conv(x, edge_index), rtol=0.02, atol=0.02)


def test_state_dict_and_initial_bias():
    conv = EuclideanGraphConv(5, 3)
    assert list(conv.state_dict()) == ["linear.weight", "linear.bias"]
    assert not conv.linear.bias.any()


def test_gradients_of_edge_weights_include_the_normalisation():
    edge_index, weight = graph(weighted=True)
    assert weight is not None
    torch.manual_seed(0)
    conv, x = EuclideanGraphConv(5, 2).double(), features()
    assert torch.autograd.gradcheck(lambda w: conv(x, edge_index, w), (weight.requires_grad_(),))
