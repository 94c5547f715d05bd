"""Tests of aggregation against the centroid of the neighbours, and of the graph convolution with PyG's arguments."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.nn import LorentzGraphConv, SparseMatrix, adjacency
from lresnet.nn.graph_conv import aggregate, aggregate_with_time
from lresnet.nn.input_map import features_to_points
from lresnet.testing import assert_finite_gradients, assert_isometry_equivariant, assert_on_manifold

CURVATURES = (-0.1, -1.0, -2.0, -10.0)
NODES = 12


def normals(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def graph(edges: int = 30, seed: int = 1, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return a directed graph in which the last two nodes have no incoming edge, and the one before has one."""
    g = torch.Generator().manual_seed(seed)
    source = torch.randint(NODES, (edges,), generator=g)
    target = torch.arange(edges) % (NODES - 3)
    edge_index = torch.cat([torch.stack([source, target]), torch.tensor([[0], [NODES - 3]])], dim=1)
    return edge_index, 0.1 + torch.rand(edges + 1, generator=g, dtype=torch.float64).to(dtype)


def neighbours_centroid(x: Tensor, A: SparseMatrix, M: Lorentz) -> Tensor:
    """Return the manifold's own centroid of all points with the weights of each row."""
    weight = x.new_zeros(A.shape).index_put((A.row, A.col), A.values.to(x.dtype))
    return M.centroid(x.expand(A.shape[0], *x.shape), weight)


# --- aggregate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_aggregate_equals_the_centroid_of_the_neighbours(K, self_loops, weighted):
    M = Lorentz(K)
    edge_index, weight = graph()
    A = adjacency(edge_index, NODES, weight if weighted else None, self_loops=self_loops)
    x = 2 * normals(NODES, 3)
    y = aggregate(x, A, -K)
    torch.testing.assert_close(y, neighbours_centroid(x, A, M), rtol=1e-11, atol=1e-11)
    assert_on_manifold(y, M)


def test_gradients_equal_those_of_the_centroid():
    M = Lorentz(-2.0, learnable=True).double()
    edge_index, weight = graph()
    x, weight, g = normals(NODES, 3).requires_grad_(), weight.requires_grad_(), normals(NODES, 3, seed=3)
    A = adjacency(edge_index, NODES, weight)
    wanted = [x, weight, M.log_kappa]
    got = torch.autograd.grad((aggregate(x, A, M.kappa) * g).sum(), wanted, retain_graph=True)
    expected = torch.autograd.grad((neighbours_centroid(x, A, M) * g).sum(), wanted)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("self_loops", [True, False])
def test_first_and_second_derivatives_in_points_weights_and_curvature(self_loops):
    """x depends on kappa, as in a network."""
    edge_index, weight = graph(edges=14)
    features = normals(NODES, 2)

    def f(features: Tensor, weight: Tensor, kappa: Tensor) -> Tensor:
        A = adjacency(edge_index, NODES, weight.abs(), self_loops=self_loops)
        return aggregate(features_to_points(features, kappa).x, A, kappa)

    kappa = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    inputs = (features.requires_grad_(), weight.requires_grad_(), kappa)
    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


def test_derivatives_with_constant_edge_weights():
    """Constant and learned weights use different code."""
    edge_index, weight = graph(edges=14)
    A = adjacency(edge_index, NODES, weight)
    kappa = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def f(x: Tensor, kappa: Tensor) -> Tensor:
        return aggregate(x, A, kappa)

    inputs = (normals(NODES, 2).requires_grad_(), kappa)
    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)
    assert gradcheck(lambda x: aggregate(x, A, 2.0), inputs[:1])


