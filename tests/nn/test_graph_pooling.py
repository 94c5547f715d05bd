"""Tests of pooling the nodes of graphs against the centroid of each graph alone, in 50 digits where it matters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lresnet import Lorentz
from lresnet.nn import CentroidPool, SpaceMean
from lresnet.nn.pooling import graph_centroid_pool, graph_space_mean
from lresnet.testing import assert_finite_gradients, assert_isometry_equivariant
from tests.families import CURVATURES, exact_centroid, exact_distance, pairs

BATCH = torch.tensor([0, 2, 2, 0, 3, 0, 2, 3])


def normals(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("K", CURVATURES)
def test_each_graph_gives_the_centroid_of_its_nodes(K):
    M, x = Lorentz(K), normals(8, 3)
    y = CentroidPool(M)(x, BATCH)
    assert y.shape == (4, 3)
    for graph in (0, 2, 3):
        torch.testing.assert_close(y[graph], M.centroid(x[graph == BATCH]), rtol=1e-13, atol=1e-13)
    assert not y[1].any()  # no nodes: the origin
    mean = SpaceMean(M)(x, BATCH)
    torch.testing.assert_close(mean[2], x[BATCH == 2].mean(0))
    assert not mean[1].any()


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", ["random", "near", "equal", "radial", "zero"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_are_accurate_far_from_the_origin(family, dtype, K):
    for norm in (1e-3, 1.0, 1e2, 1e4):
        x, y = pairs(family, norm * (-K) ** -0.5, count=3, n=4)
        points = torch.cat([x, y]).to(dtype)
        result = graph_centroid_pool(points, torch.arange(6) % 3, K=K)
        for i in range(3):
            rows = points[[i, i + 3]].double().tolist()
            exact = exact_centroid(rows, [1.0, 1.0], -K)
            error = (-K) ** 0.5 * exact_distance(result[i].double().tolist(), exact, -K)
            radius = float((1 - K * result[i].double().square().sum()).sqrt())
            assert error <= 8 * torch.finfo(dtype).eps * radius, (norm, error)


def test_first_and_second_derivatives_in_points_and_curvature():
    kappa = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
    inputs = normals(8, 2).requires_grad_(), kappa
    assert gradcheck(lambda x, K: graph_centroid_pool(x, BATCH, K=K), inputs)
    assert gradgradcheck(lambda x, K: graph_centroid_pool(x, BATCH, K=K), inputs)


def test_gradients_equal_those_of_the_centroid_far_from_the_origin():
    M = Lorentz(-1.0)
    x = (100 * normals(8, 3)).requires_grad_()
    g = normals(4, 3)
    (ours,) = torch.autograd.grad((graph_centroid_pool(x, BATCH) * g).sum(), x)
    rows = sum((M.centroid(x[graph == BATCH]) * g[graph]).sum() for graph in (0, 2, 3))
    (expected,) = torch.autograd.grad(rows, x)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_it_commutes_with_isometries_and_with_the_order_of_nodes():
    x, M = normals(8, 3), Lorentz(-0.5)
    assert_isometry_equivariant(lambda x: graph_centroid_pool(x, BATCH, K=-0.5)[[0, 2, 3]], M, x)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(graph_centroid_pool(x[order], BATCH[order]), graph_centroid_pool(x, BATCH))


def test_gradients_are_finite_at_the_origin_and_for_empty_graphs():
    assert_finite_gradients(lambda x: graph_centroid_pool(x, BATCH, 6), torch.zeros(8, 3))
    assert graph_centroid_pool(torch.empty(0, 3), torch.empty(0, dtype=torch.int64), 2).shape == (2, 3)
    assert graph_centroid_pool(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)).shape == (0, 3)


def test_half_precision_is_pooled_in_float32():
    x = normals(8, 3).to(torch.bfloat16)
    assert torch.equal(graph_centroid_pool(x, BATCH), graph_centroid_pool(x.float(), BATCH))
    assert graph_space_mean(x, BATCH).dtype == torch.float32


def test_a_wrong_batch_is_rejected():
    pool = CentroidPool(Lorentz(-1.0))
    with pytest.raises(ValueError, match=r"integer batch \[N\] as in PyG, got x \(8, 3\) and batch \(7,\)"):
        pool(normals(8, 3), BATCH[:7])
    with pytest.raises(ValueError, match="batch has graph 3, but graphs are 0 to 1"):
        pool(normals(8, 3), BATCH, 2)
    with pytest.raises(ValueError, match=r"of torch\.float32"):
        pool(normals(8, 3), BATCH.float())