def test_the_time_may_be_passed_in():
    edge_index, _ = graph()
    A = adjacency(edge_index, NODES)
    x, M = normals(NODES, 3), Lorentz(-2.0)
    with_time = torch.cat([x, 2.0**0.5 * M.time(x).unsqueeze(-1)], dim=-1)
    torch.testing.assert_close(aggregate_with_time(with_time, A, 2.0), aggregate(x, A, 2.0), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("learned_weights", [False, True])
def test_isolated_nodes_map_to_the_origin_with_finite_gradients(learned_weights):
    edge_index, weight = graph()
    weight.requires_grad_(learned_weights)
    A = adjacency(edge_index, NODES, weight, self_loops=False)
    x = normals(NODES, 3).requires_grad_()
    y = aggregate(x, A, 1.0)
    assert not y[-2:].any()
    assert y[:-2].any(-1).all()
    y.square().sum().backward()
    assert x.grad.isfinite().all()
    if learned_weights:
        assert weight.grad.isfinite().all()


def test_a_row_of_zero_weights_is_a_node_without_neighbours():
    A = adjacency(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([0.0, 1.0]), self_loops=False)
    assert_finite_gradients(lambda x: aggregate(x, A, 1.0), normals(2, 3))
    assert not aggregate(normals(2, 3), A, 1.0)[1].any()


def test_a_graph_without_edges():
    none = torch.empty(2, 0, dtype=torch.int64)
    x = normals(4, 3)
    torch.testing.assert_close(aggregate(x, adjacency(none, 4), 1.0), x)
    assert not aggregate(x, adjacency(none, 4, self_loops=False), 1.0).any()


def test_the_order_of_nodes_and_edges_does_not_matter():
    edge_index, weight = graph()
    x = normals(NODES, 3)
    y = aggregate(x, adjacency(edge_index, NODES, weight), 2.0)
    order = torch.randperm(edge_index.shape[1], generator=torch.Generator().manual_seed(4))
    shuffled = aggregate(x, adjacency(edge_index[:, order], NODES, weight[order]), 2.0)
    torch.testing.assert_close(shuffled, y, rtol=1e-13, atol=1e-13)
    nodes = torch.randperm(NODES, generator=torch.Generator().manual_seed(5))
    renamed = aggregate(x[nodes.argsort()], adjacency(nodes[edge_index], NODES, weight), 2.0)
    torch.testing.assert_close(renamed[nodes], y, rtol=1e-13, atol=1e-13)


def test_only_the_ratios_of_a_row_s_weights_matter():
    edge_index, weight = graph()
    A = adjacency(edge_index, NODES, weight)
    scale = torch.logspace(-6, 6, NODES, dtype=torch.float64)
    x = normals(NODES, 3)
    torch.testing.assert_close(aggregate(x, A.with_values(A.values * scale[A.row]), 2.0), aggregate(x, A, 2.0))


@pytest.mark.parametrize("K", [-0.5, -2.0])
def test_aggregate_commutes_with_isometries(K):
    edge_index, weight = graph()
    A = adjacency(edge_index, NODES, weight)
    assert_isometry_equivariant(lambda x: aggregate(x, A, -K), Lorentz(K), normals(NODES, 3), tolerance=1e-6)


@pytest.mark.parametrize("radius", [1.0, 1e2, 1e4, 1e6])
def test_far_points_in_float32_stay_finite_and_within_the_bound(radius):
    """The squared norm is a difference that is inaccurate for far points; its lower bound is not."""
    edge_index, weight = graph(dtype=torch.float32)
    A = adjacency(edge_index, NODES, weight)
    x = torch.nn.functional.normalize(normals(NODES, 3), dim=-1).float() * radius
    y = aggregate(x, A, 1.0)
    weighted = A @ x
    # sqrt(kappa) |S| >= the sum of the weights: no centroid is longer than the weighted mean of the space parts.
    assert (y.norm(dim=-1) <= weighted.norm(dim=-1) / A.row_sums().squeeze(-1) * (1 + 1e-6)).all()
    assert_on_manifold(y, Lorentz(-1.0))
    assert_finite_gradients(lambda x: aggregate(x, A, 1.0), x)
    one = adjacency(torch.tensor([[0], [1]]), 2, self_loops=False)  # a single neighbour attains the bound
    torch.testing.assert_close(aggregate(x[:2], one, 1.0)[1], x[0], rtol=1e-6, atol=0.0)


def test_float64_points_with_learned_float32_weights():
    edge_index, weight = graph(dtype=torch.float32)
    weight.requires_grad_()
    x = normals(NODES, 3).requires_grad_()
    aggregate(x, adjacency(edge_index, NODES, weight), 1.0).square().sum().backward()
    assert (x.grad.dtype, weight.grad.dtype) == (torch.float64, torch.float32)
    wide = weight.detach().double().requires_grad_()
    aggregate(x.detach(), adjacency(edge_index, NODES, wide), 1.0).square().sum().backward()
    torch.testing.assert_close(weight.grad, wide.grad.float())


# --- LorentzGraphConv ------------------------------------------------------------------------------------------------


def make(K: float = -2.0, dtype: torch.dtype = torch.float64, **options: object) -> LorentzGraphConv:
    torch.manual_seed(2)
    conv = LorentzGraphConv(5, 3, manifold=Lorentz(K), dtype=dtype, **options)
    with torch.no_grad():
        conv.linear.time_weight.normal_(std=0.1)
    return conv


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("self_loops", [True, False])
def test_convolution_is_the_linear_layer_followed_by_the_centroid(K, self_loops):
    conv = make(K, self_loops=self_loops)
    edge_index, weight = graph()
    x = normals(NODES, 5)
    A = adjacency(edge_index, NODES, weight, self_loops=self_loops)
    expected = neighbours_centroid(conv.linear(x), A, conv.manifold)
    torch.testing.assert_close(conv(x, edge_index, weight), expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(conv(x, A), conv(x, edge_index, weight))


def test_nodes_without_features_map_to_the_origin():
    """Before training their output has no direction: it is the origin, with the time of the origin."""
    torch.manual_seed(0)
    conv = LorentzGraphConv(5, 3, manifold=Lorentz(-2.0), dtype=torch.float64)
    edge_index, _ = graph()
    x = normals(NODES, 5)
    x[[0, 4]] = 0
    A = adjacency(edge_index, NODES)
    torch.testing.assert_close(conv(x, edge_index), neighbours_centroid(conv.linear(x), A, conv.manifold))


def test_pyg_s_argument_names():
    conv = make(dtype=torch.float32)
    edge_index, weight = graph(dtype=torch.float32)
    x = normals(NODES, 5, dtype=torch.float32)
    y = conv(x=x, edge_index=edge_index, edge_weight=weight)
    assert y.shape == (NODES, 3)
    assert y.dtype == torch.float32
    assert not torch.equal(y, conv(x, edge_index))
    assert not torch.equal(y, conv(x, edge_index.flip(0), weight))


def test_gradients_of_edge_weights():
    conv = make()
    edge_index, weight = graph()

    def f(weight: Tensor) -> Tensor:
        return conv(normals(NODES, 5), edge_index, weight.abs())

    assert gradcheck(f, (weight.requires_grad_(),))


def test_a_wrong_graph_is_rejected():
    with pytest.raises(ValueError, match="edge_index has node 12, but nodes are 0 to 11"):
        make()(normals(NODES, 5), torch.tensor([[0], [12]]))


def test_sparse_features_give_the_same_result_as_dense_ones():
    conv = make(-2.0)
    edge_index, weight = graph()
    features = normals(NODES, 5) * (normals(NODES, 5, seed=1) > 0.3)
    dense = features_to_points(features, 2.0)
    sparse = features_to_points(SparseMatrix.from_dense(features), 2.0)
    torch.testing.assert_close(conv(sparse.x, edge_index, weight, time=sparse.time), conv(dense.x, edge_index, weight))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_computed_in_float32(dtype, autocast):
    conv = make(dtype=torch.float32)
    edge_index, _ = graph()
    x = normals(NODES, 5).to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = conv(x, edge_index)
    y.float().sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    assert torch.equal(y, conv(x.detach().float(), edge_index).to(dtype))  # rounded once, at the end


def test_autocast_does_not_change_float32_results():
    conv = make(dtype=torch.float32)
    edge_index, _ = graph()
    x = normals(NODES, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = conv(x, edge_index)
    assert torch.equal(y, conv(x, edge_index))


def test_state_options_and_copy():
    conv = make(floor=0.1, initial_scale=3.0)
    names = ["linear.weight", "linear.time_weight", "linear.bias", "linear.log_scale"]
    assert list(conv.state_dict()) == ["_extra_state", *names]  # the curvature first
    assert (conv.linear.floor, conv.linear.initial_scale) == (0.1, 3.0)
    copied = copy.deepcopy(conv)
    assert copied.manifold is copied.linear.manifold is not conv.manifold
